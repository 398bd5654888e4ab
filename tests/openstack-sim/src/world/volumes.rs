// SPDX-License-Identifier: Apache-2.0
//! Volumes: create, extend, delete.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::World;
use crate::api::Fault;
use crate::config::VolumeType;
use crate::state::{AttachmentStatus, BackupStatus, GroupStatus, SnapshotStatus, Volume, VolumeStatus};

/// Parameters of a new volume.
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
    pub(crate) backup_id: Option<String>,
    pub(crate) group_id: Option<String>,
    /// Scheduler hints from the request.
    #[serde(skip)]
    pub(crate) scheduler_hints: BTreeMap<String, Vec<String>>,
}

/// The source of a new volume.
#[derive(Debug, Default)]
struct Source {
    size: Option<u64>,
    zone: Option<String>,
    volume_type: Option<String>,
    /// Cinder's name of the kind of source.
    kind: &'static str,
    /// Cinder's message if the requested size is too small.
    too_small: Option<fn(u64, u64) -> String>,
}

impl World {
    /// Adds `available` volumes with the metadata of a CSI driver.
    pub(crate) fn add_volumes(&mut self, count: usize) {
        let Ok(volume_type) = self.volume_type(None).cloned() else {
            return;
        };
        let template = Volume {
            id: String::new(),
            name: None,
            description: Some("Created by OpenStack Cinder CSI driver".to_owned()),
            status: VolumeStatus::Available,
            previous_status: None,
            size: 1,
            volume_type: volume_type.name.clone(),
            availability_zone: self.rules.zones.first().cloned().unwrap_or_else(|| "nova".to_owned()),
            multiattach: volume_type.multiattach,
            encrypted: volume_type.encrypted,
            metadata: BTreeMap::from([("cinder.csi.openstack.org/cluster".to_owned(), "suites".to_owned())]),
            backend: Some(volume_type.backend().to_owned()),
            snapshot_id: None,
            source_volume_id: None,
            backup_id: None,
            group_id: None,
            migration_status: None,
            scheduler_hints: BTreeMap::new(),
            created_at: self.sources.now(),
            updated_at: None,
            new_size: None,
        };
        for _ in 0..count {
            let volume = Volume {
                id: self.new_id(),
                name: Some(format!("pvc-{}", self.new_id())),
                ..template.clone()
            };
            self.volumes.insert(volume.id.clone(), volume);
        }
    }

    /// Accepts a create call: the volume becomes `creating`.
    pub(crate) fn begin_create(&mut self, new: NewVolume) -> Result<Volume, Fault> {
        let now = self.sources.now();
        let source = self.source(&new)?;
        let volume_type = self.type_of(&new, &source)?;
        let size = new.size.or(source.size).filter(|size| *size > 0).ok_or_else(|| {
            Fault::bad_request(format!(
                "Invalid input received: Volume size '{}' must be an integer and greater than 0",
                new.size.map_or_else(|| "None".to_owned(), |size| size.to_string())
            ))
        })?;
        if let (Some(smallest), Some(text)) = (source.size, source.too_small)
            && size < smallest
        {
            return Err(Fault::bad_request(format!(
                "Invalid input received: {}",
                text(size, smallest)
            )));
        }
        let group_zone = self.check_group_of(&new, &volume_type)?;
        if let (Some(of_source), Some(wanted)) = (&source.zone, &new.availability_zone)
            && of_source != wanted
            && self.rules.zones.contains(wanted)
            && !self.rules.copies_across_zones
        {
            return Err(Fault::bad_request(format!(
                "Invalid input received: Volume must be in the same availability zone as the {}",
                source.kind
            )));
        }
        let zone = match group_zone.or(new.availability_zone).or(source.zone) {
            Some(zone) if self.rules.zones.contains(&zone) => zone,
            Some(zone) => return Err(Fault::bad_request(format!("Availability zone '{zone}' is invalid."))),
            None => self.rules.zones.first().cloned().unwrap_or_else(|| "nova".to_owned()),
        };
        self.check_quota(&volume_type.name, true, size, size)?;
        let volume = Volume {
            id: self.new_id(),
            name: new.name,
            description: new.description,
            status: VolumeStatus::Creating,
            previous_status: None,
            size,
            volume_type: volume_type.name,
            availability_zone: zone,
            multiattach: volume_type.multiattach,
            encrypted: volume_type.encrypted,
            metadata: new.metadata.unwrap_or_default(),
            backend: None,
            snapshot_id: new.snapshot_id,
            source_volume_id: new.source_volid,
            backup_id: new.backup_id,
            group_id: new.group_id,
            migration_status: None,
            scheduler_hints: new.scheduler_hints,
            created_at: now,
            updated_at: None,
            new_size: None,
        };
        self.volumes.insert(volume.id.clone(), volume.clone());
        Ok(volume)
    }

