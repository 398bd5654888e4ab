// SPDX-License-Identifier: Apache-2.0
//! Read-only attachments.
//!
//! Nova attaches volumes for writing only, and the node enforces the read-only mode. The mode of an attachment is
//! recorded in the volume's metadata under the server's id: first that a read-only attachment is pending, then the id
//! of that attachment.
//!
//! So a mark of an earlier attachment has no effect, and a process that was killed in between can continue. The mark is
//! removed after the detachment nevertheless, so that volumes do not collect the marks of deleted servers.

use std::collections::BTreeMap;

use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::metadata_keys::READ_ONLY_AT;
use crate::operations::attachments::{AttachOptions, AttachOutcome, attach};

/// The mark before the attachment has an id.
const PENDING: &str = "pending";
/// The mark of an attachment for writing after a read-only one was abandoned.
const NONE: &str = "";
/// The mark of attachments without an id, which an old Cinder has.
const UNNAMED: &str = "attached";

/// The mode of an attachment, according to its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Writing,
    ReadOnly,
    /// A read-only attachment was pending, and this attachment may be it.
    Undecided,
}

fn key(server: &ServerId) -> String {
    format!("{READ_ONLY_AT}{server}")
}

fn attachment_id<'a>(volume: &'a Volume, server: &ServerId) -> Option<&'a str> {
    let attachment = volume.attachment_to(server)?;
    Some(attachment.attachment_id.as_ref().map_or(UNNAMED, |id| id.as_str()))
}

fn mode(volume: &Volume, server: &ServerId, attachment: &str) -> Mode {
    match volume.metadata.get(&key(server)).map(String::as_str) {
        Some(PENDING) => Mode::Undecided,
        Some(mark) if mark == attachment => Mode::ReadOnly,
        _ => Mode::Writing,
    }
}

/// See [`crate::Cloud::attach`].
pub(crate) async fn attach_in_mode(
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
        None => attach(cx, volume, server, &options).await?,
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
    let mark = match (mode(&seen, server, attachment), options.read_only) {
        (Mode::ReadOnly, true) | (Mode::Writing, false) => return Ok(attached),
        (Mode::ReadOnly, false) => return Err(mode_conflict(volume, server, true)),
        (Mode::Writing, true) if attached.already => return Err(mode_conflict(volume, server, false)),
        (Mode::Writing | Mode::Undecided, true) => attachment,
        (Mode::Undecided, false) => NONE,
    };
    write_mark(cx, volume, server, mark).await?;
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

/// Removes the mark of an ended attachment. `seen` is the volume, if it was read already. Never fails: a remaining mark
/// has no effect, and the next call tries again.
pub(crate) async fn remove_mode_mark(cx: &Context, volume: &VolumeId, server: &ServerId, seen: Option<&Volume>) {
    let key = key(server);
    let removed = async {
        let fetched = match seen {
            Some(_) => None,
            None => BlockStorage::new(&cx.transport).volume(volume).await?,
        };
        match seen.or(fetched.as_ref()) {
            Some(seen) if seen.metadata.contains_key(&key) => {
                BlockStorage::new(&cx.transport).remove_metadata(volume, &key).await
            }
            _ => Ok(()),
        }
    };
    if let Err(error) = removed.await {
        tracing::warn!(%error, %volume, %server, "the mark of a read-only attachment that is gone is left on the volume; it means nothing");
    }
}

/// Records that a read-only attachment is pending, unless the volume is attached already.
async fn prepare_read_only(cx: &Context, volume: &VolumeId, server: &ServerId) -> Result<(), CloudError> {
    if !volume.is_uuid() {
        return Err(CloudError::no_volume(volume));
    }
    let seen = get_volume(cx, volume).await?;
    let found = attachment_id(&seen, server).map(|attachment| mode(&seen, server, attachment));
    match found {
        Some(Mode::Writing) => Err(mode_conflict(volume, server, false)),
        Some(Mode::ReadOnly | Mode::Undecided) => Ok(()),
        None => write_mark(cx, volume, server, PENDING).await,
    }
}

async fn get_volume(cx: &Context, volume: &VolumeId) -> Result<Volume, CloudError> {
    let found = BlockStorage::new(&cx.transport).volume(volume).await?;
    found.ok_or_else(|| CloudError::no_volume(volume))
}

async fn write_mark(cx: &Context, volume: &VolumeId, server: &ServerId, mark: &str) -> Result<(), CloudError> {
    let metadata = BTreeMap::from([(key(server), mark.to_owned())]);
    let written = BlockStorage::new(&cx.transport)
        .merge_metadata(volume, &metadata)
        .await?;
    if written {
        Ok(())
    } else {
        Err(CloudError::no_volume(volume))
    }
}

fn mode_conflict(volume: &VolumeId, server: &ServerId, read_only: bool) -> CloudError {
    CloudError::AttachedDifferently {
        volume: volume.clone(),
        server: server.clone(),
        read_only,
    }
}
