// SPDX-License-Identifier: Apache-2.0
//! Facts of the index about claims, volumes and attachments: existing objects, and pending operations with their
//! start.

use std::collections::{BTreeSet, HashMap};

use csi_sources::UntrustedText;
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::VolumeAttachment,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ManagedFieldsEntry, Time},
    },
    jiff::Timestamp,
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::references::{SecretField, SecretReference, VolumeAffinity, annotated_secrets};
use super::{Affected, Index, Indexed, Owned, Scope};

/// Annotation of a claim whose volume a provisioner creates.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The former name of this annotation.
pub const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Annotation of a claim with the node for which its volume is created.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The driver for volumes of the former in-tree Cinder plugin.
const DRIVER_OF_MIGRATED: &str = "cinder.csi.openstack.org";

/// Maximum length of a stored error.
const LONGEST_ERROR: usize = 512;

/// A stored value whose change affects no driver: text that differs between attempts.
#[derive(Debug, Clone, Default)]
pub struct IgnoredChange<T>(pub T);

impl<T> PartialEq for IgnoredChange<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The claim of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct VolumeFact {
    pub driver: String,
    /// Id of the volume in Cinder.
    pub handle: String,
    /// The claim that the volume is or was bound to.
    pub claim: Option<ClaimRef>,
    /// Whether the volume is restricted to some nodes.
    pub is_zoned: bool,
    /// Whether the data remains in Cinder after the deletion of the object.
    pub is_retained: bool,
    /// The VolumeAttributesClass of the volume.
    pub attributes_class: Option<Box<str>>,
    /// Time since when the volume waits for its deletion.
    pub deleting_since: Option<Timestamp>,
    /// Whether the object is being deleted.
    pub is_terminating: bool,
    /// Whether a claim is bound to the volume.
    pub is_bound: bool,
}

/// A VolumeAttachment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttachmentFact {
    pub attacher: String,
    pub node: String,
    /// The PersistentVolume.
    pub volume: String,
    /// Whether the volume is attached.
    pub attached: bool,
    /// Time of the attach request.
    pub created: Option<Timestamp>,
    /// Time of the detach request.
    pub deleted: Option<Timestamp>,
    /// Last reported error.
    pub error: IgnoredChange<Option<String>>,
}

/// A claim with a pending operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimFact {
    /// The CSI driver that creates the volume.
    pub driver: String,
    pub claim: ClaimRef,
    /// The PersistentVolume, if it exists.
    pub volume: Option<String>,
    /// Time since when the claim waits for a volume.
    pub provisioning_since: Option<Timestamp>,
    /// Time since when the claim waits for an expansion.
    pub resizing_since: Option<Timestamp>,
    /// Whether only the file system expansion is pending, for which a pod must use the volume.
    pub waits_for_node: bool,
    /// The node for which the volume is created.
    pub node: Option<String>,
    /// Last reported error of an expansion.
    pub error: IgnoredChange<Option<String>>,
}

impl Owned for VolumeFact {
    fn driver(&self) -> &str {
        &self.driver
    }
}

impl Owned for AttachmentFact {
    fn driver(&self) -> &str {
        &self.attacher
    }
}

/// The relevant part of a PersistentVolume.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = PersistentVolume)]
pub struct VolumeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
    #[serde(default)]
    status: VolumeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    csi: Option<CsiSource>,
    cinder: Option<CinderSource>,
    claim_ref: Option<ClaimReference>,
    access_modes: Vec<String>,
    volume_mode: Option<Box<str>>,
    persistent_volume_reclaim_policy: Option<String>,
    node_affinity: Option<VolumeAffinity>,
    volume_attributes_class_name: Option<Box<str>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsiSource {
    driver: String,
    #[serde(default)]
    volume_handle: String,
    controller_publish_secret_ref: Option<SecretField>,
    controller_expand_secret_ref: Option<SecretField>,
}

