// SPDX-License-Identifier: Apache-2.0
//! What is on a device: blkid's low-level probe, and our own look at the bytes where it finds nothing.

use std::fmt;
use std::io;

use super::{FilesystemError, FsType, mark};
use crate::machine::{Disk, Open};
use crate::timing::TIMING;
use crate::tool::ToolTask;
use crate::{Device, Host};

/// blkid's exit status when it finds nothing that it knows.
const NOTHING_FOUND: i32 = 2;
/// … and when it finds things that contradict each other.
const AMBIVALENT: i32 = 8;

/// Read back at the beginning and at the end: every known superblock, label and partition table lies there.
const EDGE: u64 = 2 << 20;
/// Read back in between, evenly spread, for data without a superblock.
const SAMPLES: u64 = 62;
const SAMPLE: u64 = 16 << 10;
/// Read at once. No piece of an edge ends within a mark, which is compared as a whole.
const PIECE: usize = 192 << 10;
/// Of memory that a device reads into by itself: a page is enough for each.
const ALIGNMENT: usize = 4096;

/// mke2fs zeroes these bytes first and writes its primary superblock, at 1,024, last.
const SUPERBLOCK_END: usize = 2048;

/// `sb_inprogress` of an xfs superblock: 1 from mkfs's first write to its last.
const XFS_IN_PROGRESS: u64 = 126;

/// Where a btrfs superblock has its magic number, and the one that mkfs.btrfs puts there until its last write.
const BTRFS_MAGIC_AT: u64 = (64 << 10) + 0x40;
const BTRFS_IN_PROGRESS: &[u8; 8] = b"!BHRfS_M";

