// SPDX-License-Identifier: Apache-2.0
//! The probe before a format. Checks that a device counts as blank only if it is zero, and as a file system only if blkid reports no
//! other signature.

use std::io;

use csi_host::filesystem::{Content, size_of, sniff, understand};
use csi_host::machine::Disk;
use csi_host::{Device, FsType};

use crate::{Target, texts};

const ALL: [FsType; 5] = [FsType::Ext2, FsType::Ext3, FsType::Ext4, FsType::Xfs, FsType::Btrfs];
/// An input has two parts of a device: the start, and the position of the btrfs superblock. The rest is zero.
const FIRST: usize = 2048;
const SECOND_AT: usize = 64 << 10;
const SIZE: usize = SECOND_AT + FIRST;

pub(crate) const BLKID: Target = Target {
    name: "blkid",
    seeds: || {
        texts(&[
            "DEVNAME=/dev/vdb\nLABEL=a\\ b\nUUID=11111111-2222-4333-8444-555555555555\nBLOCK_SIZE=4096\nTYPE=ext4\nUSAGE=filesystem\n",
            "TYPE=crypto_LUKS\nUSAGE=crypto\n",
            "PTUUID=1\nPTTYPE=gpt\n",
            "TYPE=xfs\nUSAGE=filesystem\nPTTYPE=dos\n",
        ])
    },
    words: &[
        "\n",
        "=",
        "TYPE=",
        "USAGE=",
        "PTTYPE=",
        "LABEL=",
        "ext4",
        "xfs",
        "btrfs",
        "filesystem",
        "raid",
        "\r",
        "\\",
        "\u{0}",
        "\u{85}",
    ],
    eat: eat_blkid,
};

pub(crate) const DISK: Target = Target {
    name: "disk",
    seeds: || {
        let mut ext = vec![0; FIRST];
        ext[1024 + 0x04] = 1;
        ext[1024 + 0x18] = 2;
        ext[1024 + 0x38..1024 + 0x3A].copy_from_slice(&[0x53, 0xEF]);
        ext[1024 + 0x60] = 0x80;
        let xfs = b"XFSB\x00\x00\x10\x00\x00\x00\x00\x00\x00\x04\x00\x00".to_vec();
        let btrfs = |magic: &[u8; 8]| {
            let mut disk = vec![0; FIRST + 0x80];
            disk[FIRST + 0x40..FIRST + 0x48].copy_from_slice(magic);
            disk[FIRST + 0x73] = 0x40;
            disk
        };
        vec![
            Vec::new(),
            ext,
            xfs,
            btrfs(b"_BHRfS_M"),
            btrfs(b"!BHRfS_M"),
            vec![0; FIRST],
        ]
    },
    words: &[
        "XFSB",
        "_BHRfS_M",
        "!BHRfS_M",
        "\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}",
        "S",
        "\x7f\x7f\x7f\x7f",
    ],
    eat: eat_disk,
};

fn eat_blkid(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let contains = |line: &str| text.lines().any(|found| found == line);
    match understand(text) {
        Content::Filesystem(fs_type) => {
            assert!(
                contains("USAGE=filesystem") && contains(&format!("TYPE={fs_type}")),
                "a {fs_type}"
            );
            assert!(
                !text.lines().any(|line| line.starts_with("PTTYPE=")),
                "a partition table is there, too"
            );
        }
        Content::Other(what) => assert!(!what.is_empty()),
        content => panic!("blkid names something, and it counts as {content:?}"),
    }
}

fn eat_disk(bytes: &[u8]) {
    let mut content = vec![0; SIZE];
    let (first, second) = bytes.split_at(bytes.len().min(FIRST));
    let second = &second[..second.len().min(FIRST)];
    content[..first.len()].copy_from_slice(first);
    content[SECOND_AT..SECOND_AT + second.len()].copy_from_slice(second);
    for fs_type in ALL {
        if size_of(fs_type, &content).is_some() {
            assert!(content.iter().any(|byte| *byte != 0), "zeros are a {fs_type}");
        }
    }
    let device = Device {
        path: "/dev/vdb".into(),
        name: "vdb".to_owned(),
        size_bytes: SIZE as u64,
        number: (253, 0),
        read_only: false,
        volume_id: "11111111-2222-4333-8444-555555555555".to_owned(),
    };
    match sniff(&MemoryDisk(content.clone()), &device) {
        Ok(Content::Blank) => assert!(
            content.iter().all(|byte| *byte == 0),
            "a device with content counts as blank"
        ),
        Ok(Content::Unknown { at, .. }) => {
            let byte = usize::try_from(at).ok().and_then(|at| content.get(at));
            assert!(byte.is_some_and(|byte| *byte != 0), "nothing is at {at}");
        }
        Ok(Content::Unfinished(fs_type)) => assert_eq!(fs_type, FsType::Btrfs),
        Ok(other) => panic!("a read finds {other:?}"),
        Err(error) => panic!("a device in memory cannot be read: {error}"),
    }
}

/// A device in memory.
#[derive(Debug)]
struct MemoryDisk(Vec<u8>);

impl Disk for MemoryDisk {
    fn number(&self) -> io::Result<(u32, u32)> {
        Ok((253, 0))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = self.0.get(from..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        panic!("a probe writes")
    }

    fn sync(&self) -> io::Result<()> {
        panic!("a probe writes")
    }

    fn set_direct(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}
