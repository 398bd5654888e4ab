// SPDX-License-Identifier: Apache-2.0
//! CreateSnapshot and DeleteSnapshot: snapshots and backups, one beside the volume and one away from it, both a snapshot to CSI.

mod listed;
pub(super) mod read;
mod zones;

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{Backup, Cloud, NewBackup, NewSnapshot, PointInTime, Snapshot, VolumeId};
use csi_proto::Timestamp;
use csi_proto::csi::v1::{
    self as csi, CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    TopologyRequirement,
};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tonic::Status;

use super::{ControllerService, encode, follow};
use crate::operations::{Deadline, Target};
use crate::parameters::{DESCRIPTION, METADATA_CLUSTER, SnapshotKind, SnapshotParameters, metadata_keys};
use crate::status::Act;
use crate::topology::Zones;
use crate::{fields, status};
pub(super) use listed::ListedSnapshot;
use zones::tells_zones;
pub(super) use zones::topology;
use zones::zones_matter;

/// What is asked for; equal requests are one operation.
#[derive(Debug, Clone, PartialEq)]
struct WantedSnapshot {
    name: String,
    volume: VolumeId,
    parameters: SnapshotParameters,
    accessibility: Option<TopologyRequirement>,
}

/// `OK` means that the snapshot is complete, or that Cinder has a record of the backup; of a backup `ready_to_use` tells whether it is
/// complete, and the snapshotter asks again until it is.
///
/// A snapshot that is being made is not answered: external-snapshotter keeps the first id that it gets (`updateSnapshotContentStatus`
/// in its sidecar controller), so one that fails after that and is replaced would leave the caller with the id of nothing.
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
    let wanted = WantedSnapshot {
        name: request.name,
        volume,
        parameters,
        accessibility: if tells_zones(service) {
            request.accessibility_requirements
        } else {
            None
        },
    };
    let target = Target::PointInTimeName(wanted.name.clone());
    service
        .operations
        .run("CreateSnapshot", target, wanted.clone(), deadline, |progress| {
            let (service, secrets) = (service.clone(), request.secrets);
            async move {
                progress.set("looking for the volume's cloud");
                let found = service.clouds.of_volume(&wanted.volume, &secrets).await;
                let Some(cloud) = found.map_err(status::before_making)? else {
                    return Err(status::not_found("volume", wanted.volume.as_str()));
                };
                progress.set("looking for the snapshot by its name, else making it");
                follow(&progress, &cloud, wanted.name.as_str());
                let snapshot = match wanted.parameters.kind {
                    SnapshotKind::Snapshot => snapshot(&service, &cloud, wanted).await?,
                    SnapshotKind::Backup => backup(&service, &cloud, wanted).await?,
                };
                Ok(CreateSnapshotResponse {
                    snapshot: Some(snapshot),
                })
            }
        })
        .await
}

async fn snapshot(service: &ControllerService, cloud: &Cloud, wanted: WantedSnapshot) -> Result<csi::Snapshot, Status> {
    let failed = |error| status::cloud(Act::Snapshot, &error);
    let mut metadata = wanted.parameters.metadata(&service.settings.args.cluster);
    if zones_matter(service, cloud) {
        // Kept with the snapshot, which outlives what else would tell.
        let volume = cloud.volume(&wanted.volume).await.map_err(failed)?;
        let volume = volume.ok_or_else(|| status::not_found("volume", wanted.volume.as_str()))?;
        if let Some(zone) = volume.availability_zone {
            let zones = Zones::of(wanted.accessibility.as_ref(), &service.zone_names(&cloud.config()));
            if !zones.allow(&zone) {
                return Err(status::zone_impossible(format_args!(
                    "volume {} and its snapshots are in zone {zone}, which is not among those asked for ({}); a snapshot class with \
                     type: backup makes copies that can be restored in any zone",
                    wanted.volume,
                    zones.required().join(", ")
                )));
            }
            metadata.insert(metadata_keys::ZONE.to_owned(), zone);
        }
    }
    let new = NewSnapshot {
        name: wanted.name,
        volume_id: wanted.volume,
        force: wanted.parameters.force,
        description: DESCRIPTION.into(),
        metadata,
    };
    let made = cloud.create_snapshot(new).await.map_err(failed)?;
    Ok(service.encode_snapshot(cloud, &made))
}

