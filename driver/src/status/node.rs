// SPDX-License-Identifier: Apache-2.0
//! Maps errors of the node service to gRPC statuses.
//!
//! After some codes from NodeStageVolume and NodePublishVolume, the kubelet assumes that the volume may be mounted, and
//! unmounts it before it gives up. The codes are `UNAVAILABLE`, `ABORTED`, `DEADLINE_EXCEEDED`, `CANCELLED` and
//! `RESOURCE_EXHAUSTED`. Every other code means that nothing was mounted. Errors of actions that may still take effect
//! are therefore `UNAVAILABLE`.

use std::error::Error;

use csi_host::{DeviceError, FilesystemError, MountError, ToolError, UsageError};
use tonic::{Code, Status};

use crate::node_error::{InstanceError, NodeError};

/// Returns the status for an error of the node service.
pub fn from_node(error: &NodeError) -> Status {
    Status::new(code(error), format_chain(error))
}

/// Like [`from_node`], for a stage or publish while something is or may be mounted at the path.
///
/// No code then claims that nothing was mounted. An error about the existing mount retains its code.
pub fn from_node_while_mounted(error: &NodeError) -> Status {
    let status = from_node(error);
    let may_be_mounted = matches!(
        status.code(),
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted
    );
    let concerns_mount = matches!(
        error,
        NodeError::StagedOther { .. } | NodeError::StagedDifferently { .. } | NodeError::PublishedDifferently { .. }
    );
    if may_be_mounted || concerns_mount {
        return status;
    }
    Status::unavailable(status.message())
}

/// `FAILED_PRECONDITION`: a call came before the staging that it requires.
pub fn not_staged(problem: &str) -> Status {
    Status::failed_precondition(problem)
}

/// The identity of this node cannot be reported. The kubelet and this driver retry, whatever the code.
pub fn from_instance(error: &InstanceError) -> Status {
    let code = match error {
        // An administrator must act.
        InstanceError::Disagreement { .. } | InstanceError::ByteOrder { .. } | InstanceError::Changed { .. } => {
            Code::FailedPrecondition
        }
        InstanceError::Unknown { .. }
        | InstanceError::Firmware { .. }
        | InstanceError::Zone { .. }
        | InstanceError::Slots(_) => Code::Unavailable,
    };
    Status::new(code, format_chain(error))
}

fn code(error: &NodeError) -> Code {
    match error {
        NodeError::Device(error) => device(error),
        NodeError::Filesystem(error) => filesystem(error),
        NodeError::Mount(error) => mount(error),
        NodeError::Usage(UsageError::NotFound { .. }) | NodeError::NotThere { .. } => Code::NotFound,
        NodeError::Usage(UsageError::NoAnswer(_))
        | NodeError::NotGrown(_)
        | NodeError::Tool(ToolError::TimedOut { .. }) => Code::Unavailable,
        NodeError::Usage(UsageError::Stat { .. }) | NodeError::Tool(_) => Code::Internal,
        // The path is in use, by this volume with other options or by another volume.
        NodeError::StagedDifferently { .. } | NodeError::PublishedDifferently { .. } => Code::AlreadyExists,
        // An administrator or the kubelet must act first. A retry does not help.
        NodeError::StagedOther { .. }
        | NodeError::NotStaged { .. }
        | NodeError::OtherType { .. }
        | NodeError::PublishedElsewhere { .. }
        // After this code only, the kubelet starts the pod with the existing size.
        | NodeError::NotGrownAtStart(_)
        | NodeError::GrowReadOnly { .. }
        | NodeError::ReadOnlyDevice { .. }
        | NodeError::OtherVolume { .. }
        | NodeError::StillPublished { .. } => Code::FailedPrecondition,
    }
}

fn device(error: &DeviceError) -> Code {
    match error {
        DeviceError::NotFound { .. } => Code::NotFound,
        DeviceError::Stale { .. }
        | DeviceError::Ambiguous { .. }
        | DeviceError::TooSmall { .. }
        | DeviceError::WrongNode { .. } => Code::FailedPrecondition,
        DeviceError::Access { .. } => Code::Internal,
        // An mkfs of an earlier call, or a mount that is being removed, uses the device.
        DeviceError::Busy { .. }
        | DeviceError::Moved { .. }
        | DeviceError::NoSize { .. }
        | DeviceError::NoAnswer(_) => Code::Unavailable,
    }
}

fn filesystem(error: &FilesystemError) -> Code {
    match error {
        FilesystemError::Device(error) => device(error),
        FilesystemError::Tool(ToolError::TimedOut { .. }) | FilesystemError::NoAnswer(_) => Code::Unavailable,
        FilesystemError::Tool(_) | FilesystemError::NotMade { .. } | FilesystemError::Io { .. } => Code::Internal,
        FilesystemError::MkfsOption(_) => Code::InvalidArgument,
        // The volume does not match the capability, and a retry does not change that.
        FilesystemError::NotOnline { .. }
        | FilesystemError::Foreign { .. }
        | FilesystemError::OtherType { .. }
        | FilesystemError::EmptyReadOnly { .. }
        | FilesystemError::Unfinished { .. }
        | FilesystemError::Damaged { .. } => Code::FailedPrecondition,
    }
}

fn mount(error: &MountError) -> Code {
    match error {
        MountError::Option(_) => Code::InvalidArgument,
        // The process that uses the file system may end.
        MountError::Busy { .. } | MountError::AccessConflict { .. } | MountError::NoAnswer(_) => Code::Unavailable,
        MountError::NotEmpty { .. } | MountError::OtherDisk { .. } | MountError::SeveralDevices { .. } => {
            Code::FailedPrecondition
        }
        MountError::List(_)
        | MountError::Mount { .. }
        | MountError::Bind { .. }
        | MountError::Place { .. }
        | MountError::Unmount { .. } => Code::Internal,
    }
}

/// Formats an error with all its causes in one line.
fn format_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&own) {
            text.push_str(": ");
            text.push_str(&own);
        }
        cause = error.source();
    }
    text
}
