// SPDX-License-Identifier: Apache-2.0
//! `/proc/self/mountinfo`. Checks that any bytes are parsed or refused with the line number, and that parsed mounts
//! equal the kernel's.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use csi_host::mountinfo::{Mount, MountTable};

use crate::{Target, texts};

const SEEDS: &[&str] = &[
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n23 22 0:21 / /proc rw - proc proc rw\n",
    "36 35 98:0 /mnt1 /mnt2\\040with\\040spaces rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
    "40 22 0:5 /vdb /var/lib/kubelet/pods/a/volumeDevices/b ro,nosuid shared:2 master:3 propagate_from:1 unbindable - devtmpfs devtmpfs rw\n",
    "41 22 0:50 /sub\\011vol /x\\134y rw - btrfs /dev/vdc rw,subvol=/sub\\043\n",
];

pub(crate) const TARGET: Target = Target {
    name: "mountinfo",
    seeds: || texts(SEEDS),
    words: &[
        " - ",
        " ",
        "\n",
        "\\040",
        "\\011",
        "\\012",
        "\\134",
        "\\043",
        "\\777",
        "\\04",
        "\\",
        "/",
        ":",
        "0:0",
        "ro",
        "rw",
        "ext4",
        "4294967296:1",
        "18446744073709551616",
        "-1",
        "shared:1",
        "ü",
        "\u{0}",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let table = match MountTable::parse(bytes) {
        Ok(table) => table,
        Err((line, problem)) => {
            assert!((1..=lines).contains(&line), "line {line} of {lines}");
            assert!(!problem.is_empty(), "a refusal without a reason");
            return;
        }
    };
    for mount in table.iter() {
        let seen = table.at(&mount.target);
        assert!(
            seen.is_some_and(|seen| seen.target == mount.target),
            "what is mounted is not found"
        );
    }
    let written: Vec<u8> = table.iter().flat_map(line).collect();
    let again = MountTable::parse(&written);
    assert_eq!(
        again.as_ref(),
        Ok(&table),
        "what the kernel would print of it reads as something else"
    );
}

/// Returns the line that the kernel prints for a mount.
fn line(mount: &Mount) -> Vec<u8> {
    let path = |path: &Path| escape(path.as_os_str().as_bytes());
    let (major, minor) = mount.device;
    let words = [
        mount.id.to_string().into_bytes(),
        mount.parent.to_string().into_bytes(),
        format!("{major}:{minor}").into_bytes(),
        path(&mount.root),
        path(&mount.target),
        escape(mount.options.as_bytes()),
        b"-".to_vec(),
        escape(mount.fs_type.as_bytes()),
        path(&mount.source),
        escape(mount.super_options.as_bytes()),
    ];
    let mut line = words.join(&b' ');
    line.push(b'\n');
    line
}

/// Escapes a path as the kernel does: separators of fields and lines and the backslash in octal.
fn escape(plain: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in plain {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => escaped.extend(format!("\\{byte:03o}").bytes()),
            other => escaped.push(*other),
        }
    }
    escaped
}
