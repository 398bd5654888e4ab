// SPDX-License-Identifier: Apache-2.0
//! The nodes' pods.

use std::collections::BTreeMap;

use cinder_csi_crds::{CinderCSIDriverSpec, NodeRegistration, NodeUpdateType, Resources};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::regions;

/// The nodes' pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What the pods do about the kubelet's registry of plugins.
    pub registration: Registration,
    /// Which program of the pod does it.
    pub registrar: NodeRegistration,
    /// The kubelet's root directory.
    pub kubelet_dir: String,
    /// Whether the pods use the network of their nodes.
    pub host_network: bool,
    /// Port of the driver's metrics on every node. The port for probes is the next one.
    pub http_port: u16,
    /// On which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// In spite of which taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// Near or far from what.
    pub affinity: Option<Affinity>,
    /// How important.
    pub priority_class_name: String,
    /// Labels besides our own.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations besides our own.
    pub pod_annotations: BTreeMap<String, String>,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// Who replaces the pods.
    pub update: NodeUpdateType,
    /// How many nodes may be without the driver during an update.
    pub max_unavailable: IntOrString,
    /// The taint that goes once the driver is registered, by its key.
    pub startup_taint: Option<String>,
    /// Most volumes of a node, where it is not to count.
    pub max_volumes: Option<u32>,
    /// Whether each node reports the region that it is labelled with.
    pub reports_region: bool,
}

impl Node {
    /// Port of the driver's server for probes.
    pub fn health_port(&self) -> u16 {
        self.http_port.saturating_add(1)
    }
}

/// What the pods on the nodes do about the kubelet's registry of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// They register the driver.
    #[default]
    Register,
    /// They end the registration, as the step before the driver is taken away.
    Unregister,
}

/// Decides the defaults of the nodes' pods.
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

/// The key of the taint that keeps pods from nodes where the driver is not registered; none where nobody asked for one.
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

/// The ports of a node's pod, from the first one on.
pub(super) fn ports(registrar: NodeRegistration) -> u16 {
    match registrar {
        NodeRegistration::Integrated => 2,
        // livenessprobe and node-driver-registrar.
        NodeRegistration::Sidecar => 4,
    }
}
