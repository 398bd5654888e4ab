// SPDX-License-Identifier: Apache-2.0
//! Faults of this machine and what they mean to the kubelet.
//!
//! For the kubelet `UNAVAILABLE`, `ABORTED`, `DEADLINE_EXCEEDED`, `CANCELLED` and `RESOURCE_EXHAUSTED` from NodeStageVolume
//! and NodePublishVolume say that the volume may be mounted nevertheless, and it unmounts before it gives up; every other
//! code says that nothing was mounted. So whatever may still take effect is `UNAVAILABLE`.

use std::error::Error;

use csi_host::{DeviceError, FilesystemError, MountError, ToolError, UsageError};
use tonic::{Code, Status};

use crate::node_error::{InstanceError, NodeError};

/// A volume is not where it was asked for.
pub fn node(error: &NodeError) -> Status {
    Status::new(code(error), chain(error))
}

/// The same of a stage or publish at whose path something is mounted now, or may be: no code says then that nothing was
/// mounted. An answer about the very thing that is mounted there keeps its code.
pub fn node_while_mounted(error: &NodeError) -> Status {
    let status = node(error);
    let may_be_mounted = matches!(
        status.code(),
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted
    );
    let tells_of_the_mount = matches!(
        error,
        NodeError::StagedOther { .. } | NodeError::StagedDifferently { .. } | NodeError::PublishedDifferently { .. }
    );
    if may_be_mounted || tells_of_the_mount {
        return status;
    }
    Status::unavailable(status.message())
}

/// Something comes before its turn.
pub fn not_staged(problem: &str) -> Status {
    Status::failed_precondition(problem)
}

/// The identity of this node cannot be reported. The kubelet and this driver retry, whatever the code.
pub fn instance(error: &InstanceError) -> Status {
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
    Status::new(code, chain(error))
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
        // The path is taken, with this volume used otherwise or with another.
        NodeError::StagedDifferently { .. } | NodeError::PublishedDifferently { .. } => Code::AlreadyExists,
        // Something has to be done first, and not by a retry.
        NodeError::StagedOther { .. }
        | NodeError::NotStaged { .. }
        | NodeError::OtherType { .. }
        | NodeError::PublishedElsewhere { .. }
        // For the kubelet this code, and no other, says that the pod starts with the existing size.
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
        // A mkfs of an earlier call, or a mount that is still going away.
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
        // The volume is not what the capability needs, and a retry will not change it.
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

/// An error with all its causes, in one line.
fn chain(error: &dyn Error) -> String {
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
