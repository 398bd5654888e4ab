// SPDX-License-Identifier: Apache-2.0
//! Cinder's attachments.

use super::World;
use crate::api::Fault;
use crate::state::{Attachment, AttachmentStatus, Mapping, VolumeStatus};

impl World {
    /// Implements attachment-create without a connector: the volume becomes `reserved`.
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
        // A second attachment of the same server is allowed, because Nova needs it to migrate a server between hosts.
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
            id: self.new_id(),
            volume_id: volume_id.to_owned(),
            server_id: server_id.map(str::to_owned),
            status: AttachmentStatus::Reserved,
            connected: false,
            mode: None,
            device: None,
            attached_at: None,
        };
        self.attachments
            .entry(volume_id.to_owned())
            .or_default()
            .push(attachment.clone());
        Ok(attachment)
    }

    /// Implements attachment-update: the volume becomes `attaching` and has connection information.
    pub(crate) fn connect(&mut self, attachment_id: &str) -> Result<Attachment, Fault> {
        let known = self.attachment(attachment_id)?;
        let volume = self.volume(&known.volume_id)?;
        if volume.status.as_str().contains("error") {
            return Err(Fault::conflict(format!(
                "Resource conflict: Volume attachments can not be updated if the volume is in an error state. The Volume \
                 {} currently has a status of: {} ",
                volume.id, volume.status
            )));
        }
        let others_connected = self.attachments_of(&volume.id).iter().any(|other| other.connected);
        if !volume.multiattach && self.attachments_of(&volume.id).len() > 1 && others_connected {
            return Err(Fault::conflict(format!(
                "Resource conflict: duplicate connectors detected on volume {}",
                volume.id
            )));
        }
        let attachment = self.attachment_mut(attachment_id)?;
        attachment.status = AttachmentStatus::Attaching;
        attachment.connected = true;
        attachment.mode.get_or_insert_with(|| "rw".to_owned());
        let attachment = attachment.clone();
        self.set_status(&attachment.volume_id, VolumeStatus::Attaching);
        Ok(attachment)
    }

    /// Sets the attach mode, `rw` or `ro`.
    pub(crate) fn set_attach_mode(&mut self, attachment_id: &str, mode: &str) -> Result<Attachment, Fault> {
        let attachment = self.attachment_mut(attachment_id)?;
        attachment.mode = Some(mode.to_owned());
        Ok(attachment.clone())
    }

    /// Implements attachment-complete: the volume becomes `in-use`.
    pub(crate) fn complete(&mut self, attachment_id: &str, device: Option<&str>) -> Result<(), Fault> {
        let now = self.sources.now();
        let attachment = self.attachment_mut(attachment_id)?;
        attachment.status = AttachmentStatus::Attached;
        attachment.device = device.map(str::to_owned).or_else(|| attachment.device.take());
        attachment.attached_at = Some(now);
        let volume_id = attachment.volume_id.clone();
        self.set_status(&volume_id, VolumeStatus::InUse);
        Ok(())
    }

    /// Implements the guard of attachment-delete (bug 2004555): only Nova may delete an attachment that it uses.
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

    /// Implements attachment-delete: the other attachments determine the volume's status.
    pub(crate) fn disconnect(&mut self, attachment_id: &str) -> Result<Vec<Attachment>, Fault> {
        let volume_id = self.attachment(attachment_id)?.volume_id.clone();
        let remaining = self.attachments.entry(volume_id.clone()).or_default();
        remaining.retain(|attachment| attachment.id != attachment_id);
        let remaining = remaining.clone();
        let status = if remaining
            .iter()
            .any(|attachment| attachment.status == AttachmentStatus::Attached)
        {
            VolumeStatus::InUse
        } else if remaining.is_empty() {
            VolumeStatus::Available
        } else {
            VolumeStatus::Reserved
        };
        self.set_status(&volume_id, status);
        Ok(remaining)
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

    /// Adds Cinder's record of an attachment without Nova's, as after an interrupted attach. Updates the volume's
    /// status.
    pub(crate) fn add_attachment(
        &mut self,
        volume_id: &str,
        server_id: Option<&str>,
        status: AttachmentStatus,
    ) -> Result<String, Fault> {
        let now = self.sources.now();
        self.volume(volume_id)?;
        let attached = status == AttachmentStatus::Attached;
        let attachment = Attachment {
            id: self.new_id(),
            volume_id: volume_id.to_owned(),
            server_id: server_id.map(str::to_owned),
            status,
            connected: !matches!(status, AttachmentStatus::Reserved | AttachmentStatus::ErrorAttaching),
            mode: None,
            device: attached.then(|| "/dev/vdz".to_owned()),
            attached_at: attached.then_some(now),
        };
        let id = attachment.id.clone();
        self.attachments
            .entry(volume_id.to_owned())
            .or_default()
            .push(attachment);
        let of_volume = match status {
            AttachmentStatus::Reserved => VolumeStatus::Reserved,
            AttachmentStatus::Attaching | AttachmentStatus::ErrorAttaching => VolumeStatus::Attaching,
            AttachmentStatus::Attached => VolumeStatus::InUse,
            AttachmentStatus::Detaching | AttachmentStatus::ErrorDetaching => VolumeStatus::Detaching,
            AttachmentStatus::Detached => VolumeStatus::Available,
        };
        self.set_status(volume_id, of_volume);
        Ok(id)
    }

    /// Adds Nova's record of an attachment without Cinder's.
    pub(crate) fn add_mapping(&mut self, volume_id: &str, server_id: &str) -> Result<(), Fault> {
        self.volume(volume_id)?;
        let mapping = Mapping {
            id: self.new_id(),
            volume_id: volume_id.to_owned(),
            server_id: server_id.to_owned(),
            attachment_id: self.new_id(),
            device: self.pick_device(server_id, None)?,
            tag: None,
            delete_on_termination: false,
            detaching: false,
            loop_device: None,
        };
        self.mappings.entry(volume_id.to_owned()).or_default().push(mapping);
        Ok(())
    }
}

fn no_attachment(id: &str) -> Fault {
    Fault::not_found(format!(
        "Volume attachment could not be found with filter: attachment_id = {id}."
    ))
}
