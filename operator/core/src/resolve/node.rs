// SPDX-License-Identifier: Apache-2.0
//! The node pods.

use std::collections::BTreeMap;

use cinder_csi_crds::{CinderCSIDriverSpec, NodeRegistration, NodeUpdateType, Resources};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::regions;

/// The node pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// How the pods change the kubelet's registry of plugins.
    pub registration: Registration,
    /// The program of the pod that changes it.
    pub registrar: NodeRegistration,
    /// Root directory of the kubelet.
    pub kubelet_dir: String,
    /// Whether the pods use the network of their nodes.
    pub host_network: bool,
    /// Port of the driver's metrics on every node. The next port is for probes.
    pub http_port: u16,
    /// Labels of the nodes where the pods run.
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Option<Vec<Toleration>>,
    pub affinity: Option<Affinity>,
    pub priority_class_name: String,
    /// Labels in addition to our own.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations in addition to our own.
    pub pod_annotations: BTreeMap<String, String>,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// How old pods are replaced.
    pub update: NodeUpdateType,
    /// Maximum number of nodes without the driver during an update.
    pub max_unavailable: IntOrString,
    /// Key of the taint that the operator removes when the driver is registered.
    pub startup_taint: Option<String>,
    /// Maximum number of volumes on a node. `None` if the driver counts it.
    pub max_volumes: Option<u32>,
    /// Whether each node reports the region in its label.
    pub reports_region: bool,
}

impl Node {
    /// Port of the driver's server for probes.
    pub fn health_port(&self) -> u16 {
        self.http_port.saturating_add(1)
    }
}

/// How the node pods change the kubelet's registry of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// They register the driver.
    #[default]
    Register,
    /// They end the registration, before the driver is removed.
    Unregister,
}

/// Applies the defaults of the node pods.
pub(super) fn node(spec: &CinderCSIDriverSpec, driver_name: &str) -> Node {
    let node = &spec.node;
    Node {
        registration: Registration::Register,
        registrar: node.registration,
        kubelet_dir: node.kubelet_dir.clone(),
        host_network: node.host_network,
        http_port: node.http_port,
        node_selector: node.node_selector.clone(),
        tolerations: node.tolerations.clone(),
        affinity: node.affinity.clone(),
        priority_class_name: node.priority_class_name.clone(),
        pod_labels: node.pod_labels.clone(),
        pod_annotations: node.pod_annotations.clone(),
        resources: node.resources.clone(),
        update: node.update.kind,
        max_unavailable: node.update.max_unavailable.clone(),
        startup_taint: startup_taint(spec, driver_name),
        max_volumes: spec.block_storage.node_volume_attach_limit,
        reports_region: regions::are_reported(spec),
    }
}

/// Returns the key of the taint that keeps pods off nodes without a registered driver. `None` if the spec has no such
/// taint.
fn startup_taint(spec: &CinderCSIDriverSpec, driver_name: &str) -> Option<String> {
    let taint = &spec.node.startup_taint;
    let key = || {
        taint
            .key
            .clone()
            .unwrap_or_else(|| format!("{driver_name}/agent-not-ready"))
    };
    taint.enabled.then(key)
}

/// Returns the number of ports of a node pod.
pub(super) fn ports(registrar: NodeRegistration) -> u16 {
    match registrar {
        NodeRegistration::Integrated => 2,
        // livenessprobe and node-driver-registrar.
        NodeRegistration::Sidecar => 4,
    }
}
