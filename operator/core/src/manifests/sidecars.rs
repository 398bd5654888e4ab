// SPDX-License-Identifier: Apache-2.0
//! Sidecars in the controller pods, which translate between the Kubernetes API and CSI.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar};

use super::paths::{SOCKET, SOCKET_DIR, SOCKET_VOLUME, TOKEN_DIR, TOKEN_VOLUME};
use super::pod;
use crate::releases::Component;
use crate::resolve::{Resolved, Sidecar};

const MEMORY: &str = "32Mi";

/// Returns the container of a sidecar.
pub(super) fn container(resolved: &Resolved, settings: &Sidecar) -> Container {
    let name = settings.component.row().container;
    Container {
        name: name.into(),
        image: Some(resolved.images.name(settings.component)),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args(resolved, settings)),
        env: env(resolved, settings.component),
        ports: Some(vec![pod::port(name, i32::from(settings.port))]),
        // A sidecar that cannot renew its lease must release leadership to a successor.
        liveness_probe: Some(pod::liveness(name, "/healthz/leader-election")),
        // These programs store all claims and volumes of the cluster in memory, so no limit applies.
        resources: Some(pod::resources(settings.resources.as_ref(), MEMORY, None)),
        security_context: Some(pod::unprivileged()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![
            pod::mount(SOCKET_VOLUME, SOCKET_DIR),
            pod::read_only(TOKEN_VOLUME, TOKEN_DIR),
        ]),
        ..Container::default()
    }
}

fn args(resolved: &Resolved, settings: &Sidecar) -> Vec<String> {
    let row = settings.component.row();
    let mut args = vec![
        format!("--csi-address={SOCKET}"),
        format!("--timeout={}", settings.timeout),
        format!("--{}={}", row.workers_flag, settings.worker_threads),
        format!("--retry-interval-max={}", row.retry_interval_max),
        "--kube-api-qps=20".into(),
        "--kube-api-burst=100".into(),
        "--leader-election".into(),
        format!("--leader-election-namespace={}", resolved.namespace),
        // Exceeds an outage of the API server of more than a minute. A sidecar that ends in order releases its lease
        // immediately.
        "--leader-election-lease-duration=137s".into(),
        "--leader-election-renew-deadline=107s".into(),
        "--leader-election-retry-period=26s".into(),
        format!("--http-endpoint=:{}", settings.port),
        format!("--v={}", pod::verbosity(resolved.log_level)),
    ];
    args.extend(row.arguments.iter().copied().map(str::to_owned));
    if publishes_capacity(resolved, settings.component) {
        // The garbage collector deletes the objects with the Deployment.
        args.extend(["--enable-capacity".into(), "--capacity-ownerref-level=2".into()]);
    }
    if !settings.feature_gates.is_empty() {
        args.push(format!("--feature-gates={}", gates(&settings.feature_gates)));
    }
    args
}

fn publishes_capacity(resolved: &Resolved, component: Component) -> bool {
    component == Component::Provisioner && resolved.csi_driver.storage_capacity
}

/// Identity of the pod, for the owner of CSIStorageCapacity objects.
fn env(resolved: &Resolved, component: Component) -> Option<Vec<EnvVar>> {
    publishes_capacity(resolved, component).then(|| {
        vec![
            pod::variable_from("NAMESPACE", "metadata.namespace"),
            pod::variable_from("POD_NAME", "metadata.name"),
        ]
    })
}

pub(super) fn gates(gates: &BTreeMap<String, bool>) -> String {
    let words: Vec<String> = gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
    words.join(",")
}
