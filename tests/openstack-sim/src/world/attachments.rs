//! Attachments: Cinder's records and Nova's block device mappings.

use jiff::Timestamp;

use super::World;
use crate::api::{Fault, new_id};
use crate::state::{Attachment, AttachmentStatus, LoopDevice, Mapping, VolumeStatus};

/// States of a server in which Nova attaches and detaches volumes.
const ATTACHABLE: [&str; 7] = [
    "active",
    "paused",
    "stopped",
    "resized",
    "soft-delete",
    "shelved",
    "shelved_offloaded",
];

/// What Nova is asked to attach with.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewMapping {
    pub(crate) device: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) delete_on_termination: bool,
    /// Whether the microversion (2.60) allows volumes that go to several servers.
    pub(crate) multiattach_allowed: bool,
}

impl World {
    /// Cinder's attachment-create without a connector: the volume is `reserved`.
    pub(crate) fn reserve(&mut self, volume_id: &str, server_id: Option<&str>) -> Result<Attachment, Fault> {
        let volume = self.volume(volume_id)?;
        if volume.status.as_str().contains("error") {
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume attachments can not be created if the volume is in an error state. The Volume \
                 {volume_id} currently has a status of: {} ",
                volume.status
            )));
        }
        let allowed =
            volume.status == VolumeStatus::Available || (volume.multiattach && volume.status == VolumeStatus::InUse);
        // The same server may come twice: that is how Nova moves a server between hosts.
        let again = matches!(volume.status, VolumeStatus::InUse | VolumeStatus::Reserved)
            && server_id.is_some()
            && self
                .attachments_of(volume_id)
                .iter()
                .any(|known| known.server_id.as_deref() == server_id);
        if !allowed && !again {
            let expected = if volume.multiattach {
                "available or in-use or downloading"
            } else {
                "available or downloading"
            };
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume {volume_id} status must be {expected} to reserve, but the current status is {}.",
                volume.status
            )));
        }
        if allowed {
            self.set_status(volume_id, VolumeStatus::Reserved);
        }
        let attachment = Attachment {
            id: new_id(),
            volume_id: volume_id.to_owned(),
            server_id: server_id.map(str::to_owned),
            status: AttachmentStatus::Reserved,
            connected: false,
            device: None,
            attached_at: None,
        };
        self.attachments
            .entry(volume_id.to_owned())
            .or_default()
            .push(attachment.clone());
        Ok(attachment)
    }

    /// Cinder's attachment-update: the volume is `attaching` and has connection information.
    pub(crate) fn connect(&mut self, attachment_id: &str) -> Result<Attachment, Fault> {
        let attachment = self.attachment_mut(attachment_id)?;
        attachment.status = AttachmentStatus::Attaching;
        attachment.connected = true;
        let attachment = attachment.clone();
        self.set_status(&attachment.volume_id, VolumeStatus::Attaching);
        Ok(attachment)
    }

    /// Cinder's attachment-complete: the volume is `in-use`.
    pub(crate) fn complete(&mut self, attachment_id: &str, device: Option<&str>) -> Result<(), Fault> {
        let attachment = self.attachment_mut(attachment_id)?;
        attachment.status = AttachmentStatus::Attached;
        attachment.device = device.map(str::to_owned).or_else(|| attachment.device.take());
        attachment.attached_at = Some(Timestamp::now());
        let volume_id = attachment.volume_id.clone();
        self.set_status(&volume_id, VolumeStatus::InUse);
        Ok(())
    }

    /// The guard of Cinder's attachment-delete (bug 2004555): what Nova uses is detached by Nova.
    pub(crate) fn check_disconnect(&self, attachment_id: &str) -> Result<(), Fault> {
        let attachment = self.attachment(attachment_id)?;
        let Some(server_id) = attachment.server_id.as_deref().filter(|_| attachment.connected) else {
            return Ok(());
        };
        match self.mapping(&attachment.volume_id, server_id) {
            Some(mapping) if mapping.attachment_id == attachment.id => Err(Fault::conflict(format!(
                "ConflictNovaUsingAttachment: Detach volume from instance {server_id} using the Compute API"
            ))),
            _ => Ok(()),
        }
    }

    /// Cinder's attachment-delete: the volume is what its other attachments make it.
    pub(crate) fn disconnect(&mut self, attachment_id: &str) -> Result<Vec<Attachment>, Fault> {
        let volume_id = self.attachment(attachment_id)?.volume_id.clone();
        let left = self.attachments.entry(volume_id.clone()).or_default();
        left.retain(|attachment| attachment.id != attachment_id);
        let left = left.clone();
        let status = if left
            .iter()
            .any(|attachment| attachment.status == AttachmentStatus::Attached)
        {
            VolumeStatus::InUse
        } else if left.is_empty() {
            VolumeStatus::Available
        } else {
            VolumeStatus::Reserved
        };
        self.set_status(&volume_id, status);
        Ok(left)
    }

    pub(crate) fn attachment(&self, id: &str) -> Result<&Attachment, Fault> {
        self.attachments
            .values()
            .flatten()
            .find(|attachment| attachment.id == id)
            .ok_or_else(|| no_attachment(id))
    }

    fn attachment_mut(&mut self, id: &str) -> Result<&mut Attachment, Fault> {
        self.attachments
            .values_mut()
            .flatten()
            .find(|attachment| attachment.id == id)
            .ok_or_else(|| no_attachment(id))
    }

    /// Nova's answer to an attach call: the mapping exists, and Cinder has the volume `reserved`.
    pub(crate) fn begin_attach(
        &mut self,
        server_id: &str,
        volume_id: &str,
        new: NewMapping,
        request_id: &str,
    ) -> Result<Mapping, Fault> {
        self.check_server(server_id, "attach_volume")?;
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
        if volume.multiattach && !new.multiattach_allowed {
            return Err(Fault::bad_request(
                "Multiattach volumes are only supported starting with compute API version 2.60.",
            ));
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
            id: new_id(),
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
        Ok(mapping)
    }

    /// The guest has the device: the volume is `in-use`.
    pub(crate) fn end_attach(&mut self, mapping: &Mapping, loop_device: Option<LoopDevice>) {
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.loop_device = loop_device;
            let _ = self.complete(&mapping.attachment_id, Some(&mapping.device));
        }
    }

    /// The guest did not take the device: both records are undone.
    pub(crate) fn fail_attach(&mut self, mapping: &Mapping) {
        let _ = self.disconnect(&mapping.attachment_id);
        self.remove_mapping(mapping);
    }

    /// Nova's answer to a detach call: the volume is `detaching`.
    pub(crate) fn begin_detach(
        &mut self,
        server_id: &str,
        volume_id: &str,
        request_id: &str,
    ) -> Result<Mapping, Fault> {
        let server = self.server(server_id)?.spec.id.clone();
        self.volume(volume_id)?;
        if self.mapping(volume_id, &server).is_none() {
            return Err(Fault::not_found(format!(
                "Instance {server_id} is not attached to volume {volume_id}"
            )));
        }
        self.check_server(server_id, "detach_volume")?;
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
        let mapping = self
            .mappings
            .get_mut(volume_id)
            .and_then(|mappings| mappings.iter_mut().find(|mapping| mapping.server_id == server))
            .ok_or_else(|| Fault::new(500, "The mapping went away while it was looked at."))?;
        mapping.detaching = true;
        Ok(mapping.clone())
    }

    /// The guest released the device: Cinder's record goes.
    pub(crate) fn end_detach(&mut self, mapping: &Mapping) {
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.loop_device = None;
        }
        let _ = self.disconnect(&mapping.attachment_id);
    }

    /// Nova's record goes, after Cinder's.
    pub(crate) fn remove_mapping(&mut self, mapping: &Mapping) {
        if let Some(mappings) = self.mappings.get_mut(&mapping.volume_id) {
            mappings.retain(|known| known.id != mapping.id);
            if mappings.is_empty() {
                self.mappings.remove(&mapping.volume_id);
            }
        }
    }

    /// The guest did not release the device: the volume is `in-use` as before.
    pub(crate) fn fail_detach(&mut self, mapping: &Mapping) {
        if let Some(known) = self.mapping_mut(&mapping.id) {
            known.detaching = false;
        }
        self.turn(&mapping.volume_id, VolumeStatus::Detaching, VolumeStatus::InUse);
    }

    /// Takes a server away. Its mappings go with it; Cinder's records stay where `leave_attachments` is set.
    pub(crate) fn remove_server(&mut self, id: &str, leave_attachments: bool) -> Vec<Mapping> {
        self.servers.remove(id);
        let gone: Vec<Mapping> = self.mappings_on(id).cloned().collect();
        for mapping in &gone {
            self.remove_mapping(mapping);
            if !leave_attachments {
                let _ = self.disconnect(&mapping.attachment_id);
            }
        }
        gone
    }

    pub(crate) fn mapping_mut(&mut self, id: &str) -> Option<&mut Mapping> {
        self.mappings.values_mut().flatten().find(|mapping| mapping.id == id)
    }

    fn check_server(&self, server_id: &str, action: &str) -> Result<(), Fault> {
        let server = self.server(server_id)?;
        if !ATTACHABLE.contains(&server.vm_state.as_str()) {
            return Err(Fault::conflict(format!(
                "Cannot '{action}' instance {server_id} while it is in vm_state {}",
                server.vm_state
            )));
        }
        if let Some(task) = &server.task_state {
            return Err(Fault::conflict(format!(
                "Cannot '{action}' instance {server_id} while it is in task_state {task}"
            )));
        }
        Ok(())
    }

    /// `/dev/vdb` and on, the first that is free; `/dev/vda` is the root disk.
    fn pick_device(&self, server_id: &str, wanted: Option<&str>) -> Result<String, Fault> {
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
        // One name more than are taken: one of them is free.
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

fn no_attachment(id: &str) -> Fault {
    Fault::not_found(format!(
        "Volume attachment could not be found with filter: attachment_id = {id}."
    ))
}
