// SPDX-License-Identifier: Apache-2.0
//! Checks of responses about snapshots, backups and group snapshots.

use openstack_sim::{BackupStatus, SnapshotStatus};
use tonic::Code;

use super::Judge;

impl Judge {
    /// Checks an OK of CreateSnapshot. `answered` is its id, and `first` the id of the first OK.
    pub fn cut(&self, name: &str, first: &str, answered: &str, ready: bool) {
        let state = self.clouds.state();
        if first != answered {
            return self.wrong(&format!(
                "CreateSnapshot of {name} answered OK with {answered}, and with {first} before"
            ));
        }
        let (is_complete, status) = match (state.snapshot(answered), state.backup(answered)) {
            (Some(snapshot), _) => (
                snapshot.status == SnapshotStatus::Available,
                snapshot.status.to_string(),
            ),
            (_, Some(backup)) => (
                matches!(backup.status, BackupStatus::Available | BackupStatus::Restoring),
                backup.status.to_string(),
            ),
            (None, None) => {
                return self.wrong(&format!(
                    "CreateSnapshot of {name} answered OK with {answered}, which does not exist"
                ));
            }
        };
        if ready && !is_complete {
            self.wrong(&format!(
                "CreateSnapshot of {name} says that {answered} is ready, and it is {status}"
            ));
        }
    }

    /// Checks a final error of CreateSnapshot before any response with an id.
    pub fn refused_snapshot(&self, name: &str, code: Code, message: &str) {
        let state = self.clouds.state();
        let is_of = |of: &Option<String>| of.as_deref() == Some(name);
        let snapshot = state.snapshots.iter().find(|snapshot| is_of(&snapshot.name));
        let backup = state.backups.iter().find(|backup| is_of(&backup.name));
        let remaining = snapshot
            .map(|snapshot| format!("snapshot {} of that name is {}", snapshot.id, snapshot.status))
            .or_else(|| backup.map(|backup| format!("backup {} of that name is {}", backup.id, backup.status)));
        if let Some(remaining) = remaining {
            self.wrong(&format!(
                "CreateSnapshot of {name} ended with {code:?}, and {remaining}: {message}"
            ));
        }
        self.unchanged("CreateSnapshot", name, code, message);
    }

    /// Checks an OK of DeleteSnapshot.
    pub fn deleted_snapshot(&self, id: &str) {
        let state = self.clouds.state();
        let snapshot = state.snapshot(id).map(|snapshot| snapshot.status.to_string());
        let backup = state.backup(id).map(|backup| backup.status.to_string());
        if let Some(status) = snapshot.or(backup) {
            self.wrong(&format!("DeleteSnapshot of {id} answered OK, and it is {status}"));
        }
    }

    /// Checks an OK of CreateVolumeGroupSnapshot with `ready_to_use`.
    pub fn cut_together(&self, name: &str, volumes: usize, snapshots: usize) {
        if snapshots != volumes {
            self.wrong(&format!(
                "group snapshot {name} of {volumes} volumes has {snapshots} snapshots"
            ));
        }
    }

    /// Checks a final error of CreateVolumeGroupSnapshot.
    pub fn refused_group_snapshot(&self, name: &str, code: Code, message: &str) {
        let state = self.clouds.state();
        let mut names = state.group_snapshots.iter().map(|snapshot| snapshot.name.as_deref());
        if names.any(|known| known == Some(name)) {
            self.wrong(&format!(
                "CreateVolumeGroupSnapshot of {name} ended with {code:?}, and it exists: {message}"
            ));
        }
        self.unchanged("CreateVolumeGroupSnapshot", name, code, message);
    }

    /// Checks an OK of DeleteVolumeGroupSnapshot.
    pub fn deleted_group_snapshot(&self, id: &str, members: &[String]) {
        let state = self.clouds.state();
        if state.group_snapshot(id).is_some() || members.iter().any(|member| state.snapshot(member).is_some()) {
            self.wrong(&format!(
                "DeleteVolumeGroupSnapshot of {id} answered OK, and something of it is left"
            ));
        }
    }
}
