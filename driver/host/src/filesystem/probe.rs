// SPDX-License-Identifier: Apache-2.0
//! Determines the content of a device with blkid's low-level probe, and by reading samples if blkid finds nothing.

use std::fmt;
use std::io;

use super::{FilesystemError, FsType, mark};
use crate::machine::{Disk, Open};
use crate::timing::TIMING;
use crate::tool::ToolTask;
use crate::{Device, Host};

/// Exit status of blkid if it recognizes no content.
const NOTHING_FOUND: i32 = 2;
/// Exit status of blkid if signatures contradict each other.
const AMBIVALENT: i32 = 8;

/// Bytes that are read at the beginning and at the end. They contain every known superblock, label and partition table.
const EDGE: u64 = 2 << 20;
/// Number of samples in between, evenly distributed, to detect data without a superblock.
const SAMPLES: u64 = 62;
const SAMPLE: u64 = 16 << 10;
/// Bytes of one read. No piece of an edge ends within a mark, which is compared as a whole.
const PIECE: usize = 192 << 10;
/// Alignment of memory for direct reads. A page is sufficient for every device.
const ALIGNMENT: usize = 4096;

/// mke2fs zeroes these bytes first, and writes its primary superblock at 1,024 last.
const SUPERBLOCK_END: usize = 2048;

/// Offset of `sb_inprogress` in an xfs superblock. It is 1 from the first to the last write of mkfs.
const XFS_IN_PROGRESS: u64 = 126;

/// Offset of the magic number in a btrfs superblock, and the number that mkfs.btrfs uses until its last write.
const BTRFS_MAGIC_AT: u64 = (64 << 10) + 0x40;
const BTRFS_IN_PROGRESS: &[u8; 8] = b"!BHRfS_M";

/// Content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// No signature, and every byte that was read is zero.
    Blank,
    /// A complete file system.
    Filesystem(FsType),
    /// An xfs or btrfs whose mkfs did not end, or that another program is still writing. The kernel refuses to mount
    /// it.
    Unfinished(FsType),
    /// Description of content that blkid recognizes and this driver does not mount.
    Other(String),
    /// Bytes other than zero without a known signature.
    Unknown {
        /// Offset of the first byte that is not zero.
        at: u64,
        /// Whether the area of ext's primary superblock is zero.
        superblock_is_zero: bool,
    },
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("nothing"),
            Self::Filesystem(fs_type) => write!(f, "{fs_type}"),
            Self::Unfinished(fs_type) => write!(f, "a {fs_type} whose making did not end"),
            Self::Other(what) => f.write_str(what),
            Self::Unknown { at, .. } => write!(f, "bytes of unknown meaning (the first that was met at offset {at})"),
        }
    }
}

/// Probes a device. `open` determines whether other users are excluded at the start.
pub(super) async fn probe(host: &Host, device: &Device, open: Open) -> Result<Content, FilesystemError> {
    // Opens the device before blkid runs. blkid resolves the device by name, and the open file proves the meaning of
    // the name.
    let (machine, checked) = (host.inner.machine.clone(), device.clone());
    let what = format!("opening {}", device.path.display());
    let disk = host
        .inner
        .calls
        .run(what, TIMING.read_back_timeout, move || checked.open(&*machine, open))
        .await??;
    // A blkid that reads a hung device cannot be killed, and each retry would add one. A thread therefore reads first,
    // through a shared open. While that read hangs, further ones fail at once.
    let (machine, opened) = (host.inner.machine.clone(), device.clone());
    let what = format!("a first read of {}", device.path.display());
    let first_read = move || {
        // Ignores an error of the read, because the reads that need the content report it.
        opened
            .open(&*machine, Open::Read)
            .map(|disk| drop(disk.read_at(&mut [0; 512], 0)))
    };
    host.inner
        .calls
        .run(what, TIMING.read_back_timeout, first_read)
        .await??;
    let blkid = &host.inner.tools.blkid;
    let args = ["-p", "-u", "filesystem,raid,crypto", "-o", "export"];
    let ended = host
        .machine()
        .run(blkid, &args, &device.path, TIMING.blkid_timeout, ToolTask::Probe)
        .await?;
    match ended.code {
        Some(0) => {
            let content = understand(&ended.parsable(blkid, &device.path)?);
            if content != Content::Filesystem(FsType::Xfs) {
                return Ok(content);
            }
            let in_progress = read_disk(host, device, disk, |disk, _| {
                let mut flag = [0];
                disk.read_exact_at(&mut flag, XFS_IN_PROGRESS)?;
                Ok(flag != [0])
            });
            Ok(if in_progress.await? {
                Content::Unfinished(FsType::Xfs)
            } else {
                content
            })
        }
        // An unreadable device yields the same status. The reads of the samples then fail.
        Some(NOTHING_FOUND) if ended.stderr.is_blank() => read_disk(host, device, disk, sniff).await,
        Some(AMBIVALENT) => Ok(Content::Other(
            "signatures that contradict each other (see `wipefs` on the device)".into(),
        )),
        _ => Err(ended.failed(blkid, &device.path).into()),
    }
}

