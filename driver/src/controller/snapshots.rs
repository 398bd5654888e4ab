// SPDX-License-Identifier: Apache-2.0
//! CreateSnapshot and DeleteSnapshot: to CSI, Cinder's snapshots and backups are both snapshots.

mod listed;
pub(super) mod read;
mod zones;

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{Backup, Cloud, NewBackup, NewSnapshot, PointInTime, Snapshot, VolumeId, parse_timestamp};
use csi_proto::csi::v1::{
    self as csi, CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    TopologyRequirement,
};
use tonic::Status;

use super::{ControllerService, encode, follow};
use crate::clouds::CloudObject;
use crate::operations::{Deadline, Target};
use crate::parameters::{DESCRIPTION, METADATA_CLUSTER, SnapshotKind, SnapshotParameters, metadata_keys};
use crate::status::CloudAction;
use crate::topology::Zones;
use crate::{fields, status};
pub(super) use listed::ListedSnapshot;
use zones::cloud_reports_topology;
use zones::reports_topology;
pub(super) use zones::topology;

/// A decoded request. Equal requests are one operation.
#[derive(Debug, Clone, PartialEq)]
struct DesiredSnapshot {
    name: String,
    volume: VolumeId,
    parameters: SnapshotParameters,
    accessibility: Option<TopologyRequirement>,
}

/// Takes a snapshot or a backup.
///
/// `OK` means that the snapshot is complete, or that Cinder has a record of the backup. `ready_to_use` indicates
/// whether a backup is complete, and the snapshotter retries until then.
///
/// A pending snapshot is not returned. external-snapshotter retains the first id that it receives
/// (`updateSnapshotContentStatus` in its sidecar controller). If the snapshot failed later and was replaced, the caller
/// would have the id of a deleted snapshot.
pub(super) async fn create(
    service: &ControllerService,
    request: CreateSnapshotRequest,
    deadline: Deadline,
) -> Result<CreateSnapshotResponse, Status> {
    fields::required_name("name", &request.name)?;
    let volume = VolumeId::new(fields::required("source_volume_id", &request.source_volume_id)?);
    let parameters =
        SnapshotParameters::decode(request.parameters).map_err(|error| status::invalid("parameters", error))?;
    for key in parameters.unknown() {
        tracing::warn!(
            parameter = key,
            "this parameter of the VolumeSnapshotClass is not known and has no effect"
        );
    }
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    let desired = DesiredSnapshot {
        name: request.name,
        volume,
        parameters,
        accessibility: if reports_topology(service) {
            request.accessibility_requirements
        } else {
            None
        },
    };
    let target = Target::PointInTimeName(desired.name.clone());
    service
        .operations
        .run("CreateSnapshot", target, desired.clone(), deadline, |progress| {
            let (service, secrets) = (service.clone(), request.secrets);
            async move {
                progress.set("looking for the volume's cloud");
                let cloud = service.clouds.cloud_of_volume(&desired.volume, &secrets).await;
                let Some(cloud) = cloud.map_err(status::before_creation)? else {
                    return Err(status::not_found("volume", desired.volume.as_str()));
                };
                progress.set("looking for the snapshot by its name, else making it");
                follow(&progress, &cloud, desired.name.as_str());
                let snapshot = match desired.parameters.kind {
                    SnapshotKind::Snapshot => take_snapshot(&service, &cloud, desired).await?,
                    SnapshotKind::Backup => take_backup(&service, &cloud, desired).await?,
                };
                Ok(CreateSnapshotResponse {
                    snapshot: Some(snapshot),
                })
            }
        })
        .await
}

async fn take_snapshot(
    service: &ControllerService,
    cloud: &Cloud,
    desired: DesiredSnapshot,
) -> Result<csi::Snapshot, Status> {
    let failed = |error| status::from_cloud(CloudAction::Snapshot, &error);
    let mut metadata = desired.parameters.metadata(&service.settings.args.cluster);
    if cloud_reports_topology(service, cloud) {
        // Stored with the snapshot, which outlives its volume.
        let volume = cloud.volume(&desired.volume).await.map_err(failed)?;
        let volume = volume.ok_or_else(|| status::not_found("volume", desired.volume.as_str()))?;
        if let Some(zone) = volume.availability_zone {
            let zones = Zones::from_requirement(desired.accessibility.as_ref(), &service.zone_names(&cloud.config()));
            if !zones.allows(&zone) {
                return Err(status::zone_impossible(format_args!(
                    "volume {} and its snapshots are in zone {zone}, which is not among those asked for ({}); a snapshot class with \
                     type: backup makes copies that can be restored in any zone",
                    desired.volume,
                    zones.required().join(", ")
                )));
            }
            metadata.insert(metadata_keys::ZONE.to_owned(), zone);
        }
    }
    let new = NewSnapshot {
        name: desired.name,
        volume_id: desired.volume,
        force: desired.parameters.force,
        description: DESCRIPTION.into(),
        metadata,
    };
    let created = cloud.create_snapshot(new).await.map_err(failed)?;
    Ok(service.encode_snapshot(cloud, &created))
}

