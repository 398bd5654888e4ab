// SPDX-License-Identifier: Apache-2.0
//! Attachment of volumes to a node: names, numbers and serials of disks, as recorded in `driver/host/tests/machines`.

use super::state::Disk;

/// Maximum length of a virtio or NVMe serial.
const SERIAL: usize = 20;
/// Size of disks that are not volumes.
pub(super) const LOCAL_SECTORS: u64 = 20 << 21;

/// The kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hardware {
    /// Each volume is a virtio disk.
    Virtio,
    /// virtio disks, and a local NVMe disk by PCI passthrough.
    VirtioWithLocalNvme,
    /// Native NVMe multipath: each volume has two hidden paths.
    NvmeMultipath,
    /// SCSI: each volume has two paths below a dm-multipath map.
    ScsiMultipath,
}

/// A disk that is not a volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalDisk {
    pub(super) name: &'static str,
    pub(super) number: (u32, u32),
    pub(super) partition: Option<&'static str>,
    /// Path without `/sys/`.
    pub(super) directory: &'static str,
}

/// A path to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskPath {
    pub(super) name: String,
    pub(super) number: (u32, u32),
    /// Index among the paths of its disk.
    pub(super) index: usize,
}

impl Hardware {
    pub const ALL: [Self; 4] = [
        Self::Virtio,
        Self::VirtioWithLocalNvme,
        Self::NvmeMultipath,
        Self::ScsiMultipath,
    ];

    pub(super) fn is_virtio(self) -> bool {
        matches!(self, Self::Virtio | Self::VirtioWithLocalNvme)
    }

    /// Returns the disks that are not volumes. The first is the root disk.
    pub(super) fn local_disks(self) -> &'static [LocalDisk] {
        const VIRTIO: LocalDisk = LocalDisk {
            name: "vda",
            number: (252, 0),
            partition: Some("vda1"),
            directory: "devices/pci0000:00/0000:00:05.0/virtio0/block/vda",
        };
        const NVME: LocalDisk = LocalDisk {
            name: "nvme0n1",
            number: (259, 0),
            partition: Some("nvme0n1p1"),
            directory: "devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1",
        };
        const BLANK_NVME: LocalDisk = LocalDisk {
            partition: None,
            ..NVME
        };
        const SCSI: LocalDisk = LocalDisk {
            name: "sda",
            number: (8, 0),
            partition: Some("sda1"),
            directory: "devices/platform/host0/session1/target0:0:0/0:0:0:1/block/sda",
        };
        match self {
            Self::Virtio => &[VIRTIO],
            Self::VirtioWithLocalNvme => &[VIRTIO, BLANK_NVME],
            Self::NvmeMultipath => &[NVME],
            Self::ScsiMultipath => &[SCSI],
        }
    }

    pub(super) fn disk_name(self, index: u32) -> String {
        match self {
            Self::Virtio | Self::VirtioWithLocalNvme => format!("vd{}", letters(index)),
            Self::NvmeMultipath => format!("nvme{index}n1"),
            Self::ScsiMultipath => format!("dm-{index}"),
        }
    }

    pub(super) fn number(self, index: u32) -> (u32, u32) {
        match self {
            Self::Virtio | Self::VirtioWithLocalNvme => (252, index * 16),
            Self::NvmeMultipath => (259, index * 3),
            Self::ScsiMultipath => (253, index),
        }
    }

    /// Returns the paths of a volume, if the kernel shows paths.
    pub(super) fn paths(self, index: u32) -> Vec<DiskPath> {
        let path = |at: u32| match self {
            Self::NvmeMultipath => Some((format!("nvme{index}c{at}n1"), (259, index * 3 + 1 + at))),
            Self::ScsiMultipath => {
                let disk = index * 2 - 1 + at;
                Some((format!("sd{}", letters(disk)), (8, disk * 16)))
            }
            Self::Virtio | Self::VirtioWithLocalNvme => None,
        };
        let paths = (0..2).filter_map(|at| Some((at as usize, path(at)?)));
        paths
            .map(|(index, (name, number))| DiskPath { name, number, index })
            .collect()
    }

    /// Whether paths have a node in `/dev`.
    pub(super) fn shows_paths(self) -> bool {
        self == Self::ScsiMultipath
    }

    /// Returns the sysfs directory of a volume's disk, without `/sys/`.
    pub(super) fn directory(self, index: u32) -> String {
        let name = self.disk_name(index);
        match self {
            Self::Virtio | Self::VirtioWithLocalNvme => {
                format!(
                    "devices/pci0000:00/0000:00:{:02x}.0/virtio{index}/block/{name}",
                    index + 5
                )
            }
            Self::NvmeMultipath => format!("devices/virtual/nvme-subsystem/nvme-subsys{index}/{name}"),
            Self::ScsiMultipath => format!("devices/virtual/block/{name}"),
        }
    }

    /// Returns the sysfs directory of a path, without `/sys/`.
    pub(super) fn directory_of_path(self, index: u32, path: &DiskPath) -> String {
        let (name, at) = (&path.name, path.index);
        if self == Self::NvmeMultipath {
            format!("devices/pci0000:00/0000:00:1{at}.0/nvme/nvme{index}/{name}")
        } else {
            let host = path.number.1 / 16;
            format!("devices/platform/host{host}/session1/target{host}:0:0/{host}:0:0:1/block/{name}")
        }
    }

    /// Returns udev's link to the disk of a volume.
    pub(super) fn link_name(self, volume_id: &str) -> String {
        match self {
            Self::Virtio | Self::VirtioWithLocalNvme => format!("virtio-{}", serial(volume_id)),
            Self::NvmeMultipath => format!("nvme-OpenStack_Cinder_{}", serial(volume_id)),
            Self::ScsiMultipath => format!("scsi-3{}", volume_id.replace('-', "")),
        }
    }

    /// Returns the file that identifies the volume, below the directory of its disk or of a path.
    pub(super) fn identity(self, disk: &Disk) -> (&'static str, Vec<u8>) {
        let serial = serial(&disk.volume_id);
        match self {
            // The kernel writes only this file without a trailing newline.
            Self::Virtio | Self::VirtioWithLocalNvme => ("serial", serial.into()),
            Self::NvmeMultipath => ("device/serial", format!("{serial}\n").into()),
            Self::ScsiMultipath => {
                let page = [b"\x00\x80\x00\x24".as_slice(), disk.volume_id.as_bytes()].concat();
                ("device/vpd_pg80", page)
            }
        }
    }
}

fn serial(volume_id: &str) -> &str {
    volume_id.get(..SERIAL).unwrap_or(volume_id)
}

/// `a`, `b` … `z`, `aa` …
fn letters(index: u32) -> String {
    let letter = |index: u32| char::from(b'a' + u8::try_from(index % 26).unwrap_or_default());
    match index / 26 {
        0 => letter(index).into(),
        more => format!("{}{}", letter(more - 1), letter(index)),
    }
}
