// SPDX-License-Identifier: Apache-2.0
//! Progress of a removal: status.deletion and condition DeletionBlocked.

use cinder_csi_crds::{Blocker, DeletionStatus, DriverState, ManagementState};

use super::verdict::{NAMED, Verdict, verdict};
use crate::{
    decide::{Removal, Report},
    reasons::DeletionBlocked,
};

/// Returns the objects that block a removal. `None` if the removal is not blocked.
pub(super) fn deletion(report: &Report<'_>) -> Option<DeletionStatus> {
    // Returns no empty object. Server-side apply changes an object that lost its last field to null, which the schema
    // rejects.
    let Some(Removal::Blocked(blockers)) = &report.decision.removal else {
        return None;
    };
    let blocker = |(kind, names): (&str, &Vec<String>)| Blocker {
        kind: kind.to_owned(),
        count: counted(names),
        names: names.iter().take(NAMED).cloned().collect(),
    };
    Some(DeletionStatus {
        blockers: blockers.by_kind().map(blocker).collect(),
    })
}

/// Returns the state of the driver. A requested removal counts as in progress if the reconcile did not evaluate it.
pub(super) fn state(asked: ManagementState, is_deleted: bool, removal: Option<&Removal>) -> DriverState {
    match (asked, removal) {
        (_, Some(Removal::Blocked(_) | Removal::Held)) => DriverState::DeletionBlocked,
        _ if is_deleted => DriverState::Deleting,
        (_, Some(Removal::Finished | Removal::Released)) => DriverState::Removed,
        (ManagementState::Removed, _) | (_, Some(Removal::UnderWay(_))) => DriverState::Removing,
        (ManagementState::Managed, None) => DriverState::Managed,
        (ManagementState::Paused, None) => DriverState::Paused,
        (ManagementState::DryRun, None) => DriverState::DryRun,
        (ManagementState::Unmanaged, None) => DriverState::Unmanaged,
    }
}

/// Returns the verdict on DeletionBlocked.
pub(super) fn blocked(report: &Report<'_>) -> Verdict<DeletionBlocked> {
    match &report.decision.removal {
        Some(Removal::Blocked(blockers)) if blockers.are_snapshots() => verdict(
            DeletionBlocked::SnapshotsExist,
            blockers.sentence(report.facts.object.deletion_policy),
        ),
        Some(Removal::Blocked(blockers)) => verdict(
            DeletionBlocked::VolumesInUse,
            blockers.sentence(report.facts.object.deletion_policy),
        ),
        Some(Removal::Held) => verdict(
            DeletionBlocked::Held,
            "the object is being deleted, and spec.managementState forbids its removal",
        ),
        Some(Removal::UnderWay(_)) => verdict(DeletionBlocked::AsExpected, "nothing blocks the removal"),
        Some(Removal::Finished) => verdict(DeletionBlocked::AsExpected, "nothing is left to be removed"),
        Some(Removal::Released) => verdict(DeletionBlocked::AsExpected, "the operator has released the driver"),
        None => verdict(DeletionBlocked::AsExpected, "the driver's removal is not asked for"),
    }
}

fn counted(names: &[String]) -> i32 {
    i32::try_from(names.len()).unwrap_or(i32::MAX)
}
