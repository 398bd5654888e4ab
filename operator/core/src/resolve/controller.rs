// SPDX-License-Identifier: Apache-2.0
//! The controller pods and their sidecars.

use std::collections::BTreeMap;

use cinder_csi_crds::{ControllerSpec, Resources, SidecarName};
use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};

use super::hold::{HoldScope, SpecHold};
use crate::cluster::{OptionalApi, OptionalApis};
use crate::problem::Problem;
use crate::reasons::Degraded;
use crate::releases::{COMPONENTS, Component};

/// The controller pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    pub replicas: i32,
    /// Labels of the nodes where the pods may run.
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Option<Vec<Toleration>>,
    pub affinity: Option<Affinity>,
    /// Topology spread constraints.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
    pub priority_class_name: String,
    /// Labels in addition to our own.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations in addition to our own.
    pub pod_annotations: BTreeMap<String, String>,
    /// Whether the pods use the network of their node.
    pub host_network: bool,
    /// Port of the driver. The sidecars use the ports after it.
    pub http_port: u16,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// The sidecars, in order.
    pub sidecars: Vec<Sidecar>,
    /// Whether csi-provisioner reads ReferenceGrants.
    pub cross_namespace_sources: bool,
}

impl Controller {
    /// Port of the driver's server for probes.
    pub fn health_port(&self) -> u16 {
        self.http_port.saturating_add(1)
    }

    /// Whether a sidecar runs.
    pub fn runs(&self, name: SidecarName) -> bool {
        let mut names = self.sidecars.iter().map(|sidecar| sidecar.component.row().sidecar);
        names.any(|sidecar| sidecar == Some(name))
    }
}

/// Settings of a sidecar. Durations are in the notation of Go.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    pub component: Component,
    /// HTTP port.
    pub port: u16,
    /// Timeout of one call to the driver.
    pub timeout: String,
    /// Number of volumes in parallel.
    pub worker_threads: i32,
    pub feature_gates: BTreeMap<String, bool>,
    /// Resources of the container.
    pub resources: Option<Resources>,
}

/// Applies the defaults of the controller pods. `gates` returns the feature gates of a sidecar in this cluster.
pub(super) fn controller(
    spec: &ControllerSpec,
    nodes: usize,
    gates: impl Fn(Component) -> BTreeMap<String, bool>,
    snapshots: bool,
) -> Controller {
    let replicas = spec.replicas.unwrap_or(if nodes >= 2 { 2 } else { 1 });
    Controller {
        replicas,
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        affinity: spec.affinity.clone(),
        spread: spec.topology_spread_constraints.clone(),
        priority_class_name: spec.priority_class_name.clone(),
        pod_labels: spec.pod_labels.clone(),
        pod_annotations: spec.pod_annotations.clone(),
        host_network: spec.host_network,
        http_port: spec.http_port,
        resources: spec.resources.clone(),
        sidecars: sidecars(spec, gates, snapshots),
        cross_namespace_sources: spec.cross_namespace_sources,
    }
}

/// csi-provisioner waits indefinitely for a missing kind, and creates no volume.
pub(super) fn problem(spec: &ControllerSpec, apis: OptionalApis) -> Option<SpecHold> {
    let lacks_grants = spec.cross_namespace_sources && !apis.reference_grants;
    let (group_version, _) = OptionalApi::ReferenceGrants.resources();
    let problem = || Problem {
        reason: Degraded::InvalidSpec,
        message: format!(
            "spec.controller.crossNamespaceSources is true, and the cluster does not serve ReferenceGrants of {group_version}: \
             install the definitions of the Gateway API, or set the field to false. The controller keeps its last applied content"
        ),
    };
    lacks_grants.then(|| SpecHold::new(problem(), HoldScope::controller()))
}

/// Number of ports of the controller pods.
pub(super) const PORTS: u16 = 6;

fn sidecars(
    spec: &ControllerSpec,
    gates: impl Fn(Component) -> BTreeMap<String, bool>,
    snapshots: bool,
) -> Vec<Sidecar> {
    let named = COMPONENTS.iter().filter_map(|row| Some((row, row.sidecar?)));
    // The ports follow the two of the driver. They do not depend on the set of running sidecars.
    let sidecars = (2..).zip(named).filter_map(|(place, (row, name))| {
        let settings = spec.sidecars.iter().find(|settings| settings.name == name);
        let is_enabled = settings.and_then(|settings| settings.enabled).unwrap_or(true);
        // Without the snapshot API, csi-snapshotter restarts repeatedly.
        let runs = is_enabled && (name != SidecarName::Snapshotter || snapshots);
        runs.then(|| Sidecar {
            component: row.component,
            port: spec.http_port.saturating_add(place),
            timeout: settings
                .and_then(|settings| settings.timeout.clone())
                .unwrap_or_else(|| row.timeout.to_owned()),
            worker_threads: settings.and_then(|settings| settings.worker_threads).unwrap_or(100),
            feature_gates: with_source_gate(spec, row.component, gates(row.component)),
            resources: settings.and_then(|settings| settings.resources.clone()),
        })
    });
    sidecars.collect()
}

/// Adds the feature gate of volumes from other namespaces, which every supported release has.
fn with_source_gate(
    spec: &ControllerSpec,
    component: Component,
    mut gates: BTreeMap<String, bool>,
) -> BTreeMap<String, bool> {
    if spec.cross_namespace_sources && component == Component::Provisioner {
        gates.insert("CrossNamespaceVolumeDataSource".to_owned(), true);
    }
    gates
}