    fn source(&self, new: &NewVolume) -> Result<Source, Fault> {
        if let Some(id) = &new.snapshot_id {
            let snapshot = self.snapshot(id)?;
            if snapshot.status != SnapshotStatus::Available {
                return Err(Fault::bad_request(
                    "Invalid snapshot: Originating snapshot status must be one of 'available' values",
                ));
            }
            let volume = self.volumes.get(&snapshot.volume_id);
            return Ok(Source {
                size: Some(snapshot.size),
                zone: volume.map(|volume| volume.availability_zone.clone()),
                kind: "snapshot",
                volume_type: Some(snapshot.volume_type.clone()),
                too_small: Some(|size, smallest| {
                    format!(
                        "Volume size '{size}'GB cannot be smaller than the snapshot size {smallest}GB. They must be >= \
                         original snapshot size."
                    )
                }),
            });
        }
        if let Some(id) = &new.source_volid {
            let volume = self.volume(id)?;
            if !matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse) {
                return Err(Fault::bad_request(
                    "Invalid volume: Originating source volume status must be one of 'available, in-use' values",
                ));
            }
            return Ok(Source {
                size: Some(volume.size),
                zone: Some(volume.availability_zone.clone()),
                kind: "source volume",
                volume_type: Some(volume.volume_type.clone()),
                too_small: Some(|size, smallest| {
                    format!(
                        "Volume size '{size}'GB cannot be smaller than original volume size  {smallest}GB. They must be \
                         >= original volume size."
                    )
                }),
            });
        }
        if let Some(id) = &new.backup_id {
            let backup = self.backup(id)?;
            if backup.status != BackupStatus::Available {
                return Err(Fault::bad_request(
                    "Invalid backup: Originating backup status must be one of 'available' values",
                ));
            }
            return Ok(Source {
                size: Some(backup.size),
                too_small: Some(|size, smallest| {
                    format!(
                        "Volume size {size}GB cannot be smaller than the backup size {smallest}GB. It must be >= backup \
                         size."
                    )
                }),
                ..Source::default()
            });
        }
        Ok(Source::default())
    }

    /// Returns the type of a new volume: the requested one, its source's, or the default.
    fn type_of(&self, new: &NewVolume, source: &Source) -> Result<VolumeType, Fault> {
        let Some(wanted) = new.volume_type.as_deref().filter(|name| !name.is_empty()) else {
            return self.volume_type(source.volume_type.as_deref()).cloned();
        };
        let wanted = self.volume_type(Some(wanted))?;
        if let Some(of_source) = &source.volume_type
            && *of_source != wanted.name
            && !self.are_on_one_backend(of_source, wanted)
        {
            let advice = if new.snapshot_id.is_some() {
                "recommend omitting the type argument"
            } else {
                "either match source volume, or omit type argument"
            };
            return Err(Fault::bad_request(format!(
                "Invalid input received: Invalid volume_type provided: {} (requested type is not compatible; {advice}).",
                wanted.id
            )));
        }
        Ok(wanted.clone())
    }

    /// Checks that a new volume may join its group, and returns the zone of the group.
    fn check_group_of(&self, new: &NewVolume, volume_type: &VolumeType) -> Result<Option<String>, Fault> {
        let Some(id) = &new.group_id else { return Ok(None) };
        let group = self.group(id)?;
        if new.volume_type.is_none() {
            return Err(Fault::bad_request(
                "Invalid input received: volume_type must be provided when creating a volume in a group.",
            ));
        }
        if !group.volume_types.contains(&volume_type.id) {
            return Err(Fault::bad_request(format!(
                "Invalid input received: Invalid volume_type provided: {} (requested type must be supported by this \
                 group).",
                volume_type.name
            )));
        }
        if !matches!(group.status, GroupStatus::Available | GroupStatus::Creating) {
            return Err(Fault::bad_request(
                "Invalid Group: Originating group status must be one of 'available, creating' values",
            ));
        }
        Ok(Some(group.availability_zone.clone()))
    }

    /// Assigns a backend. Returns false if none has enough capacity, or if the volume has been deleted.
    pub(crate) fn schedule(&mut self, id: &str) -> bool {
        let now = self.sources.now();
        let Some(volume) = self.volumes.get(id) else {
            return false;
        };
        let Ok(volume_type) = self.volume_type(Some(&volume.volume_type)) else {
            return false;
        };
        // The volume's own size is already allocated.
        if !self.has_room(volume_type, volume.size, volume.size) {
            return false;
        }
        let backend = volume_type.backend().to_owned();
        let from_backup = volume.backup_id.clone();
        if let Some(volume) = self.volumes.get_mut(id) {
            volume.backend = Some(backend);
            volume.updated_at = Some(now);
        }
        if let Some(backup) = from_backup {
            self.set_backup_status(&backup, BackupStatus::Restoring);
        }
        true
    }

    /// Ends `creating` with `available` or `error`.
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

    /// Accepts a delete call: the volume becomes `deleting`, and the result is true. If it has no backend, it is
    /// deleted immediately in any status, and the result is false.
    pub(crate) fn begin_delete(&mut self, id: &str, cascade: bool, force: bool) -> Result<bool, Fault> {
        let volume = self.volume(id)?;
        if volume.backend.is_none() {
            self.end_delete(id, false);
            return Ok(false);
        }
        let deletable = force
            || matches!(
                volume.status,
                VolumeStatus::Available
                    | VolumeStatus::Error
                    | VolumeStatus::ErrorRestoring
                    | VolumeStatus::ErrorExtending
                    | VolumeStatus::ErrorManaging
            );
        let attached = self
            .attachments_of(id)
            .iter()
            .any(|known| known.status == AttachmentStatus::Attached);
        let held = volume.is_migrating() || volume.group_id.is_some() || attached;
        let held_by_snapshots = self
            .snapshots
            .values()
            .filter(|snapshot| snapshot.volume_id == id)
            .any(|snapshot| {
                let undeletable = !matches!(
                    snapshot.status,
                    SnapshotStatus::Available | SnapshotStatus::Error | SnapshotStatus::Deleting
                );
                !cascade || undeletable || snapshot.group_snapshot_id.is_some()
            });
        if !deletable || held || held_by_snapshots {
            let status = if force {
                "Volume"
            } else {
                "Volume status must be available or error or error_restoring or error_extending or error_managing and"
            };
            return Err(Fault::bad_request(format!(
                "Invalid volume: {status} must not be migrating, attached, belong to a group, have snapshots, awaiting a \
                 transfer, or be disassociated from snapshots after volume transfer."
            )));
        }
        let ours = self.snapshots.values_mut().filter(|snapshot| snapshot.volume_id == id);
        for snapshot in ours {
            snapshot.status = SnapshotStatus::Deleting;
        }
        self.set_status(id, VolumeStatus::Deleting);
        Ok(true)
    }

    /// Ends `deleting` with the removal or `error_deleting`.
    pub(crate) fn end_delete(&mut self, id: &str, failed: bool) {
        if failed {
            self.turn(id, VolumeStatus::Deleting, VolumeStatus::ErrorDeleting);
        } else {
            self.volumes.remove(id);
            self.attachments.remove(id);
            self.snapshots.retain(|_, snapshot| snapshot.volume_id != id);
        }
    }

    /// Accepts an extend call: the volume becomes `extending`. `in_use` is whether the microversion (3.42) allows it
    /// for an attached volume.
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
        self.check_quota(&volume.volume_type, false, size - volume.size, size)?;
        let volume = self.volume_mut(id)?;
        volume.new_size = Some(size);
        volume.previous_status = Some(volume.status);
        self.set_status(id, VolumeStatus::Extending);
        Ok(())
    }

    /// Whether the backend has capacity for the extension.
    pub(crate) fn has_room_to_extend(&self, id: &str) -> bool {
        self.volume(id).is_ok_and(|volume| {
            let more = volume.new_size.unwrap_or(volume.size).saturating_sub(volume.size);
            self.volume_type(Some(&volume.volume_type))
                .is_ok_and(|volume_type| self.has_room(volume_type, 0, more))
        })
    }

    /// Ends `extending` with the previous status and the new size, or with `error_extending`. If the backend has no
    /// capacity, the scheduler restores the volume unchanged.
    pub(crate) fn end_extend(&mut self, id: &str, failed: bool) {
        let Ok(volume) = self.volume_mut(id) else { return };
        let Some(size) = volume.new_size.take() else {
            return;
        };
        if volume.status != VolumeStatus::Extending {
            return;
        }
        if failed {
            volume.previous_status = None;
            self.set_status(id, VolumeStatus::ErrorExtending);
        } else {
            volume.size = size;
            self.step_back(id, VolumeStatus::Extending);
        }
    }

    /// Sets the status unconditionally. Returns false if the volume does not exist.
    pub(crate) fn set_status(&mut self, id: &str, status: VolumeStatus) -> bool {
        let now = self.sources.now();
        let Some(volume) = self.volumes.get_mut(id) else {
            return false;
        };
        volume.status = status;
        volume.updated_at = Some(now);
        true
    }

    /// Changes the status from `from` to `to`, unless it has changed in the meantime.
    pub(super) fn turn(&mut self, id: &str, from: VolumeStatus, to: VolumeStatus) {
        if self.volumes.get(id).is_some_and(|volume| volume.status == from) {
            self.set_status(id, to);
        }
    }

    /// Returns from a transitional status to the previous one.
    pub(crate) fn step_back(&mut self, id: &str, from: VolumeStatus) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let before = volume.previous_status.take().unwrap_or(VolumeStatus::Available);
        volume.new_size = None;
        self.turn(id, from, before);
    }
}
