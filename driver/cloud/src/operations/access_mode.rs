// SPDX-License-Identifier: Apache-2.0
//! Attachments that are there to be read only.
//!
//! Nova knows one way to attach, for writing; it is the node that keeps the promise. Which mode an attachment was asked for in is
//! kept in the volume's metadata, under the server's name: first that a read-only one is to come, then the id of the attachment that
//! came of it. So a mark that outlives its attachment means nothing, and a process that was killed between the two goes on. It is removed
//! after the detachment all the same, so that volumes do not gather marks of servers that are long gone.

use std::collections::BTreeMap;

use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::metadata_keys::READ_ONLY_AT;
use crate::operations::attachments::{AttachOptions, AttachOutcome, attach};

/// The mark before the attachment has an id.
const PENDING: &str = "pending";
/// The mark of an attachment for writing that came after a read-only one was given up.
const NONE: &str = "";
/// For attachments without an id, of an old Cinder.
const UNNAMED: &str = "attached";

/// What the mark says of the attachment that a volume has at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Writing,
    ReadOnly,
    /// A read-only one was to come, and this may be it.
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
    let attached = match attached_lately(cx, volume, server, options.exclusive).await? {
        Some(attached) => attached,
        None => attach(cx, volume, server, &options).await?,
    };
    let seen = match &attached.volume {
        Some(seen) => seen.clone(),
        None if options.read_only => look(cx, volume).await?,
        // Attached just now, and nobody has seen a mark; one that was left over means nothing, and goes with the detachment.
        None => return Ok(attached),
    };
    let Some(attachment) = attachment_id(&seen, server) else {
        return Ok(attached);
    };
    cx.attached
        .insert(volume.clone(), (server.clone(), attachment.to_owned()));
    let mark = match (mode(&seen, server, attachment), options.read_only) {
        (Mode::ReadOnly, true) | (Mode::Writing, false) => return Ok(attached),
        (Mode::ReadOnly, false) => return Err(differently(volume, server, true)),
        (Mode::Writing, true) if attached.already => return Err(differently(volume, server, false)),
        (Mode::Writing | Mode::Undecided, true) => attachment,
        (Mode::Undecided, false) => NONE,
    };
    write_mark(cx, volume, server, mark).await?;
    Ok(attached)
}

/// What this process attached a little while ago and Cinder still shows: one look, where Nova would refuse a second request and both
/// would have to be asked why.
async fn attached_lately(
    cx: &Context,
    volume: &VolumeId,
    server: &ServerId,
    exclusive: bool,
) -> Result<Option<AttachOutcome>, CloudError> {
    let Some((_, known)) = cx.attached.get(volume).filter(|(at, _)| at == server) else {
        return Ok(None);
    };
    let seen = look(cx, volume).await?;
    let is_still = seen.status == VolumeStatus::InUse && attachment_id(&seen, server) == Some(known.as_str());
    Ok(
        (is_still && (!exclusive || seen.attachments.len() == 1)).then(|| AttachOutcome {
            device: seen.attachment_to(server).and_then(|found| found.device.clone()),
            volume: Some(seen),
            already: true,
        }),
    )
}

/// Removes the mark of an attachment that is gone. `seen` is the volume, where somebody has looked at it anyway. Never fails: what
/// is left of it means nothing, and the next call tries again.
pub(crate) async fn forget_mode(cx: &Context, volume: &VolumeId, server: &ServerId, seen: Option<&Volume>) {
    let key = key(server);
    let removed = async {
        let looked = match seen {
            Some(_) => None,
            None => BlockStorage::new(&cx.transport).volume(volume).await?,
        };
        match seen.or(looked.as_ref()) {
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

/// Says that the attachment to come is a read-only one, unless there is one already.
async fn prepare_read_only(cx: &Context, volume: &VolumeId, server: &ServerId) -> Result<(), CloudError> {
    if !volume.is_uuid() {
        return Err(CloudError::no_volume(volume));
    }
    let seen = look(cx, volume).await?;
    let found = attachment_id(&seen, server).map(|attachment| mode(&seen, server, attachment));
    match found {
        Some(Mode::Writing) => Err(differently(volume, server, false)),
        Some(Mode::ReadOnly | Mode::Undecided) => Ok(()),
        None => write_mark(cx, volume, server, PENDING).await,
    }
}

async fn look(cx: &Context, volume: &VolumeId) -> Result<Volume, CloudError> {
    let found = BlockStorage::new(&cx.transport).volume(volume).await?;
    found.ok_or_else(|| CloudError::no_volume(volume))
}

async fn write_mark(cx: &Context, volume: &VolumeId, server: &ServerId, mark: &str) -> Result<(), CloudError> {
    let metadata_keys = BTreeMap::from([(key(server), mark.to_owned())]);
    let written = BlockStorage::new(&cx.transport)
        .merge_metadata(volume, &metadata_keys)
        .await?;
    if written {
        Ok(())
    } else {
        Err(CloudError::no_volume(volume))
    }
}

fn differently(volume: &VolumeId, server: &ServerId, read_only: bool) -> CloudError {
    CloudError::AttachedDifferently {
        volume: volume.clone(),
        server: server.clone(),
        read_only,
    }
}
