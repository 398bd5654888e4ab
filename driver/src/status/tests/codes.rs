// SPDX-License-Identifier: Apache-2.0
//! Generates docs/reference/grpc-codes.md: every error for every act, with its gRPC code.

mod cloud_errors;
mod node_errors;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use csi_host::{DeviceError, FilesystemError, MountError, ToolError, UsageError};

use super::super::*;
use crate::node_error::NodeError;
use cloud_errors::cloud_errors;
use node_errors::{device_errors, filesystem_errors, mount_errors, node_errors, tool_errors};

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