/// A volume of the former in-tree Cinder plugin. Kubernetes redirects it to the CSI driver.
#[derive(Debug, Clone, Deserialize)]
struct CinderSource {
    #[serde(rename = "volumeID")]
    volume_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimReference {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeStatus {
    phase: String,
    last_phase_transition_time: Option<Time>,
}

impl VolumeObject {
    /// Whether the data remains in Cinder after the deletion of the object.
    pub fn is_retained(&self) -> bool {
        self.spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
    }

    /// Whether several nodes may write to its file system at the same time.
    pub fn is_shared_file_system(&self) -> bool {
        is_shared_file_system(&self.spec.access_modes, self.spec.volume_mode.as_deref())
    }

    /// Returns the claim that it is or was bound to, or its own name.
    pub fn claim_or_name(&self) -> String {
        match &self.spec.claim_ref {
            Some(claim) => format!("{}/{}", claim.namespace, claim.name),
            None => self.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Returns the Secrets that the sidecars read for the volume.
    pub fn secret_references(&self) -> Vec<SecretReference> {
        let source = self.spec.csi.iter();
        let of_source = source.flat_map(|csi| {
            let fields = [
                ("controllerPublishSecretRef", &csi.controller_publish_secret_ref),
                ("controllerExpandSecretRef", &csi.controller_expand_secret_ref),
            ];
            fields.map(|(name, field)| field.as_ref()?.reference(name))
        });
        let annotations = self.metadata.annotations.iter().flat_map(annotated_secrets);
        of_source.flatten().chain(annotations).collect()
    }

    /// Returns the values of a label that its nodes must have.
    pub fn label_values<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a str> {
        self.spec
            .node_affinity
            .iter()
            .flat_map(move |affinity| affinity.values(label))
    }

    /// Whether it has the attributes of this VolumeAttributesClass.
    pub fn refers_to(&self, class: &str) -> bool {
        self.spec.volume_attributes_class_name.as_deref() == Some(class)
    }

    /// Returns the CSI driver and the id of the volume in Cinder.
    fn source(&self) -> Option<(&str, &str)> {
        let csi = self.spec.csi.as_ref();
        let migrated = self.spec.cinder.as_ref();
        csi.map(|csi| (csi.driver.as_str(), csi.volume_handle.as_str()))
            .or_else(|| Some((DRIVER_OF_MIGRATED, migrated?.volume_id.as_str())))
    }
}

impl Indexed for VolumeObject {
    type Kept = VolumeFact;
    const SCOPE: Scope = Scope::Volumes;

    fn keep(&self) -> Option<VolumeFact> {
        let (driver, handle) = self.source()?;
        let (meta, status) = (&self.metadata, &self.status);
        let terminating = meta.deletion_timestamp.as_ref().map(|time| time.0);
        let is_done_with = matches!(status.phase.as_str(), "Released" | "Failed")
            && self.spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        let released = status
            .last_phase_transition_time
            .as_ref()
            .or(meta.creation_timestamp.as_ref());
        Some(VolumeFact {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
            claim: self.spec.claim_ref.as_ref().map(|claim| ClaimRef {
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                uid: claim.uid.clone(),
            }),
            is_zoned: self.spec.node_affinity.is_some(),
            is_retained: self.is_retained(),
            attributes_class: self.spec.volume_attributes_class_name.clone(),
            deleting_since: terminating.or_else(|| released.filter(|_| is_done_with).map(|time| time.0)),
            is_terminating: terminating.is_some(),
            is_bound: status.phase == "Bound",
        })
    }

    fn affected(fact: &VolumeFact) -> Affected {
        Affected::Drivers([fact.driver.clone()].into())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, VolumeFact> {
        &mut index.volumes
    }
}

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

fn is_shared_file_system(access_modes: &[String], volume_mode: Option<&str>) -> bool {
    volume_mode != Some("Block") && access_modes.iter().any(|mode| mode == "ReadWriteMany")
}

fn truncate_error(text: &str) -> String {
    UntrustedText::with_limit(text, LONGEST_ERROR).to_string()
}

/// The relevant part of a PersistentVolumeClaim.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = PersistentVolumeClaim)]
pub struct ClaimObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ClaimSpec,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    volume_name: Option<String>,
    storage_class_name: Option<String>,
    access_modes: Vec<String>,
    volume_mode: Option<Box<str>>,
    volume_attributes_class_name: Option<String>,
    resources: ClaimResources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimResources {
    requests: HashMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatus {
    phase: String,
    current_volume_attributes_class_name: Option<String>,
    conditions: Vec<ClaimCondition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    last_transition_time: Option<Time>,
    message: Option<String>,
}

impl ClaimObject {
    /// Returns the driver whose provisioner creates the volume.
    fn provisioner(&self) -> Option<&String> {
        self.annotation(PROVISIONER)
            .or_else(|| self.annotation(OLD_PROVISIONER))
    }

    fn is_pending(&self) -> bool {
        self.status.phase == "Pending" || self.status.phase.is_empty()
    }

    /// Whether the driver may be creating a volume for the claim. No other object shows that volume yet.
    pub fn waits_for_volume_of(&self, driver: &str) -> bool {
        self.is_pending() && self.provisioner().is_some_and(|asked| asked == driver)
    }

    /// Whether the claim waits for a volume of this StorageClass.
    pub fn waits_for_class(&self, class: &str) -> bool {
        self.is_pending() && self.spec.storage_class_name.as_deref() == Some(class)
    }

    /// Whether the claim waits for a volume of one of these StorageClasses. Several nodes may write to its file system
    /// at the same time.
    pub fn waits_for_shared_file_system(&self, classes: &BTreeSet<&str>) -> bool {
        let spec = &self.spec;
        let is_of_class = spec
            .storage_class_name
            .as_deref()
            .is_some_and(|class| classes.contains(class));
        self.is_pending()
            && spec.volume_name.is_none()
            && is_of_class
            && is_shared_file_system(&spec.access_modes, spec.volume_mode.as_deref())
    }

    /// Whether the claim has or requests the attributes of this VolumeAttributesClass.
    pub fn refers_to(&self, class: &str) -> bool {
        let names = [
            &self.spec.volume_attributes_class_name,
            &self.status.current_volume_attributes_class_name,
        ];
        names.into_iter().any(|name| name.as_deref() == Some(class))
    }

    fn annotation(&self, name: &str) -> Option<&String> {
        self.metadata.annotations.as_ref()?.get(name)
    }

    /// Returns the time of the request to the provisioner, from the managed fields of its annotation.
    fn requested_since(&self) -> Option<Timestamp> {
        let created = self.metadata.creation_timestamp.as_ref()?.0;
        let entries = self.metadata.managed_fields.iter().flatten();
        let asked = entries
            .filter(|entry| sets(entry, PROVISIONER))
            .filter_map(|entry| entry.time.as_ref());
        Some(asked.map(|time| time.0).fold(created, Timestamp::max))
    }
}

fn sets(entry: &ManagedFieldsEntry, annotation: &str) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    let annotations = fields.map(|fields| &fields["f:metadata"]["f:annotations"]);
    annotations.is_some_and(|annotations| annotations.get(format!("f:{annotation}")).is_some())
}

impl Indexed for ClaimObject {
    type Kept = ClaimFact;
    const SCOPE: Scope = Scope::Volumes;

    /// Stores only claims with a pending operation. Most claims have none.
    fn keep(&self) -> Option<ClaimFact> {
        let driver = self.provisioner()?;
        let is_pending = self.is_pending();
        let condition = |type_: &str| {
            let mut all = self.status.conditions.iter();
            all.find(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let (resizing, pending) = (condition("Resizing"), condition("FileSystemResizePending"));
        let refused = condition("NodeResizeError").or_else(|| condition("ControllerResizeError"));
        let error = refused.and_then(|condition| condition.message.as_deref());
        let is_deleted = self.metadata.deletion_timestamp.is_some();
        let provisioning_since = self.requested_since().filter(|_| is_pending && !is_deleted);
        let resizing_since = resizing
            .or(pending)
            .or(refused)
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map(|time| time.0);
        (provisioning_since.is_some() || resizing_since.is_some()).then(|| ClaimFact {
            driver: driver.clone(),
            claim: ClaimRef {
                namespace: self.metadata.namespace.clone().unwrap_or_default(),
                name: self.metadata.name.clone().unwrap_or_default(),
                uid: self.metadata.uid.clone().unwrap_or_default(),
            },
            volume: self.spec.volume_name.clone().filter(|name| !name.is_empty()),
            provisioning_since,
            resizing_since,
            waits_for_node: resizing.is_none() && pending.is_some(),
            node: self.annotation(SELECTED_NODE).cloned(),
            error: IgnoredChange(error.map(truncate_error)),
        })
    }

    fn affected(fact: &ClaimFact) -> Affected {
        Affected::Drivers([fact.driver.clone()].into())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, ClaimFact> {
        &mut index.claims
    }
}

impl Index {
    pub fn volume(&self, name: &str) -> Option<&VolumeFact> {
        self.volumes.get(name)
    }

    /// Returns all PersistentVolumes of a driver.
    pub fn volume_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = (&'a String, &'a VolumeFact)> {
        self.volumes.iter().filter(move |(_, volume)| volume.driver == driver)
    }

    /// Returns all VolumeAttachments of a driver.
    pub fn attachment_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = (&'a String, &'a AttachmentFact)> {
        self.attachments
            .iter()
            .filter(move |(_, attachment)| attachment.attacher == driver)
    }

    /// Returns the VolumeAttachments of a driver with a pending or possibly pending operation, sorted.
    pub fn attachments_under_way(&self, driver: &str) -> Vec<String> {
        let all = self.attachment_facts(driver);
        let under_way = all.filter(|(_, attachment)| !attachment.attached || attachment.deleted.is_some());
        let mut names: Vec<String> = under_way.map(|(name, _)| name.clone()).collect();
        let may_be_of = |name: &str| self.attachments.get(name).is_none_or(|fact| fact.attacher == driver);
        names.extend(self.uncertain::<AttachmentObject>(may_be_of));
        names.sort();
        names
    }

    /// Returns the PersistentVolumes that have or may have the attributes of a class, each with its claim, sorted.
    pub fn volumes_with_attributes(&self, class: &str) -> Vec<String> {
        let all = self.volumes.iter();
        let have = all.filter(|(_, volume)| volume.attributes_class.as_deref() == Some(class));
        let described = have.map(|(name, volume)| match &volume.claim {
            Some(claim) => format!("{name} (claim {}/{})", claim.namespace, claim.name),
            None => name.clone(),
        });
        let mut names: Vec<String> = described.collect();
        names.extend(self.uncertain::<VolumeObject>(|_| true));
        names.sort();
        names
    }

    /// Returns all claims of a driver with a pending operation.
    pub fn claim_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = &'a ClaimFact> {
        self.claims.values().filter(move |claim| claim.driver == driver)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn keep<K: Indexed + serde::de::DeserializeOwned>(object: Value) -> Option<K::Kept> {
        serde_json::from_value::<K>(object).expect("an object").keep()
    }

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    #[test]
    fn released_volume_awaits_deletion_unless_retained() {
        let volume = |policy: &str| {
            keep::<VolumeObject>(json!({
                "metadata": {"name": "pv", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": policy,
                    "claimRef": {"namespace": "n", "name": "c", "uid": "u"}},
                "status": {"phase": "Released", "lastPhaseTransitionTime": "2026-01-02T00:00:00Z"},
            }))
            .expect("kept")
        };
        assert_eq!(volume("Delete").deleting_since, Some(at("2026-01-02T00:00:00Z")));
        assert_eq!(volume("Retain").deleting_since, None);
        assert_eq!(volume("Delete").claim.expect("a claim").name, "c");
    }

    #[test]
    fn index_lists_pending_attachments_and_attributes() {
        let mut index = Index::default();
        let attachment = |name: &str, attached: bool, deleted: Option<&str>| -> AttachmentObject {
            serde_json::from_value(json!({
                "metadata": {"name": name, "deletionTimestamp": deleted}, "spec": {"attacher": "d"},
                "status": {"attached": attached},
            }))
            .expect("an attachment")
        };
        index.put(&attachment("at-rest", true, None));
        index.put(&attachment("coming", false, None));
        index.put(&attachment("going", true, Some("2026-01-01T00:00:00Z")));
        assert_eq!(index.attachments_under_way("d"), ["coming", "going"]);
        let volume: VolumeObject = serde_json::from_value(json!({
            "metadata": {"name": "pv"},
            "spec": {"csi": {"driver": "d"}, "volumeAttributesClassName": "gold"},
        }))
        .expect("a volume");
        index.put(&volume);
        assert_eq!(index.volumes_with_attributes("gold"), ["pv"]);
        assert!(index.volumes_with_attributes("silver").is_empty());
    }

    #[test]
    fn changed_error_text_does_not_change_attachment() {
        let attachment = |message: &str| {
            keep::<AttachmentObject>(json!({
                "metadata": {"name": "va"},
                "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
                "status": {"attached": false, "attachError": {"message": message}},
            }))
        };
        assert_eq!(attachment("request 1"), attachment("request 2"));
        assert_eq!(attachment("x").and_then(|fact| fact.error.0).as_deref(), Some("x"));
    }

    #[test]
    fn claims_are_stored_while_operation_is_pending() {
        let claim = |phase: &str, conditions: Value| {
            keep::<ClaimObject>(json!({
                "metadata": {"namespace": "n", "name": "c", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {PROVISIONER: "d", SELECTED_NODE: "node"},
                    "managedFields": [{"manager": "x", "time": "2026-01-03T00:00:00Z",
                        "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{PROVISIONER}"): {}}}}}]},
                "spec": {"resources": {"requests": {"storage": "2Gi"}}},
                "status": {"phase": phase, "conditions": conditions},
            }))
        };
        let pending = claim("Pending", json!([])).expect("kept");
        assert_eq!(pending.provisioning_since, Some(at("2026-01-03T00:00:00Z")));
        assert_eq!(pending.node.as_deref(), Some("node"));
        assert_eq!(claim("Bound", json!([])), None);
        let resizing = json!([{"type": "Resizing", "status": "True", "lastTransitionTime": "2026-01-04T00:00:00Z"}]);
        let growing = claim("Bound", resizing).expect("kept");
        assert_eq!(growing.resizing_since, Some(at("2026-01-04T00:00:00Z")));
        assert!(growing.provisioning_since.is_none() && !growing.waits_for_node);
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

    #[rstest]
    #[case::it_wants_it(json!({"volumeAttributesClassName": "gold"}), json!({}), true)]
    #[case::it_has_it(json!({"volumeAttributesClassName": "silver"}), json!({"currentVolumeAttributesClassName": "gold"}), true)]
    #[case::it_has_another(json!({"volumeAttributesClassName": "silver"}), json!({"phase": "Bound"}), false)]
    #[case::it_has_none(json!({}), json!({}), false)]
    fn claim_references_requested_and_current_attributes(
        #[case] spec: Value,
        #[case] status: Value,
        #[case] expected: bool,
    ) {
        let claim: ClaimObject =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).expect("a claim");
        assert_eq!(claim.refers_to("gold"), expected);
    }

    #[rstest]
    #[case::shared("Pending", "cinder", &["ReadWriteMany"], None, true)]
    #[case::beside_another_mode("Pending", "cinder", &["ReadWriteOnce", "ReadWriteMany"], Some("Filesystem"), true)]
    #[case::raw("Pending", "cinder", &["ReadWriteMany"], Some("Block"), false)]
    #[case::of_one_node("Pending", "cinder", &["ReadWriteOnce"], None, false)]
    #[case::of_another_class("Pending", "nfs", &["ReadWriteMany"], None, false)]
    #[case::bound("Bound", "cinder", &["ReadWriteMany"], None, false)]
    fn claim_waits_for_shared_file_system_of_driver(
        #[case] phase: &str,
        #[case] class: &str,
        #[case] modes: &[&str],
        #[case] volume_mode: Option<&str>,
        #[case] expected: bool,
    ) {
        let claim: ClaimObject = serde_json::from_value(json!({
            "metadata": {}, "status": {"phase": phase},
            "spec": {"storageClassName": class, "accessModes": modes, "volumeMode": volume_mode},
        }))
        .expect("a claim");
        assert_eq!(claim.waits_for_shared_file_system(&["cinder"].into()), expected);
    }

    #[rstest]
    #[case::waiting("Pending", "cinder", true)]
    #[case::bound("Bound", "cinder", false)]
    #[case::of_another_class("Pending", "other", false)]
    fn claim_waits_for_class_until_bound(#[case] phase: &str, #[case] class: &str, #[case] expected: bool) {
        let claim: ClaimObject = serde_json::from_value(json!({
            "metadata": {}, "spec": {"storageClassName": class}, "status": {"phase": phase},
        }))
        .expect("a claim");
        assert_eq!(claim.waits_for_class("cinder"), expected);
    }
}
