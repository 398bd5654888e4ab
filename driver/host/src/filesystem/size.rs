// SPDX-License-Identifier: Apache-2.0
//! Reads the size of a file system from its superblock.

use super::FsType;

/// Bytes at the beginning of a device that contain every supported superblock. A multiple of every sector size.
pub(crate) const HEAD: usize = 128 << 10;

/// Returns the size in bytes of the file system whose first [`HEAD`] bytes are `head`; `None` for other content.
///
/// The fields are defined in the headers of the kernel (`ext4_super_block`, `xfs_dsb`, `btrfs_super_block`).
pub fn from_superblock(fs_type: FsType, head: &[u8]) -> Option<u64> {
    match fs_type {
        FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => ext_size(head.get(1024..2048)?),
        FsType::Xfs => xfs_size(head),
        FsType::Btrfs => btrfs_size(head.get(64 << 10..)?),
    }
}

fn ext_size(superblock: &[u8]) -> Option<u64> {
    const IS_64_BIT: u32 = 0x80;
    if superblock.get(0x38..0x3A)? != [0x53, 0xEF] {
        return None;
    }
    let low = u64::from(read_u32_le(superblock, 0x04)?);
    let high = if read_u32_le(superblock, 0x60)? & IS_64_BIT == 0 {
        0
    } else {
        u64::from(read_u32_le(superblock, 0x150)?)
    };
    let block = 1024_u64.checked_shl(read_u32_le(superblock, 0x18)?)?;
    (high << 32 | low).checked_mul(block)
}

fn xfs_size(superblock: &[u8]) -> Option<u64> {
    if superblock.get(..4)? != b"XFSB" {
        return None;
    }
    let block = u32::from_be_bytes(superblock.get(4..8)?.try_into().ok()?);
    let blocks = u64::from_be_bytes(superblock.get(8..16)?.try_into().ok()?);
    blocks.checked_mul(u64::from(block))
}

fn btrfs_size(superblock: &[u8]) -> Option<u64> {
    if superblock.get(0x40..0x48)? != b"_BHRfS_M" {
        return None;
    }
    Some(u64::from_le_bytes(superblock.get(0x70..0x78)?.try_into().ok()?))
}

/// Identity of a btrfs and its number of devices.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BtrfsSuperblock {
    /// UUID of the file system, as sysfs names it.
    pub(crate) id: String,
    pub(crate) devices: u64,
}

/// Reads the superblock of a btrfs from its first [`HEAD`] bytes; `None` for other content.
pub(crate) fn btrfs_superblock(head: &[u8]) -> Option<BtrfsSuperblock> {
    let superblock = head.get(64 << 10..)?;
    btrfs_size(superblock)?;
    let devices = u64::from_le_bytes(superblock.get(0x88..0x90)?.try_into().ok()?);
    let id = u128::from_be_bytes(superblock.get(0x20..0x30)?.try_into().ok()?);
    let digits = format!("{id:032x}");
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range).unwrap_or_default());
    let id = groups.join("-");
    Some(BtrfsSuperblock { id, devices })
}

fn read_u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_identity_of_btrfs() {
        let mut head = vec![0; HEAD];
        assert_eq!(btrfs_superblock(&head), None);
        let at = 64 << 10;
        head[at + 0x40..at + 0x48].copy_from_slice(b"_BHRfS_M");
        head[at + 0x20..at + 0x24].copy_from_slice(&[0x0a, 0xbc, 0xde, 0xf0]);
        head[at + 0x2f] = 1;
        head[at + 0x88] = 2;
        let id = "0abcdef0-0000-0000-0000-000000000001".to_owned();
        assert_eq!(btrfs_superblock(&head), Some(BtrfsSuperblock { id, devices: 2 }));
        assert_eq!(btrfs_superblock(&head[..1000]), None);
    }

    proptest! {
        #[test]
        fn parsers_survive_any_bytes(head in proptest::collection::vec(any::<u8>(), 0..2048), shift in any::<u32>()) {
            let mut ext = vec![0; 2048];
            ext[1024 + 0x38..1024 + 0x3A].copy_from_slice(&[0x53, 0xEF]);
            ext[1024 + 0x18..1024 + 0x1C].copy_from_slice(&shift.to_le_bytes());
            ext.splice(..head.len().min(1024), head.iter().take(1024).copied());
            for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
                let _ = from_superblock(fs_type, &head);
                let _ = from_superblock(fs_type, &ext);
            }
        }
    }
}
