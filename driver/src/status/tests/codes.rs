// SPDX-License-Identifier: Apache-2.0
//! Generates docs/reference/grpc-codes.md: every error for every act, with its gRPC code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use cinder_cloud::{EndpointProblem, GiB, GroupSnapshotId, Obstacle, ServerId, SnapshotId, TlsProblem, VolumeId};
use csi_host::mountinfo::MountInfoError;
use csi_host::{
    DeviceError, FilesystemError, FsType, MkfsOptions, MountError, MountOptions, OffloadError, ToolError, UsageError,
};

use super::super::*;
use super::{failure, not_found, retype_failed, volume_failed};
use crate::node_error::NodeError;

/// The page. With `UPDATE_REFERENCE=1`, the test writes it.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/grpc-codes.md");

const ACTS: [CloudAction; 8] = [
    CloudAction::Create,
    CloudAction::Snapshot,
    CloudAction::Expand,
    CloudAction::Modify,
    CloudAction::Delete,
    CloudAction::Attach,
    CloudAction::Detach,
    CloudAction::Look,
];

/// Lists the names of all variants, and defines a function that returns the name of an error. A new variant must be
/// listed to compile.
macro_rules! variants {
    ($error:ident, $name:ident, $all:ident: $($variant:ident)*) => {
        const $all: &[&str] = &[$(stringify!($variant)),*];

        fn $name(error: &$error) -> &'static str {
            match error {
                $($error::$variant { .. } => stringify!($variant),)*
            }
        }
    };
}

variants!(CloudError, cloud_name, CLOUD_ERRORS:
    Auth Unauthenticated OtherProject Forbidden Quota NotFound Conflict BadRequest Unawaited Throttled Unreachable Server Decode
    Tls InsecureEndpoint ResponseTooLarge ListIncomplete NoEndpoint RegionAmbiguous Setup VolumeInUse VolumeHasDependents AttachedElsewhere VolumeFailed AttachFailed Obstructed
    TooManyAttachments AlreadyExists NoSource
    SourceTooLarge SourceMode Busy Broken NotMultiattach ExpandFailed OnlineExpansion SnapshotExists SnapshotFailed StillNeeded MemberOfGroup
    NoBackups CannotRestore SnapshotRefused CannotModify RetypeFailed CannotGroup OtherMembers AttachedDifferently Timeout);
variants!(NodeError, node_name, NODE_ERRORS:
    Device Filesystem Mount Usage StagedOther StagedDifferently NotStaged OtherType PublishedDifferently PublishedElsewhere OtherVolume
    StillPublished NotGrown NotGrownAtStart GrowReadOnly ReadOnlyDevice Tool NotThere);
variants!(DeviceError, device_name, DEVICE_ERRORS:
    NotFound Stale Ambiguous NoSize TooSmall WrongNode Moved Access Busy NoAnswer);
variants!(FilesystemError, filesystem_name, FILESYSTEM_ERRORS:
    Device Tool Foreign OtherType EmptyReadOnly Unfinished MkfsOption NotOnline NotMade Damaged Io NoAnswer);
variants!(MountError, mount_name, MOUNT_ERRORS:
    List Option Mount OtherDisk SeveralDevices AccessConflict Bind Place NotEmpty Unmount Busy NoAnswer);
variants!(UsageError, usage_name, USAGE_ERRORS: NotFound Stat NoAnswer);
variants!(ToolError, tool_name, TOOL_ERRORS: Missing Start TimedOut Failed TooMuchOutput);

fn volume() -> VolumeId {
    VolumeId::new("VOLUME")
}

fn server() -> ServerId {
    ServerId::new("SERVER")
}

fn size(gib: u64) -> GiB {
    GiB::new(gib).expect("a size")
}

