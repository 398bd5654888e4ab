// SPDX-License-Identifier: Apache-2.0
//! The environment of the containers of the other installation: directories, certificates, names and networks.

use std::collections::BTreeMap;

use cinder_csi_crds::CinderCSIDriverSpec;
use csi_sources::UntrustedText;

use super::difference::{Difference, Differences};
use crate::migration::finding::{AdoptionFinding, AdoptionFindingReason};
use crate::text::join_truncated;

/// A label that has the same value on every node.
const OPERATING_SYSTEM: &str = "kubernetes.io/os";
const CLUSTER_FIRST: &str = "ClusterFirst";
const CLUSTER_FIRST_ON_HOST: &str = "ClusterFirstWithHostNet";

/// The pods of a workload of the other installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldPods {
    /// Kind, namespace and name of the workload.
    pub workload: String,
    /// Whether a container serves the controller.
    pub serves_controller: bool,
    /// Whether they are node pods: they mount the directory of the driver's socket.
    pub is_of_nodes: bool,
    /// Root directory of the kubelet, derived from the directory of the driver's socket.
    pub kubelet_dir: Option<String>,
    /// Labels of the nodes where they run.
    pub node_selector: BTreeMap<String, String>,
    /// Whether they use the network of their nodes.
    pub host_network: bool,
    /// DNS policy.
    pub dns_policy: Option<String>,
    /// Name servers, search domains and options of the pods.
    pub dns_settings: Vec<String>,
    /// Entries of /etc/hosts: an address and its names.
    pub host_aliases: Vec<String>,
    /// Variables and mounts with which containers of the driver trust further authorities.
    pub authorities: Vec<String>,
}

/// Returns the differences between these pods and the operator's pods.
pub(super) fn findings(spec: &CinderCSIDriverSpec, pods: &[OldPods]) -> Vec<AdoptionFinding> {
    let mut differences = Differences::default();
    for one in pods {
        if one.is_of_nodes {
            kubelet_dir(spec, one, &mut differences);
        }
        if one.serves_controller {
            network(spec, one, &mut differences);
            authorities(spec, one, &mut differences);
        }
    }
    node_selectors(spec, pods, &mut differences);
    differences.into_findings()
}

fn of_pods(subject: &str, message: String, remedy: impl Into<String>) -> Difference {
    Difference::new(AdoptionFindingReason::Environment, subject, message, remedy)
}

fn joined(texts: &[String]) -> String {
    let shown: Vec<String> = texts
        .iter()
        .map(|text| UntrustedText::with_limit(text, 200).to_string())
        .collect();
    join_truncated(&shown)
}

fn kubelet_dir(spec: &CinderCSIDriverSpec, pods: &OldPods, differences: &mut Differences) {
    let Some(old) = pods.kubelet_dir.as_deref() else { return };
    let (old, new) = (UntrustedText::new(old).to_string(), &spec.node.kubelet_dir);
    if old != *new {
        let message = format!("the kubelet's directory is {old}, and this driver uses {new}: its pods would not start");
        let remedy = format!("Set spec.node.kubeletDir to {old}");
        differences.add(of_pods("the kubelet's directory", message, remedy), &pods.workload);
    }
}

/// Returns a label that the pods of all node workloads need. Several workloads divide the nodes among them.
fn node_selectors(spec: &CinderCSIDriverSpec, pods: &[OldPods], differences: &mut Differences) {
    let of_nodes: Vec<&OldPods> = pods
        .iter()
        .filter(|one| one.is_of_nodes && !one.serves_controller)
        .collect();
    let Some((first, others)) = of_nodes.split_first() else {
        return;
    };
    for (label, value) in first
        .node_selector
        .iter()
        .filter(|(label, _)| *label != OPERATING_SYSTEM)
    {
        let is_common = others.iter().all(|one| one.node_selector.get(label) == Some(value));
        if !is_common || spec.node.node_selector.get(label) == Some(value) {
            continue;
        }
        let pair = UntrustedText::new(&format!("{label}={value}")).to_string();
        let message = format!("its pods run on nodes with the label {pair}, and those of this driver also on others");
        let remedy = format!("Add {pair} to spec.node.nodeSelector, unless all nodes are servers of the cloud");
        for one in &of_nodes {
            differences.add(
                of_pods("labels of nodes", message.clone(), remedy.as_str()),
                &one.workload,
            );
        }
    }
}

