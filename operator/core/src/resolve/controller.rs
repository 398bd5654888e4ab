// SPDX-License-Identifier: Apache-2.0
//! The controller's pods and the sidecars in them.

use std::collections::BTreeMap;

use cinder_csi_crds::{ControllerSpec, Resources, SidecarName};
use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};

use super::{Environment, HoldScope, SpecHold};
use crate::cluster::{OptionalApi, OptionalApis};
use crate::problem::Problem;
use crate::reasons::Degraded;
use crate::releases::{COMPONENTS, Component, ImageSet, sidecars};

/// The controller's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// How many.
    pub replicas: i32,
    /// On which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// In spite of which taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// Near or far from what.
    pub affinity: Option<Affinity>,
    /// How they spread.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
    /// How important.
    pub priority_class_name: String,
    /// Labels besides our own.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations besides our own.
    pub pod_annotations: BTreeMap<String, String>,
    /// Whether they use the network of their node.
    pub host_network: bool,
    /// Port of the driver; the sidecars have the ones after it.
    pub http_port: u16,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// The containers beside the driver, in their order.
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

/// How a sidecar works. Times are written as Go reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    /// Which one.
    pub component: Component,
    /// Its HTTP port.
    pub port: u16,
    /// For one answer of the driver.
    pub timeout: String,
    /// Volumes at once.
    pub worker_threads: i32,
    /// Its feature gates.
    pub feature_gates: BTreeMap<String, bool>,
    /// Resources of the container.
    pub resources: Option<Resources>,
}

/// Decides the defaults of the controller's pods.
pub(super) fn controller(
    spec: &ControllerSpec,
    env: &Environment,
    images: &ImageSet,
    apis: OptionalApis,
    snapshots: bool,
) -> Controller {
    let replicas = spec.replicas.unwrap_or(if env.nodes >= 2 { 2 } else { 1 });
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
        sidecars: sidecars(spec, |component| gates(component, env, images, apis), snapshots),
        cross_namespace_sources: spec.cross_namespace_sources,
    }
}

/// csi-provisioner waits for ever for a kind that the cluster does not have, and creates no volume.
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

/// How many ports the controller's pods have.
pub(super) const PORTS: u16 = 6;

fn sidecars(
    spec: &ControllerSpec,
    gates: impl Fn(Component) -> BTreeMap<String, bool>,
    snapshots: bool,
) -> Vec<Sidecar> {
    let named = COMPONENTS.iter().filter_map(|row| Some((row, row.sidecar?)));
    // The ports follow the two of the driver. They do not depend on which sidecars run.
    let sidecars = (2..).zip(named).filter_map(|(place, (row, name))| {
        let settings = spec.sidecars.iter().find(|settings| settings.name == name);
        let is_enabled = settings.and_then(|settings| settings.enabled).unwrap_or(true);
        // Without the API of snapshots csi-snapshotter ends again and again.
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

/// Adds the gate of volumes from other namespaces, which every supported release knows.
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

/// What the release needs in this cluster.
fn gates(component: Component, env: &Environment, images: &ImageSet, apis: OptionalApis) -> BTreeMap<String, bool> {
    let release = images.get(component).and_then(|image| image.release.as_ref());
    release
        .map(|release| sidecars::gates(component, release, env.kubernetes_version, apis))
        .unwrap_or_default()
}
