// SPDX-License-Identifier: Apache-2.0
//! Snapshots: create, delete.

use std::sync::Arc;

use super::{FailureMessage, outcome};
use crate::cloud::Cloud;
use crate::state::{Snapshot, SnapshotStatus};
use crate::world::Subject;

/// Ends `creating` with `available` or `error`. The data are those of that moment.
pub(crate) fn create_snapshot(cloud: &Arc<Cloud>, snapshot: Snapshot, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.snapshot).await;
        let failed = outcome(&cloud, doom, async |backing| {
            backing
                .create(&snapshot.id, snapshot.size << 30, Some(&snapshot.volume_id))
                .await
        })
        .await;
        cloud.change(|world| {
            world.end_snapshot(&snapshot.id, failed.is_some());
            if let Some(reason) = &failed {
                world.add_message(Subject::Snapshot, &snapshot.id, &request_id, "009_013", reason);
            }
        });
    });
}

/// Ends `deleting` with the removal or `error_deleting`. A snapshot with dependent clones becomes `available` again.
pub(crate) fn delete_snapshot(cloud: &Arc<Cloud>, snapshot_id: String, request_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.delete).await;
        if cloud.read(|world| world.is_held_by_clones(&snapshot_id)) {
            cloud.change(|world| {
                world.set_snapshot_status(&snapshot_id, SnapshotStatus::Available);
                let why = "delete snapshot:Snapshot is busy.";
                world.add_message(Subject::Snapshot, &snapshot_id, &request_id, "010_015", why);
            });
            return;
        }
        let failed = outcome(&cloud, doom, async |backing| backing.remove(&snapshot_id)).await;
        cloud.change(|world| {
            world.end_delete_snapshot(&snapshot_id, failed.is_some());
            if let Some(reason) = &failed {
                world.add_message(Subject::Snapshot, &snapshot_id, &request_id, "010_016", reason);
            }
        });
    });
}
