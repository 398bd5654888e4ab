// SPDX-License-Identifier: Apache-2.0
//! Making a block device refuse writes, and accept them again.
//!
//! A read-only bind of a device node does not do it: the kernel checks a mount's options for files and directories, and
//! lets a device node on it be written. What it honours is the flag of the device itself (`BLKROSET`): every write is
//! refused, through whichever opening.

use crate::timing::TIMING;
use crate::tool::{ToolError, ToolTask};
use crate::{Device, Host};

impl Host {
    /// Lets the kernel refuse writes to the whole device, or accept them where the hypervisor does. Bounded by 30 s.
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
