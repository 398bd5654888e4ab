// SPDX-License-Identifier: Apache-2.0
//! The mark of a format that has started and not finished. The parent module gives the reasons.
//!
//! The mark is one block of 4 KiB. Its offset is 256 KiB before the end of the device (4 MiB for btrfs), rounded down
//! to a block. The content depends on the volume id and the size alone, so that a check compares the whole block.

use std::io;

use super::{FilesystemError, FsType};
use crate::machine::{Disk, Open};
use crate::timing::TIMING;
use crate::{Device, Host};

const BLOCK: usize = 4096;
/// Distance from the end of the device. mke2fs and mkfs.xfs wipe the last 128 KiB.
const FROM_END: u64 = 256 << 10;
/// Distance for btrfs. mkfs.btrfs wipes the last 2 MiB.
const FROM_END_BTRFS: u64 = 4 << 20;
/// Smallest device with a mark. On smaller ones, blocks of a file system might reach the mark. The smallest volume of
/// Cinder has 1 GiB.
const SMALLEST: u64 = 16 << 20;

/// Returns the offset of the mark; `None` if the device is too small for one.
fn offset(device: &Device, from_end: u64) -> Option<u64> {
    (device.size_bytes >= SMALLEST).then(|| (device.size_bytes - from_end) / BLOCK as u64 * BLOCK as u64)
}

fn offsets(device: &Device) -> Vec<u64> {
    let places = [FROM_END, FROM_END_BTRFS].into_iter();
    places.filter_map(|from_end| offset(device, from_end)).collect()
}

/// Returns the content of the mark: a readable text, repeated to the end of the block.
fn content(device: &Device) -> Vec<u8> {
    let text = format!(
        "cinder-csi: volume {} of {} bytes is being formatted and holds no data yet\n",
        device.volume_id, device.size_bytes
    );
    text.bytes().cycle().take(BLOCK).collect()
}

/// Returns the possible offsets of a mark with its content.
pub(super) fn possible_marks(device: &Device) -> Vec<(u64, Vec<u8>)> {
    offsets(device)
        .into_iter()
        .map(|offset| (offset, content(device)))
        .collect()
}

/// Whether the device has the mark of this volume.
pub(super) async fn is_set(host: &Host, device: &Device) -> Result<bool, FilesystemError> {
    let offsets = offsets(device);
    access(host, device, Open::Read, "read the end of", move |disk, expected| {
        for offset in offsets {
            if has_mark_at(disk, offset, expected)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .await
}

fn has_mark_at(disk: &dyn Disk, offset: u64, expected: &[u8]) -> io::Result<bool> {
    let mut content = vec![0; BLOCK];
    disk.read_exact_at(&mut content, offset)?;
    Ok(content == expected)
}

/// Writes the mark and flushes it. The caller has proven that the device has no data.
pub(super) async fn set(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    let from_end = if fs_type == FsType::Btrfs {
        FROM_END_BTRFS
    } else {
        FROM_END
    };
    let Some(offset) = offset(device, from_end) else {
        return Ok(());
    };
    access(
        host,
        device,
        Open::WriteAlone,
        "write the mark of a beginning format on",
        move |disk, mark| {
            disk.write_all_at(mark, offset)?;
            disk.sync()
        },
    )
    .await
}

/// Overwrites the mark with zeros and flushes the device. Does not change other content at that offset, such as a block
/// of the new file system.
pub(super) async fn clear(host: &Host, device: &Device) -> Result<(), FilesystemError> {
    let offsets = offsets(device);
    access(
        host,
        device,
        Open::WriteAlone,
        "clear the mark of a finished format on",
        move |disk, mark| {
            for offset in offsets {
                if has_mark_at(disk, offset, mark)? {
                    disk.write_all_at(&vec![0; BLOCK], offset)?;
                }
            }
            // Also flushes the writes of mkfs: the file system must be durable before it is used.
            disk.sync()
        },
    )
    .await
}

async fn access<T, F>(
    host: &Host,
    device: &Device,
    open: Open,
    what: &'static str,
    call: F,
) -> Result<T, FilesystemError>
where
    T: Send + 'static,
    F: FnOnce(&dyn Disk, &[u8]) -> io::Result<T> + Send + 'static,
{
    let (machine, opened) = (host.inner.machine.clone(), device.clone());
    let run = move || {
        let disk = opened.open(&*machine, open)?;
        let (path, volume_id) = (opened.path.clone(), opened.volume_id.clone());
        call(&*disk, &content(&opened)).map_err(|source| FilesystemError::Io {
            what,
            device: path,
            volume_id,
            source,
        })
    };
    host.inner
        .calls
        .run(
            format!("an attempt to {what} {}", device.path.display()),
            TIMING.mark_timeout,
            run,
        )
        .await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_compatible_with_other_versions() {
        let device = Device {
            path: "/dev/vdb".into(),
            name: "vdb".into(),
            size_bytes: (1 << 30) + 1000,
            number: (253, 16),
            read_only: false,
            volume_id: "5a0b3c4e-7d21-4f6a-9b1c-2e8d4f6a7b90".into(),
        };
        let places = possible_marks(&device);
        let offsets: Vec<u64> = places.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [(1 << 30) - (256 << 10), (1 << 30) - (4 << 20)]);
        let line = "cinder-csi: volume 5a0b3c4e-7d21-4f6a-9b1c-2e8d4f6a7b90 of 1073742824 bytes is being formatted and holds no data yet\n";
        for (_, content) in places {
            assert_eq!(content.len(), 4096);
            assert!(
                content
                    .chunks(line.len())
                    .all(|chunk| line.as_bytes().starts_with(chunk))
            );
        }
    }
}
