// SPDX-License-Identifier: Apache-2.0
//! The controller: the driver with credentials, and the sidecars that share one socket with it.

use cinder_csi_driver::args::Args;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapProjection, Container, EmptyDirVolumeSource, KeyToPath, PodAffinityTerm, PodAntiAffinity,
    PodSecurityContext, PodSpec, PodTemplateSpec, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Toleration, TopologySpreadConstraint, Volume, VolumeProjection,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use super::paths::{SOCKET, SOCKET_DIR, SOCKET_VOLUME, TOKEN_VOLUME};
use super::secret::{self, DriverCredentials};
use super::{access, pod, sidecars};
use crate::releases;
use crate::resolve::Resolved;

const CONFIG_VOLUME: &str = "cloud-config";
/// Lifetime of the token, in seconds. The kubelet renews it long before its expiry.
const TOKEN_SECONDS: i64 = 3607;
/// A user that owns no files and has no rights.
pub(super) const UNPRIVILEGED_USER: i64 = 65532;

const MEMORY: &str = "32Mi";
/// Three times the maximum in measurements, with 100,000 volumes. It protects the node against large responses of
/// OpenStack.
const MEMORY_LIMIT: &str = "128Mi";

pub(super) fn deployment(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Deployment {
    // A single pod continues to serve until its successor is ready. Several pods are replaced one by one, without an
    // additional pod, for which no node may be available. With the network of a node, a successor needs the ports of
    // the old pod.
    let in_turn = resolved.controller.replicas > 1 || resolved.controller.host_network;
    let (unavailable, surge) = if in_turn { (1, 0) } else { (0, 1) };
    Deployment {
        metadata: metadata::workload(
            resolved,
            format!("{}-controller", resolved.name_prefix),
            ComponentLabel::Controller,
        ),
        spec: Some(DeploymentSpec {
            replicas: Some(resolved.controller.replicas),
            selector: metadata::selector(resolved, ComponentLabel::Controller),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::Int(unavailable)),
                    max_surge: Some(IntOrString::Int(surge)),
                }),
            }),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod::labels(
                        resolved,
                        ComponentLabel::Controller,
                        &resolved.controller.pod_labels,
                    )),
                    annotations: pod::annotations(
                        &resolved.controller.pod_annotations,
                        credentials.and_then(DriverCredentials::pod_annotations),
                    ),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(resolved, credentials)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn pod_spec(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> PodSpec {
    let controller = &resolved.controller;
    PodSpec {
        service_account_name: Some(access::controller_account(resolved)),
        // Only the sidecars use the Kubernetes API. They mount the token explicitly.
        automount_service_account_token: Some(false),
        image_pull_secrets: pod::pull_secrets(resolved),
        priority_class_name: Some(controller.priority_class_name.clone()),
        node_selector: Some(pod::node_selector(&controller.node_selector)),
        tolerations: Some(controller.tolerations.clone().unwrap_or_else(control_plane_taints)),
        affinity: Some(
            controller
                .affinity
                .clone()
                .unwrap_or_else(|| node_anti_affinity(resolved, ComponentLabel::Controller)),
        ),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(UNPRIVILEGED_USER),
            run_as_group: Some(UNPRIVILEGED_USER),
            // Group of the socket's directory and of the credentials.
            fs_group: Some(UNPRIVILEGED_USER),
            seccomp_profile: Some(pod::seccomp()),
            ..PodSecurityContext::default()
        }),
        topology_spread_constraints: Some(controller.spread.clone().unwrap_or_else(|| zone_spread(resolved))),
        host_network: controller.host_network.then_some(true),
        dns_policy: Some(pod::dns_policy(controller.host_network)),
        containers: std::iter::once(driver(resolved, credentials))
            .chain(
                controller
                    .sidecars
                    .iter()
                    .map(|settings| sidecars::container(resolved, settings)),
            )
            .collect(),
        volumes: Some(volumes(resolved)),
        ..PodSpec::default()
    }
}

