// SPDX-License-Identifier: Apache-2.0
//! The node plugin: the driver without sidecars, which mounts volumes and registers itself with the kubelet. It has
//! no credentials and no access to the Kubernetes API.

use cinder_csi_crds::NodeRegistration;
use cinder_csi_driver::args::Args;
use cinder_csi_driver::node::CLOUD_INIT_DIR;
use cinder_csi_driver::topology::REGION;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, HostPathVolumeSource, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
    PodTemplateSpec, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::metadata::{self, ComponentLabel};
use super::paths::{PLUGIN_VOLUME, REGISTRY_VOLUME};
use super::{access, pod, registrar};
use crate::releases;
use crate::resolve::{Registration, Resolved};

const KUBELET_VOLUME: &str = "kubelet-dir";
const DEVICES_VOLUME: &str = "devices";
const DEVICES_DIR: &str = "/dev";
const CLOUD_INIT_VOLUME: &str = "cloud-init";
const MEMORY: &str = "16Mi";
/// Variable with the region of the node, if the driver reports it.
const REGION_VARIABLE: &str = "NODE_REGION";

pub(super) fn daemon_set(resolved: &Resolved) -> DaemonSet {
    DaemonSet {
        metadata: metadata::workload(resolved, format!("{}-node", resolved.name_prefix), ComponentLabel::Node),
        spec: Some(DaemonSetSpec {
            selector: metadata::selector(resolved, ComponentLabel::Node),
            update_strategy: Some(DaemonSetUpdateStrategy {
                // The operator itself replaces pods (see `rollout`). It considers their registration, and never runs
                // two on a node, which would serve the same sockets.
                type_: Some("OnDelete".into()),
                rolling_update: None,
            }),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod::labels(resolved, ComponentLabel::Node, &resolved.node.pod_labels)),
                    annotations: pod::annotations(&resolved.node.pod_annotations, None),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(resolved)),
            },
            ..DaemonSetSpec::default()
        }),
        ..DaemonSet::default()
    }
}

fn pod_spec(resolved: &Resolved) -> PodSpec {
    let node = &resolved.node;
    PodSpec {
        service_account_name: Some(access::node_account(resolved)),
        automount_service_account_token: Some(false),
        image_pull_secrets: pod::pull_secrets(resolved),
        priority_class_name: Some(node.priority_class_name.clone()),
        node_selector: Some(pod::node_selector(&node.node_selector)),
        tolerations: Some(tolerations(resolved)),
        affinity: affinity(resolved),
        // The metadata service provides the id and the zone of the server. In many clusters it responds only on the
        // network of the node.
        host_network: node.host_network.then_some(true),
        dns_policy: Some(pod::dns_policy(node.host_network)),
        containers: containers(resolved),
        volumes: Some(volumes(resolved)),
        ..PodSpec::default()
    }
}

fn volumes(resolved: &Resolved) -> Vec<Volume> {
    let node = &resolved.node;
    let mut volumes = vec![
        host_path(KUBELET_VOLUME, &node.kubelet_dir),
        host_path(DEVICES_VOLUME, DEVICES_DIR),
        Volume {
            host_path: Some(HostPathVolumeSource {
                path: CLOUD_INIT_DIR.into(),
                // Some images lack cloud-init.
                type_: Some("DirectoryOrCreate".into()),
            }),
            ..host_path(CLOUD_INIT_VOLUME, CLOUD_INIT_DIR)
        },
    ];
    if node.registrar == NodeRegistration::Sidecar {
        volumes.extend([
            Volume {
                host_path: Some(HostPathVolumeSource {
                    path: format!("{}/plugins/{}", node.kubelet_dir, resolved.driver_name),
                    type_: Some("DirectoryOrCreate".into()),
                }),
                name: PLUGIN_VOLUME.into(),
                ..Volume::default()
            },
            host_path(REGISTRY_VOLUME, &format!("{}/plugins_registry", node.kubelet_dir)),
        ]);
    }
    volumes
}

/// Returns the driver's container, and the sidecars if the driver does not register itself.
fn containers(resolved: &Resolved) -> Vec<Container> {
    let mut containers = vec![driver(resolved)];
    // During a removal, no container may register the driver. The registrar removes its socket when it ends.
    if is_registered_by_sidecar(resolved) {
        containers.extend(registrar::containers(resolved));
    }
    containers
}

fn is_registered_by_sidecar(resolved: &Resolved) -> bool {
    resolved.node.registrar == NodeRegistration::Sidecar && resolved.node.registration == Registration::Register
}

/// Returns all taints. If the administrator has selected taints, returns these and the startup taint.
fn tolerations(resolved: &Resolved) -> Vec<Toleration> {
    let Some(mut tolerations) = resolved.node.tolerations.clone() else {
        return vec![pod::tolerate(None)];
    };
    if let Some(key) = &resolved.node.startup_taint {
        tolerations.push(pod::tolerate(Some(key)));
    }
    tolerations
}

