// SPDX-License-Identifier: Apache-2.0
//! Follows the references from an object to its volumes.

use std::fmt;

use cinder_csi_crds::StuckVolume;
use cinder_csi_operator::kubernetes::{GuardedApi, answer};
use csi_sources::UntrustedText;
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::VolumeAttachment,
    },
    jiff::Timestamp,
};
use kube::{
    Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::Serialize;
use serde_json::Value;

use super::event_line::EventLine;
use crate::target::{Target, TargetKind};

/// The namespace of events about objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// A volume with the details that could be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeLine {
    /// `namespace/name` of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claim: Option<String>,
    /// The phase of the claim, unless the claim was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_volume: Option<String>,
    /// The volume's id in Cinder.
    #[serde(rename = "volumeID", skip_serializing_if = "Option::is_none")]
    volume_id: Option<String>,
}

impl VolumeLine {
    /// Whether the stuck operation concerns this volume.
    pub(super) fn concerns(&self, stuck: &StuckVolume) -> bool {
        let is_same = |own: &Option<String>, other: Option<&String>| own.is_some() && own.as_ref() == other;
        is_same(&self.claim, stuck.claim.as_ref())
            || is_same(&self.volume_id, stuck.volume_id.as_ref())
            || stuck.kind == TargetKind::Volume.as_str() && is_same(&self.persistent_volume, Some(&stuck.name))
    }

    /// Namespace and name of the claim.
    pub(super) fn claim_key(&self) -> Option<(&str, &str)> {
        self.claim.as_ref()?.split_once('/')
    }
}

impl fmt::Display for VolumeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase.as_deref().unwrap_or("deleted");
        let claim = self.claim.as_ref().map(|claim| format!("Claim {claim}: {phase}"));
        let volume = self
            .persistent_volume
            .as_ref()
            .map(|name| format!("PersistentVolume {name}"));
        let id = self.volume_id.as_ref().map(|id| format!("volume {id}"));
        let parts: Vec<String> = [claim, volume, id].into_iter().flatten().collect();
        write!(f, "{}", UntrustedText::new(&parts.join(", ")))
    }
}

/// The objects between the target and its volumes.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Whether the target exists.
    pub(super) exists: bool,
    pub(super) volumes: Vec<VolumeLine>,
    /// Namespace and uid of objects with events.
    pub(super) subjects: Vec<(String, String)>,
    /// Errors that objects have in their status.
    pub(super) errors: Vec<EventLine>,
}

/// Reads objects with the rights of the user, and adds a note for each failed read.
pub(super) struct TrailReader<'a> {
    pub(super) client: &'a Client,
    pub(super) notes: &'a mut Vec<String>,
    trail: Trail,
}

impl<'a> TrailReader<'a> {
    pub(super) fn new(client: &'a Client, notes: &'a mut Vec<String>) -> Self {
        Self {
            client,
            notes,
            trail: Trail::default(),
        }
    }

    /// Follows the target to its volumes. Returns an error only if the request for the target itself fails.
    pub(super) async fn follow(mut self, target: &Target) -> kube::Result<Trail> {
        let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
        let lines = match target.kind {
            TargetKind::Claim => vec![Self::of_claim(namespace, name)],
            TargetKind::Pod => self.pod(namespace, name).await?,
            TargetKind::Volume => vec![VolumeLine {
                persistent_volume: Some(name.to_owned()),
                ..VolumeLine::default()
            }],
            TargetKind::Snapshot => self.snapshot(namespace, name).await?,
            TargetKind::Attachment => self.attachment(name).await?,
        };
        for line in lines {
            let line = self.claim(line, target.kind == TargetKind::Claim).await?;
            let line = self.volume(line, target.kind == TargetKind::Volume).await?;
            // A PersistentVolume refers to its claim.
            let line = self.claim(line, false).await?;
            self.trail.volumes.push(line);
        }
        Ok(self.trail)
    }

    fn of_claim(namespace: &str, name: &str) -> VolumeLine {
        VolumeLine {
            claim: Some(format!("{namespace}/{name}")),
            ..VolumeLine::default()
        }
    }

    fn add_subject(&mut self, namespace: &str, object: &impl ResourceExt) {
        let namespace = namespace.to_owned();
        self.trail.subjects.extend(object.uid().map(|uid| (namespace, uid)));
    }

    /// Accepts a failed read of an object between the target and its volumes, and adds a note. The user may lack the
    /// right to read it.
    fn optional<K>(&mut self, what: &str, answer_: kube::Result<Option<K>>) -> Option<K> {
        answer_.unwrap_or_else(|error| {
            self.notes.push(format!("{what} could not be read: {}", answer(&error)));
            None
        })
    }

    async fn pod(&mut self, namespace: &str, name: &str) -> kube::Result<Vec<VolumeLine>> {
        let pods: GuardedApi<Pod> = GuardedApi::namespaced(self.client.clone(), namespace);
        let Some(pod) = pods.get_opt(name).await? else {
            return Ok(Vec::new());
        };
        self.trail.exists = true;
        self.add_subject(namespace, &pod);
        Ok(claims(&pod).map(|claim| Self::of_claim(namespace, &claim)).collect())
    }

