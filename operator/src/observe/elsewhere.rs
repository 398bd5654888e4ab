// SPDX-License-Identifier: Apache-2.0
//! Installations of the Go driver outside the namespace of a migration.
//!
//! The operator finds them by their pods: the role for the check before a migration includes the list of all pods. A right to list
//! workloads in all namespaces would add workloads without pods alone, and those have no leader. The kubectl plugin lists workloads as
//! well, with the rights of its user.

use std::{collections::BTreeSet, fmt::Debug, ops::ControlFlow};

use cinder_operator_core::cluster::{key_of, unknown_object};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::{Pod, PodSpec},
};
use kube::{Client, Resource, api::ObjectMeta};
use serde::de::DeserializeOwned;

use super::{
    ObserveError,
    installation::{has_ended, is_other},
    pages,
};
use crate::kubernetes::{GuardedApi, is_forbidden};

/// The label by which a Deployment tells the pods of its ReplicaSets apart.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Lists the workloads of other installations that have pods outside `namespace`, each with its kind and namespace.
pub(crate) async fn installations_elsewhere(client: &Client, namespace: &str) -> Result<Vec<String>, ObserveError> {
    let pods: GuardedApi<Pod> = GuardedApi::all(client.clone());
    let mut found = BTreeSet::new();
    pages(&pods, "pods", |page| {
        for pod in page {
            match pod.0 {
                Ok(pod) if is_elsewhere(&pod.metadata, namespace) && !has_ended(&pod) => {
                    let is_meant = pod.spec.as_ref().is_some_and(|spec| is_other(&pod.metadata, spec));
                    found.extend(is_meant.then(|| workload_of(&pod.metadata)));
                }
                Ok(_) => {}
                Err(undecodable) => drop(found.insert(format!("Pod {}", unknown_object(&undecodable.key())))),
            }
        }
        ControlFlow::Continue(())
    })
    .await?;
    Ok(found.into_iter().collect())
}

/// Lists the workloads of other installations outside `namespace` that want pods. A kind that the client may not list is left out.
pub(super) async fn workloads_elsewhere(client: &Client, namespace: &str) -> Result<BTreeSet<String>, ObserveError> {
    let mut found = of_kind(client, namespace, |one: Deployment| {
        let spec = one.spec?;
        (spec.replicas != Some(0)).then_some((one.metadata, spec.template.spec?))
    })
    .await?;
    found.extend(
        of_kind(client, namespace, |one: StatefulSet| {
            let spec = one.spec?;
            (spec.replicas != Some(0)).then_some((one.metadata, spec.template.spec?))
        })
        .await?,
    );
    found.extend(
        of_kind(client, namespace, |one: DaemonSet| {
            Some((one.metadata, one.spec?.template.spec?))
        })
        .await?,
    );
    Ok(found)
}

async fn of_kind<K>(
    client: &Client,
    namespace: &str,
    parts: impl Fn(K) -> Option<(ObjectMeta, PodSpec)>,
) -> Result<BTreeSet<String>, ObserveError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let every: GuardedApi<K> = GuardedApi::all_with(client.clone(), &());
    let mut found = BTreeSet::new();
    let listed = pages(&every, &K::plural(&()), |page| {
        let decoded = page.into_iter().filter_map(|object| parts(object.0.ok()?));
        let others = decoded.filter(|(metadata, spec)| is_elsewhere(metadata, namespace) && is_other(metadata, spec));
        found.extend(others.map(|(metadata, _)| format!("{} {}", K::kind(&()), key_of(&metadata))));
        ControlFlow::Continue(())
    })
    .await;
    match listed {
        Err(ObserveError::List { source, .. }) if is_forbidden(&source) => Ok(BTreeSet::new()),
        other => other.map(|()| found),
    }
}

fn is_elsewhere(metadata: &ObjectMeta, namespace: &str) -> bool {
    metadata.namespace.as_deref() != Some(namespace)
}

/// The workload that creates a pod, with its kind and namespace; else the pod.
fn workload_of(pod: &ObjectMeta) -> String {
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
    #[case::deployment(json!([{"kind": "ReplicaSet", "name": "csi-5f", "controller": true}]), "Deployment storage/csi")]
    #[case::stateful_set(json!([{"kind": "StatefulSet", "name": "csi", "controller": true}]), "StatefulSet storage/csi")]
    #[case::daemon_set(json!([{"kind": "DaemonSet", "name": "csi", "controller": true}]), "DaemonSet storage/csi")]
    #[case::bare(json!([]), "Pod storage/p")]
    fn workload_is_named_by_its_pod(#[case] owners: Value, #[case] expected: &str) {
        let mut owners = owners;
        for owner in owners.as_array_mut().expect("a list") {
            owner["apiVersion"] = json!("apps/v1");
            owner["uid"] = json!("u");
        }
        let pod =
            json!({"name": "p", "namespace": "storage", "labels": {(TEMPLATE_HASH): "5f"}, "ownerReferences": owners});
        assert_eq!(workload_of(&serde_json::from_value(pod).expect("metadata")), expected);
    }
}
