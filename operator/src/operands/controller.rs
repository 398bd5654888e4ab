//! The controller: the driver with credentials, csi-provisioner and csi-attacher around one socket.

use std::collections::BTreeMap;

use cinder_csi_driver::args::Args;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapProjection, Container, EmptyDirVolumeSource, KeyToPath, PodAffinityTerm, PodAntiAffinity,
    PodSecurityContext, PodSpec, PodTemplateSpec, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Toleration, Volume, VolumeProjection, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, Component};
use super::secret::{self, CREDENTIALS_HASH_ANNOTATION, DriverCredentials};
use super::{access, pod};
use crate::resolve::{Resolved, Sidecar};

const SOCKET_DIR: &str = "/csi";
const SOCKET: &str = "/csi/csi.sock";
const SOCKET_VOLUME: &str = "socket";
const CONFIG_VOLUME: &str = "cloud-config";
const TOKEN_VOLUME: &str = "kube-api-access";
/// Where every Kubernetes client looks for its token.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The kubelet renews the token long before it ends.
const TOKEN_SECONDS: i64 = 3607;
/// A user without any file or right of its own.
const UNPRIVILEGED_USER: i64 = 65532;

const DRIVER_PORT: i32 = 8080;
const PROVISIONER_PORT: i32 = 8081;
const ATTACHER_PORT: i32 = 8082;
const MEMORY: &str = "32Mi";

