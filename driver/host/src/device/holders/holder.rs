// SPDX-License-Identifier: Apache-2.0
//! What holds a device.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::tool::excerpt;
use crate::{FsType, Mount};

/// Limit of holders that are named.
pub(super) const MOST_NAMED: usize = 4;

/// A partition of a disk, or a device mapper or RAID device on top of a disk or partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub name: String,
    /// The name in the device mapper, such as `group-volume`.
    pub title: Option<String>,
    /// The kernel's name of the device below.
    pub below: String,
    /// Whether it is a partition. A partition without a mount or another layer does not occupy the disk.
    pub is_partition: bool,
    pub(super) number: Option<(u32, u32)>,
}

impl Layer {
    /// Whether this is a mount of the layer's file system.
    pub fn bears(&self, mount: &Mount) -> bool {
        // A btrfs gives its files a device number of its own.
        let source = mount.source.file_name().and_then(|name| name.to_str());
        let is_named = || source.is_some_and(|name| name == self.name || self.title.as_deref() == Some(name));
        Some(mount.device) == self.number || (mount.fs_type == FsType::Btrfs.name() && is_named())
    }
}

/// A user of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A block device on top of the device.
    Layer(Layer),
    /// A mount in a mount namespace other than the driver's.
    Mount {
        /// Number in procfs of a process in that namespace.
        process: u32,
        /// Name of the process.
        command: String,
        /// Mount point in that namespace.
        target: PathBuf,
    },
    /// An open file or working directory of a file system without a mount.
    OpenFile {
        /// Number in procfs.
        process: u32,
        command: String,
        /// Path in procfs, relative to the former mount.
        path: PathBuf,
    },
    /// A file system in use by a process that procfs does not show.
    Filesystem {
        /// The kernel's name of the device or layer.
        name: String,
    },
    /// A process that has the device itself open, such as a mkfs.
    Opening {
        /// Number in procfs.
        process: u32,
        command: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escapes names of processes and paths, because tenants choose them.
        let path = |path: &Path| excerpt(&path.to_string_lossy());
        match self {
            Self::Layer(layer) => {
                write!(f, "the block device {}", layer.name)?;
                if let Some(title) = &layer.title {
                    write!(f, " ({})", excerpt(title))?;
                }
                write!(f, " is made of {}", layer.below)
            }
            Self::Mount {
                process,
                command,
                target,
            } => write!(
                f,
                "process {process} ({}) has it mounted at {} in a mount namespace of its own",
                excerpt(command),
                path(target)
            ),
            Self::OpenFile {
                process,
                command,
                path: file,
            } => write!(
                f,
                "process {process} ({}) has {} of its file system open",
                excerpt(command),
                path(file)
            ),
            Self::Filesystem { name } => write!(
                f,
                "the file system of {name} is in use by a process that the driver cannot see: by an open file, or by a mount in \
                 another mount namespace"
            ),
            Self::Opening { process, command } => {
                write!(f, "process {process} ({}) has the device open", excerpt(command))
            }
        }
    }
}

/// The users of a device that sysfs and procfs show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders {
    pub(super) named: Vec<Holder>,
    pub(super) has_filesystem: bool,
}

impl Holders {
    /// Returns the first visible user. Layers precede mounts.
    pub fn first(&self) -> Option<&Holder> {
        self.named.first()
    }

    /// Whether the kernel has the file system of the device itself in use, and no other block device is on top of it.
    ///
    /// Such a file system is complete, and can be mounted again. It must be neither checked nor formatted.
    pub fn has_filesystem(&self) -> bool {
        self.has_filesystem
    }

    /// Returns the kind of the first user: `device`, `mount` or `file`. `unknown` means that no user is visible, or
    /// that a program has only the device open.
    pub fn kind(&self) -> &'static str {
        match self.first() {
            Some(Holder::Layer(_)) => "device",
            Some(Holder::Mount { .. } | Holder::Filesystem { .. }) => "mount",
            Some(Holder::OpenFile { .. }) => "file",
            Some(Holder::Opening { .. }) | None => "unknown",
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.named.split_first() else {
            return f.write_str("a program has it open exclusively, and neither sysfs nor procfs shows which one");
        };
        write!(f, "{first}")?;
        others.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

pub(super) fn list_names(machine: &dyn Machine, directory: &Path) -> Vec<String> {
    let names = machine.list(directory).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}