impl OldPods {
    /// Returns the policy as the kubelet interprets it: on the network of the node, `ClusterFirst` is `Default`.
    fn effective_dns_policy(&self) -> &str {
        match self.dns_policy.as_deref().unwrap_or(CLUSTER_FIRST) {
            CLUSTER_FIRST if self.host_network => "Default",
            policy => policy,
        }
    }
}

/// Compares the network path from the controller to the cloud. Nodes send no requests to OpenStack.
fn network(spec: &CinderCSIDriverSpec, pods: &OldPods, differences: &mut Differences) {
    let is_on_host = spec.controller.host_network;
    if pods.host_network && !is_on_host {
        let message = "the controller reaches the cloud through the network of its node, and this driver's through the network of pods";
        let remedy = "Set spec.controller.hostNetwork to true where only nodes reach the cloud";
        differences.add(of_pods("hostNetwork", message.to_owned(), remedy), &pods.workload);
    }
    let is_overridden = |field: &str| spec.overrides.iter().any(|change| change.patch.contains(field));
    let (old, new) = (
        pods.effective_dns_policy(),
        if is_on_host {
            CLUSTER_FIRST_ON_HOST
        } else {
            CLUSTER_FIRST
        },
    );
    // Both query the resolver of the cluster first.
    let is_same = old == new || [CLUSTER_FIRST, CLUSTER_FIRST_ON_HOST].contains(&old);
    if !is_same && !is_overridden("dnsPolicy") {
        let message = format!(
            "the controller resolves names by the policy {}, and this driver's by {new}",
            UntrustedText::new(old).quoted()
        );
        let remedy = "Set dnsPolicy by spec.overrides where the resolver of the cluster does not know the cloud (docs/overrides.md)";
        differences.add(of_pods("dnsPolicy", message, remedy), &pods.workload);
    }
    if !pods.dns_settings.is_empty() && !is_overridden("dnsConfig") {
        let message = format!(
            "the controller resolves names with {}, and this driver's without",
            joined(&pods.dns_settings)
        );
        let remedy = "Set dnsConfig by spec.overrides where the cloud needs it (docs/overrides.md)";
        differences.add(of_pods("dnsConfig", message, remedy), &pods.workload);
    }
    if !pods.host_aliases.is_empty() && !is_overridden("hostAliases") {
        let message = format!(
            "the controller has entries of /etc/hosts ({}), and this driver's has none",
            joined(&pods.host_aliases)
        );
        let remedy = "Set hostAliases by spec.overrides, or have the names resolved by DNS (docs/overrides.md)";
        differences.add(of_pods("hostAliases", message, remedy), &pods.workload);
    }
}

fn authorities(spec: &CinderCSIDriverSpec, pods: &OldPods, differences: &mut Differences) {
    let missing = spec.clouds.iter().filter(|cloud| cloud.ca_bundle_ref.is_none());
    let missing: Vec<String> = missing
        .map(|cloud| format!("spec.clouds[{}].caBundleRef", cloud.name))
        .collect();
    if pods.authorities.is_empty() || missing.is_empty() {
        return;
    }
    let message = format!(
        "the driver trusts the authorities of {}, and this driver the public ones",
        joined(&pods.authorities)
    );
    let remedy = format!(
        "Name the certificates in {}, where the cloud needs them",
        join_truncated(&missing)
    );
    differences.add(of_pods("certificates of authorities", message, remedy), &pods.workload);
}
