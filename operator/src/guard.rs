//! May an object be made anew now? What is planned says what should be; this looks at who would be hurt while it is missing.
//!
//! * A CSIDriver must not be missed by an attachment that is under way: the attach-detach controller would take the driver for
//!   one without attachments.
//! * A VolumeAttributesClass must not change under a claim or a volume that refers to it: they would say something else than
//!   what they are.

use std::fmt::Debug;
use std::ops::ControlFlow;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttachment,
};
use kube::{Api, Client, Resource, api::ObjectMeta};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    events::Notice,
    objects::{Key, kind},
    observe::{Cluster, ObserveError, pages},
    plan::{Action, Obstacle, Plan},
    words::listed,
};

/// How many objects a look is content with.
const ENOUGH: usize = 11;

/// A VolumeAttachment, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = VolumeAttachment)]
struct Attachment {
    metadata: ObjectMeta,
    spec: AttachmentSpec,
    #[serde(default)]
    status: AttachmentStatus,
}

#[derive(Debug, Clone, Deserialize)]
struct AttachmentSpec {
    attacher: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct AttachmentStatus {
    #[serde(default)]
    attached: bool,
}

impl Attachment {
    /// Whether it is being attached or detached.
    fn is_under_way(&self) -> bool {
        !self.status.attached || self.metadata.deletion_timestamp.is_some()
    }
}

/// A claim, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = PersistentVolumeClaim)]
struct Claim {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
    #[serde(default)]
    status: ClaimStatus,
}

/// A PersistentVolume, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = PersistentVolume)]
struct Volume {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimStatus {
    phase: Option<String>,
    current_volume_attributes_class_name: Option<String>,
}

impl Claim {
    fn refers_to(&self, class: &str) -> bool {
        let names = [
            &self.spec.volume_attributes_class_name,
            &self.status.current_volume_attributes_class_name,
        ];
        names.into_iter().any(|name| name.as_deref() == Some(class))
    }

