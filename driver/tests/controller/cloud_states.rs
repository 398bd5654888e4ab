// SPDX-License-Identifier: Apache-2.0
//! Tests every call about a volume in every state of the volume and its server.
//!
//! A call ends within minutes. It succeeds, or its error describes the state and the remedy. Such an error is never
//! INTERNAL. No data is lost: only a deletion removes a volume, and only a detachment removes a disk from a server.

mod table;

use std::time::Duration;

use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerUnpublishVolumeRequest, CreateSnapshotRequest,
    DeleteVolumeRequest,
};
use openstack_sim::{Attachment, AttachmentStatus, CloudState, Effect, Fault, Latencies, Mapping, Sim, VolumeStatus};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, OTHER_NODE, UNKNOWN, cloud, publish_request, within};
use table::TABLE;

/// The maximum duration of a call.
const LONGEST: Duration = Duration::from_mins(3);
/// The maximum duration of a call that waits for an operation of Cinder.
const LONGEST_OPERATION: Duration = Duration::from_mins(10);
/// The client's timeout.
const PATIENCE: Duration = Duration::from_mins(20);

/// A state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// The `vm_state` in Nova.
    Vm(&'static str),
    /// The server is active, and Nova executes this task.
    Task(&'static str),
    Locked,
    HostDown,
    /// The database of the server's cell does not respond.
    CellDown,
    /// The server was deleted together with Cinder's attachments.
    Deleted,
    /// The server was deleted, and Cinder's attachments remain.
    Lost,
}

/// The initial state of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The volume was deleted.
    NoVolume,
    /// The volume is free, and NODE is in this state.
    Free(ServerState),
    /// The volume is attached to NODE, which is in this state.
    Attached(ServerState),
    /// The volume is attached to OTHER_NODE.
    Elsewhere,
    /// A free volume permanently has this status.
    Volume(VolumeStatus),
    /// A volume that is attached to NODE permanently has this status.
    AttachedVolume(VolumeStatus),
    /// A free volume has this status for twenty seconds.
    Passing(VolumeStatus),
    /// Another process migrates the volume, which is attached to NODE or free.
    Migrating { attached: bool },
    /// Cinder has an attachment to NODE in this status, and Nova has no record of it.
    CinderOnly(AttachmentStatus),
    /// Cinder has an attachment in this status that names no server.
    Unnamed(AttachmentStatus),
    /// Nova has a record of the volume at NODE, and Cinder has the volume available.
    NovaOnly,
    /// Nova does not execute an accepted attachment to NODE.
    StuckAttach,
    /// Nova does not execute an accepted detachment from NODE.
    StuckDetach,
    /// NODE was deleted while Nova attached the volume to it.
    LostAttach,
    /// NODE was deleted while Nova detached the volume from it.
    LostDetach,
    /// The volume has a snapshot.
    Snapshot,
    /// The volume is in a group of another client.
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    AttachHere,
    AttachElsewhere,
    Detach,
    Delete,
    Expand,
}

/// The calls in the order of the columns of [`TABLE`].
const CALLS: [Call; 5] = [
    Call::AttachHere,
    Call::AttachElsewhere,
    Call::Detach,
    Call::Delete,
    Call::Expand,
];

/// The expected result of a call.
#[derive(Debug, Clone, Copy)]
enum Cell {
    Succeeds,
    /// The code, and a part of the message.
    Fails(Code, &'static str),
}

impl ServerState {
    fn enter(self, sim: &Sim) {
        match self {
            Self::Vm(vm_state) => assert!(sim.set_server_state(NODE, vm_state, None)),
            Self::Task(task) => assert!(sim.set_server_state(NODE, "active", Some(task))),
            Self::Locked => assert!(sim.set_server_locked(NODE, true)),
            Self::HostDown => assert!(sim.set_server_down(NODE, true)),
            Self::CellDown => {
                let text = "Unexpected API Error. <class 'nova.exception.NovaException'>";
                let fault = Fault::on_path(None, format!("/servers/{NODE}")).effect(Effect::status(500).message(text));
                sim.fault(fault).expect("a rule");
            }
            Self::Deleted => sim.remove_server(NODE, false),
            Self::Lost => sim.remove_server(NODE, true),
        }
    }
}

impl State {
    /// Sets the state of the cloud. Returns the volume's id.
    async fn enter(self, sim: &Sim) -> String {
        let driver = Driver::start(sim);
        let volume = driver.volume("pvc-1").await;
        if let Some(node) = self.node() {
            driver.publish(&volume, node).await.expect("attached");
        }
        self.change(sim, &driver, &volume).await;
        driver.kill();
        // The driver starts later, so that operations that do not end are old.
        if !matches!(self, Self::Passing(_)) {
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
        volume
    }

    /// The node that initially has the volume.
    fn node(self) -> Option<&'static str> {
        match self {
            Self::Attached(_)
            | Self::AttachedVolume(_)
            | Self::StuckDetach
            | Self::LostDetach
            | Self::Migrating { attached: true } => Some(NODE),
            Self::Elsewhere => Some(OTHER_NODE),
            _ => None,
        }
    }

