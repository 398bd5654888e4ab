// SPDX-License-Identifier: Apache-2.0
//! The driver's view of the node: sysfs, `/dev`, procfs and the root file system.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use csi_host::machine::{BoxFuture, Disk, Job, Kind, Open, Refusal, Stat};
use csi_host::tool::{ToolExit, ToolTask};
use csi_host::{FsType, Machine, MountOptions, ToolError, Usage};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::filesystem::Filesystem;
use super::hardware::LOCAL_SECTORS;
use super::state::{Mount, Opener, Root, State};
use super::sysfs::Entry;
use super::trap::Moment;
use super::{Node, SimMachine, fail, programs};

/// Duration of a call without a hang.
const CALL: Duration = Duration::from_millis(2);
const PCI: &str = "/sys/devices/pci0000:00";

impl SimMachine {
    /// Returns the node if this process is alive.
    fn alive(&self) -> io::Result<&Arc<Node>> {
        self.check_alive(&self.node.state())?;
        Ok(&self.node)
    }

    /// Returns the opener of devices through this view.
    fn by(&self) -> Opener {
        Opener::Process(self.process.unwrap_or_else(|| self.node.state().process))
    }
}

impl Machine for SimMachine {
    fn start(&self, job: Job) -> io::Result<()> {
        // A test may drop this outside of a runtime.
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let node = self.alive()?;
        let (process, faults) = {
            let mut state = node.state();
            state.calls += 1;
            (state.process, state.faults)
        };
        let limit = if node.happens(faults.hang) {
            faults.hang_limit
        } else {
            CALL
        };
        let latency = node.draw(limit);
        let machine = Self {
            process: Some(process),
            ..self.clone()
        };
        runtime.spawn(async move {
            sleep(latency).await;
            machine.node.pass(Moment::SystemCall).await;
            let mounts = machine.node.state().mount_calls;
            if let Ok(node) = machine.alive() {
                node.violations.call(&node.name);
                job();
            }
            machine.node.state().calls -= 1;
            if machine.node.state().mount_calls != mounts {
                machine.node.pass(Moment::Mount).await;
            }
        });
        Ok(())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.alive()?.state();
        if path == Path::new("/proc/self/mountinfo") {
            return Ok(state.mountinfo().into_bytes());
        }
        match (state.sysfs(path), state.kind_at(path)) {
            (Some(Entry::File(content)), _) => Ok(content),
            (_, Some(Kind::Directory)) => fail(Errno::ISDIR),
            (_, Some(_)) => Ok(Vec::new()),
            (_, None) => fail(Errno::NOENT),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let state = self.alive()?.state();
        state.answers(directory)?;
        let names = state.names_in(directory)?;
        Ok(names.into_iter().map(OsString::from).collect())
    }

    fn touch_directory(&self, directory: &Path) -> io::Result<()> {
        self.list(directory).map(drop)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let state = self.alive()?.state();
        if let Some(disk) = state.linked(path) {
            return state
                .disk_named(disk)
                .map_or_else(|| fail(Errno::NOENT), |_| Ok(Path::new("/dev").join(disk)));
        }
        if let Ok(slot) = path.strip_prefix("/sys/bus/pci/devices") {
            return Ok(Path::new(PCI).join(slot));
        }
        let plain = path.components().collect();
        state.kind_at(path).map_or_else(|| fail(Errno::NOENT), |_| Ok(plain))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let state = self.alive()?.state();
        if let Some(disk) = state.linked(path) {
            return Ok(Path::new("../..").join(disk));
        }
        match state.block_link(path) {
            Some(target) => Ok(target),
            None if state.kind_at(path).is_some() => fail(Errno::INVAL),
            None => fail(Errno::NOENT),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.alive()?.state();
        let kind = state.kind_at(path).ok_or(Errno::NOENT)?;
        let number = state.node_at(path).unwrap_or_default();
        // Files have no content in this model.
        Ok(Stat {
            kind,
            number,
            filesystem: (0, 0),
            size: 0,
        })
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        let is_link = self.alive()?.state().linked(path).is_some();
        if is_link {
            Ok(Stat {
                kind: Kind::Other,
                number: (0, 0),
                filesystem: (0, 0),
                size: 20,
            })
        } else {
            self.stat(path)
        }
    }

    fn write(&self, path: &Path, _bytes: &[u8]) -> io::Result<io::Result<()>> {
        let node = self.alive()?;
        let state = &mut *node.state();
        let exists = state.kind_at(path).is_some();
        let disk = path.strip_prefix("/sys/block").ok().and_then(Path::to_str);
        if exists
            && let Some(name) = disk.and_then(|path| path.strip_suffix("/device/rescan"))
            && node.rescan(state, name).is_some()
        {
            return Ok(Ok(()));
        }
        fail(if exists { Errno::ACCESS } else { Errno::NOENT })
    }

    fn open_disk(&self, path: &Path, how: Open) -> io::Result<Box<dyn Disk>> {
        let disk = self.alive()?.open(path, how, self.by())?;
        Ok(Box::new(disk))
    }

    fn mount(&self, device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Refusal> {
        self.node.state().mount_calls += 1;
        let killed = |_| Refusal {
            errno: Errno::INTR,
            messages: Vec::new(),
        };
        let mounted = self.alive().map_err(killed)?.mount(device, target, fs_type, options);
        let refused = mounted.as_ref().err().map(|refusal| refusal.errno);
        self.node
            .note(|| format!("mount {} at {}: {refused:?}", device.display(), target.display()));
        mounted
    }

    fn bind(&self, from: &Path, target: &Path) -> io::Result<()> {
        self.node.state().mount_calls += 1;
        let bound = self.alive()?.bind(from, target);
        self.node
            .note(|| format!("bind {} to {}: {bound:?}", from.display(), target.display()));
        bound
    }

    fn remount_bind(&self, target: &Path, flags: MountFlags) -> io::Result<()> {
        self.node.state().mount_calls += 1;
        self.alive()?.remount_bind(target, flags - MountFlags::BIND)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        self.node.state().mount_calls += 1;
        let unmounted = self.alive()?.unmount(target);
        self.node
            .note(|| format!("unmount {}: {unmounted:?}", target.display()));
        unmounted
    }

    fn syncfs(&self, directory: &Path) -> io::Result<()> {
        let written = self.alive()?.syncfs(directory);
        self.node
            .note(|| format!("syncfs {}: {written:?}", directory.display()));
        written
    }

    fn create_directory(&self, path: &Path, _mode: u32) -> io::Result<()> {
        self.alive()?.state().create(path, true)
    }

    fn create_directories(&self, path: &Path, _mode: u32) -> io::Result<()> {
        let mut state = self.alive()?.state();
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|path| state.kind_at(path).is_none())
            .collect();
        while let Some(directory) = missing.pop() {
            state.create(directory, true)?;
        }
        match state.kind_at(path) {
            Some(Kind::Directory) => Ok(()),
            _ => fail(Errno::EXIST),
        }
    }

    fn create_file(&self, path: &Path, _mode: u32) -> io::Result<()> {
        self.alive()?.state().create(path, false)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.alive()?.remove(path, true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.alive()?.remove(path, false)
    }

    fn statvfs(&self, path: &Path) -> io::Result<Usage> {
        let state = self.alive()?.state();
        state.kind_at(path).ok_or(Errno::NOENT)?;
        state.answers(path)?;
        Ok(state.usage(path))
    }

    fn run<'a>(
        &'a self,
        tool: &'a Path,
        args: &'a [&'a str],
        device: &'a Path,
        limit: Duration,
        task: ToolTask,
    ) -> BoxFuture<'a, Result<ToolExit, ToolError>> {
        Box::pin(async move {
            let name = tool.display().to_string();
            let start = |source| ToolError::Start {
                tool: name.clone(),
                source,
            };
            let node = self.alive().map_err(start)?;
            programs::run(node, &name, args, device, limit, task).await
        })
    }

