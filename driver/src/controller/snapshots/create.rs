// SPDX-License-Identifier: Apache-2.0
//! CreateSnapshot: takes a snapshot or a backup, or adopts the one that an earlier attempt took under the same name.

use std::time::Duration;

use cinder_cloud::{Backup, Cloud, NewBackup, NewSnapshot, PointInTime, VolumeId, parse_timestamp};
use csi_proto::csi::v1::{self as csi, CreateSnapshotRequest, CreateSnapshotResponse, TopologyRequirement};
use tonic::Status;

use super::super::{ControllerService, encode, follow};
use super::zones::{cloud_reports_topology, reports_topology};
use crate::operations::{Deadline, Target};
use crate::parameters::{DESCRIPTION, SnapshotKind, SnapshotParameters, metadata_keys};
use crate::status::CloudAction;
use crate::topology::Zones;
use crate::{fields, status};

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
pub(in super::super) async fn create(
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