/// Whether each node reports the region in its label. Without zones, no region is reported.
fn reports_region(resolved: &Resolved) -> bool {
    resolved.node.reports_region && resolved.topology.enabled
}

/// Returns the affinity of the spec. A driver that reports the region of its node requires that label. A pod on a
/// node without it would report an empty region, which the kubelet writes to the node.
fn affinity(resolved: &Resolved) -> Option<Affinity> {
    let configured = resolved.node.affinity.clone();
    if !reports_region(resolved) {
        return configured;
    }
    let mut affinity = configured.unwrap_or_default();
    let terms = affinity
        .node_affinity
        .get_or_insert_default()
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    let terms = &mut terms.node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions
            .get_or_insert_default()
            .push(NodeSelectorRequirement {
                key: REGION.into(),
                operator: "Exists".into(),
                values: None,
            });
    }
    Some(affinity)
}

/// Returns the segments of the node in addition to its zone.
fn segments(resolved: &Resolved) -> Vec<(String, String)> {
    let own = reports_region(resolved).then(|| (REGION.to_owned(), format!("$({REGION_VARIABLE})")));
    resolved.topology.additional.clone().into_iter().chain(own).collect()
}

/// The region of the node. Kubernetes copies that label of a node to its pods.
fn variables(resolved: &Resolved) -> Option<Vec<EnvVar>> {
    let field = format!("metadata.labels['{REGION}']");
    reports_region(resolved).then(|| vec![pod::variable_from(REGION_VARIABLE, &field)])
}

fn driver(resolved: &Resolved) -> Container {
    let node = &resolved.node;
    let args = Args {
        endpoint: format!("unix://{}/plugins/{}/csi.sock", node.kubelet_dir, resolved.driver_name),
        http_endpoint: format!(":{}", node.http_port),
        health_endpoint: pod::health_endpoint(node.host_network, node.health_port()),
        provide_controller_service: false,
        register: node.registration == Registration::Register && node.registrar == NodeRegistration::Integrated,
        // This also applies next to the registrar. An earlier registration by the driver itself would coexist with
        // that of the registrar. The kubelet would lose the driver when one of them ends.
        unregister: node.registration == Registration::Unregister || node.registrar == NodeRegistration::Sidecar,
        max_volumes_per_node: node.max_volumes,
        additional_topology: segments(resolved),
        kubelet_dir: node.kubelet_dir.clone().into(),
        ..pod::driver_args(resolved)
    };
    Container {
        name: releases::DRIVER_CONTAINER.into(),
        image: Some(resolved.images.name(releases::Component::Driver)),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args.to_argv()),
        env: variables(resolved),
        ports: Some(vec![
            pod::port(pod::DRIVER_PORT, i32::from(node.http_port)),
            pod::port(pod::HEALTH_PORT, i32::from(node.health_port())),
        ]),
        liveness_probe: Some(if is_registered_by_sidecar(resolved) {
            pod::liveness(registrar::LIVENESS_PORT, "/healthz")
        } else {
            pod::health_probe(node.host_network, pod::liveness(pod::HEALTH_PORT, "/healthz"))
        }),
        readiness_probe: Some(pod::health_probe(
            node.host_network,
            pod::probe(pod::HEALTH_PORT, "/readyz"),
        )),
        // A memory limit would include mkfs and fsck. The kernel could kill one of them during its work, and a check
        // of a large file system needs gigabytes. The driver limits each of these programs by the size of its volume.
        resources: Some(pod::resources(node.resources.as_ref(), MEMORY, None)),
        security_context: Some(SecurityContext {
            // Mounting and formatting need CAP_SYS_ADMIN and all block devices of the host, including devices that
            // appear later. The kubelet sees the mounts only of a privileged container (Bidirectional).
            privileged: Some(true),
            // root owns the directories of the kubelet and the devices.
            run_as_user: Some(0),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![
            VolumeMount {
                // The mount path equals the path on the host, because the kubelet passes host paths.
                mount_propagation: Some("Bidirectional".into()),
                ..pod::mount(KUBELET_VOLUME, &node.kubelet_dir)
            },
            VolumeMount {
                mount_propagation: Some("HostToContainer".into()),
                ..pod::mount(DEVICES_VOLUME, DEVICES_DIR)
            },
            VolumeMount {
                read_only: Some(true),
                ..pod::mount(CLOUD_INIT_VOLUME, CLOUD_INIT_DIR)
            },
        ]),
        ..Container::default()
    }
}

/// Mounts a directory that exists on every node.
fn host_path(name: &str, path: &str) -> Volume {
    Volume {
        name: name.into(),
        host_path: Some(HostPathVolumeSource {
            path: path.into(),
            type_: Some("Directory".into()),
        }),
        ..Volume::default()
    }
}
