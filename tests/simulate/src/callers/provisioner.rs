//! external-provisioner: CreateVolume until it is made or refused for good, DeleteVolume until it is gone.

use std::time::Duration;

use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, Volume, VolumeContentSource};

use crate::cluster::{Backoff, Cluster, Sidecar, VolumeMode};
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
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    cluster.ledger.book().volumes.insert(order.name.clone(), Known::Asked);
    loop {
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.create_volume(request).await
        };
        let answer = cluster
            .controller(Sidecar::Provisioner, order.limit, order.request(), call)
            .await;
        match answer {
            Ok(answer) => {
                let volume = answer.volume.unwrap_or_default();
                schedule.note(&format!("claim {} has volume {}", order.name, volume.volume_id));
                cluster
                    .judge
                    .created(&order.name, &volume.volume_id, volume.capacity_bytes);
                let known = Known::Made(volume.volume_id.clone());
                cluster.ledger.book().volumes.insert(order.name.clone(), known);
                return Some(volume);
            }
            Err(status) => {
                schedule.note(&format!(
                    "claim {}: {:?}: {}",
                    order.name,
                    status.code(),
                    status.message()
                ));
                if ends_creation(status.code()) {
                    cluster
                        .judge
                        .refused_volume(&order.name, status.code(), status.message());
                    if is_deleted() {
                        cluster.ledger.book().volumes.remove(&order.name);
                        return None;
                    }
                }
            }
        }
        backoff.pause(schedule, &order.name).await;
    }
}

/// Deletes a volume.
pub(super) async fn delete(cluster: &Cluster, name: &str, id: &str, limit: Duration) {
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    cluster
        .ledger
        .book()
        .volumes
        .insert(name.to_owned(), Known::Deleting(id.to_owned()));
    loop {
        let request = DeleteVolumeRequest {
            volume_id: id.to_owned(),
            ..DeleteVolumeRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.delete_volume(request).await
        };
        match cluster.controller(Sidecar::Provisioner, limit, request, call).await {
            Ok(_) => {
                schedule.note(&format!("volume {id} of {name} is deleted"));
                cluster.judge.deleted(id);
                cluster.ledger.book().volumes.remove(name);
                return;
            }
            Err(status) => schedule.note(&format!("deletion of {id}: {:?}: {}", status.code(), status.message())),
        }
        backoff.pause(schedule, name).await;
    }
}
