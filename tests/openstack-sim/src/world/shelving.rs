// SPDX-License-Identifier: Apache-2.0
//! Server states, and the connections of volumes when a server is offloaded from its host and unshelved to a new one.
//!
//! When Nova offloads a shelved server, it creates an attachment without a connector for each volume, and then deletes
//! the one with the connector. Nova's own record remains and refers to the new attachment, so Cinder reports the volume
//! as `reserved`. Unshelving connects that attachment on the new host and completes it.

use super::World;
use crate::state::{AttachmentStatus, LoopDevice, Mapping};

/// State of a server without a host.
pub(super) const OFFLOADED: &str = "shelved_offloaded";

/// Device changes that a change of a server's state requires.
#[derive(Debug, Default)]
pub(crate) struct DeviceChanges {
    pub(crate) unplug: Vec<LoopDevice>,
    pub(crate) plug: Vec<Mapping>,
}

impl World {
    /// Sets both states of a server. Returns `None` if the server does not exist.
    pub(crate) fn set_server_state(
        &mut self,
        id: &str,
        vm_state: &str,
        task_state: Option<&str>,
    ) -> Option<DeviceChanges> {
        let server = self.servers.get_mut(id)?;
        let was_offloaded = server.vm_state == OFFLOADED;
        vm_state.clone_into(&mut server.vm_state);
        server.task_state = task_state.map(str::to_owned);
        let mut changes = DeviceChanges::default();
        let mappings: Vec<Mapping> = self.mappings_on(id).cloned().collect();
        match (was_offloaded, vm_state == OFFLOADED) {
            (false, true) => {
                changes.unplug = (mappings.iter())
                    .filter_map(|mapping| self.terminate_connection(mapping))
                    .collect();
            }
            (true, false) => {
                changes.plug = mappings
                    .into_iter()
                    .filter(|mapping| self.restore_connection(mapping))
                    .collect();
            }
            _ => {}
        }
        Some(changes)
    }

    /// Whether a server has no host.
    pub(super) fn is_offloaded(&self, id: &str) -> bool {
        self.servers.get(id).is_some_and(|server| server.vm_state == OFFLOADED)
    }

    /// Replaces a connected attachment by a reserved one. Nova locks the server during this, so an attach or detach on
    /// the host ends first. Returns the device of the attachment.
    pub(super) fn terminate_connection(&mut self, mapping: &Mapping) -> Option<LoopDevice> {
        let status = self.attachment(&mapping.attachment_id).ok()?.status;
        if mapping.detaching || status != AttachmentStatus::Attached {
            return None;
        }
        let reserved = self.reserve(&mapping.volume_id, Some(&mapping.server_id)).ok()?;
        drop(self.disconnect(&mapping.attachment_id));
        let known = self.mapping_mut(&mapping.id)?;
        known.attachment_id = reserved.id;
        known.loop_device.take()
    }

    /// Connects and completes an attachment without a connector. Returns false if there is none, or if Cinder refuses.
    fn restore_connection(&mut self, mapping: &Mapping) -> bool {
        let attachment = self.attachment(&mapping.attachment_id);
        let waits = attachment.is_ok_and(|attachment| !attachment.connected);
        waits
            && self.connect(&mapping.attachment_id).is_ok()
            && self.complete(&mapping.attachment_id, Some(&mapping.device)).is_ok()
    }
}
