//! What the pods of controller and nodes have in common.

use std::collections::BTreeMap;

use cinder_csi_crds::{LogLevel, Resources};
use cinder_csi_driver::args::Args;
use k8s_openapi::api::core::v1::{
    Capabilities, ContainerPort, HTTPGetAction, LocalObjectReference, Probe, ResourceRequirements, SeccompProfile,
    SecurityContext, Toleration, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::resolve::Resolved;

/// Name of the container with the driver in both kinds of pod.
pub(super) const DRIVER_CONTAINER: &str = "cinder-csi-driver";
/// Name of a container's port for checks and metrics.
pub(super) const DRIVER_PORT: &str = "http";

/// The arguments that both roles of the driver share.
pub(super) fn driver_args(resolved: &Resolved) -> Args {
    Args {
        driver_name: resolved.driver_name.clone(),
        with_topology: resolved.topology,
        verbosity: match resolved.log_level {
            LogLevel::Normal => None,
            level => Some(verbosity(level)),
        },
        ..Args::default()
    }
}

/// A log level as the sidecars count it, which is klog's way.
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

/// The given labels of nodes; on Linux in any case, where all that the driver needs is.
pub(super) fn node_selector(given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = given.clone();
    labels
        .entry("kubernetes.io/os".into())
        .or_insert_with(|| "linux".into());
    labels
}

/// The given resources, or requests that let the pod be scheduled with what it needs at rest.
pub(super) fn resources(given: Option<&Resources>, memory: &str) -> ResourceRequirements {
    let of = |map: &BTreeMap<String, Quantity>| (!map.is_empty()).then(|| map.clone());
    match given {
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
            ..ResourceRequirements::default()
        },
    }
}

/// A container that needs nothing of its host.
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

/// The runtime's own filter of system calls.
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

/// Asks `path` at the container's port of this name.
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

/// A probe whose failure ends the container: after a minute, so that a short trouble elsewhere ends nothing.
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

/// Tolerates every taint of this key, or every taint at all.
pub(super) fn tolerate(key: Option<&str>) -> Toleration {
    Toleration {
        key: key.map(Into::into),
        operator: Some("Exists".into()),
        ..Toleration::default()
    }
}
