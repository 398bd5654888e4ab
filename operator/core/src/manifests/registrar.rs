// SPDX-License-Identifier: Apache-2.0
//! Sidecars of the driver on nodes where it does not register itself: node-driver-registrar and livenessprobe,
//! configured as upstream.

use k8s_openapi::api::core::v1::{Capabilities, Container, SELinuxOptions, SecurityContext};

use super::paths::{PLUGIN_VOLUME, REGISTRY_VOLUME};
use super::pod;
use crate::releases::Component;
use crate::resolve::Resolved;

/// Directory of the driver's socket in these containers.
const SOCKET_DIR: &str = "/csi";
/// The kubelet's registry of plugins in these containers.
const REGISTRY_DIR: &str = "/registration";
/// Name of livenessprobe's port, for the probe of the driver's container.
pub(super) const LIVENESS_PORT: &str = "healthz";
const REGISTRAR_PORT: &str = "registration";
const MEMORY: &str = "16Mi";

/// Returns both containers.
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
        // Shorter than the timeout of the kubelet.
        "--probe-timeout=4s".to_owned(),
    ];
    Container {
        ports: Some(vec![pod::port(LIVENESS_PORT, i32::from(port))]),
        // Checks only that livenessprobe responds. `/healthz` reports the state of the driver, and its failure must
        // not restart this container.
        liveness_probe: Some(pod::liveness(LIVENESS_PORT, "/metrics")),
        volume_mounts: Some(vec![pod::mount(PLUGIN_VOLUME, SOCKET_DIR)]),
        ..container(resolved, Component::LivenessProbe, port, own)
    }
}

fn registrar(resolved: &Resolved) -> Container {
    let port = resolved.node.http_port.saturating_add(3);
    let own = [
        // Path of the driver's socket on the host, for the kubelet.
        format!(
            "--kubelet-registration-path={}/plugins/{}/csi.sock",
            resolved.node.kubelet_dir, resolved.driver_name
        ),
        format!("--plugin-registration-path={REGISTRY_DIR}"),
        // Timeout of the single query for the driver's name.
        "--timeout=10s".to_owned(),
    ];
    Container {
        ports: Some(vec![pod::port(REGISTRAR_PORT, i32::from(port))]),
        // Checks that the registration socket exists.
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
            // root owns the directories of the kubelet.
            run_as_user: Some(0),
            // Where SELinux is enforced, a container has no access to these directories and to the socket of the
            // privileged driver.
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
