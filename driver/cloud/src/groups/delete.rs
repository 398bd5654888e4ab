//! The end of a group snapshot, its members and its group.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::one_by_one::is_own_id;
use crate::block_storage::{BlockStorage, GroupSnapshotRecord};
use crate::cloud::Inner;
use crate::error::{CloudError, Failure, ObjectKind};
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::last_failure::LastFailure;

impl Inner {
    /// See [`crate::Cloud::delete_group_snapshot`].
    pub(crate) async fn delete_group_snapshot(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        if is_own_id(id) {
            return self.delete_one_by_one(id, members).await;
        }
        let cinder = BlockStorage::new(&self.transport);
        if !id.is_uuid() || !cinder.knows_groups().await? {
            return Ok(());
        }
        let deadline = Instant::now() + self.options.operation_timeout;
        // One that was just made may be deleted at once, and an API node whose database lags says that it is not there.
        let look = || cinder.group_snapshot(id.as_str());
        let Some(record) = self.shown(deadline, look, |_| true).await? else {
            // An earlier call may have been killed between the snapshot and its group.
            return self.dissolve_group_of(id.as_str(), deadline).await;
        };
        if !members.is_empty() {
            let found = self.with_members(&record).await?;
            let found = found.snapshots.into_iter().map(|snapshot| snapshot.id).collect();
            self.refuse_other_members(id, &found, members).await?;
        }
        self.remove_group_snapshot(&record, deadline).await
    }

    /// Deletes a group snapshot with its members, waits until it is gone, and removes its group if that is ours.
    pub(super) async fn remove_group_snapshot(
        &self,
        record: &GroupSnapshotRecord,
        deadline: Instant,
    ) -> Result<(), CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let id = &record.id;
        if let Some(record) = self.settled(record.clone(), deadline).await? {
            // Without its group nobody would find the group any more once the snapshot is gone.
            self.free_volumes(&record, deadline).await?;
            let (asked, mut denied) = (Instant::now(), false);
            let refused = match cinder.delete_group_snapshot(id).await {
                Ok(known) => {
                    denied = !known;
                    None
                }
                Err(CloudError::BadRequest(failure)) => Some(failure.to_string()),
                Err(error) => return Err(error),
            };
            if let Some(left) = self.group_snapshot_settled(id, deadline).await? {
                return Err(match refused {
                    Some(message) => CloudError::StillNeeded {
                        kind: ObjectKind::GroupSnapshot,
                        id: id.clone(),
                        dependents: "Cinder refuses its deletion".to_owned(),
                        message,
                    },
                    None if denied => CloudError::Conflict(Failure {
                        operation: "group_snapshot_delete",
                        object: format!("group snapshot {id}"),
                        status: Some(404),
                        fault: format!("Cinder says that it does not exist, and shows it in status {}", left.status),
                        request_id: LastFailure::request_that_missed(id),
                        elapsed: asked.elapsed(),
                    }),
                    None => CloudError::SnapshotFailed {
                        kind: ObjectKind::GroupSnapshot,
                        id: id.clone(),
                        status: left.status,
                        message: "a member could not be deleted, for instance because a volume was made from it; see the log of \
                                  cinder-volume"
                            .to_owned(),
                        removed: false,
                    },
                });
            }
        }
        self.dissolve_if_own(&record.group_id, deadline).await
    }
}
