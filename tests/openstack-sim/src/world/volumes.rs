//! Volumes: create, extend, delete.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::World;
use crate::api::{Fault, new_id};
use crate::config::VolumeType;
use crate::state::{SnapshotStatus, Volume, VolumeStatus};

/// What a volume is asked for with.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct NewVolume {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) volume_type: Option<String>,
    pub(crate) availability_zone: Option<String>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) source_volid: Option<String>,
}

impl World {
    /// Cinder's answer to a create call: the volume is `creating`.
    pub(crate) fn begin_create(&mut self, new: NewVolume) -> Result<Volume, Fault> {
        let (source_size, source_zone) = self.source(&new)?;
        let volume_type = self.volume_type(new.volume_type.as_deref())?.clone();
        let size = new.size.or(source_size).filter(|size| *size > 0).ok_or_else(|| {
            Fault::bad_request("Invalid input received: Volume size must be an integer and greater than 0.")
        })?;
        if let Some(smallest) = source_size.filter(|smallest| size < *smallest) {
            let source = if new.snapshot_id.is_some() {
                "the snapshot size"
            } else {
                "original volume size"
            };
            return Err(Fault::bad_request(format!(
                "Invalid input received: Volume size '{size}'GB cannot be smaller than {source} {smallest}GB. They must be >= {source}."
            )));
        }
        let zone = match new.availability_zone.or(source_zone) {
            Some(zone) if self.rules.zones.contains(&zone) => zone,
            Some(zone) => return Err(Fault::bad_request(format!("Availability zone '{zone}' is invalid."))),
            None => self.rules.zones.first().cloned().unwrap_or_else(|| "nova".to_owned()),
        };
        self.check_quota(1, size, size)?;
        let volume = Volume {
            id: new_id(),
            name: new.name,
            description: new.description,
            status: VolumeStatus::Creating,
            size,
            volume_type: volume_type.name,
            availability_zone: zone,
            multiattach: volume_type.multiattach,
            metadata: new.metadata.unwrap_or_default(),
            scheduled: false,
            snapshot_id: new.snapshot_id,
            source_volume_id: new.source_volid,
            created_at: Timestamp::now(),
            updated_at: None,
            extending: None,
        };
        self.volumes.insert(volume.id.clone(), volume.clone());
        Ok(volume)
    }

