// SPDX-License-Identifier: Apache-2.0
//! Superblocks, with positions and fields according to the kernel's headers.

use csi_host::FsType;

use super::medium::Readable;

/// Block size of all file systems here.
const BLOCK: u64 = 4096;
const EXT_AT: u64 = 1024;
const BTRFS_AT: u64 = 64 << 10;

/// A file system according to its superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filesystem {
    pub(super) fs_type: FsType,
    pub(super) uuid: [u8; 16],
    /// Size in bytes.
    pub(super) size: u64,
    /// mkfs has not finished. blkid reports an unfinished xfs; an ext has no superblock until the end.
    pub(super) in_progress: bool,
}

impl Filesystem {
    /// Returns the file system on a medium. `None` without one, and for an unfinished btrfs.
    pub(super) fn detect(medium: &impl Readable) -> Option<Self> {
        Self::all(medium).into_iter().next()
    }

    /// Returns every superblock.
    pub(super) fn all(medium: &impl Readable) -> Vec<Self> {
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            medium.read_at(&mut bytes, at);
            bytes
        };
        let superblocks = [ext(&read(EXT_AT, 512)), xfs(&read(0, 512)), btrfs(&read(BTRFS_AT, 512))];
        superblocks.into_iter().flatten().collect()
    }

    /// Returns offset and bytes of the superblock.
    pub(super) fn superblock(&self) -> (u64, Vec<u8>) {
        let mut bytes = vec![0; 512];
        let mut put = |at: usize, field: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + field.len()) {
                place.copy_from_slice(field);
            }
        };
        let blocks = self.size / BLOCK;
        let at = match self.fs_type {
            FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => {
                let journal: u32 = if self.fs_type == FsType::Ext2 { 0 } else { 0x4 };
                // The feature `64bit`, and extents for ext4.
                let incompatible: u32 = if self.fs_type == FsType::Ext4 {
                    0x80 | 0x40
                } else {
                    0x80
                };
                let (low, high) = (blocks & u64::from(u32::MAX), blocks >> 32);
                put(0x04, &low.to_le_bytes()[..4]);
                put(0x150, &high.to_le_bytes()[..4]);
                put(0x18, &2_u32.to_le_bytes());
                put(0x38, &[0x53, 0xEF]);
                put(0x5C, &journal.to_le_bytes());
                put(0x60, &incompatible.to_le_bytes());
                put(0x68, &self.uuid);
                EXT_AT
            }
            FsType::Xfs => {
                put(0, b"XFSB");
                put(4, &4096_u32.to_be_bytes());
                put(8, &blocks.to_be_bytes());
                put(32, &self.uuid);
                put(126, &[u8::from(self.in_progress)]);
                0
            }
            FsType::Btrfs => {
                put(0x20, &self.uuid);
                put(0x40, if self.in_progress { b"!BHRfS_M" } else { b"_BHRfS_M" });
                put(0x70, &self.size.to_le_bytes());
                put(0x88, &1_u64.to_le_bytes());
                BTRFS_AT
            }
        };
        (at, bytes)
    }
}

fn ext(bytes: &[u8]) -> Option<Filesystem> {
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if bytes.get(0x38..0x3A)? != [0x53, 0xEF] {
        return None;
    }
    let fs_type = match (number(0x5C)? & 0x4 != 0, number(0x60)? & 0x40 != 0) {
        (_, true) => FsType::Ext4,
        (true, false) => FsType::Ext3,
        (false, false) => FsType::Ext2,
    };
    let blocks = u64::from(number(0x150)?) << 32 | u64::from(number(0x04)?);
    Some(Filesystem {
        fs_type,
        uuid: *bytes.get(0x68..)?.first_chunk()?,
        size: blocks * BLOCK,
        in_progress: false,
    })
}

fn xfs(bytes: &[u8]) -> Option<Filesystem> {
    let rest = bytes.strip_prefix(b"XFSB")?;
    Some(Filesystem {
        fs_type: FsType::Xfs,
        uuid: *bytes.get(32..)?.first_chunk()?,
        size: u64::from_be_bytes(*rest.get(4..)?.first_chunk()?) * BLOCK,
        in_progress: *bytes.get(126)? != 0,
    })
}

fn btrfs(bytes: &[u8]) -> Option<Filesystem> {
    (bytes.get(0x40..0x48)? == b"_BHRfS_M").then_some(())?;
    Some(Filesystem {
        fs_type: FsType::Btrfs,
        uuid: *bytes.get(0x20..)?.first_chunk()?,
        size: u64::from_le_bytes(*bytes.get(0x70..)?.first_chunk()?),
        in_progress: false,
    })
}
