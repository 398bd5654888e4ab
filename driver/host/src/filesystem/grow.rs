// SPDX-License-Identifier: Apache-2.0
//! Grows a file system to the size of its device.

use std::path::Path;

use super::{FilesystemError, FsType, format, size};
use crate::machine::Open;
use crate::timing::TIMING;
use crate::tool::ToolTask;
use crate::{Device, Host};

impl Host {
    /// Reads the size in bytes of the file system on `device` from its superblock. A mounted xfs may still report the
    /// old size after it has grown.
    pub async fn filesystem_size(&self, device: &Device, fs_type: FsType) -> Result<u64, FilesystemError> {
        let (machine, opened) = (self.inner.machine.clone(), device.clone());
        let what = format!("reading the superblock of {}", device.path.display());
        let read = move || {
            let disk = opened.open(&*machine, Open::Read)?;
            let mut head = vec![0; size::HEAD];
            let read = disk.read_exact_at(&mut head, 0).map(|()| head);
            Ok::<_, FilesystemError>(read)
        };
        let io = |source| FilesystemError::Io {
            what: "read the superblock of",
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            source,
        };
        let head = self
            .inner
            .calls
            .run(what, TIMING.superblock_timeout, read)
            .await??
            .map_err(io)?;
        size::from_superblock(fs_type, &head).ok_or_else(|| io(std::io::ErrorKind::InvalidData.into()))
    }

    /// Whether this process may grow a mounted ext file system. The kernel requires `CAP_SYS_RESOURCE`.
    pub fn may_grow_mounted_ext(&self) -> bool {
        self.inner.machine.may_grow_mounted_ext()
    }

    /// Grows the file system that is mounted at `mounted_at` to the size of `device`. Succeeds if it has that size
    /// already.
    ///
    /// The time limits of the programs bound the call. Dropping the future does not stop them.
    pub async fn grow_mounted(
        &self,
        device: &Device,
        fs_type: FsType,
        mounted_at: &Path,
    ) -> Result<(), FilesystemError> {
        let tools = &self.inner.tools;
        let (tool, args, place, task): (&Path, &[&str], &Path, ToolTask) = match fs_type {
            FsType::Xfs => (&tools.xfs_growfs, &["-d"], mounted_at, ToolTask::GrowMounted),
            FsType::Btrfs => (
                &tools.btrfs,
                &["filesystem", "resize", "max"],
                mounted_at,
                ToolTask::GrowMounted,
            ),
            FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => {
                if !self.may_grow_mounted_ext() {
                    return Err(FilesystemError::NotOnline {
                        device: device.path.clone(),
                        volume_id: device.volume_id.clone(),
                        fs_type,
                    });
                }
                (&tools.resize2fs, &[], &device.path, ToolTask::GrowMountedExt)
            }
        };
        self.grow(device, fs_type, (tool, args, place, task)).await
    }

    /// Grows an ext file system without mounts. Runs a full check first, because resize2fs requires it.
    pub async fn grow_unmounted_ext(&self, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
        format::check_fully(self, device, fs_type).await?;
        let resize2fs = self.inner.tools.resize2fs.clone();
        let program = (&*resize2fs, &[][..], &*device.path, ToolTask::GrowUnmounted);
        self.grow(device, fs_type, program).await
    }

    async fn grow(
        &self,
        device: &Device,
        fs_type: FsType,
        (tool, args, place, task): (&Path, &[&str], &Path, ToolTask),
    ) -> Result<(), FilesystemError> {
        let ended = self.machine().run(tool, args, place, TIMING.grow_timeout, task).await?;
        if ended.code != Some(0) {
            return Err(ended.failed(tool, place).into());
        }
        let (volume, device, said) = (&device.volume_id, device.path.display(), ended.report());
        tracing::info!(volume, %device, %fs_type, said, "the file system is as large as its device");
        Ok(())
    }
}
