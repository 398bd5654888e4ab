//! The nodes: the driver alone, which mounts volumes and registers itself with the kubelet. It has no credentials and no
//! access to the Kubernetes API.

use cinder_csi_driver::args::Args;
use cinder_csi_driver::node::CLOUD_INIT_DIR;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    Container, HostPathVolumeSource, PodSpec, PodTemplateSpec, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, Component};
use super::{access, pod};
use crate::resolve::{Registration, Resolved};

const KUBELET_VOLUME: &str = "kubelet-dir";
const DEVICES_VOLUME: &str = "devices";
const DEVICES_DIR: &str = "/dev";
const CLOUD_INIT_VOLUME: &str = "cloud-init";
const MEMORY: &str = "16Mi";

pub(super) fn daemon_set(resolved: &Resolved) -> DaemonSet {
    DaemonSet {
        metadata: metadata::namespaced(resolved, format!("{}-node", resolved.slug), Component::Node),
        spec: Some(DaemonSetSpec {
            selector: metadata::selector(resolved, Component::Node),
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(resolved.node.max_unavailable.clone()),
                    // Never two pods on a node: they would serve the same sockets, and the one that ends would take the
                    // other's registration with it.
                    max_surge: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(metadata::pod_labels(resolved, Component::Node)),
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
        tolerations: Some(node.tolerations.clone().unwrap_or_else(|| vec![pod::tolerate(None)])),
        affinity: node.affinity.clone(),
        // The metadata service, which knows the instance's id and zone, answers only on the instance's own network.
        host_network: Some(true),
        dns_policy: Some("ClusterFirstWithHostNet".into()),
        containers: vec![driver(resolved)],
        volumes: Some(vec![
            host_path(KUBELET_VOLUME, &node.kubelet_dir),
            host_path(DEVICES_VOLUME, DEVICES_DIR),
            Volume {
                host_path: Some(HostPathVolumeSource {
                    path: CLOUD_INIT_DIR.into(),
                    // Not every image has cloud-init.
                    type_: Some("DirectoryOrCreate".into()),
                }),
                ..host_path(CLOUD_INIT_VOLUME, CLOUD_INIT_DIR)
            },
        ]),
        ..PodSpec::default()
    }
}

fn driver(resolved: &Resolved) -> Container {
    let node = &resolved.node;
    let args = Args {
        endpoint: format!("unix://{}/plugins/{}/csi.sock", node.kubelet_dir, resolved.driver_name),
        http_endpoint: format!(":{}", node.http_port),
        provide_controller_service: false,
        register: node.registration == Registration::Register,
        unregister: node.registration == Registration::Unregister,
        kubelet_dir: node.kubelet_dir.clone().into(),
        ..pod::driver_args(resolved)
    };
    Container {
        name: pod::DRIVER_CONTAINER.into(),
        image: Some(resolved.images.driver.clone()),
        image_pull_policy: Some(resolved.pull_policy.as_str().into()),
        args: Some(args.to_argv()),
        ports: Some(vec![pod::port(pod::DRIVER_PORT, i32::from(node.http_port))]),
        liveness_probe: Some(pod::liveness(pod::DRIVER_PORT, "/healthz")),
        readiness_probe: Some(pod::probe(pod::DRIVER_PORT, "/readyz")),
        resources: Some(pod::resources(node.resources.as_ref(), MEMORY)),
        security_context: Some(SecurityContext {
            // Mounting and formatting want CAP_SYS_ADMIN and every block device of the host, also those that appear while
            // the pod runs; and the kubelet sees the mounts only of a privileged container (Bidirectional).
            privileged: Some(true),
            // The directories of the kubelet and the devices are root's.
            run_as_user: Some(0),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            VolumeMount {
                // Mounted where the host has it: the kubelet names paths as they are on the host.
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

/// A directory that every node has.
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
