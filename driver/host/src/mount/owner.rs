// SPDX-License-Identifier: Apache-2.0
//! Identifies the volume that is mounted at a path.

use std::path::Path;

use super::MountError;
use crate::device::{has_volume_id, list_disks, read_serials};
use crate::mountinfo::{self, MountTable};
use crate::timing::TIMING;
use crate::{Host, HostPaths, Machine, slots};

impl Host {
    /// Returns the serial of the disk at `target` if that disk is certainly another volume. Bounded by 10 s.
    ///
    /// Returns `None` if the disk has disappeared or has no serial of a volume, because such a mount must remain
    /// removable. Dropping the future changes nothing.
    pub async fn other_volume_at(&self, target: &Path, volume_id: &str) -> Result<Option<String>, MountError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let what = format!("looking whose volume is at {}", target.display());
        let (target, volume_id) = (target.to_owned(), volume_id.to_owned());
        let search = move || other_volume_at(&*machine, &paths, &target, &volume_id);
        self.inner
            .calls
            .run_local(what, TIMING.mount_table_timeout, search)
            .await?
    }
}

fn other_volume_at(
    machine: &dyn Machine,
    paths: &HostPaths,
    target: &Path,
    volume_id: &str,
) -> Result<Option<String>, MountError> {
    let (mounts, place) = (
        MountTable::read(machine, &paths.proc)?,
        mountinfo::resolve(machine, target),
    );
    let sys = &paths.sys;
    for mount in mounts.iter().filter(|mount| mount.target == place) {
        let mut disks = list_disks(machine, sys).unwrap_or_default().into_iter();
        // Ignores raw devices. Their mounts have the name of a disk, which another disk may have after a detach. The
        // name proves nothing, and the mount must remain removable.
        let disk = disks.find(|name| mount.is_of_disk(name, slots::read_device_number(machine, sys, name)));
        if let Some(disk) = disk
            && slots::is_volume(machine, sys, &disk)
            && !has_volume_id(machine, sys, &disk, volume_id)
        {
            return Ok(read_serials(machine, sys, &disk).into_iter().next());
        }
    }
    Ok(None)
}
