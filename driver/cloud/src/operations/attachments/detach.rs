// SPDX-License-Identifier: Apache-2.0
//! Detaches a volume from a server, or from all servers.

use std::time::Duration;

use tokio::time::Instant;

use super::access_mode::remove_mode_mark;
use super::state_machine::AttachmentStateMachine;
use super::step::DesiredAttachment;
use crate::api::block_storage::BlockStorage;
use crate::context::Context;
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};

/// See [`crate::Cloud::detach`].
pub(crate) async fn detach_volume(
    cx: &Context,
    volume: &VolumeId,
    server: Option<&ServerId>,
) -> Result<(), CloudError> {
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
    let found = if servers.is_empty() {
        cx.confirm(volume.as_str(), || cinder.volume(volume)).await?
    } else {
        cinder.volume(volume).await?
    };
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
