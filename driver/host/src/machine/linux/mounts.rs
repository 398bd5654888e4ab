// SPDX-License-Identifier: Apache-2.0
//! System calls of a mount.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::machine::Refusal;
use crate::{FsType, MountOptions};

/// Limit of messages that are read from the kernel after a refusal.
const MOST_MESSAGES: usize = 16;

pub(super) fn mount(device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Refusal> {
    let refused = |errno: Errno, messages: Vec<String>| Refusal { errno, messages };
    let context = match fsopen(fs_type.name(), FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        Err(Errno::NOSYS) => {
            return mount_classic(device, target, fs_type, options).map_err(|errno| refused(errno, Vec::new()));
        }
        Err(errno) => return Err(refused(errno, Vec::new())),
    };
    configure(&context, device, options)
        .and_then(|()| {
            fsmount(
                context.as_fd(),
                FsMountFlags::FSMOUNT_CLOEXEC,
                attributes(options.flags()),
            )
        })
        .and_then(|mount| move_mount(mount.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH))
        .map_err(|errno| refused(errno, read_messages(&context)))
}

fn configure(context: &OwnedFd, device: &Path, options: &MountOptions) -> Result<(), Errno> {
    fsconfig_set_string(context.as_fd(), "source", device)?;
    if options.is_read_only() {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    for option in options.of_the_filesystem() {
        match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(context.as_fd(), key, value.trim_matches('"'))?,
            None => fsconfig_set_flag(context.as_fd(), option.as_str())?,
        }
    }
    fsconfig_create(context.as_fd())
}

/// Reads the messages of the kernel about a refusal, without the level in front of each (`e `, `w `, `i `).
fn read_messages(context: &OwnedFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut buffer = [0_u8; 1024];
    for _ in 0..MOST_MESSAGES {
        // The kernel returns ENODATA after the last message.
        let Ok(length) = rustix::io::read(context, &mut buffer) else {
            break;
        };
        let line = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default())
            .trim()
            .to_owned();
        messages.push(line.get(2..).map_or(line.clone(), str::to_owned));
    }
    messages
}

fn attributes(flags: MountFlags) -> MountAttrFlags {
    const SAME: [(MountFlags, MountAttrFlags); 9] = [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::RELATIME, MountAttrFlags::MOUNT_ATTR_RELATIME),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        (MountFlags::NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
    ];
    let wanted = SAME
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, attribute)| *attribute);
    wanted.fold(MountAttrFlags::empty(), |all, one| all | one)
}

/// Calls `mount(2)`, for kernels before 5.2.
fn mount_classic(device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Errno> {
    let data = CString::new(options.of_the_filesystem().join(",")).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(device, target, fs_type.name(), options.flags(), data.as_c_str())
}