    async fn attachment(&mut self, name: &str) -> kube::Result<Vec<VolumeLine>> {
        let attachments: GuardedApi<VolumeAttachment> = GuardedApi::all(self.client.clone());
        let Some(attachment) = attachments.get_opt(name).await? else {
            return Ok(Vec::new());
        };
        self.trail.exists = true;
        self.add_subject(DEFAULT_NAMESPACE, &attachment);
        let status = attachment.status.unwrap_or_default();
        for (field, error) in [
            ("attachError", status.attach_error),
            ("detachError", status.detach_error),
        ] {
            let Some(error) = error else { continue };
            let time = error.time.map(|time| time.0);
            let object = format!("VolumeAttachment {name}");
            self.add_error(object, field, time, error.message.unwrap_or_default());
        }
        Ok(vec![VolumeLine {
            persistent_volume: attachment.spec.source.persistent_volume_name,
            ..VolumeLine::default()
        }])
    }

    async fn snapshot(&mut self, namespace: &str, name: &str) -> kube::Result<Vec<VolumeLine>> {
        let resource = snapshot_resource("VolumeSnapshot");
        let snapshots: GuardedApi<DynamicObject> =
            GuardedApi::namespaced_with(self.client.clone(), namespace, &resource);
        let Some(snapshot) = snapshots.get_opt(name).await? else {
            return Ok(Vec::new());
        };
        self.trail.exists = true;
        self.add_subject(namespace, &snapshot);
        let (data, object) = (&snapshot.data, format!("VolumeSnapshot {name}"));
        self.add_status_error(object, data);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let content = text(&data["status"]["boundVolumeSnapshotContentName"])
            .or_else(|| text(&data["spec"]["source"]["volumeSnapshotContentName"]));
        let volume_id = match content {
            Some(content) => self.content(&content).await,
            None => None,
        };
        let claim = text(&data["spec"]["source"]["persistentVolumeClaimName"]);
        Ok(vec![VolumeLine {
            claim: claim.map(|claim| format!("{namespace}/{claim}")),
            volume_id,
            ..VolumeLine::default()
        }])
    }

    /// Reads a VolumeSnapshotContent, and returns the volume of the snapshot.
    async fn content(&mut self, name: &str) -> Option<String> {
        let what = format!("VolumeSnapshotContent {name}");
        let contents = GuardedApi::all_with(self.client.clone(), &snapshot_resource("VolumeSnapshotContent"));
        let response: kube::Result<Option<DynamicObject>> = contents.get_opt(name).await;
        let content = self.optional(&what, response)?;
        self.add_subject(DEFAULT_NAMESPACE, &content);
        self.add_status_error(what, &content.data);
        let volume = content.data["spec"]["source"]["volumeHandle"].as_str();
        volume.map(str::to_owned)
    }

    fn add_status_error(&mut self, object: String, data: &Value) {
        let error = &data["status"]["error"];
        if let Some(message) = error["message"].as_str() {
            let time = error["time"].as_str().and_then(|time| time.parse().ok());
            self.add_error(object, "error", time, message.to_owned());
        }
    }

    fn add_error(&mut self, object: String, field: &str, time: Option<Timestamp>, message: String) {
        self.trail.errors.push(EventLine {
            object,
            last_seen: time,
            type_: "Status".to_owned(),
            reason: field.to_owned(),
            message,
        });
    }

    /// Adds the fields of the claim, unless they are already present.
    async fn claim(&mut self, mut line: VolumeLine, is_target: bool) -> kube::Result<VolumeLine> {
        let Some((namespace, name)) = line.claim_key().filter(|_| line.phase.is_none()) else {
            return Ok(line);
        };
        let claims: GuardedApi<PersistentVolumeClaim> = GuardedApi::namespaced(self.client.clone(), namespace);
        let answer = claims.get_opt(name).await;
        let (namespace, what) = (
            namespace.to_owned(),
            format!("PersistentVolumeClaim {namespace}/{name}"),
        );
        let claim = if is_target {
            answer?
        } else {
            self.optional(&what, answer)
        };
        if let Some(claim) = claim {
            self.trail.exists |= is_target;
            self.add_subject(&namespace, &claim);
            line.phase = Some(claim.status.and_then(|status| status.phase).unwrap_or_default());
            line.persistent_volume = line.persistent_volume.or(claim.spec.and_then(|spec| spec.volume_name));
        }
        Ok(line)
    }

    /// Adds the fields of the PersistentVolume.
    async fn volume(&mut self, mut line: VolumeLine, is_target: bool) -> kube::Result<VolumeLine> {
        let Some(name) = line.persistent_volume.clone() else {
            return Ok(line);
        };
        let volumes: GuardedApi<PersistentVolume> = GuardedApi::all(self.client.clone());
        let answer = volumes.get_opt(&name).await;
        let volume = if is_target {
            answer?
        } else {
            self.optional(&format!("PersistentVolume {name}"), answer)
        };
        if let Some(volume) = volume {
            self.trail.exists |= is_target;
            self.add_subject(DEFAULT_NAMESPACE, &volume);
            let spec = volume.spec.unwrap_or_default();
            let claim = spec
                .claim_ref
                .and_then(|claim| Some(format!("{}/{}", claim.namespace?, claim.name?)));
            line.claim = line.claim.or(claim);
            line.volume_id = line.volume_id.or(spec.csi.map(|csi| csi.volume_handle));
        }
        Ok(line)
    }
}

fn snapshot_resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(SNAPSHOT_GROUP, "v1", kind))
}

/// The claims of a pod, including the claims of its ephemeral volumes.
pub(super) fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.name_any();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(
        move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
            (None, None) => None,
        },
    )
}
