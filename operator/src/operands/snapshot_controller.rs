//! The snapshot-controller, where the administrator lets the operator run it. A cluster needs one, whatever CSI drivers it
//! has: it has an account and rights of its own, and goes on when this driver's pods do not.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{Container, PodSecurityContext, PodSpec, PodTemplateSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::access::{self, rule};
use super::controller::{TOKEN_DIR, TOKEN_VOLUME, UNPRIVILEGED_USER, apart, control_plane_taints, token_volume};
use super::metadata::{self, Component};
use super::{Operand, RenderError, Stage, pod, sidecars};
use crate::resolve::Resolved;
use crate::{images, skew};

/// One works, the other takes over.
const REPLICAS: i32 = 2;
/// Port of checks and metrics.
const PORT: i32 = 8080;
/// Longer than the program may need to find out that the CustomResourceDefinitions are missing, and to end.
const MIN_READY_SECONDS: i32 = 35;
/// The program's own name for its lease, by which others know that it works.
pub(crate) const LEASE: &str = "snapshot-controller-leader";

/// Name of the Deployment and of everything else of it.
fn name(resolved: &Resolved) -> String {
    deployment_name(&resolved.slug)
}

/// The same, by the beginning of the names of all the driver's objects.
pub(crate) fn deployment_name(slug: &str) -> String {
    format!("{slug}-snapshot-controller")
}

/// Everything of it; nothing where the operator does not run it.
pub(super) fn operands(resolved: &Resolved) -> Result<Vec<Operand>, RenderError> {
    if !resolved.snapshots.deploy_controller {
        return Ok(Vec::new());
    }
    let mut operands = access::own(
        resolved,
        &name(resolved),
        Component::SnapshotController,
        rules(resolved),
        LEASE,
    )?;
    operands.push(Operand::new(Stage::Controller, &deployment(resolved))?);
    Ok(operands)
}

/// What it needs to bind snapshots to their contents, and to hold what must not be deleted in between.
fn rules(resolved: &Resolved) -> Vec<PolicyRule> {
    let group = "snapshot.storage.k8s.io";
    let mut rules = vec![
        rule("", &["persistentvolumes"], &["get", "list", "watch"]),
        // Its finalizer on a claim whose snapshot is being taken.
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "update"]),
        rule("", &["events"], &["create", "patch"]),
        rule(group, &["volumesnapshotclasses"], &["get", "list", "watch"]),
        rule(
            group,
            &["volumesnapshotcontents"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        rule(group, &["volumesnapshotcontents/status"], &["patch"]),
        rule(
            group,
            &["volumesnapshots"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        rule(group, &["volumesnapshots/status"], &["update", "patch"]),
    ];
    if resolved.snapshots.groups {
        let group = "groupsnapshot.storage.k8s.io";
        rules.extend([
            rule(group, &["volumegroupsnapshotclasses"], &["get", "list", "watch"]),
            rule(
                group,
                &["volumegroupsnapshotcontents"],
                &["get", "list", "watch", "create", "update", "patch", "delete"],
            ),
            rule(group, &["volumegroupsnapshotcontents/status"], &["patch"]),
            rule(
                group,
                &["volumegroupsnapshots"],
                &["get", "list", "watch", "update", "patch"],
            ),
            rule(group, &["volumegroupsnapshots/status"], &["update", "patch"]),
        ]);
    }
    rules
}

fn deployment(resolved: &Resolved) -> Deployment {
    let component = Component::SnapshotController;
    let controller = &resolved.controller;
    Deployment {
        metadata: metadata::namespaced(resolved, name(resolved), component),
        spec: Some(DeploymentSpec {
            replicas: Some(REPLICAS),
            selector: metadata::selector(resolved, component),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::Int(1)),
                    max_surge: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(metadata::pod_labels(resolved, component)),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    service_account_name: Some(name(resolved)),
                    automount_service_account_token: Some(false),
                    image_pull_secrets: pod::pull_secrets(resolved),
                    priority_class_name: Some(controller.priority_class_name.clone()),
                    node_selector: Some(pod::node_selector(&controller.node_selector)),
                    tolerations: Some(controller.tolerations.clone().unwrap_or_else(control_plane_taints)),
                    affinity: Some(apart(resolved, component)),
                    security_context: Some(PodSecurityContext {
                        run_as_non_root: Some(true),
                        run_as_user: Some(UNPRIVILEGED_USER),
                        run_as_group: Some(UNPRIVILEGED_USER),
                        fs_group: Some(UNPRIVILEGED_USER),
                        seccomp_profile: Some(pod::seccomp()),
                        ..PodSecurityContext::default()
                    }),
                    containers: vec![container(resolved)],
                    volumes: Some(vec![token_volume()]),
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn container(resolved: &Resolved) -> Container {
    let component = images::Component::SnapshotController;
    let mut args = vec![
        "--leader-election".to_owned(),
        format!("--leader-election-namespace={}", resolved.namespace),
        format!("--http-endpoint=:{PORT}"),
        format!("--v={}", pod::verbosity(resolved.log_level)),
    ];
    let release = resolved.images.get(component).and_then(|image| image.release.as_ref());
    let gates = release.map(|release| skew::gates(component, release, None, resolved.apis));
    if let Some(gates) = gates.filter(|gates| !gates.is_empty()) {
        args.push(format!("--feature-gates={}", sidecars::gates(&gates)));
    }
    Container {
        name: component.container().into(),
        image: Some(resolved.images.name(component)),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args),
        ports: Some(vec![pod::port(pod::DRIVER_PORT, PORT)]),
        liveness_probe: Some(pod::liveness(pod::DRIVER_PORT, "/healthz/leader-election")),
        resources: Some(pod::resources(None, "32Mi")),
        security_context: Some(pod::unprivileged()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![pod::read_only(TOKEN_VOLUME, TOKEN_DIR)]),
        ..Container::default()
    }
}
