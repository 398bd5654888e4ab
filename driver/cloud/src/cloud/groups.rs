// SPDX-License-Identifier: Apache-2.0
//! Group snapshots in the public API.

use std::collections::BTreeSet;

use super::Cloud;
use crate::error::CloudError;
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::operations::groups::create::create_group_snapshot;
use crate::operations::groups::delete::delete_group_snapshot;
use crate::operations::groups::{GroupSnapshot, NewGroupSnapshot, group_snapshot};

impl Cloud {
    /// Takes snapshots of several volumes at one moment, or finds the snapshots that an earlier call with the same name
    /// took, and waits until they are complete.
    ///
    /// A group snapshot of the same name with other volumes is [`CloudError::SnapshotExists`]. Volumes that cannot be
    /// snapshotted at one moment are [`CloudError::CannotGroup`]. After a failure, a later call with the same name
    /// finds everything that remains.
    pub async fn create_group_snapshot(&self, new: NewGroupSnapshot) -> Result<GroupSnapshot, CloudError> {
        create_group_snapshot(&self.inner, &new).await
    }

    /// Gets a group snapshot with its members; `None` if Cinder does not know it (404), or if the id is not a UUID.
    pub async fn group_snapshot(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
        group_snapshot(&self.inner, id).await
    }

    /// Deletes a group snapshot with all of its members, and waits until they are deleted. A missing group snapshot
    /// counts as deleted.
    ///
    /// If `members` is not empty, it must name all members, and none of the named snapshots may be another resource.
    /// Otherwise nothing is deleted, and the error is [`CloudError::OtherMembers`]. Named members that are missing were
    /// deleted by an earlier call.
    pub async fn delete_group_snapshot(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        delete_group_snapshot(&self.inner, id, members).await
    }
}
