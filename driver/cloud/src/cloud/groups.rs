// SPDX-License-Identifier: Apache-2.0
//! Snapshots of several volumes through the front door.

use std::collections::BTreeSet;

use super::Cloud;
use crate::error::CloudError;
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::operations::groups::delete::delete_group_snapshot;
use crate::operations::groups::{GroupSnapshot, NewGroupSnapshot, create_group_snapshot, group_snapshot};

impl Cloud {
    /// Takes snapshots of several volumes at one moment, or finds those that an earlier call with the same name took, and waits
    /// until they are complete. One of the name with other volumes is [`CloudError::SnapshotExists`]; what cannot be cut at one
    /// moment is [`CloudError::CannotGroup`]. A failure leaves nothing behind but what a later call with the name finds.
    pub async fn create_group_snapshot(&self, new: NewGroupSnapshot) -> Result<GroupSnapshot, CloudError> {
        create_group_snapshot(&self.inner, &new).await
    }

    /// A group snapshot with its members; `None` when Cinder does not know it, or the id is no UUID.
    pub async fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
        group_snapshot(&self.inner, id).await
    }

    /// Deletes a group snapshot with all of its members and waits until they are gone. One that is not there is deleted. Where
    /// `members` are named, it must have no others, and none of them may be something else; else it stays and the error is
    /// [`CloudError::OtherMembers`]. Named ones that are gone were deleted by an earlier call.
    pub async fn delete_group_snapshot(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        delete_group_snapshot(&self.inner, id, members).await
    }
}
