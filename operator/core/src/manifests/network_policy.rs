// SPDX-License-Identifier: Apache-2.0
//! The network policies of the driver's pods.

use cinder_csi_crds::NetworkPolicyMode;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use super::operand::Stage;
use crate::resolve::Resolved;

/// DNS ports, in pods of the cluster and on nodes. Some distributions' DNS pods listen on 5353 behind their Service.
const DNS_PORTS: [i32; 2] = [53, 5353];
/// Port of the metadata service.
const METADATA_PORT: i32 = 80;

/// Returns the policies of the pods. Pods with the network of their node have none, because policies do not apply to
/// them.
pub(super) fn policies(resolved: &Resolved) -> Vec<(Stage, NetworkPolicy)> {
    if resolved.network_policy.mode == NetworkPolicyMode::Disabled {
        return Vec::new();
    }
    let mut policies = Vec::new();
    if !resolved.controller.host_network {
        let ports = metrics_ports(resolved);
        let policy = policy(resolved, ComponentLabel::Controller, "controller", ports, egress());
        policies.push((Stage::Controller, policy));
    }
    if !resolved.node.host_network {
        let metrics = vec![port("TCP", Some(i32::from(resolved.node.http_port)))];
        // Nodes send requests only to the address of the metadata service.
        let egress = vec![NetworkPolicyEgressRule {
            ports: Some(vec![port("TCP", Some(METADATA_PORT))]),
            ..NetworkPolicyEgressRule::default()
        }];
        policies.push((
            Stage::Node,
            policy(resolved, ComponentLabel::Node, "node", metrics, egress),
        ));
    }
    policies
}

/// Returns the policy of the pods of one component. Clients may reach its metrics. Probes of the kubelet come from
/// the node, and policies do not block them.
fn policy(
    resolved: &Resolved,
    component: ComponentLabel,
    suffix: &str,
    metrics: Vec<NetworkPolicyPort>,
    egress: Vec<NetworkPolicyEgressRule>,
) -> NetworkPolicy {
    NetworkPolicy {
        metadata: metadata::namespaced(resolved, format!("{}-{suffix}", resolved.name_prefix), component),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(metadata::selector(resolved, component)),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(metrics),
                ..NetworkPolicyIngressRule::default()
            }]),
            egress: Some(egress),
        }),
    }
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
    // The ports of a cloud's endpoints are unknown before the first login.
    let cloud = vec![port("TCP", None)];
    // The rules restrict ports and not addresses, because the cluster has no labels for API servers and clouds.
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
