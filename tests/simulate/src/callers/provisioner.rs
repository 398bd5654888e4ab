// SPDX-License-Identifier: Apache-2.0
//! external-provisioner: CreateVolume until it is made or refused for good, DeleteVolume until it is gone.

use std::time::Duration;

use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{
    CapacityRange, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, Volume, VolumeContentSource,
};

use crate::cluster::{Answer, Cluster, Controller, Sidecar, VolumeMode};
use crate::judge::ends_creation;
use crate::ledger::Known;

/// What a new volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Nothing,
    Snapshot(String),
    Volume(String),
}

/// What a claim asks for.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) name: String,
    pub(super) bytes: i64,
    pub(super) mode: VolumeMode,
    /// The type of the volume; Cinder's default, or that of the source, without one.
    pub(super) volume_type: Option<&'static str>,
    pub(super) source: Source,
    /// How long one call may take.
    pub(super) limit: Duration,
}

impl Order {
    fn request(&self) -> CreateVolumeRequest {
        let source = match &self.source {
            Source::Nothing => None,
            Source::Snapshot(id) => Some(volume_content_source::Type::Snapshot(SnapshotSource {
                snapshot_id: id.clone(),
            })),
            Source::Volume(id) => Some(volume_content_source::Type::Volume(VolumeSource {
                volume_id: id.clone(),
            })),
        };
        CreateVolumeRequest {
            name: self.name.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: self.bytes,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.mode.capability()],
            parameters: (self.volume_type.map(|name| ("type".to_owned(), name.to_owned())))
                .into_iter()
                .collect(),
            volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            ..CreateVolumeRequest::default()
        }
    }
}

/// Makes the volume of a claim. `is_deleted` says whether the claim has been deleted meanwhile: then nothing is asked for
/// any more once the last answer was final, and where it was not, the volume is made first, to be deleted.
///
/// Nothing where there is no volume in the end.
pub(super) async fn create(cluster: &Cluster, order: &Order, is_deleted: impl Fn() -> bool) -> Option<Volume> {
    let name = &order.name;
    cluster.ledger.book().volumes.insert(name.clone(), Known::Asked);
    let create = || {
        let call = async |mut client: Controller, request| client.create_volume(request).await;
        cluster.controller(Sidecar::Provisioner, order.limit, order.request(), call)
    };
    let end = |answer: Answer<CreateVolumeResponse>| match answer {
        Ok(CreateVolumeResponse { volume }) => {
            let volume = volume.unwrap_or_default();
            let id = &volume.volume_id;
            cluster.schedule.note(&format!("claim {name} has volume {id}"));
            cluster.judge.created(name, id, volume.capacity_bytes);
            let known = Known::Made(id.clone());
            cluster.ledger.book().volumes.insert(name.clone(), known);
            Some(Some(volume))
        }
        Err((code, message)) if ends_creation(code) => {
            cluster.judge.refused_volume(name, code, &message);
            is_deleted().then(|| {
                cluster.ledger.book().volumes.remove(name);
                None
            })
        }
        Err(_) => None,
    };
    cluster.repeat(&format!("claim {name}"), create, end).await
}

/// Deletes a volume.
pub(super) async fn delete(cluster: &Cluster, name: &str, id: &str, limit: Duration) {
    cluster
        .ledger
        .book()
        .volumes
        .insert(name.to_owned(), Known::Deleting(id.to_owned()));
    let delete = || {
        let request = DeleteVolumeRequest {
            volume_id: id.to_owned(),
            ..DeleteVolumeRequest::default()
        };
        let call = async |mut client: Controller, request| client.delete_volume(request).await;
        cluster.controller(Sidecar::Provisioner, limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        cluster.schedule.note(&format!("volume {id} of {name} is deleted"));
        cluster.judge.deleted(id);
        cluster.ledger.book().volumes.remove(name);
        Some(())
    };
    cluster.repeat(&format!("deletion of {id}"), delete, end).await;
}
