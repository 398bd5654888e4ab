// SPDX-License-Identifier: Apache-2.0
//! Runs mkfs and fsck.

use super::{Content, FilesystemError, FsType, MkfsOptionError, MkfsOptions, probe};
use crate::machine::Open;
use crate::timing::TIMING;
use crate::tool::{ToolExit, ToolTask};
use crate::{Device, Host};

/// The exit status of e2fsck is a sum of these flags.
const ERRORS_LEFT: i32 = 4;
const OPERATIONAL_ERROR: i32 = 8;
/// Remedy for a failed check. The message of e2fsck depends on the allocation that failed.
const MEMORY: &str = "; the file system was neither changed by the driver nor mounted. If memory ran out: a check may use 512 MiB and 4 MiB \
                      for each GiB of the volume, at most half of the node's memory; stage the volume on a node with more memory";

/// Returns the arguments of mkfs.
///
/// `-m0` reserves no blocks for root, which has no special role on a data volume. `nodiscard`: a discard takes minutes
/// on thin storage, does not help a new volume, and would also remove the mark. `lazy_*`: the kernel initializes the
/// tables in the background.
pub(super) fn arguments(fs_type: FsType, options: &MkfsOptions) -> Result<Vec<String>, MkfsOptionError> {
    let (defaults, extended): (&[&str], &str) = match fs_type {
        FsType::Xfs | FsType::Btrfs => (&["-f", "-K", "-q"], ""),
        FsType::Ext4 => (&["-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1,lazy_journal_init=1"),
        FsType::Ext3 => (&["-t", "ext3", "-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1"),
        FsType::Ext2 => (&["-t", "ext2", "-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1"),
    };
    options.arguments(fs_type, defaults, extended)
}

/// Creates a file system. The caller has proven that the device has no data.
pub(super) async fn create(
    host: &Host,
    device: &Device,
    fs_type: FsType,
    arguments: &[String],
) -> Result<(), FilesystemError> {
    let tools = &host.inner.tools;
    let (tool, task) = match fs_type {
        FsType::Xfs => (&tools.mkfs_xfs, ToolTask::FormatXfs),
        FsType::Btrfs => (&tools.mkfs_btrfs, ToolTask::Format),
        FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => (&tools.mkfs_ext4, ToolTask::Format),
    };
    let args: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = host
        .machine()
        .run(tool, &args, &device.path, TIMING.mkfs_timeout, task)
        .await?;
    if ended.code != Some(0) {
        return Err(ended.failed(tool, &device.path).into());
    }
    match probe::probe(host, device, Open::Read).await? {
        Content::Filesystem(created) if created == fs_type => Ok(()),
        other => Err(FilesystemError::NotMade {
            tool: tool.display().to_string(),
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            found: other.to_string(),
        }),
    }
}

/// Checks an unmounted file system, and makes the repairs that are safe without an administrator.
pub(super) async fn check(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    if !fs_type.is_ext() {
        // The kernel replays the logs of xfs and btrfs on a mount, and their fsck does nothing by design.
        return Ok(());
    }
    preen(host, device, fs_type, &["-p"]).await
}

/// Checks an ext file system even if it is marked as clean. resize2fs requires this for an unmounted file system.
pub(super) async fn check_fully(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    preen(host, device, fs_type, &["-f", "-p"]).await
}

async fn preen(host: &Host, device: &Device, fs_type: FsType, args: &[&str]) -> Result<(), FilesystemError> {
    let e2fsck = &host.inner.tools.e2fsck;
    let ended = host
        .machine()
        .run(e2fsck, args, &device.path, TIMING.fsck_timeout, ToolTask::Check)
        .await?;
    match CheckResult::from_exit(&ended) {
        CheckResult::Clean => Ok(()),
        CheckResult::Repaired => {
            tracing::warn!(
                volume = device.volume_id,
                device = %device.path.display(),
                report = ended.report(),
                "e2fsck repaired the file system"
            );
            Ok(())
        }
        CheckResult::Damaged => Err(FilesystemError::Damaged {
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            fs_type,
            report: ended.report(),
        }),
        CheckResult::Failed => Err(ended.failed(e2fsck, &device.path).with_remedy(MEMORY).into()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum CheckResult {
    Clean,
    Repaired,
    Damaged,
    /// The check failed, so that the state of the file system is unknown.
    Failed,
}

impl CheckResult {
    fn from_exit(ended: &ToolExit) -> Self {
        match ended.code {
            Some(0) => Self::Clean,
            // 1: repaired. 2: repaired, and a mounted root file system would need a reboot. This file system is not
            // mounted.
            Some(1..=3) => Self::Repaired,
            // 12 is the status for an invalid superblock: damage, and e2fsck could not continue.
            Some(code) if code & ERRORS_LEFT != 0 && code <= (ERRORS_LEFT | OPERATIONAL_ERROR | 3) => Self::Damaged,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::tool::ToolOutput;

    #[rstest]
    #[case(Some(0), CheckResult::Clean)]
    #[case(Some(1), CheckResult::Repaired)]
    #[case(Some(3), CheckResult::Repaired)]
    #[case(Some(4), CheckResult::Damaged)]
    #[case(Some(5), CheckResult::Damaged)]
    #[case(Some(12), CheckResult::Damaged)]
    #[case(Some(8), CheckResult::Failed)]
    #[case(Some(16), CheckResult::Failed)]
    #[case(Some(32), CheckResult::Failed)]
    #[case(Some(132), CheckResult::Failed)]
    #[case(None, CheckResult::Failed)]
    fn classifies_exit_status_of_e2fsck(#[case] code: Option<i32>, #[case] result: CheckResult) {
        let ended = ToolExit {
            code,
            how: String::new(),
            stdout: ToolOutput::default(),
            stderr: ToolOutput::default(),
        };
        assert_eq!(CheckResult::from_exit(&ended), result);
    }
}
