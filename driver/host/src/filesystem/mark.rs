// SPDX-License-Identifier: Apache-2.0
//! The mark of a format that has begun and not ended (see the module above for why).
//!
//! One block of 4 KiB, 256 KiB before the end of the device, or 4 MiB before it for btrfs (rounded down to a block), made of
//! the volume's id and size alone, so that to recognise it is to compare all of it.

use std::io;

use super::{FilesystemError, FsType};
use crate::machine::{Disk, Open};
use crate::timing::TIMING;
use crate::{Device, Host};

const BLOCK: usize = 4096;
/// From the end of the device: more than mke2fs (128 KiB) and mkfs.xfs (128 KiB) wipe there.
const FROM_END: u64 = 256 << 10;
/// The same for mkfs.btrfs, which wipes 2 MiB there.
const FROM_END_BTRFS: u64 = 4 << 20;
/// Below this a device has no room for a mark that surely no file system's own blocks reach. Cinder's smallest is 1 GiB.
const SMALLEST: u64 = 16 << 20;

/// Where the mark is, or nothing on a device too small for one.
fn offset(device: &Device, from_end: u64) -> Option<u64> {
    (device.size_bytes >= SMALLEST).then(|| (device.size_bytes - from_end) / BLOCK as u64 * BLOCK as u64)
}

fn offsets(device: &Device) -> Vec<u64> {
    let places = [FROM_END, FROM_END_BTRFS].into_iter();
    places.filter_map(|from_end| offset(device, from_end)).collect()
}

/// The mark: a text that people can read, repeated to the end of the block.
fn content(device: &Device) -> Vec<u8> {
    let text = format!(
        "cinder-csi: volume {} of {} bytes is being formatted and holds no data yet\n",
        device.volume_id, device.size_bytes
    );
    text.bytes().cycle().take(BLOCK).collect()
}

/// Where a mark may be and what it looks like.
pub(super) fn places(device: &Device) -> Vec<(u64, Vec<u8>)> {
    offsets(device)
        .into_iter()
        .map(|offset| (offset, content(device)))
        .collect()
}

/// Whether the mark of this volume is on it.
pub(super) async fn is_set(host: &Host, device: &Device) -> Result<bool, FilesystemError> {
    let offsets = offsets(device);
    on(host, device, Open::Read, "read the end of", move |disk, expected| {
        for offset in offsets {
            if is_at(disk, offset, expected)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .await
}

fn is_at(disk: &dyn Disk, offset: u64, expected: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; BLOCK];
    disk.read_exact_at(&mut found, offset)?;
    Ok(found == expected)
}

/// Writes the mark and makes it durable. The caller has proven that the device holds no data.
pub(super) async fn set(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    let from_end = if fs_type == FsType::Btrfs {
        FROM_END_BTRFS
    } else {
        FROM_END
    };
    let Some(offset) = offset(device, from_end) else {
        return Ok(());
    };
    on(
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

/// Overwrites the mark with zeros and makes that durable. Where something else is, such as a block of the new file system,
/// it stays.
pub(super) async fn clear(host: &Host, device: &Device) -> Result<(), FilesystemError> {
    let offsets = offsets(device);
    on(
        host,
        device,
        Open::WriteAlone,
        "clear the mark of a finished format on",
        move |disk, mark| {
            for offset in offsets {
                if is_at(disk, offset, mark)? {
                    disk.write_all_at(&vec![0; BLOCK], offset)?;
                }
            }
            // Also what mkfs wrote: the file system is durable before anybody relies on it.
            disk.sync()
        },
    )
    .await
}

async fn on<T, F>(host: &Host, device: &Device, open: Open, what: &'static str, call: F) -> Result<T, FilesystemError>
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
    fn the_mark_is_where_and_what_other_versions_write() {
        let device = Device {
            path: "/dev/vdb".into(),
            name: "vdb".into(),
            size_bytes: (1 << 30) + 1000,
            number: (253, 16),
            read_only: false,
            volume_id: "5a0b3c4e-7d21-4f6a-9b1c-2e8d4f6a7b90".into(),
        };
        let places = places(&device);
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