async fn backup(service: &ControllerService, cloud: &Cloud, wanted: WantedSnapshot) -> Result<csi::Snapshot, Status> {
    let failed = |error| status::cloud(Act::Snapshot, &error);
    // Recorded with the backup, which outlives its volume. Of a deleted volume, `create_backup` finds the backup of an earlier call.
    let volume = cloud.volume(&wanted.volume).await.map_err(failed)?;
    let mut metadata = wanted.parameters.metadata(&service.settings.args.cluster);
    if let Some(mode) = volume.and_then(|volume| volume.mode()) {
        metadata.insert(metadata_keys::VOLUME_MODE.to_owned(), mode.name().to_owned());
    }
    let new = NewBackup {
        name: wanted.name,
        volume_id: wanted.volume,
        incremental: wanted.parameters.incremental,
        availability_zone: wanted.parameters.availability.clone(),
        description: DESCRIPTION.into(),
        metadata,
    };
    let made = cloud.create_backup(new).await.map_err(failed)?;
    let limit = wanted
        .parameters
        .backup_limit(made.size.map_or(1, cinder_cloud::GiB::get));
    let point = PointInTime::Backup(made);
    if point.is_coming() && age(&point, cloud.now()).is_some_and(|age| age > limit) {
        return Err(status::backup_late(point.id(), limit));
    }
    Ok(encode::point_in_time(&point, Vec::new()))
}

/// How long ago a backup was asked for, by this machine's clock.
fn age(point: &PointInTime, now: jiff::Timestamp) -> Option<Duration> {
    let PointInTime::Backup(Backup { created_at, .. }) = point else {
        return None;
    };
    let made: DateTime = created_at.parse().ok()?;
    let made = made.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Duration::try_from(now.duration_since(made)).ok()
}

/// What does not exist counts as deleted, and so does whatever was never an id.
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
                let Some(cloud) = service.clouds.of_snapshot(&id, &secrets).await? else {
                    return Ok(DeleteSnapshotResponse {});
                };
                let failed = |error| status::cloud(Act::Delete, &error);
                if service.settings.args.protect_other_clusters {
                    let Some(point) = cloud.point_in_time(&id).await.map_err(failed)? else {
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
    /// A snapshot as CSI shows it, with the zone that it tells itself.
    pub(crate) fn encode_snapshot(&self, cloud: &Cloud, snapshot: &Snapshot) -> csi::Snapshot {
        let zone = snapshot.metadata.get(metadata_keys::ZONE).map(String::as_str);
        encode::point_in_time(&PointInTime::Snapshot(snapshot.clone()), topology(self, cloud, zone))
    }

    /// `FAILED_PRECONDITION` for what bears the mark of another cluster, where such things are protected. What bears none was
    /// imported by hand.
    pub(crate) fn refuse_foreign(
        &self,
        kind: &str,
        id: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.refuse_cluster(kind, id, metadata.get(METADATA_CLUSTER).map(String::as_str))
    }

    /// The same for the name of a cluster.
    pub(crate) fn refuse_cluster(&self, kind: &str, id: &str, cluster: Option<&str>) -> Result<(), Status> {
        let args = &self.settings.args;
        match cluster.filter(|cluster| args.protect_other_clusters && *cluster != args.cluster) {
            Some(cluster) => Err(status::foreign(kind, id, cluster)),
            None => Ok(()),
        }
    }
}

/// A moment that Cinder wrote.
pub(crate) fn creation_time(text: &str) -> Option<Timestamp> {
    encode::moment(text)
}
