// SPDX-License-Identifier: Apache-2.0
//! Finds the attachments of a volume that no server has, and removes them.
//!
//! Cinder lists attachments, and Nova knows the servers. An attachment is stale only if Nova reports twice, some
//! seconds apart, that it has no record of the volume at the server (404). For a complete attachment, Nova must also
//! report that it does not know the server (404). Any other response, including an error, keeps the attachment: the
//! guest may have the disk.

use tokio::time::sleep;

use crate::api::block_storage::{Attachment, BlockStorage, Volume};
use crate::api::compute::Compute;
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{AttachmentId, ServerId, VolumeId};
use crate::timestamp::parse_timestamp;
use crate::timing::TIMING;

/// The status of a server that Nova builds.
const BUILDING: &str = "BUILD";

/// The attachments of a volume by their servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AttachmentOwners {
    /// The attachments that no server has.
    pub(super) stale: Vec<AttachmentId>,
    /// The servers off their hosts for which Nova keeps the volume reserved.
    pub(super) offloaded: Vec<ServerId>,
}

/// Result of a clean-up of stale attachments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanUp {
    /// Whether an attachment was deleted.
    pub(crate) removed: bool,
    /// The servers off their hosts for which Nova keeps the volume reserved.
    pub(crate) offloaded: Vec<ServerId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// A server that has the volume, may have it, or is about to get it.
    Server,
    /// A server off its host that gets the volume back when it is unshelved.
    OffloadedServer,
    /// No server.
    Missing,
    /// A server that Nova does not show, or does not show yet (404).
    Unseen,
}

/// Sorts the attachments that were listed just now.
///
/// Nova records an attachment before it creates Cinder's, except for the volumes of a new server. Their attachments
/// exist before Nova shows the server, and the records follow when the scheduler has found a host.
pub(super) async fn find_owners(
    cx: &Context,
    volume: &VolumeId,
    listed: &[&Attachment],
) -> Result<AttachmentOwners, CloudError> {
    let mut owners = AttachmentOwners::default();
    let mut unseen = Vec::new();
    for attachment in listed {
        let Some(server) = attachment.instance.as_ref().filter(|server| server.is_uuid()) else {
            continue;
        };
        match find_owner(cx, volume, attachment, server).await? {
            Owner::Server => {}
            Owner::OffloadedServer => owners.offloaded.push(server.clone()),
            Owner::Missing => owners.stale.push(attachment.id.clone()),
            Owner::Unseen => unseen.push(attachment.id.clone()),
        }
    }
    if !unseen.is_empty() && !changed_lately(cx, volume).await? {
        owners.stale.append(&mut unseen);
    }
    Ok(owners)
}

async fn find_owner(
    cx: &Context,
    volume: &VolumeId,
    attachment: &Attachment,
    server: &ServerId,
) -> Result<Owner, CloudError> {
    let nova = Compute::new(&cx.transport);
    let is_recorded = nova.attachment(server, volume).await?.is_some();
    if is_recorded && attachment.is_complete() {
        return Ok(Owner::Server);
    }
    Ok(match nova.server(server).await? {
        Some(found) if is_recorded && found.is_offloaded() => Owner::OffloadedServer,
        _ if is_recorded => Owner::Server,
        // The guest may have the disk.
        Some(_) if attachment.is_complete() => Owner::Server,
        Some(found) if found.status == BUILDING => Owner::Server,
        Some(_) => Owner::Missing,
        None if attachment.is_complete() => Owner::Missing,
        None => Owner::Unseen,
    })
}

/// Whether an attachment of the volume may be as young as a server that Nova does not show yet. Cinder shows no time
/// for an incomplete attachment, but its creation changes the volume's record.
async fn changed_lately(cx: &Context, volume: &VolumeId) -> Result<bool, CloudError> {
    let found = BlockStorage::new(&cx.transport).volume(volume).await?;
    let changed = found.and_then(|found| parse_timestamp(found.updated_at.as_deref().unwrap_or(&found.created_at)));
    let now = cx.transport.time_of_cinder();
    Ok(changed.is_some_and(|changed| now.duration_since(changed) < TIMING.unseen_server))
}

/// Deletes the stale attachments of a volume, so that the volume can be deleted or changed. This takes a few seconds if
/// there are any.
///
/// If Nova does not respond, a volume with an attachment in Cinder counts as attached.
pub(crate) async fn delete_stale_attachments(cx: &Context, volume: &Volume) -> Result<CleanUp, CloudError> {
    match delete_stale(cx, volume).await {
        Err(error) if !volume.attachments.is_empty() => {
            tracing::warn!(volume = %volume.id, %error, "cannot check the servers that the volume is attached to");
            Ok(CleanUp::default())
        }
        result => result,
    }
}

async fn delete_stale(cx: &Context, volume: &Volume) -> Result<CleanUp, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let find = async || -> Result<AttachmentOwners, CloudError> {
        let listed = cinder.attachments(&volume.id).await?.unwrap_or_default();
        find_owners(cx, &volume.id, &Vec::from_iter(&listed)).await
    };
    let AttachmentOwners { stale, offloaded } = find().await?;
    let mut clean_up = CleanUp {
        removed: false,
        offloaded,
    };
    if stale.is_empty() || volume.is_attached_by_ironic() {
        return Ok(clean_up);
    }
    sleep(TIMING.orphan_grace).await;
    for attachment in find().await?.stale.iter().filter(|id| stale.contains(id)) {
        delete_attachment(cx, attachment, &format!("volume {}", volume.id)).await?;
        clean_up.removed = true;
    }
    Ok(clean_up)
}

/// Deletes an attachment that was found stale twice. Cinder queries Nova once more before it does so.
pub(super) async fn delete_attachment(cx: &Context, attachment: &AttachmentId, object: &str) -> Result<(), CloudError> {
    tracing::warn!(%attachment, object, "deleting a stale attachment: Nova has no record of it");
    BlockStorage::new(&cx.transport)
        .delete_attachment(attachment, object)
        .await
}
