// SPDX-License-Identifier: Apache-2.0
//! External programs: the distribution's own blkid, mkfs and fsck, run without a shell.

mod output;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::CapabilitySet;

pub use output::ToolOutput;
pub(crate) use output::excerpt;

/// Where distributions keep these programs; searched after `PATH`, which in a minimal image may lack them.
pub(crate) const MORE_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// The programs in use. A bare name is looked up in `PATH`.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Low-level probe of util-linux.
    pub blkid: PathBuf,
    /// Makes ext4 (e2fsprogs).
    pub mkfs_ext4: PathBuf,
    /// Makes xfs (xfsprogs).
    pub mkfs_xfs: PathBuf,
    /// Makes btrfs (btrfs-progs).
    pub mkfs_btrfs: PathBuf,
    /// Checks ext2, ext3 and ext4 (e2fsprogs).
    pub e2fsck: PathBuf,
    /// Grows ext2, ext3 and ext4 (e2fsprogs).
    pub resize2fs: PathBuf,
    /// Grows a mounted xfs (xfsprogs).
    pub xfs_growfs: PathBuf,
    /// Grows a mounted btrfs (btrfs-progs).
    pub btrfs: PathBuf,
    /// Sets a block device read-only and back (util-linux).
    pub blockdev: PathBuf,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            blkid: "blkid".into(),
            mkfs_ext4: "mkfs.ext4".into(),
            mkfs_xfs: "mkfs.xfs".into(),
            mkfs_btrfs: "mkfs.btrfs".into(),
            e2fsck: "e2fsck".into(),
            resize2fs: "resize2fs".into(),
            xfs_growfs: "xfs_growfs".into(),
            btrfs: "btrfs".into(),
            blockdev: "blockdev".into(),
        }
    }
}

/// Why a program gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program is not there.
    #[error("{tool} is not installed in the driver's image (looked in PATH and {MORE_PATH}): use an image that has it")]
    Missing { tool: String },
    /// The program could not be started.
    #[error("{tool} could not be started")]
    Start { tool: String, source: io::Error },
    /// The program did not end in time.
    #[error("{tool} on {} did not end within {} s; {}", device.display(), limit.as_secs(),
        if *left_running { "it goes on and is waited for by the next call" } else { "it was killed" })]
    TimedOut {
        tool: String,
        /// What it worked on.
        device: PathBuf,
        /// The time that it had.
        limit: Duration,
        /// Whether it was left running, because to kill it would do harm.
        left_running: bool,
    },
    /// The program ended with an error, or was ended.
    #[error("{tool} on {} failed ({ended}): {said}", device.display())]
    Failed {
        tool: String,
        /// What it worked on.
        device: PathBuf,
        /// How it ended: `exit status 1`, `signal: 9 (SIGKILL)`.
        ended: String,
        /// What it wrote to stderr, or to stdout if there was nothing, shortened.
        said: String,
    },
    /// The output is too long to be parsed.
    #[error("{tool} on {} wrote {bytes} bytes, more than the driver parses: check the device's content on the node", device.display())]
    TooMuchOutput {
        tool: String,
        /// What it worked on.
        device: PathBuf,
        /// The number of bytes that it wrote.
        bytes: u64,
    },
}

/// Remedy for a program that a signal ended.
const KILLED: &str = "; it crashed, or memory ran out: see the kernel's log of the node. Take a snapshot before you run the program by hand";

impl ToolError {
    /// Appends the remedy for a failure.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        if let Self::Failed { said, .. } = &mut self {
            said.push_str(remedy);
        }
        self
    }
}

/// What happens to a program whose time is up, or whose caller is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUp {
    /// It only reads: it is killed.
    Kill,
    /// It writes: to kill it would leave a half-written file system, so it goes on.
    LeaveRunning,
}

/// Task of a program. It determines the program's privileges and its end when the time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolTask {
    /// Detects the content of the device.
    Probe,
    /// Creates an ext or btrfs file system.
    Format,
    /// Creates an xfs. `mkfs.xfs` sets the block size of the device.
    FormatXfs,
    /// Checks a file system and repairs it.
    Check,
    /// Grows an ext file system that is not mounted.
    GrowUnmounted,
    /// Grows a mounted ext file system.
    GrowMountedExt,
    /// Grows a mounted xfs or btrfs.
    GrowMounted,
    /// Sets the device read-only or writable.
    SetReadOnly,
}

impl ToolTask {
    const ALL: [Self; 8] = [
        Self::Probe,
        Self::Format,
        Self::FormatXfs,
        Self::Check,
        Self::GrowUnmounted,
        Self::GrowMountedExt,
        Self::GrowMounted,
        Self::SetReadOnly,
    ];

    /// Name of the task in the command line of a confined program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Format => "format",
            Self::FormatXfs => "format-xfs",
            Self::Check => "check",
            Self::GrowUnmounted => "grow-unmounted",
            Self::GrowMountedExt => "grow-mounted-ext",
            Self::GrowMounted => "grow-mounted",
            Self::SetReadOnly => "set-read-only",
        }
    }

    /// Returns the task with this name.
    pub(crate) fn from_name(name: &OsStr) -> Option<Self> {
        Self::ALL.into_iter().find(|task| name == task.name())
    }

    /// Capabilities that the program needs. Devices belong to root, so that most need none.
    pub(crate) fn capabilities(self) -> CapabilitySet {
        match self {
            Self::Probe | Self::Format | Self::Check | Self::GrowUnmounted => CapabilitySet::empty(),
            Self::GrowMountedExt => CapabilitySet::SYS_RESOURCE,
            Self::FormatXfs | Self::GrowMounted | Self::SetReadOnly => CapabilitySet::SYS_ADMIN,
        }
    }

    /// What happens to the program when its time is up.
    pub fn time_up(self) -> TimeUp {
        match self {
            Self::Probe | Self::SetReadOnly => TimeUp::Kill,
            Self::Format
            | Self::FormatXfs
            | Self::Check
            | Self::GrowUnmounted
            | Self::GrowMountedExt
            | Self::GrowMounted => TimeUp::LeaveRunning,
        }
    }
}

/// How a program ended.
#[derive(Debug)]
pub struct ToolExit {
    /// The exit status, unless a signal ended it.
    pub code: Option<i32>,
    /// `exit status: 1`, `signal: 9 (SIGKILL)`.
    pub how: String,
    /// Its output. Text for messages comes from [`ToolExit::report`].
    pub stdout: ToolOutput,
    pub stderr: ToolOutput,
}

impl ToolExit {
    /// What the program reports on stdout, for logs and errors.
    pub(crate) fn report(&self) -> String {
        self.stdout.message()
    }

    /// The whole of stdout, to be parsed. `device` is named in the error.
    pub(crate) fn parsable(&self, tool: &Path, device: &Path) -> Result<String, ToolError> {
        self.stdout.complete().ok_or_else(|| ToolError::TooMuchOutput {
            tool: name(tool),
            device: device.to_owned(),
            bytes: self.stdout.length(),
        })
    }

    /// The failure that this end is.
    pub(crate) fn failed(self, tool: &Path, device: &Path) -> ToolError {
        let output = if self.stderr.is_blank() {
            &self.stdout
        } else {
            &self.stderr
        };
        let mut said = output.message();
        if said.is_empty() {
            said.push_str("it said nothing");
        }
        if self.code.is_none() {
            said.push_str(KILLED);
        }
        ToolError::Failed {
            tool: name(tool),
            device: device.to_owned(),
            ended: self.how,
            said,
        }
    }
}

pub(crate) fn name(tool: &Path) -> String {
    tool.display().to_string()
}
