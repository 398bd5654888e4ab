// SPDX-License-Identifier: Apache-2.0
//! Programs that the driver runs. They belong to the node and continue to run after the driver's process is killed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csi_host::machine::{Disk as _, Open};
use csi_host::tool::{TimeUp, ToolExit, ToolOutput, ToolTask};
use csi_host::{FsType, ToolError};
use rustix::io::Errno;
use tokio::time::{sleep, timeout};

use super::damage::Damage;
use super::disks::SimDisk;
use super::filesystem::Filesystem;
use super::state::{Disk, Opener, Root};
use super::trap::Moment;
use super::{Node, fail};

/// Durations of the programs.
const PROBE: Duration = Duration::from_millis(50);
const MKFS_STEP: Duration = Duration::from_secs(3);
const CHECK: Duration = Duration::from_secs(2);
const GROW: Duration = Duration::from_secs(1);

/// Sizes of the areas that mkfs clears at the start and the end of a device, the maximum of all types (btrfs).
const CLEARED: u64 = 8 << 20;
const CLEARED_END: u64 = 128 << 10;
const CLEARED_END_BTRFS: u64 = 2 << 20;

/// Offsets that mke2fs writes before its superblock, for example in inode tables.
const WRITTEN_BEFORE: [u64; 3] = [64 << 10, 1 << 20, 5 << 20];

/// Exit status and output, on stdout after 0 and on stderr otherwise.
type End = (i32, String);

/// Starts a program and waits for it as `task` requires.
pub(super) async fn run(
    node: &Arc<Node>,
    tool: &str,
    args: &[&str],
    place: &Path,
    limit: Duration,
    task: ToolTask,
) -> Result<ToolExit, ToolError> {
    if !is_known(tool) {
        return Err(ToolError::Missing { tool: tool.to_owned() });
    }
    let program = {
        let (node, tool, place) = (node.clone(), tool.to_owned(), place.to_owned());
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        async move {
            node.note(|| format!("{tool} {} {} starts", args.join(" "), place.display()));
            let (code, said) = execute(&node, &tool, &args, &place).await;
            node.note(|| format!("{tool} {} ends with {code}", place.display()));
            (code, said)
        }
    };
    let left_running = task.time_up() == TimeUp::LeaveRunning;
    let ended = if left_running {
        let task = {
            // The lock ensures that the program is registered before it ends.
            let mut state = node.state();
            let (id, of) = (state.number(), node.clone());
            let task = tokio::spawn(async move {
                let ended = program.await;
                of.state().programs.remove(&id);
                ended
            });
            state.programs.insert(id, task.abort_handle());
            task
        };
        timeout(limit, async { task.await.map_err(io::Error::other) }).await
    } else {
        timeout(limit, async { Ok(program.await) }).await
    };
    let ended = ended.map_err(|_| ToolError::TimedOut {
        tool: tool.to_owned(),
        device: place.to_owned(),
        limit,
        left_running,
    })?;
    let (code, said) = ended.map_err(|source| ToolError::Start {
        tool: tool.to_owned(),
        source,
    })?;
    let output = ToolOutput::from(said.as_str());
    let (stdout, stderr) = if code == 0 {
        (output, ToolOutput::default())
    } else {
        (ToolOutput::default(), output)
    };
    Ok(ToolExit {
        code: Some(code),
        how: format!("exit status: {code}"),
        stdout,
        stderr,
    })
}

fn is_known(tool: &str) -> bool {
    const KNOWN: [&str; 9] = [
        "blkid",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "e2fsck",
        "resize2fs",
        "xfs_growfs",
        "btrfs",
        "blockdev",
    ];
    KNOWN.contains(&tool)
}

async fn execute(node: &Arc<Node>, tool: &str, args: &[String], place: &Path) -> End {
    let faults = node.state().faults;
    if node.happens(faults.hang) {
        sleep(node.draw(faults.hang_limit)).await;
    }
    let (ended, failure) = match tool {
        "blkid" => (probe(node, place).await, 2),
        "mkfs.xfs" => (make(node, FsType::Xfs, place).await, 1),
        "mkfs.btrfs" => (make(node, FsType::Btrfs, place).await, 1),
        "mkfs.ext4" => {
            let named = args
                .iter()
                .skip_while(|arg| *arg != "-t")
                .nth(1)
                .and_then(|name| FsType::from_name(name));
            (make(node, named.unwrap_or(FsType::Ext4), place).await, 1)
        }
        "e2fsck" => (check(node, place).await, 8),
        "resize2fs" => (grow_ext(node, place).await, 1),
        "blockdev" => {
            let read_only = args.iter().any(|arg| arg == "--setro");
            (set_read_only(node, place, read_only), 1)
        }
        _ => (grow_mounted(node, place).await, 1),
    };
    ended.unwrap_or_else(|error| (failure, format!("{tool}: {}: {error}", place.display())))
}

impl Node {
    /// Waits for a random duration of work.
    async fn work(&self, limit: Duration) {
        sleep(self.draw(limit)).await;
        self.pass(Moment::Program).await;
    }
}

fn open(node: &Arc<Node>, device: &Path, how: Open) -> io::Result<SimDisk> {
    node.open(device, how, Opener::Program)
}

