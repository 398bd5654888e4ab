// SPDX-License-Identifier: Apache-2.0
//! VolumeAttachments, reduced to the relevant part.

use std::collections::HashMap;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::facts::{AttachmentFact, IgnoredChange, truncate_error};
use super::index::{Affected, Index, Indexed, Scope};

/// The relevant part of a VolumeAttachment.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = VolumeAttachment)]
pub struct AttachmentObject {
    metadata: ObjectMeta,
    spec: AttachmentSpec,
    #[serde(default)]
    status: AttachmentStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentSpec {
    attacher: String,
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    source: AttachmentSource,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentStatus {
    attached: bool,
    attach_error: Option<ReportedError>,
    detach_error: Option<ReportedError>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ReportedError {
    message: Option<String>,
}

impl AttachmentObject {
    /// Whether this driver is attaching or detaching the volume.
    pub fn is_under_way_of(&self, driver: &str) -> bool {
        let is_under_way = !self.status.attached || self.metadata.deletion_timestamp.is_some();
        is_under_way && self.spec.attacher == driver
    }
}

impl Indexed for AttachmentObject {
    type Kept = AttachmentFact;
    const SCOPE: Scope = Scope::Volumes;

    fn keep(&self) -> Option<AttachmentFact> {
        let deleted = self.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let error = if deleted.is_some() {
            &self.status.detach_error
        } else {
            &self.status.attach_error
        };
        Some(AttachmentFact {
            attacher: self.spec.attacher.clone(),
            node: self.spec.node_name.clone(),
            volume: self.spec.source.persistent_volume_name.clone().unwrap_or_default(),
            attached: self.status.attached,
            created: self.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleted,
            error: IgnoredChange(
                error
                    .as_ref()
                    .and_then(|error| error.message.as_deref())
                    .map(truncate_error),
            ),
        })
    }

    fn affected(fact: &AttachmentFact) -> Affected {
        Affected::Drivers([fact.attacher.clone()].into())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, AttachmentFact> {
        &mut index.attachments
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn changed_error_text_does_not_change_attachment() {
        let attachment = |message: &str| {
            serde_json::from_value::<AttachmentObject>(json!({
                "metadata": {"name": "va"},
                "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
                "status": {"attached": false, "attachError": {"message": message}},
            }))
            .expect("an attachment")
            .keep()
        };
        assert_eq!(attachment("request 1"), attachment("request 2"));
        assert_eq!(attachment("x").and_then(|fact| fact.error.0).as_deref(), Some("x"));
    }

    #[rstest]
    #[case::attached(json!({"attached": true}), None, false)]
    #[case::being_attached(json!({"attached": false}), None, true)]
    #[case::nobody_has_looked_yet(json!({}), None, true)]
    #[case::being_detached(json!({"attached": true}), Some("2026-01-01T00:00:00Z"), true)]
    fn attachment_is_pending_until_attached_and_when_deleted(
        #[case] status: Value,
        #[case] deleted: Option<&str>,
        #[case] expected: bool,
    ) {
        let attachment: AttachmentObject = serde_json::from_value(json!({
            "metadata": {"name": "va", "deletionTimestamp": deleted},
            "spec": {"attacher": "d", "nodeName": "n", "source": {}},
            "status": status,
        }))
        .expect("an attachment");
        assert_eq!(attachment.is_under_way_of("d"), expected);
        assert!(!attachment.is_under_way_of("another"));
    }
}
