// SPDX-License-Identifier: Apache-2.0
//! The containers beside the driver on nodes where it does not register itself: node-driver-registrar and livenessprobe, as
//! upstream runs them.

use k8s_openapi::api::core::v1::{Capabilities, Container, SELinuxOptions, SecurityContext};

use super::node::{PLUGIN_VOLUME, REGISTRY_VOLUME};
use super::pod;
use crate::releases::Component;
use crate::resolve::Resolved;

/// Where the directory of the driver's socket is in these containers.
const SOCKET_DIR: &str = "/csi";
/// Where the kubelet's registry of plugins is.
const REGISTRY_DIR: &str = "/registration";
/// Name of livenessprobe's port, which the driver's container asks.
pub(super) const LIVENESS_PORT: &str = "healthz";
const REGISTRAR_PORT: &str = "registration";
const MEMORY: &str = "16Mi";

/// Both containers.
pub(super) fn containers(resolved: &Resolved) -> Vec<Container> {
    vec![liveness_probe(resolved), registrar(resolved)]
}

/// Port of livenessprobe, after the two of the driver.
fn liveness_port(resolved: &Resolved) -> u16 {
    resolved.node.http_port.saturating_add(2)
}

fn liveness_probe(resolved: &Resolved) -> Container {
    let port = liveness_port(resolved);
    let own = [
        // Shorter than what the kubelet waits.
        "--probe-timeout=4s".to_owned(),
    ];
    Container {
        ports: Some(vec![pod::port(LIVENESS_PORT, i32::from(port))]),
        // Whether it answers at all: `/healthz` is about the driver, and its failure must not end this container.
        liveness_probe: Some(pod::liveness(LIVENESS_PORT, "/metrics")),
        volume_mounts: Some(vec![pod::mount(PLUGIN_VOLUME, SOCKET_DIR)]),
        ..container(resolved, Component::LivenessProbe, port, own)
    }
}

fn registrar(resolved: &Resolved) -> Container {
    let port = resolved.node.http_port.saturating_add(3);
    let own = [
        // Where the kubelet finds the driver, on the host.
        format!(
            "--kubelet-registration-path={}/plugins/{}/csi.sock",
            resolved.node.kubelet_dir, resolved.driver_name
        ),
        format!("--plugin-registration-path={REGISTRY_DIR}"),
        // For the driver's name, which it asks once.
        "--timeout=10s".to_owned(),
    ];
    Container {
        ports: Some(vec![pod::port(REGISTRAR_PORT, i32::from(port))]),
        // Whether the registration socket is there.
        liveness_probe: Some(pod::liveness(REGISTRAR_PORT, "/healthz")),
        volume_mounts: Some(vec![
            pod::mount(PLUGIN_VOLUME, SOCKET_DIR),
            pod::mount(REGISTRY_VOLUME, REGISTRY_DIR),
        ]),
        ..container(resolved, Component::Registrar, port, own)
    }
}

fn container(resolved: &Resolved, component: Component, port: u16, own: impl IntoIterator<Item = String>) -> Container {
    let mut args = vec![format!("--csi-address={SOCKET_DIR}/csi.sock")];
    args.extend(own);
    args.extend([
        format!("--http-endpoint=:{port}"),
        format!("--v={}", pod::verbosity(resolved.log_level)),
    ]);
    Container {
        name: component.row().container.into(),
        image: Some(resolved.images.name(component)),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args),
        resources: Some(pod::resources(None, MEMORY, None)),
        security_context: Some(SecurityContext {
            // The directories of the kubelet are root's.
            run_as_user: Some(0),
            // And theirs, and the socket of the driver, which is privileged, are out of a container's reach where SELinux enforces.
            se_linux_options: Some(SELinuxOptions {
                type_: Some("spc_t".into()),
                ..SELinuxOptions::default()
            }),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                ..Capabilities::default()
            }),
            seccomp_profile: Some(pod::seccomp()),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}