    /// Size and zone of what a new volume is made from.
    fn source(&self, new: &NewVolume) -> Result<(Option<u64>, Option<String>), Fault> {
        if let Some(id) = &new.snapshot_id {
            let snapshot = self.snapshot(id)?;
            if snapshot.status != SnapshotStatus::Available {
                return Err(Fault::bad_request(
                    "Invalid snapshot: Originating snapshot status must be one of 'available' values",
                ));
            }
            let zone = self
                .volumes
                .get(&snapshot.volume_id)
                .map(|volume| volume.availability_zone.clone());
            return Ok((Some(snapshot.size), zone));
        }
        if let Some(id) = &new.source_volid {
            let volume = self.volume(id)?;
            if !matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse) {
                return Err(Fault::bad_request(
                    "Invalid volume: Originating source volume status must be one of 'available, in-use' values",
                ));
            }
            return Ok((Some(volume.size), Some(volume.availability_zone.clone())));
        }
        Ok((None, None))
    }

    /// The volume type with this name or id; the default one when none is named.
    pub(crate) fn volume_type(&self, wanted: Option<&str>) -> Result<&VolumeType, Fault> {
        let Some(wanted) = wanted.filter(|name| !name.is_empty()) else {
            return self
                .rules
                .volume_types
                .first()
                .ok_or_else(|| Fault::new(500, "Default volume type is not defined."));
        };
        self.rules
            .volume_types
            .iter()
            .find(|known| known.name == wanted || known.id == wanted)
            .ok_or_else(|| {
                if uuid::Uuid::parse_str(wanted).is_ok() {
                    Fault::not_found(format!("Volume type {wanted} could not be found."))
                } else {
                    Fault::not_found(format!("Volume type with name {wanted} could not be found."))
                }
            })
    }

    /// Cinder's accounting: snapshots count against the gigabytes too.
    pub(crate) fn check_quota(&self, volumes: i64, gigabytes: u64, volume_size: u64) -> Result<(), Fault> {
        let quota = self.rules.quota;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        if quota.per_volume_gigabytes >= 0 && signed(volume_size) > quota.per_volume_gigabytes {
            return Err(Fault::over_quota(
                "VolumeSizeExceedsLimit",
                &format!(
                    "Requested volume size {volume_size}G is larger than maximum allowed limit {}G.",
                    quota.per_volume_gigabytes
                ),
            ));
        }
        let used = self.gigabytes_used();
        if quota.gigabytes >= 0 && signed(used + gigabytes) > quota.gigabytes {
            return Err(Fault::over_quota(
                "VolumeSizeExceedsAvailableQuota",
                &format!(
                    "Requested volume or snapshot exceeds allowed gigabytes quota. Requested {gigabytes}G, quota is {}G and {used}G has been consumed.",
                    quota.gigabytes
                ),
            ));
        }
        if quota.volumes >= 0 && volumes > 0 && signed(self.volumes.len() as u64) + volumes > quota.volumes {
            return Err(Fault::over_quota(
                "VolumeLimitExceeded",
                &format!(
                    "Maximum number of volumes allowed ({}) exceeded for quota 'volumes'.",
                    quota.volumes
                ),
            ));
        }
        Ok(())
    }

    /// GiB of all volumes and snapshots.
    pub(crate) fn gigabytes_used(&self) -> u64 {
        self.volumes.values().map(|volume| volume.size).sum::<u64>()
            + self.snapshots.values().map(|snapshot| snapshot.size).sum::<u64>()
    }

    /// The scheduler has found a backend; false when the volume was deleted before.
    pub(crate) fn schedule(&mut self, id: &str) -> bool {
        let Some(volume) = self.volumes.get_mut(id) else {
            return false;
        };
        volume.scheduled = true;
        true
    }

    /// `creating` to `available`, or to `error`.
    pub(crate) fn end_create(&mut self, id: &str, failed: bool) {
        self.turn(
            id,
            VolumeStatus::Creating,
            if failed {
                VolumeStatus::Error
            } else {
                VolumeStatus::Available
            },
        );
    }

    /// Cinder's answer to a delete call: the volume is `deleting`, and true; or it is gone already, whatever its status
    /// was, because no backend knew it, and false.
    pub(crate) fn begin_delete(&mut self, id: &str, cascade: bool) -> Result<bool, Fault> {
        let volume = self.volume(id)?;
        if !volume.scheduled {
            self.end_delete(id, false);
            return Ok(false);
        }
        let deletable = matches!(
            volume.status,
            VolumeStatus::Available | VolumeStatus::Error | VolumeStatus::ErrorExtending
        );
        let has_snapshots = self.snapshots.values().any(|snapshot| snapshot.volume_id == id);
        if !deletable || (has_snapshots && !cascade) {
            return Err(Fault::bad_request(
                "Invalid volume: Volume status must be available or error or error_restoring or error_extending or \
                 error_managing and must not be migrating, attached, belong to a group, have snapshots, awaiting a \
                 transfer, or be disassociated from snapshots after volume transfer.",
            ));
        }
        self.set_status(id, VolumeStatus::Deleting);
        Ok(true)
    }

    /// `deleting` to gone, or to `error_deleting`.
    pub(crate) fn end_delete(&mut self, id: &str, failed: bool) {
        if failed {
            self.turn(id, VolumeStatus::Deleting, VolumeStatus::ErrorDeleting);
        } else {
            self.volumes.remove(id);
            self.attachments.remove(id);
            self.snapshots.retain(|_, snapshot| snapshot.volume_id != id);
        }
    }

    /// Cinder's answer to an extend call: the volume is `extending`. `in_use` tells whether the microversion (3.42)
    /// allows it for an attached volume.
    pub(crate) fn begin_extend(&mut self, id: &str, size: u64, in_use: bool) -> Result<(), Fault> {
        let volume = self.volume(id)?;
        if size <= volume.size {
            return Err(Fault::bad_request(format!(
                "Invalid input received: New size for extend must be greater than current size. (current: {}, extended: {size}).",
                volume.size
            )));
        }
        let expected = if in_use && volume.status == VolumeStatus::InUse {
            VolumeStatus::InUse
        } else {
            VolumeStatus::Available
        };
        if volume.status != expected {
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume {id} status must be '{{'status': '{expected}'}}' to extend, currently {}.",
                volume.status
            )));
        }
        self.check_quota(0, size - volume.size, size)?;
        let volume = self.volume_mut(id)?;
        volume.extending = Some((size, volume.status));
        self.set_status(id, VolumeStatus::Extending);
        Ok(())
    }

    /// `extending` back to what it was with the new size, or to `error_extending`.
    pub(crate) fn end_extend(&mut self, id: &str, failed: bool) {
        let Ok(volume) = self.volume_mut(id) else { return };
        let Some((size, before)) = volume.extending.take() else {
            return;
        };
        if !failed {
            volume.size = size;
        }
        self.turn(
            id,
            VolumeStatus::Extending,
            if failed { VolumeStatus::ErrorExtending } else { before },
        );
    }

    /// Sets the status whatever it was; false when there is no such volume.
    pub(crate) fn set_status(&mut self, id: &str, status: VolumeStatus) -> bool {
        let Some(volume) = self.volumes.get_mut(id) else {
            return false;
        };
        volume.status = status;
        volume.updated_at = Some(Timestamp::now());
        true
    }

    /// Goes from one status to the next, unless somebody changed it in the meantime.
    pub(super) fn turn(&mut self, id: &str, from: VolumeStatus, to: VolumeStatus) {
        if self.volumes.get(id).is_some_and(|volume| volume.status == from) {
            self.set_status(id, to);
        }
    }
}
