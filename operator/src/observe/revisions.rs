//! Which pods of a DaemonSet are up to date? Its controller numbers the templates that it has seen, in ControllerRevisions.

use cinder_csi_crds::INSTANCE_LABEL;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{
    Api, Client, Resource,
    api::{ListParams, ObjectMeta},
};
use serde::Deserialize;
use serde_json::Value;

use super::ObserveError;
use crate::rollout::REVISION_LABEL;

/// A ControllerRevision without the template that it keeps.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = ControllerRevision)]
struct Revision {
    metadata: ObjectMeta,
    revision: i64,
}

/// The value of [`REVISION_LABEL`] on pods of the DaemonSet's present template; `None` while its controller has not seen it.
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
    let api: Api<Revision> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{INSTANCE_LABEL}={driver}"));
    let revisions = api.list(&params).await.map_err(|source| ObserveError::List {
        plural: "controllerrevisions".to_owned(),
        source: Box::new(source),
    })?;
    let uid = daemon_set["metadata"]["uid"].as_str().unwrap_or_default();
    Ok(newest(revisions.items, uid))
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
    fn the_newest_revision_of_this_very_daemon_set_counts() {
        let revision = |number: i64, hash: &str, owner: &str| -> Revision {
            serde_json::from_value(
                json!({"revision": number, "metadata": {"labels": {(REVISION_LABEL): hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": owner}]}}),
            )
            .expect("a revision")
        };
        // An older template that came back has the highest number.
        let all = vec![
            revision(3, "first", "u"),
            revision(2, "second", "u"),
            revision(9, "other", "v"),
        ];
        assert_eq!(newest(all, "u").as_deref(), Some("first"));
        assert_eq!(newest(Vec::new(), "u"), None);
    }
}
