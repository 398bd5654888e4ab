// SPDX-License-Identifier: Apache-2.0
//! Runs external programs of the distribution, such as blkid, mkfs and fsck, without a shell.

mod output;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::CapabilitySet;

pub use output::ToolOutput;
pub(crate) use output::excerpt;

/// Directories that are searched after `PATH`, which may omit them in a minimal image.
pub(crate) const MORE_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// The programs in use. A bare name is resolved in `PATH`.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Low-level probe (util-linux).
    pub blkid: PathBuf,
    /// Creates ext4 (e2fsprogs).
    pub mkfs_ext4: PathBuf,
    /// Creates xfs (xfsprogs).
    pub mkfs_xfs: PathBuf,
    /// Creates btrfs (btrfs-progs).
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

/// Reasons why a program returned no usable result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program is not installed.
    #[error("{tool} is not installed in the driver's image (looked in PATH and {MORE_PATH}): use an image that has it")]
    Missing { tool: String },
    #[error("{tool} could not be started")]
    Start { tool: String, source: io::Error },
    #[error("{tool} on {} did not end within {} s; {}", device.display(), limit.as_secs(),
        if *left_running { "it goes on and is waited for by the next call" } else { "it was killed" })]
    TimedOut {
        tool: String,
        device: PathBuf,
        limit: Duration,
        /// Whether the program continues to run, because killing it could damage the file system.
        left_running: bool,
    },
    /// The program returned an error, or a signal ended it.
    #[error("{tool} on {} failed ({ended}): {said}", device.display())]
    Failed {
        tool: String,
        device: PathBuf,
        /// Exit status: `exit status 1`, `signal: 9 (SIGKILL)`.
        ended: String,
        /// Shortened stderr, or stdout if stderr is empty.
        said: String,
    },
    /// The output is too long to be parsed.
    #[error("{tool} on {} wrote {bytes} bytes, more than the driver parses: check the device's content on the node", device.display())]
    TooMuchOutput {
        tool: String,
        device: PathBuf,
        /// Length of the output.
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

/// Handling of a program after its time limit or after its future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUp {
    /// Kills a program that only reads.
    Kill,
    /// Lets a program that writes continue, because killing it would leave a half-written file system.
    LeaveRunning,
}

/// Task of a program. It determines the program's privileges and its handling after the time limit.
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

    /// Returns the capabilities that the program needs. Root owns the devices, so that most programs need none.
    pub(crate) fn capabilities(self) -> CapabilitySet {
        match self {
            Self::Probe | Self::Format | Self::Check | Self::GrowUnmounted => CapabilitySet::empty(),
            Self::GrowMountedExt => CapabilitySet::SYS_RESOURCE,
            Self::FormatXfs | Self::GrowMounted | Self::SetReadOnly => CapabilitySet::SYS_ADMIN,
        }
    }

    /// Returns the handling of the program after its time limit.
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

/// Result of a program.
#[derive(Debug)]
pub struct ToolExit {
    /// The exit status, unless a signal ended it.
    pub code: Option<i32>,
    /// Exit status as text: `exit status: 1`, `signal: 9 (SIGKILL)`.
    pub how: String,
    /// Output of the program. Messages use [`ToolExit::report`] instead.
    pub stdout: ToolOutput,
    pub stderr: ToolOutput,
}

impl ToolExit {
    /// Returns stdout as text for logs and errors.
    pub(crate) fn report(&self) -> String {
        self.stdout.message()
    }

    /// Returns the complete stdout for parsing. The error names `device`.
    pub(crate) fn parsable(&self, tool: &Path, device: &Path) -> Result<String, ToolError> {
        self.stdout.complete().ok_or_else(|| ToolError::TooMuchOutput {
            tool: tool_name(tool),
            device: device.to_owned(),
            bytes: self.stdout.length(),
        })
    }

    /// Converts this result into an error.
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
            tool: tool_name(tool),
            device: device.to_owned(),
            ended: self.how,
            said,
        }
    }
}

pub(crate) fn tool_name(tool: &Path) -> String {
    tool.display().to_string()
}