/// What a device holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing: no signature, and zero wherever it was read.
    Blank,
    /// A complete file system.
    Filesystem(FsType),
    /// An xfs or btrfs whose mkfs did not end, or that another program is still writing. The kernel does not mount it.
    Unfinished(FsType),
    /// Something that blkid knows and this driver does not mount, in words.
    Other(String),
    /// Nothing that is known, and not zero.
    Unknown {
        /// Where the first byte that is not zero was met.
        at: u64,
        /// Whether the place of ext's primary superblock is zero.
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

/// Probes a device. `open` says whether it has to be free of other users at the start.
pub(super) async fn probe(host: &Host, device: &Device, open: Open) -> Result<Content, FilesystemError> {
    // Opened first and kept: blkid looks a device up by name, and this proves which one the name means.
    let (machine, checked) = (host.inner.machine.clone(), device.clone());
    let what = format!("opening {}", device.path.display());
    let disk = host
        .inner
        .calls
        .run(what, TIMING.read_back_timeout, move || checked.open(&*machine, open))
        .await??;
    // While a device hangs, nothing ends a blkid that reads it, and each try would leave one more behind. So a thread reads
    // first, through an opening that claims nothing; while it hangs, the next try is refused at once.
    let (machine, asked) = (host.inner.machine.clone(), device.clone());
    let what = format!("a first read of {}", device.path.display());
    let first_read = move || {
        // An error is met again, and told, by those who need what is there.
        asked
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
            let in_progress = look(host, device, disk, |disk, _| {
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
        // An unreadable device makes the same status; then our own reading fails below.
        Some(NOTHING_FOUND) if ended.stderr.is_blank() => look(host, device, disk, sniff).await,
        Some(AMBIVALENT) => Ok(Content::Other(
            "signatures that contradict each other (see `wipefs` on the device)".into(),
        )),
        _ => Err(ended.failed(blkid, &device.path).into()),
    }
}

/// Reads `blkid -o export`: lines of `KEY=value`.
pub fn understand(output: &str) -> Content {
    let value = |wanted: &str| {
        output
            .lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| *key == wanted)
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

async fn look<T, F>(host: &Host, device: &Device, disk: Box<dyn Disk>, call: F) -> Result<T, FilesystemError>
where
    T: Send + 'static,
    F: FnOnce(&dyn Disk, &Device) -> io::Result<T> + Send + 'static,
{
    let looked_at = device.clone();
    let run = move || call(&*disk, &looked_at);
    let found = host
        .inner
        .calls
        .run(
            format!("reading {}", device.path.display()),
            TIMING.read_back_timeout,
            run,
        )
        .await?;
    found.map_err(|source| FilesystemError::Io {
        what: "read",
        device: device.path.clone(),
        volume_id: device.volume_id.clone(),
        source,
    })
}

/// Looks for anything that is not zero.
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
    let own_marks = mark::places(device);
    // Past the kernel's cache, which has no use for these pages.
    let mut direct = disk.set_direct(true).is_ok();
    let mut buffer = vec![0; PIECE + ALIGNMENT];
    let aligned = buffer.as_ptr().align_offset(ALIGNMENT);
    for (offset, length) in pieces(device.size_bytes) {
        let bytes = buffer.get_mut(aligned..).and_then(|bytes| bytes.get_mut(..length));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let read = disk.read_exact_at(bytes, offset);
        match read {
            // A device that wants larger blocks, for one.
            Err(_) if direct => {
                direct = false;
                disk.set_direct(false)?;
                disk.read_exact_at(bytes, offset)?;
            }
            read => read?,
        }
        // The mark of this volume's own unfinished format is not content.
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
    // Sixteen at a time: nearly all of what is read is zero.
    let zeros = bytes
        .chunks_exact(16)
        .take_while(|chunk| <[u8; 16]>::try_from(*chunk).is_ok_and(|chunk| u128::from_ne_bytes(chunk) == 0))
        .count()
        * 16;
    let rest = bytes.get(zeros..)?;
    rest.iter().position(|byte| *byte != 0).map(|index| zeros + index)
}

/// Which parts of a device of `size` bytes are read: offset and length.
fn regions(size: u64) -> Vec<(u64, u64)> {
    if size <= 2 * EDGE + SAMPLES * SAMPLE {
        return vec![(0, size)];
    }
    let step = (size - 2 * EDGE) / (SAMPLES + 1);
    let samples = (1..=SAMPLES).map(|index| ((EDGE + index * step) / SAMPLE * SAMPLE, SAMPLE));
    let edges = [(0, EDGE), (size - EDGE, EDGE)];
    edges.into_iter().chain(samples).collect()
}

/// The regions, cut into what is read at once.
fn pieces(size: u64) -> impl Iterator<Item = (u64, usize)> {
    regions(size).into_iter().flat_map(|(offset, length)| {
        (0..length.div_ceil(PIECE as u64)).map(move |number| {
            let from = number * PIECE as u64;
            let left = usize::try_from(length - from).unwrap_or(PIECE);
            (offset + from, left.min(PIECE))
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
    fn a_file_system_that_is_mounted_is_recognised(#[case] output: &str, #[case] content: Content) {
        assert_eq!(understand(output), content);
    }

    #[rstest]
    #[case("TYPE=f2fs\nUSAGE=filesystem\n", "f2fs")]
    #[case("TYPE=crypto_LUKS\nUSAGE=crypto\n", "crypto_LUKS")]
    #[case("TYPE=linux_raid_member\nUSAGE=raid\n", "linux_raid_member")]
    #[case("PTUUID=1\nPTTYPE=gpt\n", "gpt")]
    #[case("TYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\n", "dos")]
    #[case("LABEL=x\n", "does not name")]
    fn everything_else_that_blkid_knows_is_foreign_and_named(#[case] output: &str, #[case] named: &str) {
        let content = understand(output);
        assert!(
            matches!(&content, Content::Other(what) if what.contains(named)),
            "{content:?}"
        );
    }

    proptest! {
        #[test]
        fn what_is_read_lies_on_the_device_and_takes_in_both_ends(size in 1_u64..1 << 46) {
            let regions = regions(size);
            prop_assert!(regions.iter().all(|(offset, length)| *length > 0 && offset + length <= size));
            prop_assert!(regions.iter().any(|(offset, _)| *offset == 0));
            prop_assert!(regions.iter().any(|(offset, length)| offset + length == size));
            prop_assert!(regions.iter().map(|(_, length)| length).sum::<u64>() <= 2 * EDGE + SAMPLES * SAMPLE);
        }

        #[test]
        fn pieces_are_the_regions_and_cut_no_mark_in_two(size in 1_u64..1 << 46) {
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
            for (at, mark) in mark::places(&device) {
                let (at, end) = (at, at + mark.len() as u64);
                let is_in = |(from, length): (u64, u64)| from <= at && end <= from + length;
                if regions(size).into_iter().any(is_in) {
                    prop_assert!(super::pieces(size).any(|(from, length)| is_in((from, length as u64))), "{at}");
                }
            }
        }

        #[test]
        fn the_first_byte_that_is_not_zero_is_found_wherever_it_is(length in 0_usize..100, at in 0_usize..100, byte in 1_u8..) {
            let mut bytes = vec![0; length];
            prop_assert_eq!(first_not_zero(&bytes), None);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
                prop_assert_eq!(first_not_zero(&bytes), Some(at));
            }
        }
    }
}
