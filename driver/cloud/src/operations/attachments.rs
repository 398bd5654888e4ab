// SPDX-License-Identifier: Apache-2.0
//! Attaches and detaches volumes. An operation ends when Nova and Cinder agree.
//!
//! Nova has a record of the volume at the server, from the request to attach until after the detachment. Cinder has a
//! status of the volume and a list of complete attachments.
//!
//! Nova's compute manager completes an attachment in Cinder last, so a volume with a complete attachment in Cinder is
//! attached. At a detachment the manager first deletes Cinder's attachment and then its own record, so a volume without
//! a record is free in both services.
//!
//! [`step`] decides the next step, [`state_machine`] executes it. The normal case takes one request. The driver reads
//! the state of both services only after a refusal.

mod attach;
mod detach;
mod owners;
mod remedy;
mod state_machine;
mod step;
mod types;

use std::time::Duration;

use tokio::time::Instant;

use crate::api::block_storage::{BlockStorage, Volume};
use crate::context::{Context, ObservedAttachment};
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::operations::access_mode::remove_mode_mark;
use crate::operations::attachments::attach::check_room;
use crate::poll::Pollable;
pub(crate) use owners::delete_stale_attachments;
use state_machine::AttachmentStateMachine;
use step::DesiredAttachment;
use types::pair;
pub use types::{AttachOptions, AttachOutcome};

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
    let machine = AttachmentStateMachine::new(cx, volume, server, desired, deadline);
    let attached = machine.cancelled_by(&options.withdrawn).run().await?;
    let pair = (volume.clone(), server.clone());
    cx.detached.remove(&pair);
    let changed_at = attached.volume.as_ref().and_then(Volume::changed_at);
    let seen = changed_at.map(|changed_at| ObservedAttachment {
        at: Instant::now(),
        changed_at,
    });
    cx.newly_attached.insert(pair, seen);
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
        // An id that is not a UUID belongs to no server, so no server can have the volume.
        let outcome = AttachmentStateMachine::new(cx, volume, server, DesiredAttachment::Detach, deadline)
            .run()
            .await?;
        cx.detached.insert((volume.clone(), server.clone()), ());
        cx.newly_attached.remove(&(volume.clone(), server.clone()));
        remove_mode_mark(cx, volume, server, outcome.volume.as_ref()).await;
    }
    Ok(())
}

/// The servers that have the volume, or have a pending attachment of it.
async fn servers_of(cx: &Context, volume: &VolumeId) -> Result<Vec<ServerId>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let newly_attached = cx.newly_attached.keys().into_iter();
    let mut servers: Vec<_> = newly_attached
        .filter(|(attached, _)| attached == volume)
        .map(|(_, server)| server)
        .collect();
    let mut found = cinder.volume(volume).await?;
    if found.is_none() && servers.is_empty() && cx.wait_for_lag(volume.as_str()).await {
        found = cinder.volume(volume).await?;
    }
    let Some(found) = found else {
        return Ok(servers);
    };
    let listed = found.servers();
    if found.attachments.len() > listed.len() {
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
    servers.extend(listed);
    if found.status.is_transition() {
        let attachments = cinder.attachments(volume).await?.unwrap_or_default();
        servers.extend(attachments.into_iter().filter_map(|attachment| attachment.instance));
    }
    servers.sort();
    servers.dedup();
    Ok(servers)
}
