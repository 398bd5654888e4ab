// SPDX-License-Identifier: Apache-2.0
//! Quotas of the project and capacities of the backends.

use super::World;
use crate::api::Fault;
use crate::config::VolumeType;

/// Capacity in GiB of a backend without a configured pool.
const AMPLE: u64 = 1_000_000_000;

/// Usage of a resource.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) volumes: u64,
    pub(crate) gigabytes: u64,
    pub(crate) snapshots: u64,
}

/// A backend with its total and free capacity in GiB.
#[derive(Debug, Clone)]
pub(crate) struct PoolState {
    pub(crate) backend: String,
    pub(crate) total: u64,
    pub(crate) allocated: u64,
    pub(crate) reserved_percentage: u8,
    pub(crate) multiattach: bool,
}

impl PoolState {
    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.allocated)
    }
}

fn exceeds(limit: i64, wanted: u64) -> bool {
    limit >= 0 && i64::try_from(wanted).unwrap_or(i64::MAX) > limit
}

impl World {
    /// Returns the usage of one volume type or of all.
    pub(crate) fn usage(&self, volume_type: Option<&str>) -> Usage {
        let of_type = |name: &str| volume_type.is_none_or(|wanted| wanted == name);
        let volumes = || self.volumes.values().filter(|volume| of_type(&volume.volume_type));
        let snapshots = || {
            self.snapshots
                .values()
                .filter(|snapshot| of_type(&snapshot.volume_type))
        };
        Usage {
            volumes: volumes().count() as u64,
            gigabytes: volumes().map(|volume| volume.size).sum::<u64>()
                + snapshots().map(|snapshot| snapshot.size).sum::<u64>(),
            snapshots: snapshots().count() as u64,
        }
    }

    /// Returns the total size of all backups in GiB.
    pub(crate) fn backup_gigabytes(&self) -> u64 {
        self.backups.values().map(|backup| backup.size).sum()
    }

    /// Checks the quota as Cinder does: snapshots count against the gigabytes too.
    pub(crate) fn check_quota(
        &self,
        volume_type: &str,
        new_volume: bool,
        gigabytes: u64,
        volume_size: u64,
    ) -> Result<(), Fault> {
        let quota = self.rules.quota;
        if exceeds(quota.per_volume_gigabytes, volume_size) {
            return Err(Fault::over_quota(
                "VolumeSizeExceedsLimit",
                &format!(
                    "Requested volume size {volume_size}G is larger than maximum allowed limit {}G.",
                    quota.per_volume_gigabytes
                ),
            ));
        }
        let of_type = self
            .volume_type(Some(volume_type))
            .map(|known| known.quota)
            .unwrap_or_default();
        for (suffix, usage, volumes, limit) in [
            (String::new(), self.usage(None), quota.volumes, quota.gigabytes),
            (
                format!("_{volume_type}"),
                self.usage(Some(volume_type)),
                of_type.volumes,
                of_type.gigabytes,
            ),
        ] {
            if exceeds(limit, usage.gigabytes + gigabytes) {
                return Err(Fault::over_quota(
                    "VolumeSizeExceedsAvailableQuota",
                    &format!(
                        "Requested volume or snapshot exceeds allowed gigabytes{suffix} quota. Requested {gigabytes}G, \
                         quota is {limit}G and {}G has been consumed.",
                        usage.gigabytes
                    ),
                ));
            }
            if new_volume && exceeds(volumes, usage.volumes + 1) {
                return Err(Fault::over_quota(
                    "VolumeLimitExceeded",
                    &format!("Maximum number of volumes allowed ({volumes}) exceeded for quota 'volumes{suffix}'."),
                ));
            }
        }
        Ok(())
    }

    /// Checks the quota for this number of additional snapshots of a type.
    pub(crate) fn check_snapshot_quota(&self, volume_type: &str, more: u64) -> Result<(), Fault> {
        let of_type = self
            .volume_type(Some(volume_type))
            .map(|known| known.quota)
            .unwrap_or_default();
        for (limit, used) in [
            (self.rules.quota.snapshots, self.usage(None).snapshots),
            (of_type.snapshots, self.usage(Some(volume_type)).snapshots),
        ] {
            if exceeds(limit, used + more) {
                return Err(Fault::over_quota(
                    "SnapshotLimitExceeded",
                    &format!("Maximum number of snapshots allowed ({limit}) exceeded"),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn check_backup_quota(&self, gigabytes: u64) -> Result<(), Fault> {
        let quota = self.rules.quota;
        let used = self.backup_gigabytes();
        if exceeds(quota.backup_gigabytes, used + gigabytes) {
            return Err(Fault::over_quota(
                "VolumeBackupSizeExceedsAvailableQuota",
                &format!(
                    "Requested backup exceeds allowed Backup gigabytes quota. Requested {gigabytes}G, quota is {}G and \
                     {used}G has been consumed.",
                    quota.backup_gigabytes
                ),
            ));
        }
        if exceeds(quota.backups, self.backups.len() as u64 + 1) {
            return Err(Fault::over_quota(
                "BackupLimitExceeded",
                &format!("Maximum number of backups allowed ({}) exceeded", quota.backups),
            ));
        }
        Ok(())
    }

    pub(crate) fn check_group_quota(&self) -> Result<(), Fault> {
        let limit = self.rules.quota.groups;
        if exceeds(limit, self.groups.len() as u64 + 1) {
            return Err(Fault::over_quota(
                "GroupLimitExceeded",
                &format!("Maximum number of groups allowed ({limit}) exceeded"),
            ));
        }
        Ok(())
    }

    /// Returns the backends of the volume types, without duplicates.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        let mut pools: Vec<PoolState> = Vec::new();
        for volume_type in &self.rules.volume_types {
            let backend = volume_type.backend();
            if pools.iter().all(|pool| pool.backend != backend) {
                pools.push(self.pool(backend));
            }
        }
        pools
    }

    fn pool(&self, backend: &str) -> PoolState {
        let configured = self.rules.pools.iter().find(|pool| pool.backend == backend);
        let on_it: Vec<&str> = self
            .rules
            .volume_types
            .iter()
            .filter(|known| known.backend() == backend)
            .map(|known| known.name.as_str())
            .collect();
        PoolState {
            backend: backend.to_owned(),
            total: configured.map_or(AMPLE, |pool| pool.total_gigabytes),
            allocated: on_it.iter().map(|name| self.usage(Some(name)).gigabytes).sum(),
            reserved_percentage: configured.map_or(0, |pool| pool.reserved_percentage),
            multiattach: true,
        }
    }

    /// Whether the backend of a type has this number of GiB free, excluding its reserve. `counted` is the part of them
    /// that is already allocated.
    pub(crate) fn has_room(&self, volume_type: &VolumeType, counted: u64, gigabytes: u64) -> bool {
        let pool = self.pool(volume_type.backend());
        let reserve = pool.total * u64::from(pool.reserved_percentage) / 100;
        let others = pool.allocated.saturating_sub(counted);
        others + gigabytes + reserve <= pool.total
    }
}
