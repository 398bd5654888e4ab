// SPDX-License-Identifier: Apache-2.0
//! Continues unfinished work of an earlier run.

use std::sync::Arc;

use super::attachments::plug;
use super::{
    attach, change_group, create_backup, create_group, create_group_snapshot, create_snapshot, create_volume,
    delete_backup, delete_group, delete_group_snapshot, delete_snapshot, delete_volume, detach, extend_volume,
    restore_backup, text,
};
use crate::cloud::Cloud;
use crate::state::{AttachmentStatus, BackupStatus, GroupStatus, SnapshotStatus, VolumeStatus};
use crate::world::GroupChange;

/// Creates the devices of attached volumes, and continues work in progress, according to the state of an earlier run.
pub(crate) async fn resume(cloud: &Arc<Cloud>) {
    let state = cloud.read(crate::world::World::state);
    let request_id = || "req-of-an-earlier-run".to_owned();
    for volume in &state.volumes {
        let id = volume.id.clone();
        match (volume.status, volume.new_size, &volume.backup_id) {
            (VolumeStatus::Creating, ..) => create_volume(cloud, volume.clone(), request_id(), None),
            (VolumeStatus::Deleting, ..) => delete_volume(cloud, id, request_id(), None),
            (VolumeStatus::Extending, Some(size), _) => extend_volume(cloud, id, size, request_id(), None),
            (VolumeStatus::RestoringBackup, _, Some(backup)) => {
                restore_backup(cloud, backup.clone(), id, request_id(), None);
            }
            // The target type is not part of the state.
            (VolumeStatus::Retyping, ..) => cloud.change(|world| world.end_retype(&id, None)),
            _ => {}
        }
    }
    for backup in &state.backups {
        match backup.status {
            BackupStatus::Creating => create_backup(cloud, backup.clone(), request_id(), None),
            BackupStatus::Deleting => delete_backup(cloud, backup.id.clone(), request_id(), None),
            _ => {}
        }
    }
    for group in &state.groups {
        match group.status {
            GroupStatus::Creating => create_group(cloud, group.id.clone(), None),
            GroupStatus::Updating => change_group(cloud, group.id.clone(), GroupChange::default(), None),
            GroupStatus::Deleting => {
                let members = state
                    .volumes
                    .iter()
                    .filter(|volume| volume.group_id.as_ref() == Some(&group.id));
                let members = members.map(|volume| volume.id.clone()).collect();
                delete_group(cloud, group.id.clone(), members, None);
            }
            _ => {}
        }
    }
    for group in &state.group_snapshots {
        match group.status {
            GroupStatus::Creating => create_group_snapshot(cloud, group.id.clone(), None),
            GroupStatus::Deleting => {
                let members = cloud.read(|world| {
                    world
                        .snapshots_in_group(&group.id)
                        .map(|known| known.id.clone())
                        .collect()
                });
                delete_group_snapshot(cloud, group.id.clone(), members, None);
            }
            _ => {}
        }
    }
    for snapshot in state.snapshots.iter().filter(|known| known.group_snapshot_id.is_none()) {
        match snapshot.status {
            SnapshotStatus::Creating => create_snapshot(cloud, snapshot.clone(), request_id(), None),
            SnapshotStatus::Deleting => delete_snapshot(cloud, snapshot.id.clone(), request_id(), None),
            _ => {}
        }
    }
    for mut mapping in state.mappings {
        let attachment = state.attachments.iter().find(|known| known.id == mapping.attachment_id);
        match attachment.map(|attachment| attachment.status) {
            // Cinder's record was deleted before the end of the run; Nova's record must be deleted now.
            None => cloud.change(|world| world.remove_mapping(&mapping)),
            Some(AttachmentStatus::Reserved | AttachmentStatus::Attaching) => attach(cloud, mapping, None),
            Some(_) => {
                match plug(cloud, &mapping).await {
                    Ok(device) => mapping.loop_device = device,
                    Err(error) => {
                        tracing::warn!(
                            volume = mapping.volume_id,
                            error = text(&error),
                            "an attachment has no device"
                        );
                    }
                }
                cloud.change(|world| {
                    if let Some(known) = world.mapping_mut(&mapping.id) {
                        known.loop_device.clone_from(&mapping.loop_device);
                    }
                });
                if mapping.detaching {
                    detach(cloud, mapping, None);
                }
            }
        }
    }
}
