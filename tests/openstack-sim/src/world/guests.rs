// SPDX-License-Identifier: Apache-2.0
//! Nova's attachments: block device mappings and their lifecycle.

use super::World;
use super::shelving::OFFLOADED;
use crate::api::Fault;
use crate::microversion::Version;
use crate::state::{Attachment, AttachmentStatus, LoopDevice, Mapping, Server, VolumeStatus};

/// Server states in which Nova attaches and detaches volumes.
const ATTACHABLE: [&str; 7] = [
    "active",
    "paused",
    "stopped",
    "resized",
    "soft-delete",
    "shelved",
    "shelved_offloaded",
];

/// Parameters of an attach call.
#[derive(Debug, Clone)]
pub(crate) struct NewMapping {
    pub(crate) device: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) delete_on_termination: bool,
    /// Microversion: 2.60 supports multiattach volumes, 2.20 shelved servers.
    pub(crate) version: Version,
    pub(crate) admin: bool,
}

/// The caller of a detach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// Microversion.
    pub(crate) version: Version,
    pub(crate) admin: bool,
    /// Whether Nova's call to Cinder fails.
    pub(crate) cinder_fails: bool,
}

/// The next step of an accepted attach or detach.
#[derive(Debug, Clone)]
pub(crate) enum NextStep {
    /// A compute service executes it.
    OnHost(Mapping),
    /// The server has no host, so it is already done.
    Done(Mapping),
}

impl World {
    /// Accepts an attach call: the mapping exists, and the volume is `reserved` in Cinder. If the server has no host,
    /// the volume is `in-use` immediately, without a connection.
    pub(crate) fn begin_attach(
        &mut self,
        server_id: &str,
        volume_id: &str,
        new: NewMapping,
        request_id: &str,
    ) -> Result<NextStep, Fault> {
        let server = self.check_server(server_id, "attach_volume", new.version, new.admin)?;
        let (offloaded, host_down) = (server.vm_state == OFFLOADED, server.host_down);
        let volume = self.volume(volume_id)?;
        let mappings = self.mappings_of(volume_id);
        if !mappings.is_empty() && !volume.multiattach {
            let servers: Vec<_> = mappings.iter().map(|mapping| mapping.server_id.as_str()).collect();
            return Err(Fault::bad_request(format!(
                "Invalid volume: volume {volume_id} is already attached to instances: {}",
                servers.join(" ")
            )));
        }
        if mappings.iter().any(|mapping| mapping.server_id == server_id) {
            return Err(Fault::bad_request(format!(
                "Invalid volume: volume {volume_id} already attached"
            )));
        }
        if offloaded && volume.multiattach {
            return Err(Fault::bad_request(
                "Attaching multiattach volumes is not supported for shelved-offloaded instances.",
            ));
        }
        if volume.multiattach && new.version < Version(2, 60) {
            return Err(Fault::bad_request(
                "Multiattach volumes are only supported starting with compute API version 2.60.",
            ));
        }
        if host_down {
            // Nova requests a device name from the host, with a timeout of a minute.
            return Err(Fault::unexpected("oslo_messaging.exceptions.MessagingTimeout"));
        }
        let device = self.pick_device(server_id, new.device.as_deref())?;
        let attachment = self.reserve(volume_id, Some(server_id)).map_err(|fault| {
            Fault::new(
                fault.status,
                format!(
                    "Invalid input received: {} (HTTP {}) (Request-ID: {request_id})",
                    fault.message, fault.status
                ),
            )
        })?;
        let mapping = Mapping {
            id: self.new_id(),
            volume_id: volume_id.to_owned(),
            server_id: server_id.to_owned(),
            attachment_id: attachment.id,
            device,
            tag: new.tag,
            delete_on_termination: new.delete_on_termination,
            detaching: false,
            loop_device: None,
        };
        self.mappings
            .entry(volume_id.to_owned())
            .or_default()
            .push(mapping.clone());
        if offloaded {
            self.complete(&mapping.attachment_id, None)?;
            return Ok(NextStep::Done(mapping));
        }
        Ok(NextStep::OnHost(mapping))
    }

