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

use crate::api::block_storage::{BlockStorage, Volume};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::metadata_keys::READ_ONLY_AT;

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

/// The id of the complete attachment of a volume to a server, as Cinder shows it.
pub(super) fn attachment_id<'a>(volume: &'a Volume, server: &ServerId) -> Option<&'a str> {
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

/// Records the mode of the attachment that Cinder shows. Fails with [`CloudError::AttachedDifferently`] if the volume was
/// attached in the other mode before the request.
pub(super) async fn record_mode(
    cx: &Context,
    seen: &Volume,
    server: &ServerId,
    read_only: bool,
    already: bool,
) -> Result<(), CloudError> {
    let Some(attachment) = attachment_id(seen, server) else {
        return Ok(());
    };
    let mark = match (mode(seen, server, attachment), read_only) {
        (Mode::ReadOnly, true) | (Mode::Writing, false) => return Ok(()),
        (Mode::ReadOnly, false) => return Err(mode_conflict(&seen.id, server, true)),
        (Mode::Writing, true) if already => return Err(mode_conflict(&seen.id, server, false)),
        (Mode::Writing | Mode::Undecided, true) => attachment,
        (Mode::Undecided, false) => NONE,
    };
    write_mark(cx, &seen.id, server, mark).await
}

/// Removes the mark of an ended attachment. `seen` is the volume, if it was read already. Never fails: a remaining mark
/// has no effect, and the next call tries again.
pub(super) async fn remove_mode_mark(cx: &Context, volume: &VolumeId, server: &ServerId, seen: Option<&Volume>) {
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
pub(super) async fn prepare_read_only(cx: &Context, volume: &VolumeId, server: &ServerId) -> Result<(), CloudError> {
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

pub(super) async fn get_volume(cx: &Context, volume: &VolumeId) -> Result<Volume, CloudError> {
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
