// SPDX-License-Identifier: Apache-2.0
//! Decodes the mounts in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{Device, Machine};

mod entry;

pub use entry::Mount;

impl Mount {
    /// Whether this is a mount of the file system of `device`.
    ///
    /// A btrfs gives its files a device number of its own. It is identified by its source, which the kernel sets.
    pub fn is_of(&self, device: &Device) -> bool {
        self.is_of_disk(&device.name, Some(device.number))
    }
}

/// Errors of reading the list of mounts.
#[derive(Debug, thiserror::Error)]
pub enum MountInfoError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line does not match proc(5). The driver does not skip it, because it would mount an overlooked mount twice.
    #[error("line {line} of {} is not understood ({problem}); please report it with the kernel's version", path.display())]
    Parse {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The fault of the line.
        problem: &'static str,
    },
}

/// The mounts of this process's mount namespace in lookup order: later mounts cover earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// Reads `self/mountinfo` below `proc`. Blocks until the kernel has printed it.
    pub(crate) fn read(machine: &dyn Machine, proc: &Path) -> Result<Self, MountInfoError> {
        let path = proc.join("self/mountinfo");
        let text = machine.read(&path).map_err(|source| MountInfoError::Read {
            path: path.clone(),
            source,
        })?;
        Self::parse(&text).map_err(|(line, problem)| MountInfoError::Parse { path, line, problem })
    }

    /// Decodes the text of the kernel. The error has the line number, counted from 1, and the fault of the line.
    pub fn parse(text: &[u8]) -> Result<Self, (usize, &'static str)> {
        text.split(|byte| *byte == b'\n')
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
            .map(|(index, line)| parse_line(line).map_err(|problem| (index + 1, problem)))
            .collect::<Result<_, _>>()
            .map(|mounts| Self { mounts })
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// Returns the visible mount at `target`, which is the last one. `target` must not contain symbolic links.
    pub fn at(&self, target: &Path) -> Option<&Mount> {
        self.iter().rev().find(|mount| mount.target == target)
    }

    /// Returns all mounts of the file system of `device`.
    pub fn of_device(&self, device: &Device) -> impl Iterator<Item = &Mount> {
        self.iter().filter(move |mount| mount.is_of(device))
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Result<Mount, &'static str> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |missing: &'static str| fields.next().ok_or(missing);
    let id = parse_number(next("no mount id")?).ok_or("the mount id is no number")?;
    let parent = parse_number(next("no parent id")?).ok_or("the parent id is no number")?;
    let device = parse_device_number(next("no device number")?).ok_or("the device number is not major:minor")?;
    let root = parse_path(next("no root")?);
    let target = parse_path(next("no mount point")?);
    let options = parse_text(next("no mount options")?);
    // Skips any number of optional fields, which a hyphen ends.
    while next("no hyphen after the optional fields")? != b"-" {}
    Ok(Mount {
        id,
        parent,
        device,
        root,
        target,
        options,
        fs_type: parse_text(next("no file system type")?),
        source: parse_path(next("no mount source")?),
        super_options: parse_text(next("no options of the file system")?),
    })
}

fn parse_number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Parses a major and minor number, such as `98:0`.
pub(crate) fn parse_device_number(field: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn parse_path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn parse_text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Decodes the escapes of the kernel: `\` and three octal digits encode a space, tab, newline, backslash or `#`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        if let Some(byte) = octal {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

/// Resolves the symbolic links in the parents of `path`, as the kernel does for mount points.
///
/// Does not access the last component, because a mount at that path may hang. Returns `path` unchanged if its parent
/// does not exist.
pub(crate) fn resolve(machine: &dyn Machine, path: &Path) -> PathBuf {
    let plain = path.components().collect::<PathBuf>();
    match (plain.parent(), plain.file_name()) {
        (Some(parent), Some(name)) if plain.as_os_str().as_bytes() != b"/" => machine
            .canonicalize(parent)
            .map_or_else(|_| plain.clone(), |parent| parent.join(name)),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Linux;

    /// Escapes a path as the kernel does.
    fn escape(path: &[u8]) -> Vec<u8> {
        let mut escaped = Vec::new();
        for byte in path {
            match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
                other => escaped.push(*other),
            }
        }
        escaped
    }

    #[test]
    fn parses_line_of_manual_page() {
        let line = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue";
        let mount = parse_line(line).expect("it is well-formed");
        assert_eq!(mount.target, Path::new("/mnt 2"));
        assert_eq!((mount.id, mount.parent, mount.device), (36, 35, (98, 0)));
        assert_eq!(
            (mount.fs_type.as_str(), mount.super_options.as_str()),
            ("ext3", "rw,errors=continue")
        );
        assert!(!mount.is_read_only());
    }

    #[test]
    fn truncated_line_error_names_line() {
        let text = b"36 35 98:0 / / rw - ext4 /dev/a rw\n37 36 98:1 / /b rw master:1\n";
        assert_eq!(MountTable::parse(text), Err((2, "no hyphen after the optional fields")));
    }

    #[test]
    fn last_mount_at_target_is_visible() {
        let text =
            b"1 0 8:0 / /a rw - ext4 /dev/a rw\n2 1 8:1 / /a ro - xfs /dev/b rw\n3 0 8:1 / /c rw - xfs /dev/b rw\n";
        let table = MountTable::parse(text).expect("it is well-formed");
        let seen = table.at(Path::new("/a")).expect("two are mounted there");
        assert_eq!((seen.id, seen.is_read_only()), (2, true));
        assert_eq!(
            table
                .of_device(&device("sdb"))
                .map(|mount| mount.id)
                .collect::<Vec<_>>(),
            [2, 3]
        );
        assert!(table.at(Path::new("/d")).is_none());
    }

    fn device(name: &str) -> Device {
        Device {
            path: Path::new("/dev").join(name),
            name: name.into(),
            size_bytes: 1 << 30,
            number: (8, 1),
            read_only: false,
            volume_id: "volume-1".into(),
        }
    }

    #[test]
    fn identifies_btrfs_by_source() {
        let text = b"1 0 0:50 / /a rw - btrfs /dev/sdb rw\n2 0 0:51 / /b rw - btrfs /dev/sdc rw\n3 0 0:52 / /c rw - tmpfs /dev/sdb rw\n";
        let table = MountTable::parse(text).expect("it is well-formed");
        let ids: Vec<_> = table.of_device(&device("sdb")).map(|mount| mount.id).collect();
        assert_eq!(ids, [1]);
    }

    #[test]
    fn parses_mounts_of_this_machine() {
        let table = MountTable::read(&Linux::default(), Path::new("/proc")).expect("every line is understood");
        assert!(table.at(Path::new("/")).is_some());
    }

    #[test]
    fn resolves_path_like_kernel() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let real = dir.path().canonicalize().expect("it exists").join("real");
        std::fs::create_dir(&real).expect("a directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let resolve = |path: &Path| resolve(&Linux::default(), path);
        assert_eq!(resolve(&link.join("./mount/")), real.join("mount"));
        assert_eq!(resolve(Path::new("/")), Path::new("/"));
    }

    proptest! {
        #[test]
        fn decodes_any_escaped_mount_point(name in proptest::collection::vec(1u8..=255, 1..64)) {
            let mut line = b"36 35 98:0 / ".to_vec();
            line.extend(escape(&name));
            line.extend(b" rw - ext4 /dev/root rw");
            let mount = parse_line(&line).expect("it is well-formed");
            prop_assert_eq!(mount.target.as_os_str().as_bytes(), &name[..]);
        }

        #[test]
        fn parses_fields_around_optional_fields(
            ids in any::<(u64, u64)>(),
            device in any::<(u32, u32)>(),
            root in "/[^\\x00]{0,30}",
            options in "[a-z,=]{1,30}",
            optional in proptest::collection::vec("[a-z]{1,9}:[0-9]{1,5}", 0..4),
            source in "[^\\x00]{1,30}",
            super_options in "[^\\x00]{1,30}",
        ) {
            let escaped = |text: &str| String::from_utf8(escape(text.as_bytes())).expect("it was text");
            let optional = [vec![String::new()], optional].concat().join(" ");
            let line = format!(
                "{} {} {}:{} {} /target {options}{optional} - xfs {} {}",
                ids.0, ids.1, device.0, device.1, escaped(&root), escaped(&source), escaped(&super_options)
            );
            let table = MountTable::parse(line.as_bytes()).expect("it is well-formed");
            let mount = table.at(Path::new("/target")).expect("it is there");
            prop_assert_eq!((mount.id, mount.parent, mount.device), (ids.0, ids.1, device));
            prop_assert_eq!(&mount.root, Path::new(&root));
            prop_assert_eq!(&mount.options, &options);
            prop_assert_eq!(&mount.source, Path::new(&source));
            prop_assert_eq!(&mount.super_options, &super_options);
        }

        #[test]
        fn parser_survives_any_line(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(parse_line(&line));
            drop(unescape(&line));
        }
    }
}
