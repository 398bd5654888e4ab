// SPDX-License-Identifier: Apache-2.0
//! The health of a volume, as Cinder and Nova report it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use jiff::Timestamp;

use crate::api::block_storage::{Volume, VolumeStatus};
use crate::api::compute::Server;
use crate::ids::ServerId;
use crate::timestamp::parse_timestamp;
use crate::timing::TIMING;

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The volume works with restrictions, or an operation on it failed.
    Degraded,
    /// The volume cannot be reached. Its data is probably intact.
    Inaccessible,
    /// Data is lost, or a loss is probable.
    DataLoss,
}

/// A problem with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeProblem {
    pub severity: Severity,
    /// The reason for programs, unique among the problems of one volume.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
}

impl VolumeProblem {
    fn new(severity: Severity, reason: &'static str, message: String) -> Self {
        Self {
            severity,
            reason,
            message,
        }
    }
}

impl Volume {
    /// Returns all problems of the volume at the time `now`. `servers` contains Nova's reports about servers with the
    /// volume, `None` for an unknown server (404). A server that is missing in `servers` causes no problem.
    pub fn problems(&self, servers: &BTreeMap<ServerId, Option<Server>>, now: SystemTime) -> Vec<VolumeProblem> {
        let now = Timestamp::try_from(now).ok();
        let mut problems = Vec::new();
        problems.extend(status_problem(self));
        problems.extend(migration_problem(self));
        problems.extend(replication_problem(self));
        problems.extend(server_problems(self, servers));
        problems.extend(attachment_problem(self, now));
        problems
    }
}

fn status_problem(volume: &Volume) -> Option<VolumeProblem> {
    use Severity::{DataLoss, Degraded, Inaccessible};
    let status = volume.status.as_str();
    let (severity, reason, what) = match status {
        "error" | "error_managing" => (Inaccessible, "VolumeError", "the volume has failed"),
        "error_restoring" => (
            DataLoss,
            "RestoreFailed",
            "a backup was being written to the volume and did not arrive whole",
        ),
        "error_extending" => (
            Degraded,
            "ExtendFailed",
            "the volume did not grow; it has its old size and takes no further change",
        ),
        "error_deleting" => (Degraded, "DeleteFailed", "the volume could not be deleted"),
        "error_backing-up" => (Degraded, "BackupFailed", "a backup of the volume failed"),
        "maintenance" => (Degraded, "Maintenance", "the volume is being maintained"),
        // An error status of a later Cinder.
        other if other.starts_with("error") => (Degraded, "VolumeError", "an operation on the volume has failed"),
        _ => return None,
    };
    let message = format!("{what}: Cinder's status is {status}; an administrator has to find out why and reset it");
    Some(VolumeProblem::new(severity, reason, message))
}

fn migration_problem(volume: &Volume) -> Option<VolumeProblem> {
    let status = volume.migration_status.as_deref()?;
    let (reason, what) = match status {
        "migrating" | "starting" | "completing" => ("Migrating", "the data is moving to another backend"),
        "error" => (
            "MigrationFailed",
            "the data did not move to another backend and is where it was",
        ),
        _ => return None,
    };
    let message = format!("{what}: Cinder's migration status is {status}");
    Some(VolumeProblem::new(Severity::Degraded, reason, message))
}

fn replication_problem(volume: &Volume) -> Option<VolumeProblem> {
    let status = volume.replication_status.as_deref()?;
    let (reason, what) = match status {
        "error" => ("ReplicationFailed", "the second copy of the data is not kept any more"),
        "failed-over" => ("ReplicationFailedOver", "the volume runs on its second copy"),
        "failover-error" => ("ReplicationFailed", "the volume could not be moved to its second copy"),
        _ => return None,
    };
    let message = format!("{what}: Cinder's replication status is {status}");
    Some(VolumeProblem::new(Severity::Degraded, reason, message))
}

/// Reports at most one problem for deleted servers and one for servers in error, because a reason is unique per volume.
fn server_problems(volume: &Volume, servers: &BTreeMap<ServerId, Option<Server>>) -> Vec<VolumeProblem> {
    let (mut deleted, mut broken) = (Vec::new(), Vec::new());
    for id in volume.servers() {
        match servers.get(&id) {
            Some(None) => deleted.push(id),
            Some(Some(server)) if matches!(server.status.as_str(), "DELETED" | "SOFT_DELETED") => deleted.push(id),
            Some(Some(server)) if server.status == "ERROR" => broken.push(id),
            _ => {}
        }
    }
    let named = |ids: &[ServerId]| ids.iter().map(ServerId::as_str).collect::<Vec<_>>().join(", ");
    let mut problems = Vec::new();
    if !deleted.is_empty() {
        problems.push(VolumeProblem::new(
            Severity::Inaccessible,
            "ServerGone",
            format!(
                "the volume is attached to server {}, which does not exist any more; it is free once it is detached",
                named(&deleted)
            ),
        ));
    }
    if !broken.is_empty() {
        problems.push(VolumeProblem::new(
            Severity::Inaccessible,
            "ServerError",
            format!(
                "the volume is attached to server {}, which is in status ERROR",
                named(&broken)
            ),
        ));
    }
    problems
}

/// Reports a pending attachment that takes too long. Without a valid clock, none does.
fn attachment_problem(volume: &Volume, now: Option<Timestamp>) -> Option<VolumeProblem> {
    let status = &volume.status;
    let message = match status {
        VolumeStatus::InUse if volume.attachments.is_empty() => {
            "Cinder says in-use and knows no attachment; an administrator has to reset the status".to_owned()
        }
        VolumeStatus::Reserved | VolumeStatus::Attaching | VolumeStatus::Detaching => {
            let since = parse_timestamp(volume.updated_at.as_deref()?)?;
            let seconds = now?.as_second() - since.as_second();
            if seconds < TIMING.slow_attachment.as_secs() {
                return None;
            }
            format!(
                "the volume has been {status} for {seconds} s: its attachment is half made; see the log of nova-compute"
            )
        }
        _ => return None,
    };
    Some(VolumeProblem::new(
        Severity::Degraded,
        "AttachmentInconsistent",
        message,
    ))
}

#[cfg(test)]
mod tests;
