// SPDX-License-Identifier: Apache-2.0
//! Mutating RPCs, and the asynchronous states of the cloud during them.

use suites::drivers::Role;

/// An RPC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// The role that serves it.
    pub(crate) role: Role,
    /// Asynchronous states during the call.
    pub(crate) lasting: &'static [AsyncState],
}

/// An asynchronous state, which the cloud ends by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsyncState {
    /// The simulator's latency of the state.
    pub(crate) latency: &'static str,
    /// The list of the resource in the simulator's state.
    pub(crate) list: &'static str,
    pub(crate) status: &'static str,
}

const fn lasting(latency: &'static str, list: &'static str, status: &'static str) -> AsyncState {
    AsyncState { latency, list, status }
}

const fn controller(name: &'static str, lasting: &'static [AsyncState]) -> Step {
    let role = Role::Controller;
    Step { name, role, lasting }
}

const fn node(name: &'static str) -> Step {
    let role = Role::Node;
    Step {
        name,
        role,
        lasting: &[],
    }
}

const CREATING: AsyncState = lasting("create", "volumes", "creating");
const CUTTING: AsyncState = lasting("snapshot", "snapshots", "creating");

pub(crate) const CREATE: Step = controller("CreateVolume", &[CREATING]);
pub(crate) const DELETE: Step = controller("DeleteVolume", &[lasting("delete", "volumes", "deleting")]);
pub(crate) const PUBLISH: Step = controller(
    "ControllerPublishVolume",
    &[
        lasting("attach", "volumes", "reserved"),
        lasting("connect", "volumes", "attaching"),
    ],
);
pub(crate) const UNPUBLISH: Step = controller(
    "ControllerUnpublishVolume",
    &[lasting("detach", "volumes", "detaching")],
);
pub(crate) const STAGE: Step = node("NodeStageVolume");
pub(crate) const NODE_PUBLISH: Step = node("NodePublishVolume");
pub(crate) const NODE_UNPUBLISH: Step = node("NodeUnpublishVolume");
pub(crate) const UNSTAGE: Step = node("NodeUnstageVolume");
pub(crate) const EXPAND: Step = controller("ControllerExpandVolume", &[lasting("extend", "volumes", "extending")]);
pub(crate) const NODE_EXPAND: Step = node("NodeExpandVolume");
pub(crate) const MODIFY: Step = controller("ControllerModifyVolume", &[lasting("retype", "volumes", "retyping")]);
pub(crate) const CLONE: Step = controller("CreateVolume from a volume", &[CREATING]);
pub(crate) const SNAPSHOT: Step = controller("CreateSnapshot", &[CUTTING]);
pub(crate) const FROM_SNAPSHOT: Step = controller("CreateVolume from a snapshot", &[CREATING]);
pub(crate) const DELETE_SNAPSHOT: Step = controller("DeleteSnapshot", &[lasting("delete", "snapshots", "deleting")]);
pub(crate) const BACKUP: Step = controller(
    "CreateSnapshot of type backup",
    &[CUTTING, lasting("backup", "backups", "creating")],
);
pub(crate) const INCREMENTAL: Step = Step {
    name: "CreateSnapshot of type backup, incremental",
    ..BACKUP
};
pub(crate) const RESTORE: Step = controller(
    "CreateVolume from a backup",
    &[CREATING, lasting("backup", "volumes", "restoring-backup")],
);
pub(crate) const DELETE_BACKUP: Step = controller(
    "DeleteSnapshot of a backup",
    &[lasting("delete", "backups", "deleting")],
);
pub(crate) const DELETE_FROZEN_BACKUP: Step = controller(
    "DeleteSnapshot of a backup whose data are still frozen",
    &[lasting("delete", "snapshots", "deleting")],
);
pub(crate) const GROUP_SNAPSHOT: Step = controller(
    "CreateVolumeGroupSnapshot",
    &[
        lasting("group", "groups", "creating"),
        lasting("members", "groups", "updating"),
        lasting("snapshot", "group_snapshots", "creating"),
    ],
);
pub(crate) const FROM_MEMBER: Step = controller("CreateVolume from a member of a group snapshot", &[CREATING]);
pub(crate) const DELETE_GROUP_SNAPSHOT: Step = controller(
    "DeleteVolumeGroupSnapshot",
    &[
        lasting("delete", "group_snapshots", "deleting"),
        lasting("group", "groups", "deleting"),
    ],
);
