// SPDX-License-Identifier: Apache-2.0
//! Confines the programs that read the bytes of a volume.
//!
//! Users choose the content of a volume, so that a fault in such a program may let them run code as root on the node.
//!
//! This crate has no unsafe code, so that it cannot run code between `fork` and `exec`. The driver starts its own
//! executable with the argument `confined` instead. That process restricts itself and then executes the tool:
//!
//! | restriction | how |
//! |---|---|
//! | no new privileges, no capabilities except [`ToolTask::capabilities`] | `no_new_privs`, empty bounding set |
//! | no network | its own network namespace |
//! | files: its device, and the files that programs of the distribution read | Landlock, since kernel 5.13 |
//! | signals to itself only | Landlock, since kernel 6.12 |
//! | memory | `RLIMIT_DATA`, see [`memory_limit`] |
//! | no core dumps | `RLIMIT_CORE` |
//!
//! `RLIMIT_NPROC` has no effect, because the kernel does not count the processes of user 0. `exec` closes the open
//! files of the driver. `setpriv`, `prlimit` and `unshare` of util-linux would start three more programs for each tool,
//! and have no Landlock before util-linux 2.40.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};
use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use crate::MountTable;
use crate::tool::ToolTask;

/// First argument of the driver's executable that selects this mode.
const ARGUMENT: &str = "confined";
/// Exit status of a process that could not confine itself. No tool returns it: e2fsck returns a sum of bits without 64,
/// and the other tools return less than 125.
const NOT_CONFINED: u8 = 125;

/// The newest Landlock rules in use. An older kernel enforces the subset that it supports.
const RULES: ABI = ABI::V6;
/// Directories of programs and their libraries.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix", "/gnu"];
/// Configuration of programs and the kernel's own files. Excludes the rest of `/etc`, which may contain mounted
/// credentials.
const READABLE: [&str; 10] = [
    "/etc/mke2fs.conf",
    "/etc/e2fsck.conf",
    "/etc/blkid.conf",
    "/etc/mtab",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/proc",
    "/sys",
    "/dev/random",
    "/dev/urandom",
];
/// Directory of temporary files. The driver's image has no such directory.
const SCRATCH: &str = "/tmp";

/// Memory that every program may have.
const BASE_MEMORY: u64 = 512 << 20;
/// Bytes of the device per byte of memory: 4 GiB for 1 TiB. The bitmaps of e2fsck have at most 24 bytes for a block of
/// 1 KiB, if every second block is free. Directories and inodes with several links need about 1 GiB for 1 TiB.
const DEVICE_BYTES_PER_BYTE: u64 = 256;

/// Returns the command that starts this executable again, so that it confines itself and then executes `program`.
pub(super) fn confined_command(launcher: &Path, task: ToolTask, program: &Path, device: &Path) -> Command {
    let mut command = Command::new(launcher);
    command.arg(ARGUMENT).arg(task.name()).arg(device).arg(program);
    command
}

/// Whether this exit status reports that the process could not confine itself and did not execute the tool.
pub(super) fn has_failed(code: Option<i32>) -> bool {
    code == Some(NOT_CONFINED.into())
}

/// Confines this process and executes a program, if the first argument is `confined`. Returns `None` for other
/// arguments, and an exit code after a failure.
///
/// The caller must not have started a thread yet.
pub fn exec_if_confined(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    let error = match (
        args.next().as_deref().and_then(ToolTask::from_name),
        args.next(),
        args.next(),
    ) {
        (Some(task), Some(device), Some(program)) => match confine(task, Path::new(&device)) {
            Ok(()) => format!(
                "cannot start {}: {}",
                Path::new(&program).display(),
                Command::new(&program).args(args).exec()
            ),
            Err((what, error)) => format!("cannot {what}: {error}"),
        },
        _ => "expected a task, a device and a program".to_owned(),
    };
    eprintln!("cinder-csi-driver {ARGUMENT}: {error}");
    Some(ExitCode::from(NOT_CONFINED))
}

/// Whether the kernel can restrict the files of programs.
pub(super) fn restricts_files() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

fn confine(task: ToolTask, device: &Path) -> Result<(), (&'static str, io::Error)> {
    let limit = Some(memory_limit(device_size(device), total_memory()));
    let limits = [(Resource::Core, Some(0)), (Resource::Data, limit)];
    for (resource, value) in limits {
        let (current, maximum) = (value, value);
        setrlimit(resource, Rlimit { current, maximum }).map_err(|error| ("set a limit", error.into()))?;
    }
    leave_network().map_err(|error| ("leave the network", error.into()))?;
    rustix::thread::set_no_new_privs(true).map_err(|error| ("give up new privileges", error.into()))?;
    // Restricts files before it drops the capabilities, because root needs one to open devices of other owners.
    restrict_files(device).map_err(|error| ("restrict its files", io::Error::other(error)))?;
    drop_capabilities(task.capabilities()).map_err(|error| ("drop its capabilities", error.into()))
}

