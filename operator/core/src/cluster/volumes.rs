// SPDX-License-Identifier: Apache-2.0
//! PersistentVolumes, reduced to the relevant part.

use std::collections::HashMap;

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::facts::{ClaimRef, VolumeFact};
use super::index::{Affected, Index, Indexed, Scope};
use super::references::{SecretField, SecretReference, VolumeAffinity, annotated_secrets};

/// The driver for volumes of the former in-tree Cinder plugin.
const DRIVER_OF_MIGRATED: &str = "cinder.csi.openstack.org";

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

pub(super) fn is_shared_file_system(access_modes: &[String], volume_mode: Option<&str>) -> bool {
    volume_mode != Some("Block") && access_modes.iter().any(|mode| mode == "ReadWriteMany")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn released_volume_awaits_deletion_unless_retained() {
        let volume = |policy: &str| {
            serde_json::from_value::<VolumeObject>(json!({
                "metadata": {"name": "pv", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": policy,
                    "claimRef": {"namespace": "n", "name": "c", "uid": "u"}},
                "status": {"phase": "Released", "lastPhaseTransitionTime": "2026-01-02T00:00:00Z"},
            }))
            .expect("a volume")
            .keep()
            .expect("kept")
        };
        assert_eq!(volume("Delete").deleting_since, "2026-01-02T00:00:00Z".parse().ok());
        assert_eq!(volume("Retain").deleting_since, None);
        assert_eq!(volume("Delete").claim.expect("a claim").name, "c");
    }
}