    /// Adds Nova's record of an attachment that was reserved before the server had a host.
    pub(crate) fn record_reserved(&mut self, attachment_id: &str) -> Result<Mapping, Fault> {
        let attachment = self.attachment(attachment_id)?.clone();
        let server_id = attachment.server_id.unwrap_or_default();
        self.server(&server_id)?;
        let mapping = Mapping {
            id: self.new_id(),
            volume_id: attachment.volume_id,
            attachment_id: attachment.id,
            device: self.pick_device(&server_id, None)?,
            server_id,
            tag: None,
            delete_on_termination: false,
            detaching: false,
            loop_device: None,
        };
        let mappings = self.mappings.entry(mapping.volume_id.clone()).or_default();
        mappings.push(mapping.clone());
        Ok(mapping)
    }

    /// Ends an attach: the volume is `in-use`. A server that was offloaded in the meantime releases it immediately; the
    /// device is then returned.
    pub(crate) fn end_attach(&mut self, mapping: &Mapping, loop_device: Option<LoopDevice>) -> Option<LoopDevice> {
        let known = self.mapping_mut(&mapping.id)?;
        known.loop_device = loop_device;
        drop(self.complete(&mapping.attachment_id, Some(&mapping.device)));
        if self.is_offloaded(&mapping.server_id) {
            self.terminate_connection(mapping)
        } else {
            None
        }
    }

    /// Ends a failed attach: both records are deleted.
    pub(crate) fn fail_attach(&mut self, mapping: &Mapping) {
        drop(self.disconnect(&mapping.attachment_id));
        self.remove_mapping(mapping);
    }

