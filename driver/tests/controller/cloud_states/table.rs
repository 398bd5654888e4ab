// SPDX-License-Identifier: Apache-2.0
//! The result of each call in each state of the cloud.

use openstack_sim::{AttachmentStatus, VolumeStatus};
use tonic::Code;

use super::{Cell, ServerState, State};
use crate::support::{NODE, OTHER_NODE};
use ServerState::{CellDown, Deleted, HostDown, Locked, Lost, Task, Vm};
use State::{Attached, AttachedVolume, CinderOnly, Free, Migrating, Passing, Unnamed, Volume};

const OK: Cell = Cell::Succeeds;
const ALL_OK: [Cell; 5] = [OK; 5];

const fn aborted(part: &'static str) -> Cell {
    Cell::Fails(Code::Aborted, part)
}

const fn refused(part: &'static str) -> Cell {
    Cell::Fails(Code::FailedPrecondition, part)
}

const fn not_found(part: &'static str) -> Cell {
    Cell::Fails(Code::NotFound, part)
}

const fn unavailable(part: &'static str) -> Cell {
    Cell::Fails(Code::Unavailable, part)
}

/// The call waited for an operation of Cinder that does not end.
const LATE: Cell = Cell::Fails(Code::DeadlineExceeded, "last status");
const CELL: Cell = Cell::Fails(Code::Internal, "500");
const IN_USE: Cell = refused(NODE);
const RESET: Cell = aborted("an administrator has to");
const TRANSFER: Cell = aborted("openstack volume transfer request");
const REFRESH: Cell = aborted("nova-manage volume_attachment refresh");
const UNSHELVE: Cell = aborted("openstack server unshelve");

/// The free volume cannot be attached to NODE.
const fn no_attach(attach: Cell) -> [Cell; 5] {
    [attach, OK, OK, OK, OK]
}

/// The volume is attached to NODE, and Nova does not detach it.
const fn no_detach(detach: Cell) -> [Cell; 5] {
    [OK, IN_USE, detach, IN_USE, OK]
}

/// A free volume for which Cinder executes another operation.
const fn work(part: &'static str) -> [Cell; 5] {
    let named = aborted(part);
    [named, named, OK, named, named]
}

/// Like [`work`], for a volume that is attached to NODE.
const fn work_in_use(part: &'static str) -> [Cell; 5] {
    let named = aborted(part);
    [OK, named, named, IN_USE, named]
}

/// A state of a free volume that no operation ends.
const STUCK: [Cell; 5] = [RESET, RESET, OK, RESET, RESET];
const RESERVED: [Cell; 5] = {
    let unknown = aborted("openstack volume attachment list");
    [unknown, unknown, OK, RESET, RESET]
};
const BROKEN: [Cell; 5] = [RESET, RESET, OK, OK, RESET];
const BROKEN_FOR_GOOD: [Cell; 5] = [RESET, RESET, OK, RESET, RESET];
const BROKEN_IN_USE: [Cell; 5] = [OK, RESET, RESET, IN_USE, RESET];

