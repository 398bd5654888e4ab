// SPDX-License-Identifier: Apache-2.0
//! One error of a node for each variant.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use csi_host::mountinfo::MountInfoError;
use csi_host::{
    DeviceError, FilesystemError, FsType, MkfsOptions, MountError, MountOptions, OffloadError, ToolError, UsageError,
};

use crate::node_error::NodeError;

fn path() -> PathBuf {
    "/PATH".into()
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn io() -> io::Error {
    io::Error::other("Input/output error")
}

fn no_answer() -> OffloadError {
    OffloadError::TimedOut {
        what: "the call".into(),
        limit: Duration::from_secs(20),
    }
}

pub(super) fn device_errors() -> Vec<DeviceError> {
    let (volume_id, device) = (|| text("VOLUME"), || text("/dev/vdb"));
    vec![
        DeviceError::NotFound {
            volume_id: volume_id(),
            looked_at: 3,
            links: "/dev/disk/by-id".into(),
            waited: Duration::from_secs(90),
        },
        DeviceError::Stale {
            volume_id: volume_id(),
            link: path(),
            device: device(),
            serial: text("OTHER"),
            unidentified: None,
        },
        DeviceError::Ambiguous {
            volume_id: volume_id(),
            candidates: vec![device(), text("/dev/vdc")],
        },
        DeviceError::NoSize {
            volume_id: volume_id(),
            device: device(),
        },
        DeviceError::TooSmall {
            volume_id: volume_id(),
            device: device(),
            map: None,
            expected: 2 << 30,
            actual: 1 << 30,
        },
        DeviceError::WrongNode {
            path: path(),
            name: text("vdb"),
            expected: (253, 16),
            actual: (253, 32),
        },
        DeviceError::Moved {
            volume_id: volume_id(),
            before: "/dev/vdb".into(),
            now: "/dev/vdc".into(),
        },
        DeviceError::Access {
            what: "open",
            path: path(),
            source: io(),
        },
        DeviceError::Busy {
            path: path(),
            holder: text("a mount has it"),
        },
        DeviceError::NoAnswer(no_answer()),
    ]
}

pub(super) fn tool_errors() -> Vec<ToolError> {
    let tool = || text("mkfs.ext4");
    vec![
        ToolError::Missing { tool: tool() },
        ToolError::Start {
            tool: tool(),
            source: io(),
        },
        ToolError::TimedOut {
            tool: tool(),
            device: path(),
            limit: Duration::from_mins(10),
            left_running: true,
        },
        ToolError::Failed {
            tool: tool(),
            device: path(),
            ended: text("exit status: 1"),
            said: text("bad magic number"),
        },
        ToolError::TooMuchOutput {
            tool: text("blkid"),
            device: path(),
            bytes: 100_000,
        },
    ]
}

pub(super) fn filesystem_errors() -> Vec<FilesystemError> {
    let (device, volume_id) = (path, || text("VOLUME"));
    let bad_option = MkfsOptions::parse("--unheard-of").arguments(FsType::Ext4, &[], "");
    let mut errors = vec![
        FilesystemError::MkfsOption(bad_option.expect_err("no such option")),
        FilesystemError::Foreign {
            device: device(),
            volume_id: volume_id(),
            found: text("LVM2_member"),
        },
        FilesystemError::OtherType {
            device: device(),
            volume_id: volume_id(),
            found: FsType::Xfs,
            wanted: FsType::Ext4,
        },
        FilesystemError::EmptyReadOnly {
            device: device(),
            volume_id: volume_id(),
        },
        FilesystemError::Unfinished {
            device: device(),
            volume_id: volume_id(),
            found: FsType::Xfs,
        },
        FilesystemError::NotOnline {
            device: device(),
            volume_id: volume_id(),
            fs_type: FsType::Ext4,
        },
        FilesystemError::NotMade {
            tool: text("mkfs.ext4"),
            device: device(),
            volume_id: volume_id(),
            found: text("nothing"),
        },
        FilesystemError::Damaged {
            device: device(),
            volume_id: volume_id(),
            fs_type: FsType::Ext4,
            report: text("exit status: 4"),
        },
        FilesystemError::Io {
            what: "read",
            device: device(),
            volume_id: volume_id(),
            source: io(),
        },
        FilesystemError::NoAnswer(no_answer()),
    ];
    errors.extend(device_errors().into_iter().map(FilesystemError::Device));
    errors.extend(tool_errors().into_iter().map(FilesystemError::Tool));
    errors
}

pub(super) fn mount_errors() -> Vec<MountError> {
    let bad_option = MountOptions::parse(&["bind"]);
    vec![
        MountError::List(MountInfoError::Read {
            path: "/proc/self/mountinfo".into(),
            source: io(),
        }),
        MountError::Option(bad_option.expect_err("another kind of mount")),
        MountError::Mount {
            device: path(),
            target: path(),
            fs_type: "ext4",
            reason: text("bad option"),
            source: io(),
        },
        MountError::OtherDisk {
            device: path(),
            target: path(),
            source_name: text("/dev/vdc"),
        },
        MountError::SeveralDevices {
            device: path(),
            devices: 2,
        },
        MountError::AccessConflict {
            device: path(),
            target: path(),
            access: "writable",
            reason: text("would change RO state"),
        },
        MountError::Bind {
            from: path(),
            target: path(),
            source: io(),
        },
        MountError::Place {
            what: "make",
            target: path(),
            source: io(),
        },
        MountError::NotEmpty { target: path() },
        MountError::Unmount {
            target: path(),
            source: io(),
        },
        MountError::Busy { target: path() },
        MountError::NoAnswer(no_answer()),
    ]
}

pub(super) fn node_errors() -> Vec<NodeError> {
    let volume_id = || text("VOLUME");
    let mut errors = vec![
        NodeError::StagedOther {
            volume_id: volume_id(),
            path: path(),
            source_name: text("/dev/vdc"),
            device: text("/dev/vdb"),
        },
        NodeError::StagedDifferently {
            volume_id: volume_id(),
            path: path(),
            found: text("read-only"),
            wanted: text("writable"),
        },
        NodeError::NotStaged {
            volume_id: volume_id(),
            path: path(),
        },
        NodeError::OtherType {
            volume_id: volume_id(),
            found: text("xfs"),
            wanted: FsType::Ext4,
        },
        NodeError::PublishedDifferently {
            volume_id: volume_id(),
            path: path(),
            found: text("/dev/vdc"),
            wanted: "writable",
        },
        NodeError::PublishedElsewhere {
            volume_id: volume_id(),
            path: path(),
        },
        NodeError::OtherVolume {
            volume_id: volume_id(),
            path: path(),
            serial: text("OTHER"),
        },
        NodeError::StillPublished {
            volume_id: volume_id(),
            path: path(),
        },
        NodeError::GrowReadOnly {
            volume_id: volume_id(),
            path: path(),
        },
        NodeError::ReadOnlyDevice {
            volume_id: volume_id(),
            device: path(),
        },
        NodeError::NotThere {
            volume_id: volume_id(),
            path: path(),
        },
        NodeError::Usage(UsageError::NotFound { path: path() }),
        NodeError::Usage(UsageError::Stat {
            path: path(),
            source: io(),
        }),
        NodeError::Usage(UsageError::NoAnswer(no_answer())),
    ];
    errors.extend(device_errors().into_iter().map(NodeError::NotGrown).take(1));
    errors.extend(device_errors().into_iter().map(NodeError::NotGrownAtStart).take(1));
    errors.extend(tool_errors().into_iter().map(NodeError::Tool));
    errors.extend(device_errors().into_iter().map(NodeError::Device));
    errors.extend(filesystem_errors().into_iter().map(NodeError::Filesystem));
    errors.extend(mount_errors().into_iter().map(NodeError::Mount));
    errors
}