/// Parses the output of `blkid -o export`: lines of `KEY=value`.
pub fn understand(output: &str) -> Content {
    let value = |key: &str| {
        output
            .lines()
            .filter_map(|line| line.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    };
    match (value("USAGE"), value("TYPE"), value("PTTYPE")) {
        (Some("filesystem"), Some(name), None) => match FsType::from_name(name) {
            Some(fs_type) => Content::Filesystem(fs_type),
            None => Content::Other(format!("a {name} file system, which this driver does not mount")),
        },
        (_, Some(name), Some(table)) => Content::Other(format!("{name} and a {table} partition table")),
        (_, None, Some(table)) => Content::Other(format!("a {table} partition table")),
        (usage, Some(name), None) => Content::Other(format!("{name} ({})", usage.unwrap_or("of unknown usage"))),
        (_, None, None) => Content::Other("something that blkid knows and does not name".into()),
    }
}

async fn read_disk<T, F>(host: &Host, device: &Device, disk: Box<dyn Disk>, call: F) -> Result<T, FilesystemError>
where
    T: Send + 'static,
    F: FnOnce(&dyn Disk, &Device) -> io::Result<T> + Send + 'static,
{
    let looked_at = device.clone();
    let run = move || call(&*disk, &looked_at);
    let result = host
        .inner
        .calls
        .run(
            format!("reading {}", device.path.display()),
            TIMING.read_back_timeout,
            run,
        )
        .await?;
    result.map_err(|source| FilesystemError::Io {
        what: "read",
        device: device.path.clone(),
        volume_id: device.volume_id.clone(),
        source,
    })
}

/// Searches the samples for a byte that is not zero.
pub fn sniff(disk: &dyn Disk, device: &Device) -> io::Result<Content> {
    let mut start = vec![0; SUPERBLOCK_END.min(usize::try_from(device.size_bytes).unwrap_or(SUPERBLOCK_END))];
    disk.read_exact_at(&mut start, 0)?;
    let superblock_is_zero = first_not_zero(&start).is_none();
    if device.size_bytes > BTRFS_MAGIC_AT + 8 {
        let mut magic = [0; 8];
        disk.read_exact_at(&mut magic, BTRFS_MAGIC_AT)?;
        if magic == *BTRFS_IN_PROGRESS {
            return Ok(Content::Unfinished(FsType::Btrfs));
        }
    }
    let own_marks = mark::possible_marks(device);
    // Bypasses the page cache, because these pages are not used again.
    let mut direct = disk.set_direct(true).is_ok();
    let mut buffer = vec![0; PIECE + ALIGNMENT];
    let aligned = buffer.as_ptr().align_offset(ALIGNMENT);
    for (offset, length) in pieces(device.size_bytes) {
        let bytes = buffer.get_mut(aligned..).and_then(|bytes| bytes.get_mut(..length));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let read = disk.read_exact_at(bytes, offset);
        match read {
            // For example, the device requires larger blocks.
            Err(_) if direct => {
                direct = false;
                disk.set_direct(false)?;
                disk.read_exact_at(bytes, offset)?;
            }
            read => read?,
        }
        // The mark of this volume's interrupted format does not count as content.
        for (at, mark) in &own_marks {
            if let Some(from) = at.checked_sub(offset).and_then(|from| usize::try_from(from).ok())
                && let Some(part) = bytes.get_mut(from..from + mark.len())
                && part == mark
            {
                part.fill(0);
            }
        }
        if let Some(index) = first_not_zero(bytes) {
            return Ok(Content::Unknown {
                at: offset + index as u64,
                superblock_is_zero,
            });
        }
    }
    Ok(Content::Blank)
}

fn first_not_zero(bytes: &[u8]) -> Option<usize> {
    // Compares 16 bytes at once, because nearly all bytes are zero.
    let zeros = bytes
        .chunks_exact(16)
        .take_while(|chunk| <[u8; 16]>::try_from(*chunk).is_ok_and(|chunk| u128::from_ne_bytes(chunk) == 0))
        .count()
        * 16;
    let rest = bytes.get(zeros..)?;
    rest.iter().position(|byte| *byte != 0).map(|index| zeros + index)
}

/// Returns the parts of a device of `size` bytes to read, as offset and length.
fn regions(size: u64) -> Vec<(u64, u64)> {
    if size <= 2 * EDGE + SAMPLES * SAMPLE {
        return vec![(0, size)];
    }
    let step = (size - 2 * EDGE) / (SAMPLES + 1);
    let samples = (1..=SAMPLES).map(|index| ((EDGE + index * step) / SAMPLE * SAMPLE, SAMPLE));
    let edges = [(0, EDGE), (size - EDGE, EDGE)];
    edges.into_iter().chain(samples).collect()
}

/// Splits the regions into single reads.
fn pieces(size: u64) -> impl Iterator<Item = (u64, usize)> {
    regions(size).into_iter().flat_map(|(offset, length)| {
        (0..length.div_ceil(PIECE as u64)).map(move |number| {
            let from = number * PIECE as u64;
            let remaining = usize::try_from(length - from).unwrap_or(PIECE);
            (offset + from, remaining.min(PIECE))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("TYPE=ext4\nUSAGE=filesystem\n", Content::Filesystem(FsType::Ext4))]
    #[case("UUID=x\nTYPE=xfs\nUSAGE=filesystem\n", Content::Filesystem(FsType::Xfs))]
    #[case("UUID=x\nTYPE=btrfs\nUSAGE=filesystem\n", Content::Filesystem(FsType::Btrfs))]
    fn recognizes_supported_file_system(#[case] output: &str, #[case] content: Content) {
        assert_eq!(understand(output), content);
    }

    #[rstest]
    #[case("TYPE=f2fs\nUSAGE=filesystem\n", "f2fs")]
    #[case("TYPE=crypto_LUKS\nUSAGE=crypto\n", "crypto_LUKS")]
    #[case("TYPE=linux_raid_member\nUSAGE=raid\n", "linux_raid_member")]
    #[case("PTUUID=1\nPTTYPE=gpt\n", "gpt")]
    #[case("TYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\n", "dos")]
    #[case("LABEL=x\n", "does not name")]
    fn classifies_other_content_as_foreign(#[case] output: &str, #[case] named: &str) {
        let content = understand(output);
        assert!(
            matches!(&content, Content::Other(what) if what.contains(named)),
            "{content:?}"
        );
    }

    proptest! {
        #[test]
        fn regions_include_both_ends_of_device(size in 1_u64..1 << 46) {
            let regions = regions(size);
            prop_assert!(regions.iter().all(|(offset, length)| *length > 0 && offset + length <= size));
            prop_assert!(regions.iter().any(|(offset, _)| *offset == 0));
            prop_assert!(regions.iter().any(|(offset, length)| offset + length == size));
            prop_assert!(regions.iter().map(|(_, length)| length).sum::<u64>() <= 2 * EDGE + SAMPLES * SAMPLE);
        }

        #[test]
        fn pieces_cover_regions_and_whole_marks(size in 1_u64..1 << 46) {
            let mut pieces = pieces(size);
            for (offset, length) in regions(size) {
                let mut at = offset;
                while at < offset + length {
                    let (from, read) = pieces.next().expect("a piece");
                    prop_assert_eq!(from, at);
                    prop_assert!((1..=PIECE).contains(&read));
                    at += read as u64;
                }
                prop_assert_eq!(at, offset + length);
            }
            prop_assert!(pieces.next().is_none());
            drop(pieces);
            let device = Device {
                path: "/dev/x".into(),
                name: "x".into(),
                size_bytes: size,
                number: (0, 0),
                read_only: false,
                volume_id: "v".into(),
            };
            for (at, mark) in mark::possible_marks(&device) {
                let (at, end) = (at, at + mark.len() as u64);
                let is_in = |(from, length): (u64, u64)| from <= at && end <= from + length;
                if regions(size).into_iter().any(is_in) {
                    prop_assert!(super::pieces(size).any(|(from, length)| is_in((from, length as u64))), "{at}");
                }
            }
        }

        #[test]
        fn finds_first_nonzero_byte(length in 0_usize..100, at in 0_usize..100, byte in 1_u8..) {
            let mut bytes = vec![0; length];
            prop_assert_eq!(first_not_zero(&bytes), None);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
                prop_assert_eq!(first_not_zero(&bytes), Some(at));
            }
        }
    }
}
