// SPDX-License-Identifier: Apache-2.0
//! A file system that is smaller than its device is made as large.

use std::path::Path;

use super::{FilesystemError, FsType, format, size};
use crate::machine::Open;
use crate::timing::TIMING;
use crate::tool::ToolTask;
use crate::{Device, Host};

impl Host {
    /// Size in bytes of the file system on `device`, as its superblock says. Of a mounted xfs that has just grown it may
    /// be the old one.
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
        size::of(fs_type, &head).ok_or_else(|| io(std::io::ErrorKind::InvalidData.into()))
    }

    /// Whether the kernel lets this process grow an ext file system that is mounted: that takes `CAP_SYS_RESOURCE`.
    pub fn may_grow_mounted_ext(&self) -> bool {
        self.inner.machine.may_grow_mounted_ext()
    }

    /// Makes the file system that is mounted at `mounted_at` as large as `device`. Nothing to do is fine. Bounded by the
    /// limits of the programs; dropping the future leaves them going on.
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

    /// The same for an ext file system that is not mounted anywhere: it is checked whole first, as resize2fs demands.
    pub async fn grow_unmounted_ext(&self, device: &Device, fs_type: FsType) -> Result<(), FilesystemError> {
        format::check_whole(self, device, fs_type).await?;
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
