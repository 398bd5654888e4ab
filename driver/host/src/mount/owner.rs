// SPDX-License-Identifier: Apache-2.0
//! Which volume is mounted at a place.

use std::path::Path;

use super::MountError;
use crate::device::{is_named, list_disks, serials};
use crate::mountinfo::{self, MountTable};
use crate::timing::TIMING;
use crate::{Host, HostPaths, Machine, slots};

impl Host {
    /// The serial of a disk that is at `target` and surely is another volume than this one.
    ///
    /// A mount whose disk is gone, or has no serial of a volume, is none: it has to be possible to take it away. Bounded by 10 s.
    /// Dropping the future changes nothing.
    pub async fn other_volume_at(&self, target: &Path, volume_id: &str) -> Result<Option<String>, MountError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let what = format!("looking whose volume is at {}", target.display());
        let (target, volume_id) = (target.to_owned(), volume_id.to_owned());
        let look = move || other_volume_at(&*machine, &paths, &target, &volume_id);
        self.inner
            .calls
            .run_local(what, TIMING.mount_table_timeout, look)
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
        // A raw device is shown by its name, which another disk has after a detachment: that proves nothing, and the place has to go.
        let disk = disks.find(|name| mount.is_of_disk(name, slots::number(machine, sys, name)));
        if let Some(disk) = disk
            && slots::is_volume(machine, sys, &disk)
            && !is_named(machine, sys, &disk, volume_id)
        {
            return Ok(serials(machine, sys, &disk).into_iter().next());
        }
    }
    Ok(None)
}
