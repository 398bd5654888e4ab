// SPDX-License-Identifier: Apache-2.0
//! Attaching and detaching, each to its end, over the two views that there are: Nova keeps a record of the volume at the server from
//! the request to attach until after the detachment, Cinder a status and the list of complete attachments.
//!
//! In Nova the compute manager completes an attachment in Cinder last, so that a volume that Cinder shows at the server has arrived. A
//! detachment ends the other way round: the manager has Cinder let go and destroys its own record after that, so that a volume of which
//! Nova has no record any more is free in both.
//!
//! [`step`] decides what to do next, [`case`] does it. The usual case costs one request: Nova and Cinder refuse what cannot be, and
//! only then are all views taken.

mod attach;
mod detach;
mod remedy;
mod state_machine;
mod step;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::api::block_storage::{Attachment, BlockStorage, Volume};
use crate::api::compute::Compute;
use crate::context::Context;
use crate::error::{CloudError, Failure};
use crate::ids::{AttachmentId, ServerId, VolumeId};
use crate::operations::access_mode::forget_mode;
use crate::operations::attachments::attach::check_room;
use crate::poll::timestamp;
use crate::timing::TIMING;
use state_machine::AttachmentStateMachine;
use step::DesiredAttachment;

/// A volume that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachOutcome {
    /// The device name that Nova thought of; the guest may see another one.
    pub device: Option<String>,
    /// The volume as it was seen attached.
    pub volume: Option<Volume>,
    /// Whether it was there before it was asked for.
    pub already: bool,
}

/// How to attach.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Whether no other server may have the volume, even if it is a multiattach one.
    pub exclusive: bool,
    /// How many volumes of CSI drivers the server may have; Nova's own limit when `None`. Checked beforehand: one more request, and a
    /// list of the project's volumes for a server that has as many volumes of any kind.
    pub server_limit: Option<u32>,
    /// Whether the node only reads. A volume that the server has in the other mode is [`CloudError::AttachedDifferently`].
    pub read_only: bool,
    /// Ends an attachment that waits for its turn at the server, before anything was asked of Nova: the error is
    /// [`CloudError::Conflict`]. Once the request is on its way this changes nothing.
    pub withdrawn: CancellationToken,
}

/// The status of a server that Nova is making.
const BUILDING: &str = "BUILD";

fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
}

/// See [`crate::Cloud::attach`].
pub(crate) async fn attach(
    cx: &Context,
    volume: &VolumeId,
    server: &ServerId,
    options: &AttachOptions,
) -> Result<AttachOutcome, CloudError> {
    if !volume.is_uuid() {
        return Err(CloudError::no_volume(volume));
    }
    if !server.is_uuid() {
        return Err(CloudError::no_server(server));
    }
    if let Some(limit) = options.server_limit {
        check_room(cx, volume, server, limit).await?;
    }
    let deadline = Instant::now() + cx.options.operation_timeout;
    let desired = DesiredAttachment::Attach {
        exclusive: options.exclusive,
    };
    let case = AttachmentStateMachine::new(cx, volume, server, desired, deadline);
    let attached = case.until(&options.withdrawn).run().await?;
    cx.detached.remove(&(volume.clone(), server.clone()));
    Ok(attached)
}

/// See [`crate::Cloud::detach`].
pub(crate) async fn detach(cx: &Context, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
    if !volume.is_uuid() {
        return Ok(());
    }
    cx.attached.remove(volume);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let servers = match server {
        Some(server) => vec![server.clone()],
        None => servers_of(cx, volume).await?,
    };
    for server in servers.iter().filter(|server| server.is_uuid()) {
        // Of an id that is none: no server has it, so none has the volume by it.
        let gone = AttachmentStateMachine::new(cx, volume, server, DesiredAttachment::Detach, deadline)
            .run()
            .await?;
        cx.detached.insert((volume.clone(), server.clone()), ());
        forget_mode(cx, volume, server, gone.volume.as_ref()).await;
    }
    Ok(())
}

/// Those of the incomplete attachments that were listed just now which no server stands behind. Nova records an attachment before it
/// asks Cinder for it, but for the volumes of a new server: their attachments come before the server can be seen, and the records
/// when its scheduler has found a host.
async fn orphaned_attachments(
    cx: &Context,
    volume: &VolumeId,
    listed: &[Attachment],
) -> Result<Vec<AttachmentId>, CloudError> {
    let nova = Compute::new(&cx.transport);
    let (mut orphans, mut unknown) = (Vec::new(), Vec::new());
    for attachment in listed.iter().filter(|attachment| !attachment.is_complete()) {
        let Some(server) = &attachment.instance else { continue };
        if nova.attachment(server, volume).await?.is_some() {
            continue;
        }
        match nova.server(server).await? {
            Some(found) if found.status == BUILDING => {}
            Some(_) => orphans.push(attachment.id.clone()),
            None => unknown.push(attachment.id.clone()),
        }
    }
    if !unknown.is_empty() && !changed_lately(cx, volume).await? {
        orphans.append(&mut unknown);
    }
    Ok(orphans)
}

/// Whether an attachment of the volume may be as young as a server that cannot be seen yet. Cinder shows no time for an attachment
/// that is not complete, but making one changes the volume's record.
async fn changed_lately(cx: &Context, volume: &VolumeId) -> Result<bool, CloudError> {
    let found = BlockStorage::new(&cx.transport).volume(volume).await?;
    let changed = found.and_then(|found| timestamp(found.updated_at.as_deref().unwrap_or(&found.created_at)));
    let now = cx.transport.time_of_cinder();
    Ok(changed.is_some_and(|changed| now.duration_since(changed) < TIMING.unseen_server))
}

/// Removes the half-made attachments of a volume that is not attached to anything and that nobody stands behind, so that it can
/// be deleted. True when there was one. Takes a few seconds then: they are looked at twice.
pub(crate) async fn delete_orphaned_attachments(cx: &Context, volume: &VolumeId) -> Result<bool, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let look = async || -> Result<Vec<AttachmentId>, CloudError> {
        let listed = cinder.attachments(volume).await?.unwrap_or_default();
        orphaned_attachments(cx, volume, &listed).await
    };
    let stale_candidates = look().await?;
    if stale_candidates.is_empty() {
        return Ok(false);
    }
    sleep(TIMING.orphan_grace).await;
    let mut cleared = false;
    for attachment in look().await?.iter().filter(|id| stale_candidates.contains(id)) {
        tracing::warn!(%volume, %attachment, "removing an attachment that was left over: Nova has no record of it");
        cinder
            .delete_attachment(attachment, &format!("volume {volume}"))
            .await?;
        cleared = true;
    }
    Ok(cleared)
}

/// All servers that have the volume, or are about to have it.
async fn servers_of(cx: &Context, volume: &VolumeId) -> Result<Vec<ServerId>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let Some(found) = cinder.volume(volume).await? else {
        return Ok(Vec::new());
    };
    let mut servers = found.servers();
    if found.attachments.len() > servers.len() {
        return Err(CloudError::Conflict(Failure {
            operation: "volume_detach",
            object: format!("volume {volume}"),
            status: None,
            fault: "it is attached to a host that is no server of Nova's, which only who attached it can undo"
                .to_owned(),
            request_id: None,
            elapsed: Duration::ZERO,
        }));
    }
    if found.status.is_transition() {
        let attachments = cinder.attachments(volume).await?.unwrap_or_default();
        servers.extend(attachments.into_iter().filter_map(|attachment| attachment.instance));
        servers.sort();
        servers.dedup();
    }
    Ok(servers)
}
