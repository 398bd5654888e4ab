// SPDX-License-Identifier: Apache-2.0
//! Reads the revisions of a workload. The controller of a DaemonSet numbers its templates in ControllerRevisions, which
//! show the pods that are up to date. The revisions may also outlive their workload, and then contain the template of
//! its pods.

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::cluster::{COMPONENT_LABEL, CONTROLLER_COMPONENT, NODE_COMPONENT, REVISION_LABEL, kind};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, ReplicaSet},
    core::v1::PodTemplateSpec,
};
use kube::{
    Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::Deserialize;
use serde_json::Value;

use super::error::ObserveError;
use crate::kubernetes::GuardedApi;

/// Annotation of ReplicaSets with the number of the Deployment's revision.
const REPLICA_SET_REVISION: &str = "deployment.kubernetes.io/revision";
/// Label of ReplicaSets and their pods that distinguishes templates.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A ControllerRevision without its template.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = ControllerRevision)]
pub(super) struct Revision {
    metadata: ObjectMeta,
    revision: i64,
}

/// The value of [`REVISION_LABEL`] on pods of the DaemonSet's present template; `None` while its controller has not
/// observed the template.
pub async fn current_revision(
    client: &Client,
    namespace: &str,
    driver: &str,
    daemon_set: &Value,
) -> Result<Option<String>, ObserveError> {
    let seen = daemon_set["status"]["observedGeneration"].as_i64().unwrap_or_default();
    if seen < daemon_set["metadata"]["generation"].as_i64().unwrap_or_default() {
        return Ok(None);
    }
    let api: GuardedApi<Revision> = GuardedApi::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{INSTANCE_LABEL}={driver}"));
    let revisions = api.list(&params).await.map_err(|source| ObserveError::List {
        plural: "controllerrevisions".to_owned(),
        source: Box::new(source),
    })?;
    let uid = daemon_set["metadata"]["uid"].as_str().unwrap_or_default();
    Ok(newest(revisions, uid))
}

/// The newest pod template of the driver's Deployment or DaemonSet that a revision contains; `None` if there is no
/// revision, or if the operator may not list revisions.
pub async fn newest_template(
    client: &Client,
    namespace: &str,
    driver: &str,
    kind: &str,
) -> Result<Option<PodTemplateSpec>, ObserveError> {
    let component = if kind == kind::DEPLOYMENT {
        CONTROLLER_COMPONENT
    } else {
        NODE_COMPONENT
    };
    let params = ListParams::default().labels(&format!("{INSTANCE_LABEL}={driver},{COMPONENT_LABEL}={component}"));
    let (plural, looked) = if kind == kind::DEPLOYMENT {
        let api: GuardedApi<ReplicaSet> = GuardedApi::namespaced(client.clone(), namespace);
        ("replicasets", api.list(&params).await.map(newest_of_sets))
    } else {
        let api: GuardedApi<ControllerRevision> = GuardedApi::namespaced(client.clone(), namespace);
        let looked = api.list(&params).await;
        ("controllerrevisions", looked.map(newest_of_revisions))
    };
    match looked {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        other => other.map_err(|source| ObserveError::List {
            plural: plural.to_owned(),
            source: Box::new(source),
        }),
    }
}

fn newest_of_sets(sets: Vec<ReplicaSet>) -> Option<PodTemplateSpec> {
    let number = |set: &ReplicaSet| -> Option<i64> { set.annotations().get(REPLICA_SET_REVISION)?.parse().ok() };
    let newest = sets.into_iter().max_by_key(number)?;
    let mut template = newest.spec?.template?;
    // The controller adds its own hash to each template.
    let labels = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut());
    labels.and_then(|labels| labels.remove(TEMPLATE_HASH));
    Some(template)
}

fn newest_of_revisions(revisions: Vec<ControllerRevision>) -> Option<PodTemplateSpec> {
    let newest = revisions.into_iter().max_by_key(|revision| revision.revision)?;
    serde_json::from_value(newest.data?.0["spec"]["template"].take()).ok()
}

fn newest(revisions: Vec<Revision>, uid: &str) -> Option<String> {
    let is_of = |revision: &Revision| {
        let owners = revision.metadata.owner_references.as_ref();
        owners.is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid))
    };
    let newest = revisions
        .into_iter()
        .filter(is_of)
        .max_by_key(|revision| revision.revision)?;
    newest.metadata.labels?.get(REVISION_LABEL).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newest_template_of_deleted_workload_has_no_hash() {
        let container = |name: &str| json!({"containers": [{"name": name}]});
        let set = |number: &str, name: &str| -> ReplicaSet {
            let metadata = json!({"labels": {"a": "b", (TEMPLATE_HASH): "h"}});
            serde_json::from_value(json!({"metadata": {"annotations": {(REPLICA_SET_REVISION): number}},
                "spec": {"selector": {}, "template": {"metadata": metadata, "spec": container(name)}}}))
            .expect("a ReplicaSet")
        };
        let revision = |number: i64, name: &str| -> ControllerRevision {
            let template = json!({"$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {"a": "b"}},
                "spec": container(name)});
            serde_json::from_value(
                json!({"metadata": {}, "revision": number, "data": {"spec": {"template": template}}}),
            )
            .expect("a revision")
        };
        let expected = json!({"metadata": {"labels": {"a": "b"}}, "spec": container("new")});
        let of_sets = newest_of_sets(vec![set("9", "old"), set("10", "new")]);
        let of_revisions = newest_of_revisions(vec![revision(10, "new"), revision(9, "old")]);
        for template in [of_sets, of_revisions] {
            assert_eq!(serde_json::to_value(template).expect("JSON"), expected);
        }
        assert_eq!(
            (newest_of_sets(Vec::new()), newest_of_revisions(Vec::new())),
            (None, None)
        );
    }

    #[test]
    fn newest_revision_of_same_daemon_set_counts() {
        let revision = |number: i64, hash: &str, owner: &str| -> Revision {
            serde_json::from_value(
                json!({"revision": number, "metadata": {"labels": {(REVISION_LABEL): hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": owner}]}}),
            )
            .expect("a revision")
        };
        // A reused older template has the highest number.
        let all = vec![
            revision(3, "first", "u"),
            revision(2, "second", "u"),
            revision(9, "other", "v"),
        ];
        assert_eq!(newest(all, "u").as_deref(), Some("first"));
        assert_eq!(newest(Vec::new(), "u"), None);
    }
}
