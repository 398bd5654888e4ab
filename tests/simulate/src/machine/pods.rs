//! What pods do with what the driver shows them.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::medium::Medium;
use super::state::{By, Opening, Root, State};
use super::{SimMachine, fail};

/// The owner of what is written to a device itself.
const NO_FILESYSTEM: [u8; 16] = [0; 16];

/// What is at a pod's path.
struct Seen {
    mount: u64,
    disk: u64,
    volume_id: String,
    medium: Arc<Medium>,
    /// The UUID of the file system, zeros for a device.
    owner: [u8; 16],
    /// Why nothing can be written, if that is so.
    refusal: Option<Errno>,
}

impl SimMachine {
    /// Writes `key` durably into the volume that is mounted or bound at `path`. `ENOENT` where none is, `EROFS` or `EPERM` where it
    /// is read-only, `EIO` where its disk is gone.
    pub fn write(&self, path: &Path, key: u64) -> io::Result<()> {
        let state = self.node.state();
        let seen = state.seen(path)?;
        if let Some(errno) = seen.refusal {
            return fail(errno);
        }
        seen.medium.write_key(seen.owner, key);
        Ok(())
    }

    /// Every key that was written into the volume that is mounted or bound at `path`, by whichever node. Errors as those of
    /// [`SimMachine::write`].
    pub fn read(&self, path: &Path) -> io::Result<BTreeSet<u64>> {
        let seen = self.node.state().seen(path)?;
        Ok(seen.medium.keys(seen.owner))
    }

    /// The id of the volume whose bytes are at `path`.
    pub fn volume_at(&self, path: &Path) -> io::Result<String> {
        Ok(self.node.state().seen(path)?.volume_id)
    }

    /// A pod opens a file there, or the device, and keeps it open until [`SimMachine::release`] or a reboot: an unmount is busy.
    pub fn hold(&self, path: &Path) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        let opening = (seen.owner == NO_FILESYSTEM).then(|| state.number());
        if let Some(opening) = opening {
            let (disk, by, alone) = (seen.disk, By::Pod, false);
            state.openings.insert(opening, Opening { disk, by, alone });
        }
        state.held.push((path.to_owned(), seen.mount, opening));
        Ok(())
    }

    /// All pods close what they have open below `path`. Nothing is fine.
    pub fn release(&self, path: &Path) {
        let mut state = self.node.state();
        let (released, held) = std::mem::take(&mut state.held)
            .into_iter()
            .partition(|(at, _, _)| at.starts_with(path));
        state.held = held;
        let released: Vec<_> = released;
        for opening in released.into_iter().filter_map(|(_, _, opening)| opening) {
            state.close(opening);
        }
    }
}

impl State {
    fn seen(&self, path: &Path) -> io::Result<Seen> {
        let Some(mount) = path.ancestors().find_map(|path| self.mount_at(path)) else {
            return fail(Errno::NOENT);
        };
        let (disk, owner, read_only) = match &mount.root {
            Root::Volume(id) => {
                if self.is_dead(*id) {
                    return fail(Errno::IO);
                }
                let superblock = self.superblocks.get(id).ok_or(Errno::IO)?;
                let read_only = superblock.read_only || mount.flags.contains(MountFlags::RDONLY);
                (superblock.disk, superblock.uuid, read_only.then_some(Errno::ROFS))
            }
            Root::Device(_, number) => {
                let id = self.disk_numbered(*number).ok_or(Errno::NXIO)?;
                (id, NO_FILESYSTEM, None)
            }
            Root::Tree(_) => return fail(Errno::NOENT),
        };
        let found = self.disks.get(&disk).ok_or(Errno::IO)?;
        Ok(Seen {
            mount: mount.id,
            disk,
            volume_id: found.volume_id.clone(),
            medium: found.medium.clone(),
            owner,
            refusal: read_only.or(found.read_only.then_some(Errno::PERM)),
        })
    }
}
