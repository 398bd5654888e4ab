// SPDX-License-Identifier: Apache-2.0
//! Operations of administrators and other clients on the cloud.

use super::Sim;
use crate::config::ServerSpec;
use crate::microversion::COMPUTE;
use crate::state::{
    AttachmentStatus, Backup, BackupStatus, GroupStatus, Server, Snapshot, SnapshotStatus, Volume, VolumeStatus,
};
use crate::work;
use crate::world::{Caller, NextStep};

impl Sim {
    pub fn add_server(&self, server: ServerSpec) {
        self.cloud.change(|world| world.add_server(server));
    }

    /// Removes a server as an administrator's force-delete does. With `leave_attachments`, Cinder's attachments remain.
    /// Otherwise, they are deleted, including those without a record in Nova.
    pub fn remove_server(&self, id: &str, leave_attachments: bool) {
        crate::admin::remove_server(&self.cloud, id, leave_attachments);
    }

    /// Sets `vm_state` and `task_state` of a server, for example `("active", Some("rebooting"))`. Returns false if the
    /// server does not exist. A server that becomes `shelved_offloaded` terminates its connections as in Nova: its
    /// volumes are `reserved` until the state changes.
    pub fn set_server_state(&self, id: &str, vm_state: &str, task_state: Option<&str>) -> bool {
        crate::admin::set_server_state(&self.cloud, id, vm_state, task_state)
    }

    /// Detaches a volume through Nova's API, as an administrator does. Returns false if Nova refuses.
    pub fn detach(&self, server: &str, volume: &str) -> bool {
        let request = format!("req-{}", self.cloud.sources.uuid());
        let caller = Caller {
            version: COMPUTE.highest,
            admin: true,
            cinder_fails: false,
        };
        let begun = (self.cloud).change(|world| world.begin_detach(server, volume, caller, &request));
        match begun {
            Ok(NextStep::OnHost(mapping)) => work::detach(&self.cloud, mapping, None),
            Ok(NextStep::Done(_)) => {}
            Err(_) => return false,
        }
        true
    }

    /// Sets the status of a volume like `os-reset_status`. Returns false if the volume does not exist.
    pub fn set_volume_status(&self, id: &str, status: VolumeStatus) -> bool {
        self.cloud.change(|world| world.set_status(id, status))
    }

    /// Changes a server's record, for example `locked` or `host_down`. Returns false if the server does not exist.
    pub fn set_server(&self, id: &str, change: impl FnOnce(&mut Server)) -> bool {
        self.cloud
            .change(|world| world.servers.get_mut(id).map(change).is_some())
    }

    /// Locks or unlocks a server. Nova refuses to attach and detach volumes of a locked server for non-administrators.
    pub fn set_server_locked(&self, id: &str, locked: bool) -> bool {
        self.set_server(id, |server| server.locked = locked)
    }

    /// Sets whether a server's host is down. Nova then refuses a detach with 409, and an attach with 500 (messaging
    /// timeout). To simulate a host that accepts calls without executing them, use a very long latency.
    pub fn set_server_down(&self, id: &str, down: bool) -> bool {
        self.set_server(id, |server| server.host_down = down)
    }

    /// Changes a volume's record, for example `migration_status`. Returns false if the volume does not exist.
    pub fn set_volume(&self, id: &str, change: impl FnOnce(&mut Volume)) -> bool {
        let now = self.cloud.sources.now();
        self.cloud.change(|world| {
            let Some(volume) = world.volumes.get_mut(id) else {
                return false;
            };
            change(volume);
            volume.updated_at = Some(now);
            true
        })
    }

    /// Changes a snapshot's record. Returns false if the snapshot does not exist.
    pub fn set_snapshot(&self, id: &str, change: impl FnOnce(&mut Snapshot)) -> bool {
        self.cloud
            .change(|world| world.snapshots.get_mut(id).map(change).is_some())
    }

    /// Sets the status of a snapshot like `os-reset_status`. Returns false if the snapshot does not exist.
    pub fn set_snapshot_status(&self, id: &str, status: SnapshotStatus) -> bool {
        self.cloud.change(|world| world.set_snapshot_status(id, status))
    }

    /// Changes a backup's record. Returns false if the backup does not exist.
    pub fn set_backup(&self, id: &str, change: impl FnOnce(&mut Backup)) -> bool {
        self.cloud
            .change(|world| world.backups.get_mut(id).map(change).is_some())
    }

    /// Sets the status of a backup like `os-reset_status`. Returns false if the backup does not exist.
    pub fn set_backup_status(&self, id: &str, status: BackupStatus) -> bool {
        self.cloud.change(|world| world.set_backup_status(id, status))
    }

    /// Sets the status of a group like `reset_status`. Returns false if the group does not exist.
    pub fn set_group_status(&self, id: &str, status: GroupStatus) -> bool {
        self.cloud.change(|world| world.set_group_status(id, status))
    }

    /// Sets the status of a group snapshot like `reset_status`. Returns false if the group snapshot does not exist.
    pub fn set_group_snapshot_status(&self, id: &str, status: GroupStatus) -> bool {
        self.cloud.change(|world| world.set_group_snapshot_status(id, status))
    }

    /// Adds a Cinder attachment without Nova's record, as after an interrupted attach, and updates the volume's status.
    /// Returns the attachment id; `None` if the volume does not exist.
    pub fn add_attachment(&self, volume: &str, server: Option<&str>, status: AttachmentStatus) -> Option<String> {
        self.cloud
            .change(|world| world.add_attachment(volume, server, status).ok())
    }

    /// Reserves a volume for a server that does not exist yet, as Nova does before it builds a server with an existing
    /// volume. Returns the attachment id; `None` if Cinder refuses. [`Sim::build_with`] is the next step.
    pub fn reserve(&self, volume: &str, server: &str) -> Option<String> {
        let reserved = (self.cloud).change(|world| world.reserve(volume, Some(server)));
        reserved.ok().map(|attachment| attachment.id)
    }

    /// Attaches a reserved volume, as the host does that the scheduler selected: Nova's record is created first.
    /// Returns false if the attachment or its server does not exist.
    pub fn build_with(&self, attachment: &str) -> bool {
        let recorded = self.cloud.change(|world| world.record_reserved(attachment));
        recorded.map(|mapping| work::attach(&self.cloud, mapping, None)).is_ok()
    }

    /// Adds Nova's record of an attachment without Cinder's. Returns false if the volume does not exist, or the server
    /// has no free device name.
    pub fn add_mapping(&self, volume: &str, server: &str) -> bool {
        self.cloud.change(|world| world.add_mapping(volume, server).is_ok())
    }
}
