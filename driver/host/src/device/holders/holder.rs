// SPDX-License-Identifier: Apache-2.0
//! What holds a device.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::tool::excerpt;
use crate::{FsType, Mount};

/// Holders that are named.
pub(super) const MOST_NAMED: usize = 4;

/// A partition of a disk, or a block device on top of a disk or partition: of the device mapper, of a RAID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub name: String,
    /// The name of the device mapper, such as `group-volume`.
    pub title: Option<String>,
    /// The kernel's name of what it is on.
    pub below: String,
    /// Whether it is a partition. A partition without a mount or another layer does not occupy the disk.
    pub is_partition: bool,
    pub(super) number: Option<(u32, u32)>,
}

impl Layer {
    /// Whether this is the file system of this layer.
    pub fn bears(&self, mount: &Mount) -> bool {
        // The files of a btrfs have a number of their own.
        let source = mount.source.file_name().and_then(|name| name.to_str());
        let is_named = || source.is_some_and(|name| name == self.name || self.title.as_deref() == Some(name));
        Some(mount.device) == self.number || (mount.fs_type == FsType::Btrfs.name() && is_named())
    }
}

/// One user of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A block device on top of it.
    Layer(Layer),
    /// A mount in another mount namespace than the driver's.
    Mount {
        /// A process of that namespace, by its number in procfs.
        process: u32,
        /// That process's own name.
        command: String,
        /// Where it is mounted for that process.
        target: PathBuf,
    },
    /// A file, or a working directory, of a file system that is no longer mounted there.
    OpenFile {
        /// The process, by its number in procfs.
        process: u32,
        /// The process's own name.
        command: String,
        /// The path as procfs shows it, relative to the former mount.
        path: PathBuf,
    },
    /// A file system that the kernel has in use for a process that procfs does not show.
    Filesystem {
        /// The kernel's name of its device or layer.
        name: String,
    },
    /// A process that has the device itself open, such as a mkfs.
    Opening {
        /// The process, by its number in procfs.
        process: u32,
        /// The process's own name.
        command: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of processes and paths come from tenants.
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

/// The users of a device, as far as sysfs and procfs show them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders {
    pub(super) named: Vec<Holder>,
    pub(super) has_filesystem: bool,
}

impl Holders {
    /// The first of them, a layer before a mount. `None` if none is visible.
    pub fn first(&self) -> Option<&Holder> {
        self.named.first()
    }

    /// Whether the kernel has the file system of this very device in use, and nothing is layered on the device. The file system is
    /// complete then, and may be mounted once more. It must be neither checked nor formatted.
    pub fn has_filesystem(&self) -> bool {
        self.has_filesystem
    }

    /// The kind of the first: `device`, `mount`, `file`, or `unknown` for a program that only has the device open, or if none is visible.
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

pub(super) fn names(machine: &dyn Machine, directory: &Path) -> Vec<String> {
    let names = machine.list(directory).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}