async fn probe(node: &Arc<Node>, device: &Path) -> io::Result<End> {
    let disk = open(node, device, Open::Read)?;
    node.work(PROBE).await;
    disk.access(|disk| probed(disk))
}

/// Returns the result of blkid's low-level probe.
fn probed(disk: &Disk) -> End {
    if let Some((status, output)) = disk.medium.probed_as_foreign() {
        return (status, output.into());
    }
    match Filesystem::all(disk).as_slice() {
        [] => (2, String::new()),
        [one] => (0, format!("TYPE={}\nUSAGE=filesystem\n", one.fs_type)),
        _ => (8, String::new()),
    }
}

async fn make(node: &Arc<Node>, fs_type: FsType, device: &Path) -> io::Result<End> {
    let disk = open(node, device, Open::WriteAlone)?;
    let bytes = disk.size()?;
    disk.judge_format(fs_type)?;
    disk.judge_mark()?;
    let end = if fs_type == FsType::Btrfs {
        CLEARED_END_BTRFS
    } else {
        CLEARED_END
    };
    disk.access(|disk| {
        disk.clear(0, CLEARED.min(bytes));
        disk.clear(bytes.saturating_sub(end), bytes);
    })?;
    node.work(MKFS_STEP).await;

    let mut filesystem = Filesystem {
        fs_type,
        uuid: *node.sources.uuid().as_bytes(),
        size: bytes,
        in_progress: true,
    };
    disk.access(|disk| {
        if fs_type.is_ext() {
            for at in WRITTEN_BEFORE {
                disk.write_at(b"written before the superblock", at);
            }
        } else {
            let (at, superblock) = filesystem.superblock();
            disk.write_at(&superblock, at);
        }
    })?;
    node.work(MKFS_STEP).await;

    let faults = node.state().faults;
    if node.happens(faults.mkfs_fails) {
        return fail(Errno::IO);
    }
    if disk.access(|disk| disk.medium.is_precious())? {
        disk.judge_format(fs_type)?;
    }
    filesystem.in_progress = false;
    disk.access(|disk| {
        let (at, superblock) = filesystem.superblock();
        disk.write_at(&superblock, at);
        disk.flush();
    })?;
    Ok((0, String::new()))
}

async fn check(node: &Arc<Node>, device: &Path) -> io::Result<End> {
    let disk = open(node, device, Open::WriteAlone)?;
    node.work(CHECK).await;
    let faults = node.state().faults;
    if node.happens(faults.fsck_fails) {
        return Ok((8, "memory allocation failed".into()));
    }
    let (found, damage) = disk.access(|disk| (Filesystem::detect(disk), disk.medium.damage()))?;
    if !found.is_some_and(|found| found.fs_type.is_ext()) {
        return Ok((8, "bad magic number in super-block".into()));
    }
    let Some(damage) = damage else {
        return Ok((0, format!("{}: clean", device.display())));
    };
    if damage != Damage::Uncorrected {
        disk.access(|disk| disk.medium.repair())?;
    }
    let (status, report) = damage.report();
    Ok((status, report.into()))
}

async fn grow_ext(node: &Arc<Node>, device: &Path) -> io::Result<End> {
    let is_mounted = {
        let state = node.state();
        let (disk, _) = state.device_at(device)?;
        state.superblock_of(disk).is_some()
    };
    // For a mounted file system, the kernel provides the size.
    let how = if is_mounted { Open::Read } else { Open::WriteAlone };
    let disk = open(node, device, how)?;
    node.work(GROW).await;
    match disk.access(|disk| Filesystem::detect(disk))? {
        Some(found) if found.fs_type.is_ext() => grow(&disk, found),
        _ => Ok((1, "bad magic number in super-block".into())),
    }
}

async fn grow_mounted(node: &Arc<Node>, target: &Path) -> io::Result<End> {
    node.work(GROW).await;
    let device = {
        let state = node.state();
        let superblock = match state.mount_at(target).map(|mount| &mount.root) {
            Some(Root::Volume(superblock)) if !state.is_dead(*superblock) => state.superblocks.get(superblock),
            Some(Root::Volume(_)) => return fail(Errno::IO),
            _ => None,
        };
        let disk = superblock.and_then(|superblock| state.disks.get(&superblock.disk));
        disk.map(|disk| Path::new("/dev").join(disk.name()))
    };
    let Some(device) = device else {
        return Ok((1, "is not a mounted file system".into()));
    };
    let disk = open(node, &device, Open::Read)?;
    match disk.access(|disk| Filesystem::detect(disk))? {
        Some(found) => grow(&disk, found),
        None => fail(Errno::UCLEAN),
    }
}

/// Grows a file system to the size of its disk; never shrinks it.
fn grow(disk: &SimDisk, filesystem: Filesystem) -> io::Result<End> {
    let size = disk.size()?.max(filesystem.size);
    let (at, superblock) = Filesystem { size, ..filesystem }.superblock();
    disk.access(|disk| {
        disk.write_at(&superblock, at);
        disk.flush();
    })?;
    Ok((0, format!("it has {size} bytes now")))
}

fn set_read_only(node: &Arc<Node>, device: &Path, read_only: bool) -> io::Result<End> {
    let mut state = node.state();
    let (disk, _) = state.device_at(device)?;
    if let Some(disk) = state.disks.get_mut(&disk) {
        disk.read_only = read_only;
    }
    Ok((0, String::new()))
}