/// Returns each error of the cloud, with a description of the case if the code depends on it.
fn cloud_errors() -> Vec<(&'static str, CloudError)> {
    let no_room = "No valid backend was found";
    let kind = ObjectKind::Snapshot;
    let id = || "SNAPSHOT".to_owned();
    let snapshot_failed = |removed| CloudError::SnapshotFailed {
        kind,
        id: id(),
        status: "error".into(),
        message: String::new(),
        removed,
    };
    let expand_failed = |message: &str| CloudError::ExpandFailed {
        volume: volume(),
        size: size(1),
        wanted: size(2),
        status: "error_extending".into(),
        message: message.into(),
        elapsed: Duration::ZERO,
    };
    vec![
        ("", CloudError::Auth(failure("login", Some(401)))),
        ("", CloudError::Unauthenticated(failure("login", Some(401)))),
        (
            "",
            CloudError::OtherProject {
                own: "PROJECT".into(),
                found: "OTHER".into(),
            },
        ),
        ("", CloudError::Forbidden(failure("volume_get", Some(403)))),
        ("of a creation", CloudError::Quota(failure("volume_create", Some(413)))),
        (
            "of another request",
            CloudError::Quota(failure("volume_list", Some(413))),
        ),
        ("a volume", not_found(ObjectKind::Volume)),
        ("a snapshot", not_found(ObjectKind::Snapshot)),
        ("a backup", not_found(ObjectKind::Backup)),
        ("a group", not_found(ObjectKind::Group)),
        ("a group snapshot", not_found(ObjectKind::GroupSnapshot)),
        ("a server", not_found(ObjectKind::Server)),
        ("a path of the API", not_found(ObjectKind::Resource)),
        ("", CloudError::Conflict(failure("volume_attach", Some(409)))),
        (
            "of a creation",
            CloudError::BadRequest(failure("volume_create", Some(400))),
        ),
        (
            "of a retype",
            CloudError::BadRequest(failure("volume_retype", Some(400))),
        ),
        (
            "of another request",
            CloudError::BadRequest(failure("volume_list", Some(400))),
        ),
        ("", CloudError::Unawaited(failure("volume_create", None))),
        (
            "",
            CloudError::Throttled {
                failure: failure("volume_get", Some(429)),
                retry_after: None,
            },
        ),
        (
            "",
            CloudError::Unreachable {
                failure: failure("volume_get", None),
                sent: true,
            },
        ),
        (
            "",
            CloudError::Tls {
                failure: failure("volume_get", None),
                problem: TlsProblem::Expired,
                sent: false,
            },
        ),
        (
            "",
            CloudError::InsecureEndpoint {
                service: "block-storage",
            },
        ),
        ("502 to 504", CloudError::Server(failure("volume_get", Some(503)))),
        ("another 5xx", CloudError::Server(failure("volume_get", Some(500)))),
        ("", CloudError::Decode(failure("volume_get", Some(200)))),
        ("", CloudError::ResponseTooLarge(failure("volume_get", Some(200)))),
        ("", CloudError::ListIncomplete(failure("volume_list", Some(200)))),
        (
            "",
            CloudError::NoEndpoint {
                service: "block-storage",
                region: None,
                interface: "public",
                known: "volumev2/public/A http://cinder.example/v2".into(),
                problem: EndpointProblem::Version,
            },
        ),
        (
            "",
            CloudError::RegionAmbiguous {
                interface: "public",
                regions: "A, B".into(),
            },
        ),
        ("", CloudError::Setup("the CA cannot be read".into())),
        (
            "",
            CloudError::VolumeInUse {
                volume: volume(),
                status: "in-use".into(),
                servers: vec![server()],
                request_id: None,
            },
        ),
        (
            "",
            CloudError::VolumeHasDependents {
                volume: volume(),
                dependents: "snapshot SNAPSHOT".into(),
                failure: failure("volume_delete", Some(400)),
            },
        ),
        (
            "",
            CloudError::AttachedElsewhere {
                volume: volume(),
                server: server(),
                servers: vec![ServerId::new("OTHER")],
                request_id: None,
            },
        ),
        ("no backend has room, removed again", volume_failed(no_room, true)),
        ("removed again", volume_failed("", true)),
        ("still there", volume_failed("", false)),
        (
            "",
            CloudError::AttachFailed {
                volume: volume(),
                server: server(),
                status: "available".into(),
                elapsed: Duration::ZERO,
                request_id: None,
            },
        ),
        (
            "",
            CloudError::Obstructed {
                act: "attachment",
                volume: volume(),
                server: server(),
                obstacle: Obstacle::Stuck,
                states: "Cinder has the volume reserved for 600 s".into(),
                remedy: "see the log of nova-compute".into(),
                elapsed: Duration::ZERO,
                request_id: None,
            },
        ),
        (
            "",
            CloudError::TooManyAttachments {
                server: server(),
                failure: failure("volume_attach", Some(403)),
            },
        ),
        (
            "",
            CloudError::AlreadyExists {
                name: "NAME".into(),
                volume: volume(),
                difference: "2 GiB are wanted, it has 1 GiB".into(),
            },
        ),
        (
            "",
            CloudError::NoSource {
                kind,
                id: id(),
                request_id: None,
            },
        ),
        (
            "",
            CloudError::SourceTooLarge {
                kind,
                id: id(),
                size: size(2),
                wanted: size(1),
            },
        ),
        ("", CloudError::SourceMode { kind, id: id() }),
        (
            "",
            CloudError::Busy {
                kind: ObjectKind::Volume,
                id: "VOLUME".into(),
                status: "backing-up".into(),
                wanted: "available or in-use",
            },
        ),
        (
            "",
            CloudError::Broken {
                kind: ObjectKind::Volume,
                id: "VOLUME".into(),
                status: "error".into(),
                message: String::new(),
            },
        ),
        (
            "",
            CloudError::NotMultiattach {
                volume_type: "TYPE".into(),
            },
        ),
        ("no backend has room", expand_failed(no_room)),
        ("another reason", expand_failed("")),
        (
            "",
            CloudError::OnlineExpansion {
                volume: volume(),
                servers: vec![server()],
            },
        ),
        (
            "",
            CloudError::SnapshotExists {
                kind,
                id: id(),
                name: "NAME".into(),
                difference: "it is one of another volume".into(),
            },
        ),
        ("removed again", snapshot_failed(true)),
        ("still there", snapshot_failed(false)),
        (
            "",
            CloudError::StillNeeded {
                kind,
                id: id(),
                dependents: "volume VOLUME".into(),
                message: String::new(),
            },
        ),
        (
            "",
            CloudError::MemberOfGroup {
                snapshot: SnapshotId::new("SNAPSHOT"),
                group: "GROUP".into(),
            },
        ),
        ("", CloudError::NoBackups(failure("backup_create", Some(404)))),
        (
            "",
            CloudError::CannotRestore {
                backup: "BACKUP".into(),
                failure: failure("volume_create", Some(406)),
            },
        ),
        (
            "",
            CloudError::SnapshotRefused {
                volume: volume(),
                status: "in-use".into(),
                failure: failure("snapshot_create", Some(400)),
            },
        ),
        (
            "",
            CloudError::CannotModify {
                volume: volume(),
                reason: "there is no type TYPE".into(),
            },
        ),
        ("policy never", retype_failed(MigrationPolicy::Never)),
        ("policy on-demand", retype_failed(MigrationPolicy::OnDemand)),
        (
            "",
            CloudError::CannotGroup {
                name: "NAME".into(),
                reason: "its volumes are in several zones".into(),
            },
        ),
        (
            "",
            CloudError::OtherMembers {
                id: GroupSnapshotId::new("GROUP"),
                members: vec![SnapshotId::new("SNAPSHOT")],
            },
        ),
        (
            "",
            CloudError::AttachedDifferently {
                volume: volume(),
                server: server(),
                read_only: true,
            },
        ),
        (
            "",
            CloudError::Timeout {
                what: "create of volume VOLUME".into(),
                last_status: "creating".into(),
                last_error: String::new(),
                elapsed: Duration::from_mins(10),
            },
        ),
    ]
}

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