async fn take_backup(
    service: &ControllerService,
    cloud: &Cloud,
    desired: DesiredSnapshot,
) -> Result<csi::Snapshot, Status> {
    let failed = |error| status::from_cloud(CloudAction::Snapshot, &error);
    // Stored with the backup, which outlives its volume. If the volume is deleted, `create_backup` finds the backup of
    // an earlier call.
    let volume = cloud.volume(&desired.volume).await.map_err(failed)?;
    let mut metadata = desired.parameters.metadata(&service.settings.args.cluster);
    if let Some(mode) = volume.and_then(|volume| volume.mode()) {
        metadata.insert(metadata_keys::VOLUME_MODE.to_owned(), mode.name().to_owned());
    }
    let new = NewBackup {
        name: desired.name,
        volume_id: desired.volume,
        incremental: desired.parameters.incremental,
        availability_zone: desired.parameters.availability.clone(),
        description: DESCRIPTION.into(),
        metadata,
    };
    let created = cloud.create_backup(new).await.map_err(failed)?;
    let limit = desired
        .parameters
        .backup_limit(created.size.map_or(1, cinder_cloud::GiB::get));
    let point = PointInTime::Backup(created);
    if point.is_coming() && backup_age(&point, cloud.now()).is_some_and(|age| age > limit) {
        return Err(status::backup_late(point.id(), limit));
    }
    Ok(encode::point_in_time(&point, Vec::new()))
}

/// Returns the time since a backup was requested, by this machine's clock.
fn backup_age(point: &PointInTime, now: jiff::Timestamp) -> Option<Duration> {
    let PointInTime::Backup(Backup { created_at, .. }) = point else {
        return None;
    };
    Duration::try_from(now.duration_since(parse_timestamp(created_at)?)).ok()
}

/// Deletes a snapshot or backup. Succeeds if it does not exist or the id is invalid.
pub(super) async fn delete(
    service: &ControllerService,
    request: DeleteSnapshotRequest,
    deadline: Deadline,
) -> Result<DeleteSnapshotResponse, Status> {
    let id = fields::required("snapshot_id", &request.snapshot_id)?.to_owned();
    if !VolumeId::new(id.as_str()).is_uuid() {
        return Ok(DeleteSnapshotResponse {});
    }
    let target = Target::PointInTime(id.clone());
    service
        .operations
        .run("DeleteSnapshot", target, (), deadline, |progress| {
            let (service, secrets) = (service.clone(), request.secrets);
            async move {
                progress.set("looking for the snapshot's cloud");
                let Some(cloud) = service
                    .clouds
                    .confirmed_cloud(CloudObject::Snapshot(&id), &secrets)
                    .await?
                else {
                    return Ok(DeleteSnapshotResponse {});
                };
                let failed = |error| status::from_cloud(CloudAction::Delete, &error);
                if service.settings.args.protect_other_clusters {
                    let mut existing = cloud.point_in_time(&id).await;
                    if matches!(existing, Ok(None)) && cloud.wait_for_lag(&id).await {
                        existing = cloud.point_in_time(&id).await;
                    }
                    let Some(point) = existing.map_err(failed)? else {
                        return Ok(DeleteSnapshotResponse {});
                    };
                    let metadata = match &point {
                        PointInTime::Snapshot(snapshot) => &snapshot.metadata,
                        PointInTime::Backup(backup) => &backup.metadata,
                    };
                    service.refuse_foreign("snapshot", &id, metadata)?;
                }
                progress.set("deleting the snapshot and waiting until it is gone");
                follow(&progress, &cloud, id.as_str());
                cloud.delete_point_in_time(&id).await.map_err(failed)?;
                Ok(DeleteSnapshotResponse {})
            }
        })
        .await
}

impl ControllerService {
    /// Encodes a snapshot with the zone in its metadata.
    pub(crate) fn encode_snapshot(&self, cloud: &Cloud, snapshot: &Snapshot) -> csi::Snapshot {
        let zone = snapshot.metadata.get(metadata_keys::ZONE).map(String::as_str);
        encode::point_in_time(&PointInTime::Snapshot(snapshot.clone()), topology(self, cloud, zone))
    }

    /// `FAILED_PRECONDITION` for an object of another cluster, if such objects are protected.
    ///
    /// An object without a cluster was imported by an administrator and is not protected.
    pub(crate) fn refuse_foreign(
        &self,
        kind: &str,
        id: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.refuse_cluster(kind, id, metadata.get(METADATA_CLUSTER).map(String::as_str))
    }

    /// Like `refuse_foreign`, for the name of a cluster.
    pub(crate) fn refuse_cluster(&self, kind: &str, id: &str, cluster: Option<&str>) -> Result<(), Status> {
        let args = &self.settings.args;
        match cluster.filter(|cluster| args.protect_other_clusters && *cluster != args.cluster) {
            Some(cluster) => Err(status::foreign_object(kind, id, cluster)),
            None => Ok(()),
        }
    }
}
