// SPDX-License-Identifier: Apache-2.0
//! Another installation of the driver, the Go driver's, in a namespace of the administrator's choice. It is known by what its pods
//! run and not by names: manifests and chart differ in those, and people change them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::ControlFlow;

use cinder_operator_core::{
    cluster::{
        COMPONENT_LABEL, Installation, Key, NODE_COMPONENT, NOTE, NodePod, Note, OldController, OldObject, Owner,
        PodObject,
    },
    migration::check::PROGRAM,
    releases::{COMPONENTS, DRIVER_CONTAINER},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    coordination::v1::Lease,
    core::v1::{Container, Pod, PodSpec},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{LeaseRenewals, ObserveError, decoded, pages};
use crate::kubernetes::GuardedApi;
use cinder_csi_crds::INSTANCE_LABEL;

/// The most leftovers that are told.
const TOLD: usize = 20;

/// Looks for another installation of the owner's driver in a namespace.
pub async fn installation(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    renewals: &LeaseRenewals,
) -> Result<Installation, ObserveError> {
    let deployments: Vec<Deployment> = all(&GuardedApi::namespaced(client.clone(), namespace)).await?;
    let stateful_sets: Vec<StatefulSet> = all(&GuardedApi::namespaced(client.clone(), namespace)).await?;
    let daemon_sets: Vec<DaemonSet> = all(&GuardedApi::namespaced(client.clone(), namespace)).await?;
    // Of a namespace with all of a cluster's agents: what is none of the other installation goes with its page.
    let (mut pods, mut failed) = (Vec::new(), None);
    let every: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
    pages(&every, "pods", |page| {
        let page = match decoded(page, "pods") {
            Ok(page) => page,
            Err(error) => {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        };
        for pod in page.into_iter().filter(|pod| !has_ended(pod)) {
            let spec = pod.spec.filter(|spec| is_other(&pod.metadata, spec));
            pods.extend(spec.map(|spec| (pod.metadata, spec)));
        }
        ControlFlow::Continue(())
    })
    .await?;
    failed.map_or(Ok(()), Err)?;
    let leases: Vec<Lease> = all(&GuardedApi::namespaced(client.clone(), namespace)).await?;
    let bindings: Vec<ClusterRoleBinding> = all(&GuardedApi::all(client.clone())).await?;

    let mut found = Installation::default();
    let mut specs = Vec::new();
    let deployments = deployments.into_iter().map(Scaled::from);
    for controller in deployments.chain(stateful_sets.into_iter().map(Scaled::from)) {
        let Some(spec) = controller.pods.filter(|spec| is_other(&controller.metadata, spec)) else {
            continue;
        };
        found.controllers.push(OldController {
            kind: controller.kind,
            name: controller.metadata.name.unwrap_or_default(),
            uid: controller.metadata.uid.unwrap_or_default(),
            replicas: controller.replicas.unwrap_or(1),
            note: controller.metadata.annotations.as_ref().and_then(note_in),
        });
        specs.push(spec);
    }
    for set in daemon_sets {
        let spec = set.spec.unwrap_or_default().template.spec;
        if let Some(spec) = spec.filter(|spec| is_other(&set.metadata, spec)) {
            found.daemon_sets.push(old_object(String::new(), set.metadata));
            specs.push(spec);
        }
    }
    for (metadata, spec) in pods {
        let old = old_object(spec.node_name.clone().unwrap_or_default(), metadata);
        if is_node_plugin(&spec, &owner.name) {
            found.node_pods.push(old);
        } else {
            found.controller_pods.push(old);
        }
        specs.push(spec);
    }
    found.node_pods.sort_by(|one, other| one.node.cmp(&other.node));
    let names: Vec<String> = lease_names(owner).collect();
    let leases = || leases.iter().filter(|lease| names.contains(&lease.name_any()));
    // Every Lease is observed at every look.
    let may_lead = leases().filter(|lease| renewals.may_lead(lease, 2)).count() > 0;
    found.are_leases_over = leases().next().is_some() && !may_lead;
    found.leases = leases()
        .filter(|lease| renewals.may_lead(lease, 1))
        .map(|lease| format!("Lease {namespace}/{}", lease.name_any()))
        .collect();
    let controllers = found.controllers.iter();
    let controllers = controllers.map(|controller| format!("{} {namespace}/{}", controller.kind, controller.name));
    let others = leftovers(&specs, &bindings, namespace);
    found.leftovers = controllers.chain(others).take(TOLD).collect();
    Ok(found)
}

/// Our own pods of some components that have not ended.
pub async fn pods_of(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    components: &[&str],
) -> Result<Vec<NodePod>, ObserveError> {
    let api: GuardedApi<PodObject> = GuardedApi::namespaced(client.clone(), namespace);
    let labels = format!(
        "{INSTANCE_LABEL}={},{COMPONENT_LABEL} in ({})",
        owner.name,
        components.join(",")
    );
    let failed = |source| list_failed::<Pod>(source);
    let pods = api.list(&ListParams::default().labels(&labels)).await.map_err(failed)?;
    Ok(pods.iter().filter_map(PodObject::unended).collect())
}

/// Whether no sidecar of the driver can lead any more: no Lease of them was renewed for twice its duration.
pub async fn leases_have_ended(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    renewals: &LeaseRenewals,
) -> Result<bool, ObserveError> {
    let api: GuardedApi<Lease> = GuardedApi::namespaced(client.clone(), namespace);
    let mut may_lead = false;
    for name in lease_names(owner) {
        let lease = api.get_opt(&name).await.map_err(|source| ObserveError::Get {
            key: Key::new("Lease", Some(namespace), &name),
            source: Box::new(source),
        })?;
        may_lead |= lease.is_some_and(|lease| renewals.may_lead(&lease, 2));
    }
    Ok(!may_lead)
}

/// The leases of the driver's sidecars.
fn lease_names(owner: &Owner) -> impl Iterator<Item = String> {
    COMPONENTS.iter().filter_map(|sidecar| sidecar.lease(&owner.name))
}

/// Nodes where the container of our node pod runs, Ready or not.
pub async fn running_node_pods(
    client: &Client,
    owner: &Owner,
    namespace: &str,
) -> Result<BTreeSet<String>, ObserveError> {
    let api: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
    let labels = format!("{INSTANCE_LABEL}={},{COMPONENT_LABEL}={NODE_COMPONENT}", owner.name);
    let failed = |source| list_failed::<Pod>(source);
    let pods = api.list(&ListParams::default().labels(&labels)).await.map_err(failed)?;
    let runs = |pod: &&Pod| {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let mut drivers = statuses.filter(|status| status.name == DRIVER_CONTAINER);
        pod.metadata.deletion_timestamp.is_none()
            && drivers.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let nodes = pods.iter().filter(runs);
    Ok(nodes.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect())
}

/// What runs a number of pods and can be scaled.
struct Scaled {
    kind: &'static str,
    metadata: ObjectMeta,
    replicas: Option<i32>,
    pods: Option<PodSpec>,
}

impl From<Deployment> for Scaled {
    fn from(object: Deployment) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            kind: "Deployment",
            metadata: object.metadata,
            replicas: spec.replicas,
            pods: spec.template.spec,
        }
    }
}

impl From<StatefulSet> for Scaled {
    fn from(object: StatefulSet) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            kind: "StatefulSet",
            metadata: object.metadata,
            replicas: spec.replicas,
            pods: spec.template.spec,
        }
    }
}

