// SPDX-License-Identifier: Apache-2.0
//! Attaches a volume to a server, for writing or read-only.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::access_mode::{attachment_id, get_volume, prepare_read_only, record_mode};
use super::state_machine::AttachmentStateMachine;
use super::step::DesiredAttachment;
use super::types::{AttachOptions, AttachOutcome, pair};
use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::api::compute::Compute;
use crate::context::{Context, ObservedAttachment};
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::metadata_keys;
use crate::poll::Pollable;

/// See [`crate::Cloud::attach`].
pub(crate) async fn attach_volume(
    cx: &Context,
    volume: &VolumeId,
    server: &ServerId,
    options: AttachOptions,
) -> Result<AttachOutcome, CloudError> {
    if options.read_only {
        prepare_read_only(cx, volume, server).await?;
    }
    let attached = match find_recent_attachment(cx, volume, server, options.exclusive).await? {
        Some(attached) => attached,
        None => attach_to_server(cx, volume, server, &options).await?,
    };
    let seen = match &attached.volume {
        Some(seen) => seen.clone(),
        None if options.read_only => get_volume(cx, volume).await?,
        // The attachment is new, so no call has evaluated its mark. An older mark has no effect, and the detachment
        // removes it.
        None => return Ok(attached),
    };
    let Some(attachment) = attachment_id(&seen, server) else {
        return Ok(attached);
    };
    cx.attached
        .insert(volume.clone(), (server.clone(), attachment.to_owned()));
    record_mode(cx, &seen, server, options.read_only, attached.already).await?;
    Ok(attached)
}

/// Returns an attachment that this process completed a short time ago, if Cinder still shows it. This costs one
/// request. Otherwise Nova would refuse a second attachment, and the driver would have to read the state of both
/// services.
async fn find_recent_attachment(
    cx: &Context,
    volume: &VolumeId,
    server: &ServerId,
    exclusive: bool,
) -> Result<Option<AttachOutcome>, CloudError> {
    let Some((_, known)) = cx.attached.get(volume).filter(|(at, _)| at == server) else {
        return Ok(None);
    };
    let seen = get_volume(cx, volume).await?;
    let is_still = seen.status == VolumeStatus::InUse && attachment_id(&seen, server) == Some(known.as_str());
    Ok(
        (is_still && (!exclusive || seen.attachments.len() == 1)).then(|| AttachOutcome {
            device: seen.attachment_to(server).and_then(|found| found.device.clone()),
            volume: Some(seen),
            already: true,
        }),
    )
}

async fn attach_to_server(
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

/// Refuses a server that has the maximum number of volumes of CSI drivers. A missing server is an error (404).
async fn check_room(cx: &Context, volume: &VolumeId, server: &ServerId, limit: u32) -> Result<(), CloudError> {
    let found = Compute::new(&cx.transport)
        .server(server)
        .await?
        .ok_or_else(|| CloudError::no_server(server))?;
    let limit = limit as usize;
    let attached: BTreeSet<&VolumeId> = found.volumes().collect();
    if attached.contains(volume) || attached.len() < limit {
        return Ok(());
    }
    // The limit is the one of the scheduler, which does not count other volumes, for instance the boot volume.
    let counts = |listed: Volume| {
        let is_csi = attached.contains(&listed.id) && listed.metadata.contains_key(metadata_keys::CLUSTER);
        is_csi.then_some(())
    };
    let count = BlockStorage::new(&cx.transport).map_all(counts).await?.len();
    if count < limit {
        return Ok(());
    }
    Err(CloudError::TooManyAttachments {
        server: server.clone(),
        failure: Failure {
            operation: "server_get",
            object: pair(volume, server),
            status: None,
            fault: format!("it has {count} volumes of CSI drivers, the limit is {limit}"),
            request_id: None,
            elapsed: Duration::ZERO,
        },
    })
}