    fn may_grow_mounted_ext(&self) -> bool {
        true
    }
}

impl Node {
    fn remove(&self, path: &Path, is_directory: bool) -> io::Result<()> {
        let mut state = self.state();
        state.remove(path, is_directory)?;
        self.detach_mounts(&mut state, path);
        Ok(())
    }
}

impl State {
    /// Returns the kind of the file at a path, with symbolic links resolved.
    pub(super) fn kind_at(&self, path: &Path) -> Option<Kind> {
        if let Some(mount) = self.mount_at(path) {
            return match &mount.root {
                Root::Volume(_) => Some(Kind::Directory),
                Root::Device(..) => Some(Kind::BlockDevice),
                Root::Tree(root) => self.tree.get(root).map(|is_directory| kind(*is_directory)),
            };
        }
        if self.node_at(path).is_some() {
            return Some(Kind::BlockDevice);
        }
        if let Some(entry) = self.sysfs(path) {
            return Some(kind(matches!(entry, Entry::Directory(_))));
        }
        // udev creates the directory with the first link.
        if ["/dev/disk", "/dev/disk/by-id"].map(Path::new).contains(&path) && !self.links.is_empty() {
            return Some(Kind::Directory);
        }
        self.tree.get(path).map(|is_directory| kind(*is_directory))
    }

