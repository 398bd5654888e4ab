// SPDX-License-Identifier: Apache-2.0
//! Groups and their snapshots.

use std::sync::Arc;

use super::{FailureMessage, outcome};
use crate::cloud::Cloud;
use crate::world::GroupChange;

/// Ends `creating` with `available` or `error`.
pub(crate) fn create_group(cloud: &Arc<Cloud>, group_id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.group).await;
        cloud.change(|world| world.end_group(&group_id, doom.is_some()));
    });
}

/// Ends `updating` with `available` or `error`.
pub(crate) fn change_group(cloud: &Arc<Cloud>, group_id: String, change: GroupChange, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.members).await;
        cloud.change(|world| world.end_group_change(&group_id, &change, doom.is_some()));
    });
}

/// Ends `deleting` with the removal, including the volumes, or `error_deleting`.
pub(crate) fn delete_group(cloud: &Arc<Cloud>, group_id: String, members: Vec<String>, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.group).await;
        let failed = outcome(&cloud, doom, async |backing| {
            members.iter().try_for_each(|member| backing.remove(member))
        })
        .await;
        cloud.change(|world| world.end_delete_group(&group_id, &members, failed.is_some()));
    });
}

/// Ends `creating` with `available` or `error`, including a snapshot of every member.
pub(crate) fn create_group_snapshot(cloud: &Arc<Cloud>, id: String, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.snapshot).await;
        let members: Vec<_> = cloud.read(|world| world.snapshots_in_group(&id).cloned().collect());
        let failed = outcome(&cloud, doom, async |backing| {
            for member in &members {
                backing
                    .create(&member.id, member.size << 30, Some(&member.volume_id))
                    .await?;
            }
            Ok(())
        })
        .await;
        cloud.change(|world| world.end_group_snapshot(&id, failed.is_some()));
    });
}

/// Ends `deleting` with the removal or `error`.
pub(crate) fn delete_group_snapshot(cloud: &Arc<Cloud>, id: String, members: Vec<String>, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.delete).await;
        let failed = outcome(&cloud, doom, async |backing| {
            members.iter().try_for_each(|member| backing.remove(member))
        })
        .await;
        cloud.change(|world| world.end_delete_group_snapshot(&id, failed.is_some()));
    });
}
