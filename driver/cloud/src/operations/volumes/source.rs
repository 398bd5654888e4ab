// SPDX-License-Identifier: Apache-2.0
//! Resolves the source (snapshot, volume or backup) of a new volume.

use crate::api::block_storage::{
    BackupStatus, BlockStorage, Filling, NewVolume, SnapshotStatus, Source, VolumeMode, VolumeStatus,
};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{GiB, VolumeId};
use crate::last_failure::LastFailure;
use crate::metadata_keys;
use crate::operations::points_in_time::{PointInTime, point_in_time};

use super::classify::{requested_zones, zone_fits};

/// The parts of a request for a new volume.
#[derive(Debug)]
pub(super) struct VolumeRequest {
    pub(super) new: NewVolume,
    pub(super) filling: Filling,
}

/// Resolves and checks the source, and adds the metadata that later calls need.
pub(super) async fn resolve_request(cx: &Context, new: &NewVolume) -> Result<VolumeRequest, CloudError> {
    let (filling, zone) = resolve_source(cx, new).await?;
    let mut new = new.clone();
    new.metadata.append(&mut new.mutable_metadata.clone());
    if let Filling::Backup(id) = &filling {
        new.metadata
            .insert(metadata_keys::SOURCE_BACKUP.to_owned(), id.to_string());
    }
    new.metadata.extend(mode_mark(&new));
    if new.multiattach {
        new.metadata
            .insert(metadata_keys::REQUESTED_MULTIATTACH.to_owned(), true.to_string());
    }
    if !cx.config().block_storage.ignore_volume_az {
        let zones = requested_zones(&new);
        new.metadata
            .extend(zones.map(|zones| (metadata_keys::REQUESTED_ZONES.to_owned(), zones)));
        // Most clouds copy within one zone only, so the zone of the source is preferred among the acceptable ones.
        if let Some(zone) = zone.filter(|zone| new.availability_zone.is_some() && zone_fits(zone, &new)) {
            new.availability_zone = Some(zone);
        }
    }
    Ok(VolumeRequest { new, filling })
}

/// The metadata entry for the volume mode.
pub(super) fn mode_mark(new: &NewVolume) -> Option<(String, String)> {
    let mode = new.mode?;
    Some((metadata_keys::VOLUME_MODE.to_owned(), mode.name().to_owned()))
}

/// The source and, if known, its zone. A source that Cinder does not know (404) is [`CloudError::NoSource`].
async fn resolve_source(cx: &Context, new: &NewVolume) -> Result<(Filling, Option<String>), CloudError> {
    match &new.source {
        None => Ok((Filling::Nothing, None)),
        Some(Source::Volume(id)) => {
            let missing = || CloudError::NoSource {
                kind: ObjectKind::Volume,
                id: id.to_string(),
                request_id: LastFailure::request_that_missed(id.as_str()),
            };
            if !id.is_uuid() {
                return Err(missing());
            }
            let volume = BlockStorage::new(&cx.transport).volume(id).await?.ok_or_else(missing)?;
            let usable = matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse);
            let error = volume.status.is_error();
            let (kind, status) = (ObjectKind::Volume, volume.status.as_str());
            check_status(kind, id.as_str(), status, usable, error, "available or in-use")?;
            check_size(kind, id.as_str(), volume.size, new.size)?;
            check_mode(kind, id.as_str(), volume.mode(), new)?;
            Ok((Filling::Volume(id.clone()), volume.availability_zone))
        }
        Some(Source::PointInTime(id)) => match point_in_time(cx, id).await? {
            None => Err(CloudError::NoSource {
                kind: ObjectKind::Snapshot,
                id: id.clone(),
                request_id: LastFailure::request_that_missed(id),
            }),
            Some(PointInTime::Snapshot(snapshot)) => {
                let usable = snapshot.status == SnapshotStatus::Available;
                let error = snapshot.status.is_error();
                let (kind, status) = (ObjectKind::Snapshot, snapshot.status.as_str());
                check_status(kind, id, status, usable, error, "available")?;
                check_size(kind, id, snapshot.size, new.size)?;
                check_mode(kind, id, mode_of_volume(cx, new, &snapshot.volume_id).await?, new)?;
                let zone = snapshot.metadata.get(metadata_keys::ZONE).cloned();
                Ok((Filling::Snapshot(snapshot.id), zone))
            }
            Some(PointInTime::Backup(backup)) => {
                let usable = backup.status == BackupStatus::Available;
                let error = backup.status.is_error();
                let (kind, status) = (ObjectKind::Backup, backup.status.as_str());
                check_status(kind, id, status, usable, error, "available")?;
                if let Some(size) = backup.size {
                    check_size(kind, id, size, new.size)?;
                }
                let mode = match VolumeMode::recorded(&backup.metadata) {
                    None => mode_of_volume(cx, new, &backup.volume_id).await?,
                    recorded => recorded,
                };
                check_mode(kind, id, mode, new)?;
                Ok((Filling::Backup(backup.id), None))
            }
        },
    }
}

fn check_status(
    kind: ObjectKind,
    id: &str,
    status: &str,
    usable: bool,
    error: bool,
    wanted: &'static str,
) -> Result<(), CloudError> {
    let (id, status) = (id.to_owned(), status.to_owned());
    match (usable, error) {
        (true, _) => Ok(()),
        (false, true) => Err(CloudError::Broken {
            kind,
            id,
            status,
            message: String::new(),
        }),
        (false, false) => Err(CloudError::Busy {
            kind,
            id,
            status,
            wanted,
        }),
    }
}

/// Gets the recorded mode of the volume of a snapshot or backup. `None` if it is not needed, or if the volume was
/// deleted.
async fn mode_of_volume(cx: &Context, new: &NewVolume, id: &VolumeId) -> Result<Option<VolumeMode>, CloudError> {
    if !is_mode_checked(new) || !id.is_uuid() {
        return Ok(None);
    }
    let volume = BlockStorage::new(&cx.transport).volume(id).await?;
    Ok(volume.and_then(|volume| volume.mode()))
}

/// Whether the mode of the source matters. The other direction is safe: no node mounts the file system of a raw device.
fn is_mode_checked(new: &NewVolume) -> bool {
    new.mode == Some(VolumeMode::Filesystem) && !new.allow_mode_change
}

/// Refuses a file system on bytes that users of a raw device wrote. csi-provisioner refuses it too, if the cluster's
/// snapshot-controller recorded the mode of the source. A source without a record is allowed, because earlier drivers
/// recorded no mode.
fn check_mode(kind: ObjectKind, id: &str, source: Option<VolumeMode>, new: &NewVolume) -> Result<(), CloudError> {
    if is_mode_checked(new) && source == Some(VolumeMode::Block) {
        let id = id.to_owned();
        return Err(CloudError::SourceMode { kind, id });
    }
    Ok(())
}

fn check_size(kind: ObjectKind, id: &str, size: GiB, wanted: GiB) -> Result<(), CloudError> {
    if size <= wanted {
        return Ok(());
    }
    Err(CloudError::SourceTooLarge {
        kind,
        id: id.to_owned(),
        size,
        wanted,
    })
}