    fn waits_for(&self, class: &str) -> bool {
        self.status.phase.as_deref() == Some("Pending") && self.spec.storage_class_name.as_deref() == Some(class)
    }
}

/// Takes re-creations that would do harm out of the plan, and says so. What the watches know to be in the way costs no
/// request: it may be there for days. That nothing is, the API server says.
pub async fn hold_back(client: &Client, cluster: &Cluster, driver: &str, plan: &mut Plan) -> Result<(), ObserveError> {
    let mut held = Vec::new();
    for action in &plan.actions {
        let Action::Recreate { desired, fields, .. } = action else {
            continue;
        };
        let key = &desired.key;
        let what = match key.kind {
            kind::CSI_DRIVER => attachments_under_way(client, cluster, driver).await?,
            kind::ATTRIBUTES_CLASS => references(client, cluster, &key.name).await?,
            _ => None,
        };
        if let Some(what) = what {
            held.push((key.clone(), fields.clone(), what));
        }
    }
    for (key, fields, what) in held {
        plan.actions.retain(|action| *action.key() != key);
        plan.obstacles.push(Obstacle::Waiting { key, fields, what });
    }
    Ok(())
}

async fn attachments_under_way(
    client: &Client,
    cluster: &Cluster,
    driver: &str,
) -> Result<Option<String>, ObserveError> {
    let mut found = cluster.read(|index| index.attachments_under_way(driver));
    if found.is_empty() {
        let is_under_way = |attachment: &Attachment| attachment.spec.attacher == driver && attachment.is_under_way();
        found = find(client, is_under_way).await?;
    }
    Ok((!found.is_empty()).then(|| format!("VolumeAttachments are under way: {}", listed(&found))))
}

async fn references(client: &Client, cluster: &Cluster, class: &str) -> Result<Option<String>, ObserveError> {
    let mut volumes = cluster.read(|index| index.volumes_with_attributes(class));
    if volumes.is_empty() {
        let claims = find(client, |claim: &Claim| claim.refers_to(class)).await?;
        if !claims.is_empty() {
            return Ok(Some(format!("PersistentVolumeClaims refer to it: {}", listed(&claims))));
        }
        let refers = |volume: &Volume| volume.spec.volume_attributes_class_name.as_deref() == Some(class);
        volumes = find(client, refers).await?;
    }
    Ok((!volumes.is_empty()).then(|| format!("PersistentVolumes refer to it: {}", listed(&volumes))))
}

/// A word about claims that wait for a StorageClass which is about to be removed.
pub async fn last_words(client: &Client, plan: &Plan) -> Result<Vec<Notice>, ObserveError> {
    let mut notices = Vec::new();
    for action in &plan.actions {
        let Action::Prune {
            key: Key {
                kind: kind::STORAGE_CLASS,
                name,
                ..
            },
            ..
        } = action
        else {
            continue;
        };
        let waiting = find(client, |claim: &Claim| claim.waits_for(name)).await?;
        if !waiting.is_empty() {
            let note = format!(
                "StorageClass {name} goes, and these claims that wait for it get no volume before there is one of that name again: {}",
                listed(&waiting)
            );
            notices.push(Notice::warning("ClaimsWithoutClass", "Apply", note));
        }
    }
    Ok(notices)
}

/// The first few objects of a kind that are `wanted`, by namespace and name.
async fn find<K>(client: &Client, wanted: impl Fn(&K) -> bool) -> Result<Vec<String>, ObserveError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut found = Vec::new();
    pages(&Api::<K>::all(client.clone()), &K::plural(&()), |page| {
        found.extend(page.iter().filter(|object| wanted(object)).map(place));
        if found.len() < ENOUGH {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .await?;
    found.sort();
    Ok(found)
}

fn place<K: Resource>(object: &K) -> String {
    let metadata = object.meta();
    let name = metadata.name.clone().unwrap_or_default();
    match &metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::attached(json!({"attached": true}), None, false)]
    #[case::being_attached(json!({"attached": false}), None, true)]
    #[case::nobody_has_looked_yet(json!({}), None, true)]
    #[case::being_detached(json!({"attached": true}), Some("2026-01-01T00:00:00Z"), true)]
    fn an_attachment_is_under_way_until_it_is_there_and_from_when_it_goes(
        #[case] status: Value,
        #[case] deleted: Option<&str>,
        #[case] expected: bool,
    ) {
        let attachment: Attachment = serde_json::from_value(json!({
            "metadata": {"name": "va", "deletionTimestamp": deleted},
            "spec": {"attacher": "d", "nodeName": "n", "source": {}},
            "status": status,
        }))
        .expect("an attachment");
        assert_eq!(attachment.is_under_way(), expected);
    }

    #[rstest]
    #[case::it_wants_it(json!({"volumeAttributesClassName": "gold"}), json!({}), true)]
    #[case::it_has_it(json!({"volumeAttributesClassName": "silver"}), json!({"currentVolumeAttributesClassName": "gold"}), true)]
    #[case::it_has_another(json!({"volumeAttributesClassName": "silver"}), json!({"phase": "Bound"}), false)]
    #[case::it_has_none(json!({}), json!({}), false)]
    fn a_claim_refers_to_the_attributes_that_it_wants_and_has(
        #[case] spec: Value,
        #[case] status: Value,
        #[case] expected: bool,
    ) {
        let claim: Claim =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).expect("a claim");
        assert_eq!(claim.refers_to("gold"), expected);
    }

    #[rstest]
    #[case::waiting("Pending", "cinder", true)]
    #[case::bound("Bound", "cinder", false)]
    #[case::of_another_class("Pending", "other", false)]
    fn a_claim_waits_for_its_class_until_it_is_bound(#[case] phase: &str, #[case] class: &str, #[case] expected: bool) {
        let claim: Claim = serde_json::from_value(json!({
            "metadata": {}, "spec": {"storageClassName": class}, "status": {"phase": phase},
        }))
        .expect("a claim");
        assert_eq!(claim.waits_for("cinder"), expected);
    }
}
