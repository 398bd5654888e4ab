// SPDX-License-Identifier: Apache-2.0
//! What happens to a cloud behind the back of its users.

use super::Sim;
use crate::config::ServerSpec;
use crate::microversion::COMPUTE;
use crate::state::{
    AttachmentStatus, Backup, BackupStatus, GroupStatus, Server, Snapshot, SnapshotStatus, Volume, VolumeStatus,
};
use crate::work;
use crate::world::{Begun, Caller};

impl Sim {
    /// Adds a server.
    pub fn add_server(&self, server: ServerSpec) {
        self.cloud.change(|world| world.add_server(server));
    }

    /// Takes a server away as an administrator's force-delete does: it is gone, and Cinder's records of its attachments
    /// stay behind when `leave_attachments` is set. Else those go, too, for which Nova has no record yet.
    pub fn remove_server(&self, id: &str, leave_attachments: bool) {
        crate::admin::remove_server(&self.cloud, id, leave_attachments);
    }

    /// Sets a server's `vm_state` and `task_state`, for instance `("active", Some("rebooting"))`; false when there is no
    /// such server. A server that becomes `shelved_offloaded` gives up its connections as in Nova: its volumes are `reserved`
    /// until it is in another state again.
    pub fn set_server_state(&self, id: &str, vm_state: &str, task_state: Option<&str>) -> bool {
        crate::admin::set_server_state(&self.cloud, id, vm_state, task_state)
    }

    /// Detaches a volume by Nova's API, as an administrator does by hand; false where Nova refuses.
    pub fn detach(&self, server: &str, volume: &str) -> bool {
        let request = format!("req-{}", self.cloud.sources.uuid());
        let caller = Caller {
            version: COMPUTE.highest,
            admin: true,
            cinder_fails: false,
        };
        let begun = (self.cloud).change(|world| world.begin_detach(server, volume, caller, &request));
        match begun {
            Ok(Begun::OnHost(mapping)) => work::detach(&self.cloud, mapping, None),
            Ok(Begun::Done(_)) => {}
            Err(_) => return false,
        }
        true
    }

    /// Sets a volume's status as an administrator's `os-reset_status` does; false when there is no such volume.
    pub fn set_volume_status(&self, id: &str, status: VolumeStatus) -> bool {
        self.cloud.change(|world| world.set_status(id, status))
    }

    /// Changes a server's record as `change` says, for instance its `locked` or `host_down`; false when there is none.
    pub fn set_server(&self, id: &str, change: impl FnOnce(&mut Server)) -> bool {
        self.cloud
            .change(|world| world.servers.get_mut(id).map(change).is_some())
    }

    /// Locks or unlocks a server: Nova refuses members to attach to it and to detach from it while it is locked.
    pub fn set_server_locked(&self, id: &str, locked: bool) -> bool {
        self.set_server(id, |server| server.locked = locked)
    }

    /// Takes a server's host down or up again. While it is down Nova refuses a detachment with 409, and an attachment with
    /// 500 (the host does not answer). A host that accepts calls and does not carry them out is a very long latency.
    pub fn set_server_down(&self, id: &str, down: bool) -> bool {
        self.set_server(id, |server| server.host_down = down)
    }

    /// Changes a volume's record as `change` says, for instance its `migration_status`; false when there is none.
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

    /// Changes a snapshot's record as `change` says; false when there is none.
    pub fn set_snapshot(&self, id: &str, change: impl FnOnce(&mut Snapshot)) -> bool {
        self.cloud
            .change(|world| world.snapshots.get_mut(id).map(change).is_some())
    }

    /// Sets a snapshot's status as an administrator's `os-reset_status` does; false when there is no such snapshot.
    pub fn set_snapshot_status(&self, id: &str, status: SnapshotStatus) -> bool {
        self.cloud.change(|world| world.set_snapshot_status(id, status))
    }

    /// Changes a backup's record as `change` says; false when there is none.
    pub fn set_backup(&self, id: &str, change: impl FnOnce(&mut Backup)) -> bool {
        self.cloud
            .change(|world| world.backups.get_mut(id).map(change).is_some())
    }

    /// Sets a backup's status as an administrator's `os-reset_status` does; false when there is no such backup.
    pub fn set_backup_status(&self, id: &str, status: BackupStatus) -> bool {
        self.cloud.change(|world| world.set_backup_status(id, status))
    }

    /// Sets a group's status as an administrator's `reset_status` does; false when there is no such group.
    pub fn set_group_status(&self, id: &str, status: GroupStatus) -> bool {
        self.cloud.change(|world| world.set_group_status(id, status))
    }

    /// Sets a group snapshot's status as an administrator's `reset_status` does; false when there is none.
    pub fn set_group_snapshot_status(&self, id: &str, status: GroupStatus) -> bool {
        self.cloud.change(|world| world.set_group_snapshot_status(id, status))
    }

    /// Leaves Cinder's record of an attachment without Nova's, as one that stopped half-way does; the volume's status
    /// follows. Gives the attachment's id; nothing when there is no such volume.
    pub fn add_attachment(&self, volume: &str, server: Option<&str>, status: AttachmentStatus) -> Option<String> {
        self.cloud
            .change(|world| world.add_attachment(volume, server, status).ok())
    }

    /// Reserves a volume for a server that is not there yet, as Nova's API does before it builds a server with a volume that exists. Gives
    /// the attachment's id; nothing where Cinder refuses. [`Sim::build_with`] goes on.
    pub fn reserve(&self, volume: &str, server: &str) -> Option<String> {
        let reserved = (self.cloud).change(|world| world.reserve(volume, Some(server)));
        reserved.ok().map(|attachment| attachment.id)
    }

    /// Attaches what was reserved, as the host does that the scheduler has found: Nova's record comes first. False where the attachment or
    /// its server is not there.
    pub fn build_with(&self, attachment: &str) -> bool {
        let recorded = self.cloud.change(|world| world.record_reserved(attachment));
        recorded.map(|mapping| work::attach(&self.cloud, mapping, None)).is_ok()
    }

    /// Leaves Nova's record of an attachment without Cinder's; false when there is no such volume, or no place for it.
    pub fn add_mapping(&self, volume: &str, server: &str) -> bool {
        self.cloud.change(|world| world.add_mapping(volume, server).is_ok())
    }
}