/// Whether an object is of the other installation: its pods run the Go driver's program, or ours in its place, and no
/// `CinderCSIDriver` has it.
pub(super) fn is_other(metadata: &ObjectMeta, spec: &PodSpec) -> bool {
    let instance = metadata.labels.as_ref().and_then(|labels| labels.get(INSTANCE_LABEL));
    instance.is_none()
        && spec.containers.iter().any(|container| {
            let mut words = container.command.iter().chain(&container.args).flatten();
            program_of(container) == PROGRAM || words.any(|word| word.rsplit('/').next() == Some(PROGRAM))
        })
}

/// The last part of the name of a container's image, without its tag.
pub(super) fn program_of(container: &Container) -> &str {
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(['@', ':']).next().unwrap_or_default()
}

/// Whether none of its containers runs or will run again, as after an eviction.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod serves the kubelet of its node: it has the directory of the driver's socket there.
fn is_node_plugin(spec: &PodSpec, driver: &str) -> bool {
    let directory = format!("/plugins/{driver}");
    let mut paths = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.host_path.as_ref());
    paths.any(|host| host.path.trim_end_matches('/').ends_with(&directory))
}

/// What was noted on the other controller. Text that is no note counts as none.
fn note_in(annotations: &BTreeMap<String, String>) -> Option<Note> {
    serde_json::from_str(annotations.get(NOTE)?).ok()
}

