// SPDX-License-Identifier: Apache-2.0
//! Sets a block device read-only or writable.
//!
//! A read-only bind of a device node has no effect: the kernel applies mount options to files and directories, and
//! permits writes through a device node. The kernel respects the flag of the device itself (`BLKROSET`), and then
//! refuses every write through any open file.

use crate::timing::TIMING;
use crate::tool::{ToolError, ToolTask};
use crate::{Device, Host};

impl Host {
    /// Sets the kernel's read-only flag of the device. Without the flag, the hypervisor may still refuse writes.
    /// Bounded by 30 s.
    pub async fn set_read_only(&self, device: &Device, read_only: bool) -> Result<(), ToolError> {
        let blockdev = &self.inner.tools.blockdev;
        let flag = if read_only { "--setro" } else { "--setrw" };
        let ended = self
            .machine()
            .run(
                blockdev,
                &[flag],
                &device.path,
                TIMING.read_only_timeout,
                ToolTask::SetReadOnly,
            )
            .await?;
        if ended.code == Some(0) {
            Ok(())
        } else {
            Err(ended.failed(blockdev, &device.path))
        }
    }
}
