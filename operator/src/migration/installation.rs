// SPDX-License-Identifier: Apache-2.0
//! Finds an existing installation of the driver, usually the Go driver, in a namespace that the administrator names. It
//! is identified by the programs of its pods and not by names, because names differ between manifests and chart, and
//! administrators change them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use cinder_operator_core::cluster::{Installation, NOTE, Note, OldController, OldObject, Owner, key_of};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::ClusterRoleBinding};
use kube::{
    Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{
    old_pods::OldPods,
    workloads::{PodParts, is_other, workloads},
};
use crate::{
    kubernetes::GuardedApi,
    observe::{LeaseRenewals, ObserveError, decoded, list_matching, sidecar_leases},
};

/// Maximum number of reported leftovers.
const MOST_LEFTOVERS: usize = 20;

/// Finds an existing installation of the owner's driver in a namespace.
pub(super) async fn installation(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    renewals: &LeaseRenewals,
    old_pods: &OldPods,
) -> Result<Installation, ObserveError> {
    let workloads = workloads(client, namespace).await?.into_iter();
    let (others, harmless): (Vec<_>, Vec<_>) =
        workloads.partition(|(_, workload)| is_other(&workload.metadata, &workload.spec.template.spec));
    let harmless = harmless.iter();
    let harmless = harmless.map(|(kind, workload)| format!("{kind} {}", key_of(&workload.metadata)));
    let creators: Vec<_> = others.iter().map(|(_, workload)| workload).collect();
    let pods = old_pods.read(client, namespace, &creators, &harmless.collect()).await?;
    let leases: Vec<Lease> = all(&GuardedApi::namespaced(client.clone(), namespace)).await?;
    let bindings: Vec<ClusterRoleBinding> = all(&GuardedApi::all(client.clone())).await?;

    let mut installation = Installation::default();
    let mut specs = Vec::new();
    for (kind, workload) in others {
        if kind == "DaemonSet" {
            installation
                .daemon_sets
                .push(old_object(String::new(), workload.metadata));
        } else {
            installation.controllers.push(OldController {
                kind,
                note: workload.metadata.annotations.as_ref().and_then(note_in),
                name: workload.metadata.name.unwrap_or_default(),
                uid: workload.metadata.uid.unwrap_or_default(),
                replicas: workload.spec.replicas.unwrap_or(1),
            });
        }
        specs.push(workload.spec.template.spec);
    }
    for pod in pods {
        let old = old_object(pod.spec.node_name.clone().unwrap_or_default(), pod.metadata);
        if pod.spec.is_node_plugin(&owner.name) {
            installation.node_pods.push(old);
        } else {
            installation.controller_pods.push(old);
        }
        specs.push(pod.spec);
    }
    installation.node_pods.sort_by(|one, other| one.node.cmp(&other.node));
    let names: Vec<String> = sidecar_leases(owner).collect();
    let leases = || leases.iter().filter(|lease| names.contains(&lease.name_any()));
    // `count` evaluates the filter for all Leases; `any` would not observe every Lease.
    let may_lead = leases().filter(|lease| renewals.may_lead(lease, 2)).count() > 0;
    installation.are_leases_over = leases().next().is_some() && !may_lead;
    installation.leases = leases()
        .filter(|lease| renewals.may_lead(lease, 1))
        .map(|lease| format!("Lease {namespace}/{}", lease.name_any()))
        .collect();
    let controllers = installation.controllers.iter();
    let controllers = controllers.map(|controller| format!("{} {namespace}/{}", controller.kind, controller.name));
    let others = leftovers(&specs, &bindings, namespace);
    installation.leftovers = controllers.chain(others).take(MOST_LEFTOVERS).collect();
    Ok(installation)
}

/// The record that the operator wrote on the existing controller. Invalid text counts as missing.
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

/// The objects that the pods used: accounts, roles and Secrets.
fn leftovers(specs: &[PodParts], bindings: &[ClusterRoleBinding], namespace: &str) -> BTreeSet<String> {
    // The accounts of node plugins are identified by their upstream names after the deletion of their DaemonSet.
    let named = specs.iter().filter_map(PodParts::account);
    let accounts: BTreeSet<&str> = named
        .filter(|name| *name != "default")
        .chain(["csi-cinder-controller-sa", "csi-cinder-node-sa"])
        .collect();
    let mut leftovers = BTreeSet::new();
    for binding in bindings {
        let subjects = binding.subjects.iter().flatten();
        let ours = subjects.filter(|subject| {
            subject.kind == "ServiceAccount"
                && subject.namespace.as_deref() == Some(namespace)
                && accounts.contains(subject.name.as_str())
        });
        for subject in ours {
            leftovers.insert(format!("ServiceAccount {namespace}/{}", subject.name));
            leftovers.insert(format!("ClusterRoleBinding {}", binding.name_any()));
            leftovers.insert(format!("{} {}", binding.role_ref.kind, binding.role_ref.name));
        }
    }
    let secrets = specs.iter().flat_map(PodParts::secrets);
    leftovers.extend(secrets.map(|name| format!("Secret {namespace}/{name}")));
    leftovers
}

async fn all<K>(api: &GuardedApi<K>) -> Result<Vec<K>, ObserveError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let plural = K::plural(&());
    decoded(list_matching(api, &plural, ListParams::default()).await?, &plural)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leftovers_are_objects_that_pods_used() {
        let spec: PodParts = serde_json::from_value(json!({
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