pub(super) fn deployment(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Deployment {
    Deployment {
        metadata: metadata::namespaced(resolved, format!("{}-controller", resolved.slug), Component::Controller),
        spec: Some(DeploymentSpec {
            replicas: Some(resolved.controller.replicas),
            selector: metadata::selector(resolved, Component::Controller),
            strategy: Some(strategy(resolved.controller.replicas)),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(metadata::pod_labels(resolved, Component::Controller)),
                    annotations: credentials.map(|credentials| {
                        BTreeMap::from([(CREDENTIALS_HASH_ANNOTATION.to_owned(), credentials.hash().to_owned())])
                    }),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(resolved)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// One pod serves until its successor does. Several are replaced one by one, without a further one that might find no node.
fn strategy(replicas: i32) -> DeploymentStrategy {
    let (max_unavailable, max_surge) = if replicas > 1 { (1, 0) } else { (0, 1) };
    DeploymentStrategy {
        type_: Some("RollingUpdate".into()),
        rolling_update: Some(RollingUpdateDeployment {
            max_unavailable: Some(IntOrString::Int(max_unavailable)),
            max_surge: Some(IntOrString::Int(max_surge)),
        }),
    }
}

fn pod_spec(resolved: &Resolved) -> PodSpec {
    let controller = &resolved.controller;
    PodSpec {
        service_account_name: Some(access::controller_account(resolved)),
        // Only the sidecars talk to the Kubernetes API: the token is mounted into them by name.
        automount_service_account_token: Some(false),
        image_pull_secrets: pod::pull_secrets(resolved),
        priority_class_name: Some(controller.priority_class_name.clone()),
        node_selector: Some(pod::node_selector(&controller.node_selector)),
        tolerations: Some(controller.tolerations.clone().unwrap_or_else(control_plane_taints)),
        affinity: Some(controller.affinity.clone().unwrap_or_else(|| apart(resolved))),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(UNPRIVILEGED_USER),
            run_as_group: Some(UNPRIVILEGED_USER),
            // The socket's directory and the credentials are for this group.
            fs_group: Some(UNPRIVILEGED_USER),
            seccomp_profile: Some(pod::seccomp()),
            ..PodSecurityContext::default()
        }),
        containers: vec![driver(resolved), provisioner(resolved), attacher(resolved)],
        volumes: Some(volumes(resolved)),
        ..PodSpec::default()
    }
}

fn driver(resolved: &Resolved) -> Container {
    let args = Args {
        endpoint: format!("unix://{SOCKET}"),
        cloud_config: vec![secret::CLOUD_CONF_FILE.into()],
        cluster: resolved.cluster_id.clone(),
        http_endpoint: format!(":{DRIVER_PORT}"),
        provide_node_service: false,
        ..pod::driver_args(resolved)
    };
    Container {
        name: pod::DRIVER_CONTAINER.into(),
        image: Some(resolved.images.driver.clone()),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args.to_argv()),
        ports: Some(vec![pod::port(pod::DRIVER_PORT, DRIVER_PORT)]),
        liveness_probe: Some(pod::liveness(pod::DRIVER_PORT, "/healthz")),
        readiness_probe: Some(pod::probe(pod::DRIVER_PORT, "/readyz")),
        resources: Some(pod::resources(resolved.controller.resources.as_ref(), MEMORY)),
        security_context: Some(pod::unprivileged()),
        volume_mounts: Some(vec![
            pod::mount(SOCKET_VOLUME, SOCKET_DIR),
            pod::read_only(CONFIG_VOLUME, secret::DIRECTORY),
        ]),
        ..Container::default()
    }
}

fn provisioner(resolved: &Resolved) -> Container {
    let own = [
        // For the metadata of the volumes in Cinder: names of claim and volume.
        "--extra-create-metadata".to_owned(),
        // For classes that somebody else made without a file system.
        "--default-fstype=ext4".to_owned(),
    ];
    sidecar(
        resolved,
        "csi-provisioner",
        &resolved.images.provisioner,
        PROVISIONER_PORT,
        &resolved.controller.provisioner,
        own,
    )
}

fn attacher(resolved: &Resolved) -> Container {
    let own = ["--default-fstype=ext4".to_owned()];
    sidecar(
        resolved,
        "csi-attacher",
        &resolved.images.attacher,
        ATTACHER_PORT,
        &resolved.controller.attacher,
        own,
    )
}

fn sidecar(
    resolved: &Resolved,
    name: &str,
    image: &str,
    port: i32,
    settings: &Sidecar,
    own: impl IntoIterator<Item = String>,
) -> Container {
    let mut args = vec![
        format!("--csi-address={SOCKET}"),
        format!("--timeout={}", settings.timeout),
        format!("--worker-threads={}", settings.worker_threads),
        format!("--retry-interval-max={}", settings.retry_interval_max),
        format!("--kube-api-qps={}", settings.kube_api_qps),
        format!("--kube-api-burst={}", settings.kube_api_burst),
        "--leader-election".into(),
        format!("--leader-election-namespace={}", resolved.namespace),
        format!("--http-endpoint=:{port}"),
        format!("--v={}", pod::verbosity(resolved.log_level)),
    ];
    args.extend(own);
    Container {
        name: name.into(),
        image: Some(image.into()),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args),
        ports: Some(vec![pod::port(name, port)]),
        // A sidecar that can no longer renew its lease must make room for another one.
        liveness_probe: Some(pod::liveness(name, "/healthz/leader-election")),
        resources: Some(pod::resources(settings.resources.as_ref(), MEMORY)),
        security_context: Some(pod::unprivileged()),
        volume_mounts: Some(vec![
            pod::mount(SOCKET_VOLUME, SOCKET_DIR),
            pod::read_only(TOKEN_VOLUME, TOKEN_DIR),
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
        Volume {
            name: TOKEN_VOLUME.into(),
            projected: Some(api_access()),
            ..Volume::default()
        },
    ]
}

/// What Kubernetes mounts into every container on its own, unless it is told not to: token, authority, in one directory.
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

/// The pods run on control plane nodes too: in small clusters there are no others to spare.
fn control_plane_taints() -> Vec<Toleration> {
    vec![
        pod::tolerate(Some("node-role.kubernetes.io/control-plane")),
        pod::tolerate(Some("CriticalAddonsOnly")),
    ]
}

/// The pods of this driver avoid each other's nodes, where there is a choice.
fn apart(resolved: &Resolved) -> Affinity {
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    topology_key: "kubernetes.io/hostname".into(),
                    label_selector: Some(metadata::selector(resolved, Component::Controller)),
                    ..PodAffinityTerm::default()
                },
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}
