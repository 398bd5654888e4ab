// SPDX-License-Identifier: Apache-2.0
//! Shared parts of the controller and node pods.

use std::collections::BTreeMap;

use cinder_csi_crds::{LogFormat, LogLevel, Resources};
use cinder_csi_driver::args::{self, Args};
use k8s_openapi::api::core::v1::{
    Capabilities, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, LocalObjectReference, ObjectFieldSelector, Probe,
    ResourceRequirements, SeccompProfile, SecurityContext, Toleration, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use crate::resolve::Resolved;

/// Name of the driver's port for metrics.
pub const DRIVER_PORT: &str = "http";
/// Name of the driver's port for the kubelet's probes.
pub(super) const HEALTH_PORT: &str = "health";

const LOOPBACK: &str = "127.0.0.1";

/// Returns the arguments that both roles of the driver share.
pub(super) fn driver_args(resolved: &Resolved) -> Args {
    Args {
        driver_name: resolved.driver_name.clone(),
        with_topology: resolved.topology.enabled,
        verbosity: match resolved.log_level {
            LogLevel::Normal => None,
            level => Some(verbosity(level)),
        },
        log_format: match resolved.log_format {
            LogFormat::Json => args::LogFormat::Json,
            LogFormat::Text => args::LogFormat::Text,
        },
        secure_metrics: resolved.secure_metrics,
        ..Args::default()
    }
}

/// Returns the labels of a pod. Our labels take precedence over those of the administrator.
pub(super) fn labels(
    resolved: &Resolved,
    component: ComponentLabel,
    configured: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut labels = configured.clone();
    labels.extend(metadata::pod_labels(resolved, component));
    labels
}

/// Returns the annotations of a pod. Ours take precedence over those of the administrator. `None` instead of an empty
/// map.
pub(super) fn annotations(
    configured: &BTreeMap<String, String>,
    own: Option<BTreeMap<String, String>>,
) -> Option<BTreeMap<String, String>> {
    let mut annotations = configured.clone();
    annotations.extend(own.unwrap_or_default());
    (!annotations.is_empty()).then_some(annotations)
}

/// Returns the proxies for the container that sends requests to OpenStack.
///
/// Local targets bypass them: both addresses of the metadata service, Services by name, and the Kubernetes API, whose
/// address the kubelet inserts into the variable. The address range of Services is unknown.
pub(super) fn proxy(resolved: &Resolved) -> Option<Vec<EnvVar>> {
    const NEAR: [&str; 4] = [
        "169.254.169.254",
        "[fe80::a9fe:a9fe]",
        ".svc",
        "$(KUBERNETES_SERVICE_HOST)",
    ];
    let proxy = resolved.proxy.as_ref()?;
    let direct: Vec<&str> = NEAR
        .into_iter()
        .chain(proxy.no_proxy.iter().map(String::as_str))
        .collect();
    let variable = |name: &str, value: &str| EnvVar {
        name: name.into(),
        value: Some(value.into()),
        ..EnvVar::default()
    };
    let configured = [("HTTP_PROXY", &proxy.http_proxy), ("HTTPS_PROXY", &proxy.https_proxy)];
    let mut variables: Vec<EnvVar> = configured
        .into_iter()
        .filter_map(|(name, url)| Some(variable(name, url.as_ref()?)))
        .collect();
    variables.push(variable("NO_PROXY", &direct.join(",")));
    Some(variables)
}

/// Creates a variable with the value of a field of the pod.
pub(super) fn variable_from(name: &str, field: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: field.into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// Returns a log level in the numbers of klog, which the sidecars use.
pub(super) fn verbosity(level: LogLevel) -> u8 {
    match level {
        LogLevel::Normal => 2,
        LogLevel::Debug => 4,
        LogLevel::Trace => 6,
        LogLevel::TraceAll => 8,
    }
}

pub(super) fn pull_secrets(resolved: &Resolved) -> Option<Vec<LocalObjectReference>> {
    let secrets: Vec<_> = resolved
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    (!secrets.is_empty()).then_some(secrets)
}

/// Adds Linux to the requested node labels, because the driver requires it.
pub(super) fn node_selector(configured: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = configured.clone();
    labels
        .entry("kubernetes.io/os".into())
        .or_insert_with(|| "linux".into());
    labels
}

/// Returns the resources of the spec. By default, these are requests for an idle container and a memory limit.
pub(super) fn resources(
    configured: Option<&Resources>,
    memory: &str,
    memory_limit: Option<&str>,
) -> ResourceRequirements {
    let of = |map: &BTreeMap<String, Quantity>| (!map.is_empty()).then(|| map.clone());
    match configured {
        Some(resources) => ResourceRequirements {
            requests: of(&resources.requests),
            limits: of(&resources.limits),
            ..ResourceRequirements::default()
        },
        None => ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".into(), Quantity("10m".into())),
                ("memory".into(), Quantity(memory.into())),
            ])),
            limits: memory_limit.map(|limit| BTreeMap::from([("memory".into(), Quantity(limit.into()))])),
            ..ResourceRequirements::default()
        },
    }
}

/// Security context of a container without access to its host.
pub(super) fn unprivileged() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}

/// The default seccomp profile of the container runtime.
pub(super) fn seccomp() -> SeccompProfile {
    SeccompProfile {
        type_: "RuntimeDefault".into(),
        ..SeccompProfile::default()
    }
}

pub(super) fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

/// Requests `path` from the container port of this name.
pub(super) fn probe(port: &str, path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String(port.into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

/// Returns the DNS policy with which a pod resolves names of the cluster.
pub(super) fn dns_policy(host_network: bool) -> String {
    let policy = if host_network {
        "ClusterFirstWithHostNet"
    } else {
        "ClusterFirst"
    };
    policy.into()
}

/// Address of the driver's server for probes. With the network of the node, only the node itself can reach it.
pub(super) fn health_endpoint(host_network: bool, port: u16) -> String {
    let host = if host_network { LOOPBACK } else { "" };
    format!("{host}:{port}")
}

/// Directs a probe to the address that [`health_endpoint`] listens on.
pub(super) fn health_probe(host_network: bool, mut probe: Probe) -> Probe {
    if let Some(get) = probe.http_get.as_mut().filter(|_| host_network) {
        get.host = Some(LOOPBACK.into());
    }
    probe
}

/// A probe that restarts the container after a minute of failures, so that a short outage elsewhere has no effect.
pub(super) fn liveness(port: &str, path: &str) -> Probe {
    Probe {
        failure_threshold: Some(6),
        ..probe(port, path)
    }
}

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    }
}

pub(super) fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(name, path)
    }
}

/// Tolerates every taint of this key, or all taints without a key.
pub(super) fn tolerate(key: Option<&str>) -> Toleration {
    Toleration {
        key: key.map(Into::into),
        operator: Some("Exists".into()),
        ..Toleration::default()
    }
}