fn old_object(node: String, metadata: ObjectMeta) -> OldObject {
    OldObject {
        leaving: metadata.deletion_timestamp.is_some(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        node,
    }
}

/// What the pods needed: accounts, roles and Secrets.
fn leftovers(specs: &[PodSpec], bindings: &[ClusterRoleBinding], namespace: &str) -> BTreeSet<String> {
    // Accounts of node plugins are known by the upstream name once their DaemonSet is gone.
    let named = specs
        .iter()
        .filter_map(|spec| spec.service_account_name.as_deref().or(spec.service_account.as_deref()));
    let accounts: BTreeSet<&str> = named
        .filter(|name| *name != "default")
        .chain(["csi-cinder-controller-sa", "csi-cinder-node-sa"])
        .collect();
    let mut left = BTreeSet::new();
    for binding in bindings {
        let subjects = binding.subjects.iter().flatten();
        let ours = subjects.filter(|subject| {
            subject.kind == "ServiceAccount"
                && subject.namespace.as_deref() == Some(namespace)
                && accounts.contains(subject.name.as_str())
        });
        for subject in ours {
            left.insert(format!("ServiceAccount {namespace}/{}", subject.name));
            left.insert(format!("ClusterRoleBinding {}", binding.name_any()));
            left.insert(format!("{} {}", binding.role_ref.kind, binding.role_ref.name));
        }
    }
    let volumes = specs.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let secrets = volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref());
    left.extend(secrets.map(|name| format!("Secret {namespace}/{name}")));
    left
}

pub(super) async fn all<K>(api: &GuardedApi<K>) -> Result<Vec<K>, ObserveError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut items = Vec::new();
    pages(api, &K::plural(&()), |page| {
        items.extend(page);
        ControlFlow::Continue(())
    })
    .await?;
    decoded(items, &K::plural(&()))
}

fn list_failed<K: Resource<DynamicType = ()>>(source: kube::Error) -> ObserveError {
    ObserveError::List {
        plural: K::plural(&()).into_owned(),
        source: Box::new(source),
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
    #[case::a_sidecar_alone(json!({"image": "registry.k8s.io/sig-storage/csi-attacher:v4.10.0"}), json!({}), false)]
    #[case::ours(
        json!({"image": "mirror/cinder-csi-plugin:v1"}), json!({(INSTANCE_LABEL): "cinder.csi.openstack.org"}), false)]
    #[case::of_another_object_of_ours(
        json!({"image": "mirror/cinder-csi-plugin:v1"}), json!({(INSTANCE_LABEL): "second.csi.example.org"}), false)]
    fn another_installation_is_known_by_what_it_runs(
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
    fn a_node_plugin_has_the_directory_of_its_socket(#[case] volumes: Value, #[case] expected: bool) {
        let spec = serde_json::from_value(json!({"containers": [], "volumes": volumes})).expect("a spec");
        assert_eq!(is_node_plugin(&spec, "cinder.csi.openstack.org"), expected);
    }

    #[test]
    fn what_the_pods_needed_is_left_over() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [], "serviceAccount": "csi-cinder-controller-sa",
            "volumes": [{"name": "c", "secret": {"secretName": "cloud-config"}}],
        }))
        .expect("a spec");
        let binding = |name: &str, namespace: &str| -> ClusterRoleBinding {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "csi-attacher-role"},
                "subjects": [{"kind": "ServiceAccount", "name": "csi-cinder-controller-sa", "namespace": namespace}],
            }))
            .expect("a binding")
        };
        let bindings = [
            binding("csi-attacher-binding", "kube-system"),
            binding("other", "elsewhere"),
        ];
        assert_eq!(
            Vec::from_iter(leftovers(&[spec], &bindings, "kube-system")),
            [
                "ClusterRole csi-attacher-role",
                "ClusterRoleBinding csi-attacher-binding",
                "Secret kube-system/cloud-config",
                "ServiceAccount kube-system/csi-cinder-controller-sa",
            ]
        );
    }
}
