// SPDX-License-Identifier: Apache-2.0
//! PersistentVolumeClaims, reduced to the relevant part: pending operations with their start.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ManagedFieldsEntry, Time},
    },
    jiff::Timestamp,
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::facts::{ClaimFact, ClaimRef, IgnoredChange, truncate_error};
use super::index::{Affected, Index, Indexed, Scope};
use super::volumes::is_shared_file_system;

/// Annotation of a claim whose volume a provisioner creates.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The former name of this annotation.
pub const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Annotation of a claim with the node for which its volume is created.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    #[test]
    fn claims_are_stored_while_operation_is_pending() {
        let claim = |phase: &str, conditions: Value| {
            serde_json::from_value::<ClaimObject>(json!({
                "metadata": {"namespace": "n", "name": "c", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {PROVISIONER: "d", SELECTED_NODE: "node"},
                    "managedFields": [{"manager": "x", "time": "2026-01-03T00:00:00Z",
                        "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{PROVISIONER}"): {}}}}}]},
                "spec": {"resources": {"requests": {"storage": "2Gi"}}},
                "status": {"phase": phase, "conditions": conditions},
            }))
            .expect("a claim")
            .keep()
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