fn device_errors() -> Vec<DeviceError> {
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

fn tool_errors() -> Vec<ToolError> {
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

fn filesystem_errors() -> Vec<FilesystemError> {
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

fn mount_errors() -> Vec<MountError> {
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

fn node_errors() -> Vec<NodeError> {
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

/// Returns the full name of an error, such as `Device.Busy` or `Filesystem.Tool.TimedOut`.
fn whole_name(error: &NodeError) -> String {
    let inner = match error {
        NodeError::Device(inner) => device_name(inner).to_owned(),
        NodeError::Filesystem(FilesystemError::Device(inner)) => format!("Device.{}", device_name(inner)),
        NodeError::Filesystem(FilesystemError::Tool(inner)) => format!("Tool.{}", tool_name(inner)),
        NodeError::Filesystem(inner) => filesystem_name(inner).to_owned(),
        NodeError::Mount(inner) => mount_name(inner).to_owned(),
        NodeError::Usage(inner) => usage_name(inner).to_owned(),
        NodeError::Tool(inner) => tool_name(inner).to_owned(),
        _ => return node_name(error).to_owned(),
    };
    format!("{}.{inner}", node_name(error))
}

fn page() -> String {
    let mut page = String::from(
        "# gRPC codes\n\n\
         Made from the driver's code by `make generate`. Every error of the driver, the code that it gets, and its message; words in capitals \
         stand for ids, names and what a service said. The code depends on what was being done:\n\n\
         | act | CSI calls |\n|---|---|\n\
         | Create | CreateVolume |\n\
         | Snapshot | CreateSnapshot, CreateVolumeGroupSnapshot |\n\
         | Expand | ControllerExpandVolume |\n\
         | Modify | ControllerModifyVolume |\n\
         | Delete | DeleteVolume, DeleteSnapshot, DeleteVolumeGroupSnapshot |\n\
         | Attach, Detach | ControllerPublishVolume, ControllerUnpublishVolume |\n\
         | Look | what only reads |\n\n\
         For external-provisioner every code but CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE and ABORTED says that no volume was made, so an \
         uncertain creation never gets another one. A look that fails before something is made is UNAVAILABLE, whatever it says below, but for \
         NOT_FOUND, INVALID_ARGUMENT, ABORTED and DEADLINE_EXCEEDED.\n\n\
         ## Errors of the cloud\n\n",
    );
    page.push_str("| error | code | but | message |\n|---|---|---|---|\n");
    for (case, error) in cloud_errors() {
        let codes = ACTS.map(|act| code_name(from_cloud(act, &error).code()));
        let acts_with = |code: &str| -> Vec<String> {
            let acts = ACTS.iter().zip(codes).filter(|(_, of)| *of == code);
            acts.map(|(act, _)| format!("{act:?}")).collect()
        };
        let most = codes
            .into_iter()
            .max_by_key(|code| acts_with(code).len())
            .unwrap_or_default();
        let others: BTreeSet<&str> = codes.into_iter().filter(|code| *code != most).collect();
        let others = others
            .into_iter()
            .map(|code| format!("{}: {code}", acts_with(code).join(", ")));
        let but = others.collect::<Vec<_>>().join("; ");
        let separator = if case.is_empty() { "" } else { ": " };
        let name = cloud_name(&error);
        let _ = writeln!(page, "| {name}{separator}{case} | {most} | {but} | {} |", cell(&error));
    }
    page.push_str(
        "\n## Errors of a node\n\n\
         Once something is, or may be, mounted at the path of a NodeStageVolume or NodePublishVolume, no code says that nothing is: the second \
         code holds then.\n\n\
         | error | code | while it may be mounted | message |\n|---|---|---|---|\n",
    );
    for error in node_errors() {
        let (code, mounted) = (from_node(&error), from_node_while_mounted(&error));
        let codes = format!("{} | {}", code_name(code.code()), code_name(mounted.code()));
        let _ = writeln!(page, "| {} | {codes} | {} |", whole_name(&error), cell(&code.message()));
    }
    page
}

fn cell(text: &impl ToString) -> String {
    text.to_string().replace('|', "\\|")
}

#[test]
fn table_contains_every_error() {
    fn missing<E>(all: &[&'static str], errors: &[E], name: impl Fn(&E) -> &'static str) -> Vec<&'static str> {
        let listed: BTreeSet<&str> = errors.iter().map(name).collect();
        all.iter().copied().filter(|name| !listed.contains(name)).collect()
    }
    let none: Vec<&str> = Vec::new();
    let clouds: Vec<CloudError> = cloud_errors().into_iter().map(|(_, error)| error).collect();
    assert_eq!(missing(CLOUD_ERRORS, &clouds, cloud_name), none);
    assert_eq!(missing(NODE_ERRORS, &node_errors(), node_name), none);
    assert_eq!(missing(DEVICE_ERRORS, &device_errors(), device_name), none);
    assert_eq!(missing(FILESYSTEM_ERRORS, &filesystem_errors(), filesystem_name), none);
    assert_eq!(missing(MOUNT_ERRORS, &mount_errors(), mount_name), none);
    assert_eq!(missing(TOOL_ERRORS, &tool_errors(), tool_name), none);
    let usage = node_errors();
    let usage: Vec<&UsageError> = usage
        .iter()
        .filter_map(|error| match error {
            NodeError::Usage(error) => Some(error),
            _ => None,
        })
        .collect();
    assert_eq!(missing(USAGE_ERRORS, &usage, |error| usage_name(error)), none);
}

#[test]
fn page_of_codes_matches_table() {
    let page = page();
    println!("{page}");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "{PAGE} is not of today: run make generate");
}
