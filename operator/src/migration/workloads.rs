// SPDX-License-Identifier: Apache-2.0
//! Workloads and pods of the Go driver. They are decoded in part, so that an unused field cannot make them undecodable.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::{
    cluster::{GuardedObject, key_of},
    migration::check::{PROGRAM, runs_driver},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::{
    Client,
    api::{ApiResource, ListParams, ObjectMeta},
    core::{NotUsed, Object},
};
use serde::Deserialize;

use crate::{
    kubernetes::GuardedApi,
    observe::{ObserveError, decoded, list_matching},
};

/// The label by which a Deployment distinguishes the pods of its ReplicaSets.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A Deployment, StatefulSet or DaemonSet.
pub(crate) type Workload = Object<WorkloadSpec, NotUsed>;

/// A pod of any client.
pub(crate) type AnyPod = Object<PodParts, PodPhase>;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WorkloadSpec {
    pub(super) replicas: Option<i32>,
    pub(super) selector: Option<Selector>,
    pub(super) template: Template,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Selector {
    #[serde(rename = "matchLabels")]
    pub(super) labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Template {
    pub(super) spec: PodParts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodParts {
    pub(super) node_name: Option<String>,
    service_account_name: Option<String>,
    service_account: Option<String>,
    containers: Option<Vec<ContainerParts>>,
    volumes: Option<Vec<VolumeParts>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ContainerParts {
    image: Option<String>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeParts {
    host_path: Option<HostDirectory>,
    secret: Option<SecretSource>,
}

#[derive(Debug, Clone, Deserialize)]
struct HostDirectory {
    path: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretSource {
    secret_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PodPhase {
    phase: Option<String>,
}

impl PodParts {
    pub(super) fn containers(&self) -> impl Iterator<Item = &ContainerParts> {
        self.containers.iter().flatten()
    }

    pub(super) fn account(&self) -> Option<&str> {
        self.service_account_name.as_deref().or(self.service_account.as_deref())
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let volumes = self.volumes.iter().flatten();
        volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref())
    }

    /// Whether the pod serves the kubelet of its node, because it mounts the directory of the driver's socket there.
    pub(super) fn is_node_plugin(&self, driver: &str) -> bool {
        let directory = format!("/plugins/{driver}");
        let mut paths = self
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.host_path.as_ref());
        paths.any(|host| host.path.trim_end_matches('/').ends_with(&directory))
    }
}

impl ContainerParts {
    /// Command and arguments.
    pub(super) fn words(&self) -> impl Iterator<Item = &String> {
        self.command.iter().chain(&self.args).flatten()
    }

    /// The last part of the name of the image, without its tag.
    pub(super) fn program(&self) -> &str {
        let image = self.image.as_deref().unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        name.split(['@', ':']).next().unwrap_or_default()
    }
}

/// The kinds of workloads, in the order of their lists.
pub(super) fn workload_kinds() -> [(&'static str, ApiResource); 3] {
    [
        ("Deployment", ApiResource::erase::<Deployment>(&())),
        ("StatefulSet", ApiResource::erase::<StatefulSet>(&())),
        ("DaemonSet", ApiResource::erase::<DaemonSet>(&())),
    ]
}

/// Lists the workloads of a namespace, each with its kind.
pub(super) async fn workloads(client: &Client, namespace: &str) -> Result<Vec<(&'static str, Workload)>, ObserveError> {
    let mut all = Vec::new();
    for (kind, resource) in workload_kinds() {
        let api: GuardedApi<Workload> = GuardedApi::namespaced_with(client.clone(), namespace, &resource);
        let listed = list_matching(&api, &resource.plural, ListParams::default()).await?;
        let listed = decoded(listed, &resource.plural)?;
        all.extend(listed.into_iter().map(|one| (kind, one)));
    }
    Ok(all)
}

pub(super) fn pod_resource() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

/// Returns the pods of the existing installation in a page. An undecodable pod that may belong to it is an error.
/// `harmless` contains the names of unrelated workloads.
pub(super) fn other_pods(
    page: Vec<GuardedObject<AnyPod>>,
    harmless: &BTreeSet<String>,
) -> Result<Vec<AnyPod>, ObserveError> {
    let may_be_other = |pod: &GuardedObject<AnyPod>| match &pod.0 {
        Ok(pod) => !has_ended(pod) && is_other(&pod.metadata, &pod.spec),
        Err(pod) => !is_ours(&pod.metadata) && !harmless.contains(&workload_of(&pod.metadata)),
    };
    let mut pods: Vec<AnyPod> = decoded(page.into_iter().filter(may_be_other).collect(), "pods")?;
    for pod in &mut pods {
        pod.metadata.managed_fields = None;
    }
    Ok(pods)
}

/// Whether an object belongs to an installation without the operator: its pods run the Go driver's program, or this
/// driver under that name, and it does not belong to a `CinderCSIDriver`.
pub(super) fn is_other(metadata: &ObjectMeta, spec: &PodParts) -> bool {
    !is_ours(metadata)
        && spec
            .containers()
            .any(|container| container.program() == PROGRAM || container.words().any(|word| runs_driver(word)))
}

/// Whether the object belongs to a `CinderCSIDriver`.
pub(super) fn is_ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(INSTANCE_LABEL))
}

/// Whether all containers of the pod have terminated permanently, for example after an eviction.
pub(super) fn has_ended(pod: &AnyPod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The workload that creates a pod, with its kind and namespace; the pod itself if it has no owner.
pub(super) fn workload_of(pod: &ObjectMeta) -> String {
    let owners = pod.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
    let hash = pod.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let Some(owner) = owner else {
        return format!("Pod {}", key_of(pod));
    };
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    match deployment.filter(|_| owner.kind == "ReplicaSet") {
        Some(deployment) => format!("Deployment {namespace}/{deployment}"),
        None => format!("{} {namespace}/{}", owner.kind, owner.name),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::upstream(json!({"image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"}), json!({}), true)]
    #[case::of_a_mirror_by_digest(json!({"image": "mirror:5000/x/cinder-csi-plugin@sha256:0"}), json!({}), true)]
    #[case::our_image_in_their_manifests(
        json!({"image": "ghcr.io/cinder-csi/cinder-csi-driver:v0.2.0", "args": ["/bin/cinder-csi-plugin", "--v=1"]}),
        json!({}),
        true
    )]
    #[case::script(
        json!({"image": "mirror/csi-cinder:v1", "command": ["sh", "-c", "set -e\nexec /bin/cinder-csi-plugin --v=1"]}), json!({}), true)]
    #[case::script_of_entry_point(
        json!({"image": "mirror/csi-cinder:v1", "args": ["A=b cinder-csi-plugin --v=1"]}), json!({}), true)]
    #[case::script_about_container(
        json!({"image": "kubectl:v1", "command": ["sh", "-c", "# cinder-csi-plugin\nkubectl logs x -c cinder-csi-plugin"]}), json!({}), false)]
    #[case::path_in_a_flag(
        json!({"image": "csi-attacher:v4", "args": ["--csi-address=/plugins/cinder-csi-plugin"]}), json!({}), false)]
    #[case::a_sidecar_alone(json!({"image": "registry.k8s.io/sig-storage/csi-attacher:v4.10.0"}), json!({}), false)]
    #[case::ours(
        json!({"image": "mirror/cinder-csi-plugin:v1"}), json!({(INSTANCE_LABEL): "cinder.csi.openstack.org"}), false)]
    #[case::of_another_object_of_ours(
        json!({"image": "mirror/cinder-csi-plugin:v1"}), json!({(INSTANCE_LABEL): "second.csi.example.org"}), false)]
    fn foreign_installation_is_identified_by_its_program(
        #[case] container: Value,
        #[case] labels: Value,
        #[case] expected: bool,
    ) {
        let mut container = container;
        container["name"] = json!("x");
        let metadata = serde_json::from_value(json!({"labels": labels})).expect("metadata");
        let spec = serde_json::from_value(json!({"containers": [container]})).expect("a spec");
        assert_eq!(is_other(&metadata, &spec), expected);
    }

    #[rstest]
    #[case::node(json!([{"name": "s", "hostPath": {"path": "/var/lib/kubelet/plugins/cinder.csi.openstack.org"}}]), true)]
    #[case::with_a_slash(json!([{"name": "s", "hostPath": {"path": "/k/plugins/cinder.csi.openstack.org/"}}]), true)]
    #[case::controller(json!([{"name": "s", "emptyDir": {}}]), false)]
    fn node_plugin_mounts_directory_of_socket(#[case] volumes: Value, #[case] expected: bool) {
        let spec: PodParts = serde_json::from_value(json!({"containers": [], "volumes": volumes})).expect("a spec");
        assert_eq!(spec.is_node_plugin("cinder.csi.openstack.org"), expected);
    }

    fn mk_owner(kind: &str, name: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
    }

    #[rstest]
    #[case::deployment(mk_owner("ReplicaSet", "csi-5f"), "Deployment storage/csi")]
    #[case::stateful_set(mk_owner("StatefulSet", "csi"), "StatefulSet storage/csi")]
    #[case::daemon_set(mk_owner("DaemonSet", "csi"), "DaemonSet storage/csi")]
    #[case::bare(json!([]), "Pod storage/p")]
    fn workload_is_named_by_its_pod(#[case] owners: Value, #[case] expected: &str) {
        let pod =
            json!({"name": "p", "namespace": "storage", "labels": {(TEMPLATE_HASH): "5f"}, "ownerReferences": owners});
        assert_eq!(workload_of(&serde_json::from_value(pod).expect("metadata")), expected);
    }

    #[rstest]
    #[case::unused_field_is_ignored(json!({"resources": 7, "image": "tenant/app"}), json!({}), json!([]), true)]
    #[case::owned_by_other_program(json!({"image": 7}), json!({}), mk_owner("DaemonSet", "tenant"), true)]
    #[case::owned_by_cinder_csi_driver(json!({"image": 7}), json!({(INSTANCE_LABEL): "d"}), json!([]), true)]
    #[case::of_unknown_workload(json!({"image": 7}), json!({}), mk_owner("DaemonSet", "new"), false)]
    #[case::bare(json!({"image": 7}), json!({}), json!([]), false)]
    fn undecodable_pod_stops_migration_unless_metadata_excludes_it(
        #[case] container: Value,
        #[case] labels: Value,
        #[case] owners: Value,
        #[case] is_excluded: bool,
    ) {
        let mut container = container;
        container["name"] = json!("x");
        let pod = json!({
            "metadata": {"name": "p", "namespace": "kube-system", "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [container]},
        });
        let pod = serde_json::from_value(pod).expect("a guarded pod");
        let harmless = BTreeSet::from(["DaemonSet kube-system/tenant".to_owned()]);
        assert_eq!(other_pods(vec![pod], &harmless).is_ok(), is_excluded);
    }
}
