// SPDX-License-Identifier: Apache-2.0
//! Volumes: create, delete, extend, retype.

use std::sync::Arc;

use super::{FailureMessage, outcome};
use crate::cloud::Cloud;
use crate::state::{LoopDevice, Volume, VolumeStatus};
use crate::world::{Retype, Subject};

/// Message of Cinder's scheduler if no backend is suitable.
const NO_BACKEND: &str = "schedule allocate volume:Could not find any available weighted backend.";

/// Ends `creating` with `available` or `error`. The scheduler takes half of the time; failures occur there.
pub(crate) fn create_volume(cloud: &Arc<Cloud>, volume: Volume, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.create / 2).await;
        let mut doom = doom;
        if doom.is_none() && !cloud.change(|world| world.schedule(&volume.id)) {
            if cloud.read(|world| world.volume(&volume.id).is_err()) {
                return;
            }
            doom = Some(NO_BACKEND.to_owned());
        }
        cloud.takes(|latencies| latencies.create / 2).await;
        if volume.backup_id.is_some() {
            if doom.is_none() {
                cloud.change(|world| world.begin_fill(&volume.id));
            }
            cloud.takes(|latencies| latencies.backup).await;
        }
        let source = volume
            .snapshot_id
            .as_deref()
            .or(volume.source_volume_id.as_deref())
            .or(volume.backup_id.as_deref());
        let bytes = cloud.read(|world| world.device_bytes(&volume.id, volume.size));
        let failed = outcome(&cloud, doom, async |backing| {
            backing.create(&volume.id, bytes, source).await
        })
        .await;
        cloud.change(|world| {
            // A failure before the restore results in `error`; a failure during it has its own status.
            let restoring = world.volume(&volume.id).is_ok_and(|known| known.backend.is_some());
            match &volume.backup_id {
                Some(backup) if restoring => world.end_restore(backup, &volume.id, failed.is_some()),
                _ => world.end_create(&volume.id, failed.is_some()),
            }
            if let Some(reason) = &failed {
                world.add_message(Subject::Volume, &volume.id, &request_id, "001_003", reason);
            }
        });
    });
}

/// Ends `deleting` with the removal or `error_deleting`. A volume with dependent clones becomes `available` again.
pub(crate) fn delete_volume(cloud: &Arc<Cloud>, volume_id: String, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.delete).await;
        if cloud.read(|world| world.is_held_by_clones(&volume_id)) {
            cloud.change(|world| world.set_status(&volume_id, VolumeStatus::Available));
            return;
        }
        let files: Vec<String> = cloud.read(|world| {
            let of_volume = world
                .snapshots
                .values()
                .filter(|snapshot| snapshot.volume_id == volume_id);
            let snapshots = of_volume.map(|snapshot| snapshot.id.clone());
            snapshots.chain([volume_id.clone()]).collect()
        });
        let failed = outcome(&cloud, doom, async |backing| {
            files.iter().try_for_each(|file| backing.remove(file))
        })
        .await;
        cloud.change(|world| {
            world.end_delete(&volume_id, failed.is_some());
            if let Some(reason) = &failed {
                world.add_message(Subject::Volume, &volume_id, &request_id, "003_001", reason);
            }
        });
    });
}

/// Ends `extending` with the new size or `error_extending`.
pub(crate) fn extend_volume(
    cloud: &Arc<Cloud>,
    volume_id: String,
    size: u64,
    request_id: String,
    doom: FailureMessage,
) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.extend).await;
        if !cloud.read(|world| world.has_room_to_extend(&volume_id)) {
            cloud.change(|world| {
                world.step_back(&volume_id, VolumeStatus::Extending);
                let why = "extend volume:Could not find any available weighted backend.";
                world.add_message(Subject::Volume, &volume_id, &request_id, "007_003", why);
            });
            return;
        }
        let devices: Vec<LoopDevice> = cloud.read(|world| {
            let mappings = world.mappings_of(&volume_id).iter();
            mappings.filter_map(|mapping| mapping.loop_device.clone()).collect()
        });
        let bytes = cloud.read(|world| world.device_bytes(&volume_id, size));
        let failed = outcome(&cloud, doom, async |backing| {
            backing.grow(&volume_id, bytes, &devices).await
        })
        .await;
        cloud.change(|world| {
            world.end_extend(&volume_id, failed.is_some());
            if let Some(reason) = &failed {
                world.add_message(Subject::Volume, &volume_id, &request_id, "007_010", reason);
            }
        });
    });
}

/// Ends `retyping` with the new type or the old one. A migration takes twice the time. Its failure appears only in
/// `migration_status`.
pub(crate) fn retype_volume(cloud: &Arc<Cloud>, volume_id: String, target: String, way: Retype, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        let migrates = way == Retype::Migrate;
        if migrates {
            cloud.change(|world| world.set_migration(&volume_id, "migrating"));
            cloud.takes(|latencies| latencies.retype).await;
        }
        cloud.takes(|latencies| latencies.retype).await;
        let has_snapshots =
            |id: &str| cloud.read(|world| world.snapshots.values().any(|snapshot| snapshot.volume_id == id));
        let refused = way == Retype::Forbidden || (migrates && has_snapshots(&volume_id));
        let fails = doom.is_some() || refused;
        cloud.change(|world| {
            if migrates {
                world.set_migration(&volume_id, if fails { "error" } else { "success" });
            }
            world.end_retype(&volume_id, (!fails).then_some(target.as_str()));
        });
    });
}