fn driver(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Container {
    let controller = &resolved.controller;
    let args = Args {
        endpoint: format!("unix://{SOCKET}"),
        cloud_config: vec![secret::CLOUD_CONF_FILE.into()],
        project_id: credentials.map(DriverCredentials::projects).unwrap_or_default(),
        cluster: resolved.cluster_id.clone(),
        http_endpoint: format!(":{}", controller.http_port),
        health_endpoint: pod::health_endpoint(controller.host_network, controller.health_port()),
        provide_node_service: false,
        ..pod::driver_args(resolved)
    };
    Container {
        name: releases::DRIVER_CONTAINER.into(),
        image: Some(resolved.images.name(releases::Component::Driver)),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args.to_argv()),
        env: pod::proxy(resolved),
        ports: Some(vec![
            pod::port(pod::DRIVER_PORT, i32::from(controller.http_port)),
            pod::port(pod::HEALTH_PORT, i32::from(controller.health_port())),
        ]),
        liveness_probe: Some(pod::health_probe(
            controller.host_network,
            pod::liveness(pod::HEALTH_PORT, "/healthz"),
        )),
        readiness_probe: Some(pod::health_probe(
            controller.host_network,
            pod::probe(pod::HEALTH_PORT, "/readyz"),
        )),
        resources: Some(pod::resources(
            controller.resources.as_ref(),
            MEMORY,
            Some(MEMORY_LIMIT),
        )),
        security_context: Some(pod::unprivileged()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![
            pod::mount(SOCKET_VOLUME, SOCKET_DIR),
            pod::read_only(CONFIG_VOLUME, secret::DIRECTORY),
        ]),
        ..Container::default()
    }
}

fn volumes(resolved: &Resolved) -> Vec<Volume> {
    vec![
        Volume {
            name: SOCKET_VOLUME.into(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        Volume {
            name: CONFIG_VOLUME.into(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret::cloud_config_name(resolved)),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        },
        token_volume(),
    ]
}

/// Returns the volume that a client of the Kubernetes API needs.
pub(super) fn token_volume() -> Volume {
    Volume {
        name: TOKEN_VOLUME.into(),
        projected: Some(api_access()),
        ..Volume::default()
    }
}

/// Returns the content that Kubernetes mounts into every container by default: token and certificate authority, in
/// one directory.
fn api_access() -> ProjectedVolumeSource {
    ProjectedVolumeSource {
        default_mode: Some(0o440),
        sources: Some(vec![
            VolumeProjection {
                service_account_token: Some(ServiceAccountTokenProjection {
                    expiration_seconds: Some(TOKEN_SECONDS),
                    path: "token".into(),
                    ..ServiceAccountTokenProjection::default()
                }),
                ..VolumeProjection::default()
            },
            VolumeProjection {
                config_map: Some(ConfigMapProjection {
                    name: "kube-root-ca.crt".into(),
                    items: Some(vec![KeyToPath {
                        key: "ca.crt".into(),
                        path: "ca.crt".into(),
                        ..KeyToPath::default()
                    }]),
                    ..ConfigMapProjection::default()
                }),
                ..VolumeProjection::default()
            },
        ]),
    }
}

/// The pods also run on control plane nodes, because small clusters may have no others.
pub(super) fn control_plane_taints() -> Vec<Toleration> {
    vec![
        pod::tolerate(Some("node-role.kubernetes.io/control-plane")),
        pod::tolerate(Some("CriticalAddonsOnly")),
    ]
}

/// Prefers different nodes for the pods of a component.
pub(super) fn node_anti_affinity(resolved: &Resolved, component: ComponentLabel) -> Affinity {
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    topology_key: "kubernetes.io/hostname".into(),
                    label_selector: Some(metadata::selector(resolved, component)),
                    ..PodAffinityTerm::default()
                },
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// Prefers different zones for the pods.
fn zone_spread(resolved: &Resolved) -> Vec<TopologySpreadConstraint> {
    vec![TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "topology.kubernetes.io/zone".into(),
        when_unsatisfiable: "ScheduleAnyway".into(),
        label_selector: Some(metadata::selector(resolved, ComponentLabel::Controller)),
        ..TopologySpreadConstraint::default()
    }]
}