    /// Accepts a detach call: the volume becomes `detaching`. If the server has no host, the attachment is deleted
    /// immediately. If Cinder fails, Nova ignores that and deletes only its own record.
    pub(crate) fn begin_detach(
        &mut self,
        server_id: &str,
        volume_id: &str,
        caller: Caller,
        request_id: &str,
    ) -> Result<NextStep, Fault> {
        let Caller {
            version,
            admin,
            cinder_fails,
        } = caller;
        let server = self.server(server_id)?;
        check_shelved(server, "detach_volume", version)?;
        self.volume(volume_id)?;
        let Some(mapping) = self.mapping(volume_id, server_id).cloned() else {
            return Err(Fault::not_found(format!(
                "Instance {server_id} is not attached to volume {volume_id}"
            )));
        };
        let server = self.check_server(server_id, "detach_volume", version, admin)?;
        if server.vm_state == OFFLOADED {
            self.remove_mapping(&mapping);
            if !cinder_fails {
                drop(self.disconnect(&mapping.attachment_id));
            }
            return Ok(NextStep::Done(mapping));
        }
        if server.host_down {
            return Err(Fault::conflict("Service is unavailable at this time."));
        }
        let attached = self
            .attachments_of(volume_id)
            .iter()
            .any(|known| known.status == AttachmentStatus::Attached);
        if self.volume(volume_id)?.status != VolumeStatus::InUse || !attached {
            return Err(Fault::bad_request(format!(
                "Invalid volume: Invalid input received: Invalid volume: Unable to detach volume. Volume status must be \
                 'in-use' and attach_status must be 'attached' to detach. (HTTP 400) (Request-ID: {request_id})"
            )));
        }
        self.set_status(volume_id, VolumeStatus::Detaching);
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.detaching = true;
        }
        Ok(NextStep::OnHost(Mapping {
            detaching: true,
            ..mapping
        }))
    }

    /// Ends a detach: deletes Cinder's record.
    pub(crate) fn end_detach(&mut self, mapping: &Mapping) {
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.loop_device = None;
        }
        drop(self.disconnect(&mapping.attachment_id));
    }

    /// Deletes Nova's record, after Cinder's.
    pub(crate) fn remove_mapping(&mut self, mapping: &Mapping) {
        if let Some(mappings) = self.mappings.get_mut(&mapping.volume_id) {
            mappings.retain(|known| known.id != mapping.id);
            if mappings.is_empty() {
                self.mappings.remove(&mapping.volume_id);
            }
        }
    }

    /// Ends a failed detach: the volume is `in-use` again.
    pub(crate) fn fail_detach(&mut self, mapping: &Mapping) {
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.detaching = false;
        }
        self.turn(&mapping.volume_id, VolumeStatus::Detaching, VolumeStatus::InUse);
    }

    /// Removes a server and its mappings. With `leave_attachments`, Cinder's records remain.
    pub(crate) fn remove_server(&mut self, id: &str, leave_attachments: bool) -> Vec<Mapping> {
        self.servers.remove(id);
        let removed: Vec<Mapping> = self.mappings_on(id).cloned().collect();
        for mapping in &removed {
            self.remove_mapping(mapping);
        }
        if !leave_attachments {
            let of_server = |attachment: &&Attachment| attachment.server_id.as_deref() == Some(id);
            let all = self.attachments.values().flatten().filter(of_server);
            for attachment in all.map(|attachment| attachment.id.clone()).collect::<Vec<_>>() {
                drop(self.disconnect(&attachment));
            }
        }
        removed
    }

    pub(crate) fn mapping_mut(&mut self, id: &str) -> Option<&mut Mapping> {
        self.mappings.values_mut().flatten().find(|mapping| mapping.id == id)
    }

    fn check_server(&self, server_id: &str, action: &str, version: Version, admin: bool) -> Result<&Server, Fault> {
        let server = self.server(server_id)?;
        check_shelved(server, action, version)?;
        if server.locked && !admin {
            return Err(Fault::conflict(format!("Instance {server_id} is locked")));
        }
        if !ATTACHABLE.contains(&server.vm_state.as_str()) {
            return Err(wrong_state(server_id, action, "vm_state", &server.vm_state));
        }
        if let Some(task) = &server.task_state {
            return Err(wrong_state(server_id, action, "task_state", task));
        }
        Ok(server)
    }

    /// Returns the first free device name from `/dev/vdb` on; `/dev/vda` is the root disk.
    pub(super) fn pick_device(&self, server_id: &str, wanted: Option<&str>) -> Result<String, Fault> {
        let taken: Vec<&str> = self
            .mappings_on(server_id)
            .map(|mapping| mapping.device.as_str())
            .collect();
        if taken.len() >= self.rules.volumes_per_server {
            return Err(Fault::new(
                403,
                format!(
                    "The maximum allowed number of disk devices ({}) to attach to a single instance has been exceeded.",
                    self.rules.volumes_per_server
                ),
            ));
        }
        if let Some(wanted) = wanted.filter(|name| !name.is_empty() && *name != "auto") {
            if taken.contains(&wanted) {
                return Err(Fault::conflict(format!(
                    "The supplied device path ({wanted}) is in use."
                )));
            }
            return Ok(wanted.to_owned());
        }
        // With one name more than there are devices, at least one is free.
        let mut names = (1..=taken.len() + 1).map(device_name);
        names
            .find(|name| !taken.contains(&name.as_str()))
            .ok_or_else(|| Fault::new(500, "No device name is left."))
    }
}

/// `/dev/vda`, …, `/dev/vdz`, `/dev/vdaa`, …
fn device_name(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'a' + u8::try_from(rest % 26).unwrap_or_default()));
        rest /= 26;
    }
    let letters: String = letters.into_iter().rev().collect();
    format!("/dev/vd{letters}")
}

/// Shelved servers require microversion 2.20.
fn check_shelved(server: &Server, action: &str, version: Version) -> Result<(), Fault> {
    if matches!(server.vm_state.as_str(), "shelved" | "shelved_offloaded") && version < Version(2, 20) {
        return Err(wrong_state(&server.spec.id, action, "vm_state", &server.vm_state));
    }
    Ok(())
}

fn wrong_state(server_id: &str, action: &str, what: &str, state: &str) -> Fault {
    Fault::conflict(format!(
        "Cannot '{action}' instance {server_id} while it is in {what} {state}"
    ))
}