#[expect(
    deprecated,
    reason = "only its use for descriptors is unsafe; the replacement is an unsafe function"
)]
fn leave_network() -> Result<(), Errno> {
    rustix::thread::unshare(UnshareFlags::NEWNET)
}

/// Drops all capabilities except `keep`, also from the bounding set, because `exec` gives root the whole bounding set.
fn drop_capabilities(keep: CapabilitySet) -> Result<(), Errno> {
    let keep = keep & rustix::thread::capabilities(None)?.permitted;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if keep.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // This kernel has no further capabilities.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

fn restrict_files(device: &Path) -> Result<(), RulesetError> {
    let all = AccessFs::from_all(RULES);
    let (read, run) = (AccessFs::ReadFile, AccessFs::ReadFile | AccessFs::Execute);
    let use_device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    Ruleset::default()
        .handle_access(all)?
        .scope(Scope::from_all(RULES))?
        .create()?
        // The resize of a mounted file system opens directories.
        .add_rules(path_beneath_rules(["/"], AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(PROGRAMS, run))?
        .add_rules(path_beneath_rules(READABLE, read))?
        .add_rules(path_beneath_rules([SCRATCH], all))?
        .add_rules(path_beneath_rules([Path::new("/dev/null"), device], use_device))?
        .add_rules(path_beneath_rules(mounted_device(device), use_device))?
        .restrict_self()
        .map(drop)
}

/// Returns the memory limit of a program for a device of `size` bytes on a node with `total` bytes of memory.
///
/// The limit must not end the check of a full file system, and one volume must not use all memory of the node.
fn memory_limit(size: u64, total: u64) -> u64 {
    let required = BASE_MEMORY.saturating_add(size / DEVICE_BYTES_PER_BYTE);
    required.min((total / 2).max(BASE_MEMORY))
}

/// Returns the size of a block device in bytes; 0 for a directory, because the kernel resizes its file system.
///
/// An unknown size counts as the largest, so that the check of a large volume does not fail for lack of memory.
fn device_size(device: &Path) -> u64 {
    let block_device = std::fs::metadata(device).ok();
    let Some(metadata) = block_device.filter(|metadata| metadata.file_type().is_block_device()) else {
        return 0;
    };
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let size = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size"));
    let sectors = size.ok().and_then(|size| size.trim().parse::<u64>().ok());
    sectors.map_or(u64::MAX, |sectors| sectors.saturating_mul(512))
}

/// Returns the device of the file system that is mounted at a directory. `xfs_growfs` opens it by the name that the
/// kernel reports.
fn mounted_device(directory: &Path) -> Option<PathBuf> {
    let metadata = std::fs::metadata(directory).ok().filter(std::fs::Metadata::is_dir)?;
    let number = (major(metadata.dev()), minor(metadata.dev()));
    let mounts = MountTable::parse(&std::fs::read("/proc/self/mountinfo").ok()?).ok()?;
    mounts
        .iter()
        .find(|mount| mount.device == number)
        .map(|mount| mount.source.clone())
}

/// Returns the memory of this node in bytes; the largest number if the kernel does not report it.
fn total_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// Returns the path of this executable. It remains valid after the file is replaced.
pub(super) fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    #[rstest]
    #[case::smallest(GIB, 8 * GIB, BASE_MEMORY + (4 << 20))]
    #[case::usual(100 * GIB, 8 * GIB, BASE_MEMORY + (400 << 20))]
    #[case::largest_ext4_on_a_large_node(16 * TIB, 256 * GIB, BASE_MEMORY + 64 * GIB)]
    #[case::half_of_a_small_node(16 * TIB, 8 * GIB, 4 * GIB)]
    #[case::tiny_node(TIB, 512 << 20, BASE_MEMORY)]
    #[case::directory(0, 8 * GIB, BASE_MEMORY)]
    #[case::unknown_memory(u64::MAX, u64::MAX, BASE_MEMORY + u64::MAX / DEVICE_BYTES_PER_BYTE)]
    fn memory_limit_follows_device_and_node(#[case] size: u64, #[case] total: u64, #[case] limit: u64) {
        assert_eq!(memory_limit(size, total), limit);
    }

    #[test]
    fn other_arguments_are_not_confined() {
        let args = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(exec_if_confined(args(&["cinder-csi-driver", "--endpoint=x"])).is_none());
        assert!(exec_if_confined(args(&["cinder-csi-driver"])).is_none());
        assert!(exec_if_confined(args(&["cinder-csi-driver", "confined", "unknown", "/dev/x", "true"])).is_some());
    }
}
