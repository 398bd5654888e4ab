// SPDX-License-Identifier: Apache-2.0
//! Backups: create, delete, restore. Every backup, including an incremental one, contains all data of its volume.

use std::sync::Arc;

use super::{FailureMessage, outcome};
use crate::cloud::Cloud;
use crate::state::Backup;
use crate::world::Subject;

/// Ends `creating` with `available` or `error`.
pub(crate) fn create_backup(cloud: &Arc<Cloud>, backup: Backup, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        // The data of a snapshot are constant. The data of a volume may be those of any moment during the backup.
        let source = backup.snapshot_id.as_deref().unwrap_or(&backup.volume_id);
        let failed = outcome(&cloud, doom, async |backing| {
            backing.create(&backup.id, backup.size << 30, Some(source)).await
        })
        .await;
        cloud.takes(|latencies| latencies.backup).await;
        cloud.change(|world| {
            world.end_backup(&backup.id, failed.as_deref());
            if let Some(reason) = &failed {
                world.add_message(Subject::Backup, &backup.id, &request_id, "013_020", reason);
            }
        });
    });
}

/// Ends `deleting` with the removal or `error_deleting`.
pub(crate) fn delete_backup(cloud: &Arc<Cloud>, backup_id: String, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.delete).await;
        let failed = outcome(&cloud, doom, async |backing| backing.remove(&backup_id)).await;
        cloud.change(|world| {
            world.end_delete_backup(&backup_id, failed.as_deref());
            if let Some(reason) = &failed {
                world.add_message(Subject::Backup, &backup_id, &request_id, "014_025", reason);
            }
        });
    });
}

/// Restores a backup to an existing volume. Ends `restoring-backup` with `available` or `error_restoring`.
pub(crate) fn restore_backup(
    cloud: &Arc<Cloud>,
    backup_id: String,
    volume_id: String,
    request_id: String,
    doom: FailureMessage,
) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.backup).await;
        let bytes = cloud.read(|world| {
            let gib = world.volume(&volume_id).map_or(0, |volume| volume.size);
            world.device_bytes(&volume_id, gib)
        });
        let failed = outcome(&cloud, doom, async |backing| {
            backing.create(&volume_id, bytes, Some(&backup_id)).await
        })
        .await;
        cloud.change(|world| {
            world.end_restore(&backup_id, &volume_id, failed.is_some());
            if let Some(reason) = &failed {
                world.add_message(Subject::Backup, &backup_id, &request_id, "015_026", reason);
            }
        });
    });
}