    async fn change(self, sim: &Sim, driver: &Driver, id: &str) {
        match self {
            Self::NoVolume => driver.delete(id).await.expect("deleted"),
            Self::Elsewhere => {}
            Self::Free(server) | Self::Attached(server) => server.enter(sim),
            Self::Volume(status) | Self::AttachedVolume(status) | Self::Passing(status) => {
                assert!(sim.set_volume_status(id, status));
            }
            Self::Migrating { .. } => {
                let migration = Some("migrating".to_owned());
                assert!(sim.set_volume(id, |volume| volume.migration_status = migration));
            }
            Self::CinderOnly(status) => drop(sim.add_attachment(id, Some(NODE), status).expect("an attachment")),
            Self::Unnamed(status) => drop(sim.add_attachment(id, None, status).expect("an attachment")),
            Self::NovaOnly => assert!(sim.add_mapping(id, NODE)),
            Self::Group => assert!(sim.set_volume(id, |volume| volume.group_id = Some(UNKNOWN.into()))),
            Self::StuckAttach => begin(sim, driver.publish(id, NODE), VolumeStatus::Reserved).await,
            Self::StuckDetach => begin(sim, driver.unpublish(id, NODE), VolumeStatus::Detaching).await,
            Self::LostAttach => {
                sim.reserve(id, NODE).expect("reserved");
                sim.remove_server(NODE, true);
            }
            Self::LostDetach => {
                assert!(sim.set_volume_status(id, VolumeStatus::Detaching));
                sim.remove_server(NODE, true);
            }
            Self::Snapshot => {
                let request = CreateSnapshotRequest {
                    name: "snapshot-1".into(),
                    source_volume_id: id.into(),
                    ..Default::default()
                };
                let snapshot = driver.controller().create_snapshot(within(request, PATIENCE)).await;
                snapshot.expect("a snapshot");
            }
        }
    }
}

/// Sends a request that Nova accepts but does not execute. The sending process ends.
async fn begin<T>(sim: &Sim, request: impl Future<Output = T>, status: VolumeStatus) {
    sim.set_latencies(Latencies {
        attach: Duration::from_hours(10),
        detach: Duration::from_hours(10),
        ..Default::default()
    });
    tokio::select! {
        _ = request => panic!("Nova carries it out"),
        () = async {
            while sim.state().volumes[0].status != status {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
}

impl Call {
    async fn run(self, driver: &Driver, volume: &str) -> Result<(), Status> {
        let mut controller = driver.controller();
        match self {
            Self::AttachHere | Self::AttachElsewhere => {
                let node = if self == Self::AttachHere { NODE } else { OTHER_NODE };
                let request = within(publish_request(volume, node), PATIENCE);
                controller.controller_publish_volume(request).await.map(drop)
            }
            Self::Detach => {
                let request = ControllerUnpublishVolumeRequest {
                    volume_id: volume.into(),
                    node_id: NODE.into(),
                    ..Default::default()
                };
                let request = within(request, PATIENCE);
                controller.controller_unpublish_volume(request).await.map(drop)
            }
            Self::Delete => {
                let request = DeleteVolumeRequest {
                    volume_id: volume.into(),
                    ..Default::default()
                };
                controller.delete_volume(within(request, PATIENCE)).await.map(drop)
            }
            Self::Expand => {
                let request = ControllerExpandVolumeRequest {
                    volume_id: volume.into(),
                    capacity_range: Some(CapacityRange {
                        required_bytes: 2 * GIB,
                        limit_bytes: 0,
                    }),
                    ..Default::default()
                };
                let request = within(request, PATIENCE);
                controller.controller_expand_volume(request).await.map(drop)
            }
        }
    }

    /// Returns the deviations of the cloud's state after the call.
    fn faults(self, succeeded: bool, volume: &str, before: &CloudState, after: &CloudState) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{what}: {:?}, {:?}", after.attachments, after.mappings));
            }
        };
        let found = after.volume(volume);
        let attached = |server| {
            let is_here = |one: &&Attachment| one.server_id.as_deref() == Some(server);
            let attachments = after.attachments.iter().filter(is_here);
            let complete = attachments
                .filter(|one| one.status == AttachmentStatus::Attached)
                .count();
            let recorded = after.mappings.iter().filter(|one| one.server_id == server).count();
            (complete, recorded)
        };
        match self {
            Self::AttachHere if succeeded => expect(attached(NODE) == (1, 1), "Nova and Cinder disagree"),
            Self::AttachElsewhere if succeeded => expect(attached(OTHER_NODE) == (1, 1), "Nova and Cinder disagree"),
            Self::Detach if succeeded => {
                let is_here = |server: Option<&str>| server == Some(NODE);
                let remains_attached = after.attachments.iter().any(|one| is_here(one.server_id.as_deref()));
                expect(
                    !remains_attached && attached(NODE) == (0, 0),
                    "the volume is still attached",
                );
            }
            Self::Delete if succeeded => expect(
                found.is_none() && after.attachments.is_empty(),
                "the volume still exists",
            ),
            Self::Expand if succeeded => expect(found.is_some_and(|found| found.size == 2), "the volume is small"),
            _ => {}
        }
        let may_vanish = self == Self::Delete && succeeded;
        expect(
            may_vanish || found.is_some() == before.volume(volume).is_some(),
            "the volume is lost",
        );
        let remains = |one: &Mapping| after.mappings.iter().any(|other| other.id == one.id);
        let may_detach = self == Self::Detach && succeeded;
        expect(may_detach || before.mappings.iter().all(remains), "a disk is lost");
        // Cinder's record proves that a disk is attached, unless its server was deleted.
        let is_deleted = |id: &String| before.servers.iter().all(|server| server.spec.id != *id);
        let remains = |one: &Attachment| {
            one.status != AttachmentStatus::Attached
                || one.server_id.as_ref().is_some_and(is_deleted)
                || after.attachments.iter().any(|other| other.id == one.id)
        };
        expect(
            may_detach || before.attachments.iter().all(remains),
            "an attachment is lost",
        );
        faults
    }
}

/// Returns the deviation from the expected result.
async fn check(state: State, call: Call, expected: Cell) -> Vec<String> {
    let sim = cloud(|_| {}).await;
    let volume = state.enter(&sim).await;
    let before = sim.state();
    let driver = Driver::start(&sim);
    let started = Instant::now();
    let end = async {
        if let State::Passing(_) = state {
            tokio::time::sleep(Duration::from_secs(20)).await;
            sim.set_volume_status(&volume, VolumeStatus::Available);
        }
    };
    let (result, ()) = tokio::join!(call.run(&driver, &volume), end);
    let elapsed = started.elapsed();
    let mut faults = call.faults(result.is_ok(), &volume, &before, &sim.state());
    let is_late = matches!(expected, Cell::Fails(Code::DeadlineExceeded, _));
    if elapsed > (if is_late { LONGEST_OPERATION } else { LONGEST }) {
        faults.push(format!("it took {elapsed:?}"));
    }
    let is_expected = match (&result, expected) {
        (Ok(()), Cell::Succeeds) => true,
        (Err(error), Cell::Fails(code, part)) => {
            let is_named = error.message().contains(&volume) || error.message().contains(NODE);
            error.code() == code && error.message().contains(part) && is_named
        }
        _ => false,
    };
    if !is_expected {
        let actual = result.map_or_else(
            |error| format!("{:?}: {}", error.code(), error.message()),
            |()| "Ok".into(),
        );
        faults.push(format!("expected {expected:?}, got {actual}"));
    }
    let context = format!("{state:?}, {call:?}");
    faults.into_iter().map(|fault| format!("{context}: {fault}")).collect()
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_in_every_cloud_state() {
    let mut faults = Vec::new();
    for (state, cells) in TABLE {
        for (call, expected) in CALLS.into_iter().zip(cells) {
            faults.extend(check(*state, call, *expected).await);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The driver has a code for every visible state. A cell that does not respond is an error 500 of Nova.
#[test]
fn cloud_states_never_return_internal() {
    for (state, cells) in TABLE {
        let is_internal = |cell: &Cell| matches!(cell, Cell::Fails(Code::Internal, _));
        let is_shown = !matches!(
            state,
            State::Free(ServerState::CellDown) | State::Attached(ServerState::CellDown)
        );
        assert!(!(is_shown && cells.iter().any(is_internal)), "{state:?}");
    }
}
