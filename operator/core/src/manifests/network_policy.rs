// SPDX-License-Identifier: Apache-2.0
//! Who may talk to the controller's pods, and whom they may talk to.

use cinder_csi_crds::NetworkPolicyMode;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use crate::resolve::Resolved;

/// DNS, in pods of the cluster and on nodes; 5353 is where some distributions' DNS pods listen behind their Service.
const DNS_PORTS: [i32; 2] = [53, 5353];
/// The policy of the controller's pods; none where it is not wanted, and for pods on the network of their node, which policies do
/// not reach.
pub(super) fn policy(resolved: &Resolved) -> Option<NetworkPolicy> {
    if resolved.network_policy.mode == NetworkPolicyMode::Disabled || resolved.controller.host_network {
        return None;
    }
    Some(NetworkPolicy {
        metadata: metadata::namespaced(
            resolved,
            format!("{}-controller", resolved.name_prefix),
            ComponentLabel::Controller,
        ),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(metadata::selector(resolved, ComponentLabel::Controller)),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            // Metrics, for whoever scrapes them. The kubelet's checks come from the node and are never kept out.
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(metrics_ports(resolved)),
                ..NetworkPolicyIngressRule::default()
            }]),
            egress: Some(egress()),
        }),
    })
}

fn metrics_ports(resolved: &Resolved) -> Vec<NetworkPolicyPort> {
    let controller = &resolved.controller;
    let sidecars = controller.sidecars.iter().map(|sidecar| sidecar.port);
    std::iter::once(controller.http_port)
        .chain(sidecars)
        .map(|number| port("TCP", Some(i32::from(number))))
        .collect()
}

fn egress() -> Vec<NetworkPolicyEgressRule> {
    let dns = DNS_PORTS
        .into_iter()
        .flat_map(|number| [port("UDP", Some(number)), port("TCP", Some(number))])
        .collect();
    // Which ports a cloud's endpoints have is not known before the first login.
    let cloud = vec![port("TCP", None)];
    // By port and not by address: those of API servers and clouds are not known to the cluster by labels.
    [dns, cloud]
        .into_iter()
        .map(|ports| NetworkPolicyEgressRule {
            ports: Some(ports),
            ..NetworkPolicyEgressRule::default()
        })
        .collect()
}

fn port(protocol: &str, number: Option<i32>) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.into()),
        port: number.map(IntOrString::Int),
        ..NetworkPolicyPort::default()
    }
}
