// SPDX-License-Identifier: Apache-2.0
//! Volume types and retype.

use super::World;
use crate::api::Fault;
use crate::config::VolumeType;
use crate::state::VolumeStatus;

/// The next step of an accepted retype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retype {
    /// The new type has the same backend.
    InPlace,
    /// The volume migrates to another backend.
    Migrate,
    /// The volume would have to migrate, but the policy forbids that.
    Forbidden,
}

impl World {
    /// Returns the volume type with this name or id; the default type for `None`.
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

    /// Returns the device size in bytes of a volume with this size in GiB; 0 for an unknown volume.
    pub(crate) fn device_bytes(&self, volume_id: &str, gib: u64) -> u64 {
        let volume_type = self
            .volume(volume_id)
            .and_then(|volume| self.volume_type(Some(&volume.volume_type)));
        volume_type.map_or(0, |volume_type| volume_type.device_bytes(gib))
    }

    /// Whether a copy of a volume may have the other type, which requires the same backend.
    pub(super) fn are_on_one_backend(&self, one: &str, other: &VolumeType) -> bool {
        self.volume_type(Some(one))
            .is_ok_and(|one| one.backend() == other.backend())
    }

    /// Accepts a retype call: the volume becomes `retyping`.
    pub(crate) fn begin_retype(
        &mut self,
        id: &str,
        wanted: &str,
        may_migrate: bool,
    ) -> Result<(String, Retype), Fault> {
        let volume = self.volume(id)?;
        let target = self.volume_type(Some(wanted))?.clone();
        if volume.multiattach != target.multiattach && volume.status != VolumeStatus::Available {
            return Err(Fault::bad_request(format!(
                "Invalid input received: Invalid volume_type passed, retypes affecting multiattach are only allowed on \
                 available volumes, the specified volume however currently has a status of: {}.",
                volume.status
            )));
        }
        let current = self.volume_type(Some(&volume.volume_type))?;
        let in_use = volume.status == VolumeStatus::InUse;
        let good = matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse)
            && !volume.is_migrating()
            && volume.group_id.is_none()
            && volume.volume_type != target.name
            && !(in_use && current.qos_specs_id != target.qos_specs_id);
        if !good {
            return Err(Fault::bad_request(
                "Invalid volume: Retype needs volume to be in available or in-use state, not be part of an active \
                 migration or a consistency group, requested type has to be different that the one from the volume, and \
                 for in-use volumes front-end qos specs cannot change.",
            ));
        }
        // A change of the encryption requires that the data are rewritten.
        let way = if current.backend() == target.backend() && current.encrypted == target.encrypted {
            Retype::InPlace
        } else if may_migrate {
            Retype::Migrate
        } else {
            Retype::Forbidden
        };
        let volume = self.volume_mut(id)?;
        volume.previous_status = Some(volume.status);
        volume.multiattach = target.multiattach;
        self.set_status(id, VolumeStatus::Retyping);
        Ok((target.name, way))
    }

    /// Sets the migration status of a volume.
    pub(crate) fn set_migration(&mut self, id: &str, status: &str) {
        let now = self.sources.now();
        if let Ok(volume) = self.volume_mut(id) {
            volume.migration_status = Some(status.to_owned());
            volume.updated_at = Some(now);
        }
    }

    /// Ends `retyping` with the previous status, and with the new or the old type.
    pub(crate) fn end_retype(&mut self, id: &str, new_type: Option<&str>) {
        let target = new_type.and_then(|name| self.volume_type(Some(name)).ok()).cloned();
        let Ok(volume) = self.volume(id) else { return };
        if volume.status != VolumeStatus::Retyping {
            return;
        }
        let target = target.or_else(|| self.volume_type(Some(&volume.volume_type)).ok().cloned());
        let Some(target) = target else { return };
        for snapshot in self.snapshots.values_mut().filter(|snapshot| snapshot.volume_id == id) {
            snapshot.volume_type.clone_from(&target.name);
        }
        let Ok(volume) = self.volume_mut(id) else { return };
        volume.backend = Some(target.backend().to_owned());
        volume.multiattach = target.multiattach;
        volume.encrypted = target.encrypted;
        volume.volume_type = target.name;
        let before = volume.previous_status.take().unwrap_or(VolumeStatus::Available);
        self.set_status(id, before);
    }
}
