// SPDX-License-Identifier: Apache-2.0
//! Asynchronous work behind accepted calls. It takes the configured latency, moves data and devices if there is a
//! backing folder, and ends with a change of state.

mod attachments;
mod backups;
mod groups;
mod resume;
mod snapshots;
mod volumes;

use crate::backing::{Backing, BackingError};
use crate::cloud::Cloud;

pub(crate) use attachments::{attach, detach, move_devices};
pub(crate) use backups::{create_backup, delete_backup, restore_backup};
pub(crate) use groups::{change_group, create_group, create_group_snapshot, delete_group, delete_group_snapshot};
pub(crate) use resume::resume;
pub(crate) use snapshots::{create_snapshot, delete_snapshot};
pub(crate) use volumes::{create_volume, delete_volume, extend_volume, retype_volume};

/// The message of a piece of work that a fault rule lets fail.
pub(crate) type FailureMessage = Option<String>;

/// Returns the error message of the work: from a fault rule, or from a failed operation on files or devices.
async fn outcome<F, W>(cloud: &Cloud, doom: FailureMessage, on_disk: F) -> Option<String>
where
    F: AsyncFnOnce(&Backing) -> Result<W, BackingError>,
{
    match (doom, &cloud.backing) {
        (Some(reason), _) => Some(reason),
        (None, Some(backing)) => on_disk(backing).await.err().map(|error| text(&error)),
        (None, None) => None,
    }
}

/// Formats an error with its causes in one line.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