/// The results of attach to NODE, attach to OTHER_NODE, detach from NODE, delete and expand.
#[rustfmt::skip]
pub(super) const TABLE: &[(State, [Cell; 5])] = &[
    (State::NoVolume, [not_found("volume"), not_found("volume"), OK, OK, not_found("volume")]),

    (Free(Vm("active")), ALL_OK),
    (Free(Vm("stopped")), ALL_OK),
    (Free(Vm("paused")), ALL_OK),
    (Free(Vm("resized")), ALL_OK),
    (Free(Vm("soft-delete")), ALL_OK),
    (Free(Vm("shelved")), ALL_OK),
    (Free(Vm("shelved_offloaded")), ALL_OK),
    (Free(Vm("suspended")), no_attach(aborted("openstack server resume"))),
    (Free(Vm("rescued")), no_attach(aborted("openstack server unrescue"))),
    (Free(Vm("error")), no_attach(aborted("openstack server show"))),
    (Free(Vm("building")), no_attach(aborted("can be repeated"))),
    (Free(Vm("deleted")), no_attach(aborted("is being deleted"))),
    (Free(Task("rebooting")), no_attach(aborted("rebooting"))),
    (Free(Locked), no_attach(aborted("openstack server unlock"))),
    (Free(HostDown), no_attach(unavailable("500"))),
    (Free(CellDown), [unavailable("500"), OK, CELL, OK, OK]),
    (Free(Deleted), no_attach(not_found("server"))),

    (Attached(Vm("active")), no_detach(OK)),
    (Attached(Vm("stopped")), no_detach(OK)),
    (Attached(Vm("paused")), no_detach(OK)),
    (Attached(Vm("resized")), no_detach(OK)),
    (Attached(Vm("soft-delete")), no_detach(OK)),
    (Attached(Vm("shelved")), no_detach(OK)),
    (Attached(Vm("shelved_offloaded")), [UNSHELVE, IN_USE, OK, IN_USE, aborted("reserved")]),
    (Attached(Vm("suspended")), no_detach(aborted("openstack server resume"))),
    (Attached(Vm("rescued")), no_detach(aborted("openstack server unrescue"))),
    (Attached(Vm("error")), no_detach(aborted("openstack server show"))),
    (Attached(Vm("building")), no_detach(aborted("can be repeated"))),
    (Attached(Vm("deleted")), no_detach(aborted("is being deleted"))),
    (Attached(Task("rebooting")), no_detach(aborted("rebooting"))),
    (Attached(Locked), no_detach(aborted("openstack server unlock"))),
    (Attached(HostDown), no_detach(aborted("nova-compute"))),
    (Attached(CellDown), [unavailable("500"), unavailable("500"), CELL, IN_USE, OK]),
    (Attached(Deleted), no_attach(not_found("server"))),
    (Attached(Lost), no_attach(not_found("server"))),
    (State::Elsewhere, [refused(OTHER_NODE), OK, OK, refused(OTHER_NODE), OK]),

    (Volume(VolumeStatus::Creating), STUCK),
    (Volume(VolumeStatus::Downloading), STUCK),
    (Volume(VolumeStatus::RestoringBackup), STUCK),
    (Volume(VolumeStatus::Reserved), RESERVED),
    (Volume(VolumeStatus::Attaching), RESERVED),
    (Volume(VolumeStatus::Detaching), RESERVED),
    (Volume(VolumeStatus::InUse), [RESET, RESET, OK, refused("in-use"), OK]),
    (Volume(VolumeStatus::Extending), [RESET, RESET, OK, RESET, LATE]),
    (Volume(VolumeStatus::Retyping), STUCK),
    (Volume(VolumeStatus::BackingUp), work("backing-up")),
    (Volume(VolumeStatus::Uploading), work("uploading")),
    (Volume(VolumeStatus::Maintenance), work("maintenance")),
    (Volume(VolumeStatus::Reverting), work("reverting")),
    (Volume(VolumeStatus::Managing), work("managing")),
    (Volume(VolumeStatus::AwaitingTransfer), [TRANSFER, TRANSFER, OK, TRANSFER, TRANSFER]),
    (Volume(VolumeStatus::Deleting), [RESET, RESET, OK, LATE, aborted("deleting")]),
    (Volume(VolumeStatus::Error), BROKEN),
    (Volume(VolumeStatus::ErrorExtending), BROKEN),
    (Volume(VolumeStatus::ErrorRestoring), BROKEN),
    (Volume(VolumeStatus::ErrorManaging), BROKEN),
    (Volume(VolumeStatus::ErrorDeleting), BROKEN_FOR_GOOD),
    (Volume(VolumeStatus::ErrorBackingUp), BROKEN_FOR_GOOD),

    (AttachedVolume(VolumeStatus::Available), [OK, IN_USE, aborted("in-use"), IN_USE, OK]),
    (AttachedVolume(VolumeStatus::Reserved), [OK, IN_USE, RESET, IN_USE, RESET]),
    (AttachedVolume(VolumeStatus::Attaching), [OK, IN_USE, RESET, IN_USE, RESET]),
    (AttachedVolume(VolumeStatus::Detaching), [aborted("nova-compute"), IN_USE, aborted("nova-compute"), IN_USE, RESET]),
    (AttachedVolume(VolumeStatus::Extending), [OK, RESET, RESET, IN_USE, LATE]),
    (AttachedVolume(VolumeStatus::Retyping), [OK, RESET, RESET, IN_USE, RESET]),
    (AttachedVolume(VolumeStatus::BackingUp), work_in_use("backing-up")),
    (AttachedVolume(VolumeStatus::Uploading), work_in_use("uploading")),
    (AttachedVolume(VolumeStatus::Maintenance), work_in_use("maintenance")),
    (AttachedVolume(VolumeStatus::Error), BROKEN_IN_USE),
    (AttachedVolume(VolumeStatus::ErrorExtending), BROKEN_IN_USE),

    (Passing(VolumeStatus::Creating), ALL_OK),
    (Passing(VolumeStatus::Reserved), ALL_OK),
    (Passing(VolumeStatus::Attaching), ALL_OK),
    (Passing(VolumeStatus::Detaching), ALL_OK),
    (Passing(VolumeStatus::Extending), ALL_OK),
    (Passing(VolumeStatus::Retyping), ALL_OK),
    (Passing(VolumeStatus::BackingUp), [OK, OK, OK, aborted("backing-up"), aborted("backing-up")]),
    (Passing(VolumeStatus::Uploading), [OK, OK, OK, aborted("uploading"), aborted("uploading")]),
    (Passing(VolumeStatus::Maintenance), [OK, OK, OK, aborted("maintenance"), aborted("maintenance")]),
    (Migrating { attached: false }, [OK, OK, OK, aborted("migrating"), OK]),
    (Migrating { attached: true }, no_detach(OK)),

    (CinderOnly(AttachmentStatus::Reserved), ALL_OK),
    (CinderOnly(AttachmentStatus::Attaching), ALL_OK),
    (CinderOnly(AttachmentStatus::Attached), [RESET, IN_USE, RESET, IN_USE, OK]),
    (CinderOnly(AttachmentStatus::Detaching), ALL_OK),
    (CinderOnly(AttachmentStatus::ErrorAttaching), ALL_OK),
    (CinderOnly(AttachmentStatus::ErrorDetaching), ALL_OK),
    (Unnamed(AttachmentStatus::Reserved), RESERVED),
    (Unnamed(AttachmentStatus::Attached), [refused("does not name"), refused("does not name"), OK, refused("in-use"), OK]),
    (State::NovaOnly, [REFRESH, REFRESH, REFRESH, OK, OK]),
    (State::StuckAttach, [aborted("nova-compute"), aborted("nova-compute"), aborted("nova-compute"), RESET, RESET]),
    (State::StuckDetach, [aborted("nova-compute"), IN_USE, aborted("nova-compute"), IN_USE, RESET]),
    (State::LostAttach, no_attach(not_found("server"))),
    (State::LostDetach, no_attach(not_found("server"))),

    (State::Snapshot, [OK, OK, OK, refused("snapshot-1"), OK]),
    (State::Group, [OK, OK, OK, aborted("group"), OK]),
];