    /// Returns the number of the device at a path.
    pub(super) fn node_at(&self, path: &Path) -> Option<(u32, u32)> {
        if let Some(mount) = self.mount_at(path) {
            return match mount.root {
                Root::Device(_, number) => Some(number),
                _ => None,
            };
        }
        let name = match self.linked(path) {
            Some(name) => name,
            None => path.strip_prefix("/dev").ok()?.to_str()?,
        };
        if let Some((_, disk)) = self.disk_named(name) {
            return Some(disk.number());
        }
        let path = self.path_named(name).filter(|_| self.hardware.shows_paths());
        path.map(|(_, path)| path.number)
    }

    /// Returns the name of the disk that a udev link refers to, even if the disk does not exist.
    fn linked(&self, path: &Path) -> Option<&str> {
        let name = path.strip_prefix("/dev/disk/by-id").ok()?.to_str()?;
        self.links.get(name)?.target()
    }

    fn names_in(&self, directory: &Path) -> io::Result<BTreeSet<String>> {
        let is_volume = |mount: &Mount| matches!(mount.root, Root::Volume(_));
        match self.kind_at(directory) {
            None => return fail(Errno::NOENT),
            Some(Kind::Directory) => {}
            Some(_) => return fail(Errno::NOTDIR),
        }
        if self.mount_at(directory).is_some_and(is_volume) {
            return Ok(BTreeSet::new());
        }
        if let Some(Entry::Directory(names)) = self.sysfs(directory) {
            return Ok(names);
        }
        if directory == Path::new("/dev/disk/by-id") {
            let shown = self.links.iter().filter(|(_, link)| link.target().is_some());
            return Ok(shown.map(|(name, _)| name.clone()).collect());
        }
        let children = self.tree.keys().filter(|path| path.parent() == Some(directory));
        let names = children.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let mut names: BTreeSet<String> = names.collect();
        if directory == Path::new("/dev") {
            names.extend(self.device_names());
        }
        Ok(names)
    }

    /// Fails if the file system at a path does not respond.
    pub(super) fn answers(&self, path: &Path) -> io::Result<()> {
        let mount = path.ancestors().find_map(|path| self.mount_at(path));
        match mount.map(|mount| &mount.root) {
            Some(Root::Volume(superblock)) if self.is_dead(*superblock) => fail(Errno::IO),
            _ => Ok(()),
        }
    }

    fn usage(&self, path: &Path) -> Usage {
        let mount = path.ancestors().find_map(|path| self.mount_at(path));
        let disk = mount.and_then(|mount| match mount.root {
            Root::Volume(superblock) => self.disks.get(&self.superblocks.get(&superblock)?.disk),
            _ => None,
        });
        let filesystem = disk.and_then(Filesystem::detect);
        let bytes_total = filesystem.map_or(LOCAL_SECTORS * 512, |filesystem| filesystem.size);
        let inodes_total = bytes_total >> 14;
        Usage {
            bytes_total,
            bytes_used: 0,
            bytes_available: bytes_total,
            inodes_total,
            inodes_used: 0,
            inodes_free: inodes_total,
        }
    }

    fn create(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        if self.kind_at(path).is_some() {
            return fail(Errno::EXIST);
        }
        match path.parent().and_then(|parent| self.kind_at(parent)) {
            Some(Kind::Directory) => {}
            Some(_) => return fail(Errno::NOTDIR),
            None => return fail(Errno::NOENT),
        }
        self.tree.insert(path.to_owned(), is_directory);
        Ok(())
    }

    fn remove(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        if self.mount_at(path).is_some() {
            return fail(Errno::BUSY);
        }
        match self.tree.get(path) {
            None => return fail(Errno::NOENT),
            Some(found) if *found != is_directory => {
                return fail(if is_directory { Errno::NOTDIR } else { Errno::ISDIR });
            }
            Some(_) => {}
        }
        if self.tree.keys().any(|other| other.parent() == Some(path)) {
            return fail(Errno::NOTEMPTY);
        }
        self.tree.remove(path);
        Ok(())
    }
}

fn kind(is_directory: bool) -> Kind {
    if is_directory { Kind::Directory } else { Kind::Other }
}
