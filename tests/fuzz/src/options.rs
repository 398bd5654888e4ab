// SPDX-License-Identifier: Apache-2.0
//! Options of mkfs and mount. Checks that accepted options only shape the file system and refer to no other device or file.

use csi_host::{FsType, MkfsOptions, MountOptions};

use crate::{Target, texts};

/// Keys of mkfs that name another device, another file or another part of the device.
const ELSEWHERE: &[&str] = &["device", "file", "logdev", "name", "offset", "rtdev"];
/// Flags of mkfs that take no value. The argument after any other option is its value, even if it begins with a dash.
const FLAGS: &[&str] = &[
    "-F",
    "-K",
    "-M",
    "-f",
    "-q",
    "--force",
    "--mixed",
    "--nodiscard",
    "--quiet",
];
/// The corresponding keys of mount.
const ELSEWHERE_OF_MOUNT: &[&str] = &[
    "device",
    "journal_dev",
    "journal_path",
    "logdev",
    "loop",
    "offset",
    "rtdev",
    "sizelimit",
];
/// Options whose value is arbitrary text.
const LABELS: &[&str] = &["-L", "--label"];

const WORDS: &[&str] = &[
    "-",
    "--",
    "=",
    ",",
    " ",
    "\t",
    "/",
    "/dev/vdb",
    "-E",
    "-O",
    "-J",
    "-d",
    "-l",
    "-L",
    "-m",
    "-r",
    "-b",
    "-K",
    "-F",
    "-f",
    "--label",
    "--rootdir",
    "offset",
    "device",
    "name",
    "file",
    "logdev",
    "rtdev",
    "size",
    "^64bit",
    "0",
    "4096",
    "journal_path",
    "journal_dev",
    "loop",
    "subvol",
    "context",
    "\"",
    "ro",
    "rw",
    "noatime",
    "x-",
    "\u{0}",
    "ü",
];

pub(crate) const MKFS: Target = Target {
    name: "mkfs-options",
    seeds: || {
        texts(&[
            "-E nodiscard,-O ^metadata_csum",
            "-E stride=16,stripe_width=64,-i 8192",
            "-m5 -b 4096",
            "-m reflink=0,crc=1 -i size=512 -d su=64k,sw=4 -l size=10m,version=2",
            "--csum=xxhash,-m single --label x",
            "-J size=4,-d name=/dev/vdb,-r /etc",
        ])
    },
    words: WORDS,
    eat: eat_mkfs,
};

pub(crate) const MOUNT: Target = Target {
    name: "mount-options",
    seeds: || {
        texts(&[
            "ro,noatime,nodev,discard,commit=30",
            "context=\"system_u:object_r:t:s0:c1,c2\",nosuid",
            "logbsize=256k\nsubvol=/a\nloop,offset=0",
            "journal_path=/dev/vdb,rtdev=/dev/vdc,x-systemd.automount",
        ])
    },
    words: WORDS,
    eat: eat_mount,
};

fn eat_mkfs(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let options = MkfsOptions::parse(text);
    for fs_type in [FsType::Ext2, FsType::Ext3, FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        let Ok(arguments) = options.arguments(fs_type, &[], "nodiscard") else {
            continue;
        };
        let mut words = arguments.iter();
        while let Some(option) = words.next() {
            assert!(
                option.starts_with('-') && option.len() > 1,
                "{option:?} is a place: {arguments:?}"
            );
            if !FLAGS.contains(&option.as_str()) {
                let value = words.next();
                check_value(
                    option,
                    value.unwrap_or_else(|| panic!("{option} has no value: {arguments:?}")),
                );
            }
        }
    }
}

fn check_value(option: &str, value: &str) {
    if LABELS.contains(&option) {
        return;
    }
    for part in value.split(',') {
        let key = part.split_once('=').map_or(part, |(key, _)| key);
        assert!(!ELSEWHERE.contains(&key), "{option} {part}");
    }
}

fn eat_mount(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lists: Vec<&str> = text.lines().collect();
    let Ok(options) = MountOptions::parse(&lists) else {
        return;
    };
    for option in options.of_the_filesystem() {
        let key = option.split_once('=').map_or(option.as_str(), |(key, _)| key);
        assert!(!ELSEWHERE_OF_MOUNT.contains(&key), "{option}");
        assert!(!option.contains('\0'));
        assert!(option.trim() == option && !option.is_empty(), "{option:?}");
    }
    let again = MountOptions::parse(options.of_the_filesystem());
    assert!(
        again.is_ok_and(|again| again.of_the_filesystem() == options.of_the_filesystem()),
        "options read as others"
    );
}
