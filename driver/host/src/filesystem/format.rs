// SPDX-License-Identifier: Apache-2.0
//! mkfs and fsck.

use super::{Content, FilesystemError, FsType, MkfsOptionError, MkfsOptions, probe};
use crate::machine::Open;
use crate::timing::TIMING;
use crate::tool::{ToolExit, ToolTask};
use crate::{Device, Host};

/// Exit status of e2fsck: a sum of these.
const ERRORS_LEFT: i32 = 4;
const OPERATIONAL_ERROR: i32 = 8;
/// Remedy for a failed check. The message of e2fsck depends on the allocation that failed.
const MEMORY: &str = "; the file system was neither changed by the driver nor mounted. If memory ran out: a check may use 512 MiB and 4 MiB \
                      for each GiB of the volume, at most half of the node's memory; stage the volume on a node with more memory";

/// What mkfs is told.
///
/// `-m0`: no blocks reserved for root, who is not special on a data volume. No discard: on thin storage it takes minutes
/// and gains nothing on a new volume; it would also take the mark off. Lazy: the kernel initialises in the background.
pub(super) fn arguments(fs_type: FsType, options: &MkfsOptions) -> Result<Vec<String>, MkfsOptionError> {
    let (defaults, extended): (&[&str], &str) = match fs_type {
        FsType::Xfs | FsType::Btrfs => (&["-f", "-K", "-q"], ""),
        FsType::Ext4 => (&["-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1,lazy_journal_init=1"),
        FsType::Ext3 => (&["-t", "ext3", "-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1"),
        FsType::Ext2 => (&["-t", "ext2", "-F", "-q", "-m0"], "nodiscard,lazy_itable_init=1"),
    };
    options.arguments(fs_type, defaults, extended)
}

/// Makes a file system on a device that the caller has proven to hold nothing.
pub(super) async fn make(
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
        Content::Filesystem(made) if made == fs_type => Ok(()),
        other => Err(FilesystemError::NotMade {
            tool: tool.display().to_string(),
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            found: other.to_string(),
        }),
    }
}

/// Checks a file system that is not mounted, and repairs what can be repaired without asking anybody.
pub(super) async fn check(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    if !fs_type.is_ext() {
        // xfs and btrfs replay their logs when they are mounted, and their fsck does nothing by design.
        return Ok(());
    }
    preen(host, device, fs_type, &["-p"]).await
}

/// The same for an ext file system that says itself that it is clean: what growing it unmounted demands.
pub(super) async fn check_whole(host: &Host, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
    preen(host, device, fs_type, &["-f", "-p"]).await
}

async fn preen(host: &Host, device: &Device, fs_type: FsType, args: &[&str]) -> Result<(), FilesystemError> {
    let e2fsck = &host.inner.tools.e2fsck;
    let ended = host
        .machine()
        .run(e2fsck, args, &device.path, TIMING.fsck_timeout, ToolTask::Check)
        .await?;
    match Verdict::of(&ended) {
        Verdict::Clean => Ok(()),
        Verdict::Repaired => {
            tracing::warn!(
                volume = device.volume_id,
                device = %device.path.display(),
                report = ended.report(),
                "e2fsck repaired the file system"
            );
            Ok(())
        }
        Verdict::Damaged => Err(FilesystemError::Damaged {
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            fs_type,
            report: ended.report(),
        }),
        Verdict::Failed => Err(ended.failed(e2fsck, &device.path).with_remedy(MEMORY).into()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Clean,
    Repaired,
    Damaged,
    /// The check itself did not work: nothing is known about the file system.
    Failed,
}

impl Verdict {
    fn of(ended: &ToolExit) -> Self {
        match ended.code {
            Some(0) => Self::Clean,
            // 1: repaired; 2: repaired, and a mounted root would need a reboot, which this is not.
            Some(1..=3) => Self::Repaired,
            // 12 is what a superblock without sense gives: damage, and e2fsck could not go on.
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
    #[case(Some(0), Verdict::Clean)]
    #[case(Some(1), Verdict::Repaired)]
    #[case(Some(3), Verdict::Repaired)]
    #[case(Some(4), Verdict::Damaged)]
    #[case(Some(5), Verdict::Damaged)]
    #[case(Some(12), Verdict::Damaged)]
    #[case(Some(8), Verdict::Failed)]
    #[case(Some(16), Verdict::Failed)]
    #[case(Some(32), Verdict::Failed)]
    #[case(Some(132), Verdict::Failed)]
    #[case(None, Verdict::Failed)]
    fn the_exit_status_of_e2fsck_is_understood(#[case] code: Option<i32>, #[case] verdict: Verdict) {
        let ended = ToolExit {
            code,
            how: String::new(),
            stdout: ToolOutput::default(),
            stderr: ToolOutput::default(),
        };
        assert_eq!(Verdict::of(&ended), verdict);
    }
}
