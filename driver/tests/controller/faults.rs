//! Each RPC over every fault of the cloud: the code that the sidecars act on, and a message that names the request.
//!
//! The fault is that of the call which changes something (or, for RPCs that only look, of the one they look with), and it
//! lasts. An RPC that may have made something is never answered with a code that says nothing was made.

use std::time::Duration;

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerModifyVolumeRequest,
    CreateSnapshotRequest, DeleteSnapshotRequest, GetCapacityRequest, ListSnapshotsRequest, ListVolumesRequest,
    ValidateVolumeCapabilitiesRequest,
};
use openstack_sim::{Effect, Fault, Sim, When};
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, capability, cloud, create_request, patient, within};

/// What one attempt at a request may take, so that the time-out comes soon.
const REQUEST: Duration = Duration::from_secs(2);
/// What a call may take.
const CALL: Duration = Duration::from_secs(8);

/// A fault, and whether its answer carries a request id.
struct Trouble {
    name: &'static str,
    effect: Effect,
    answered: bool,
}

fn troubles() -> Vec<Trouble> {
    let trouble = |name, effect| Trouble {
        name,
        effect,
        answered: true,
    };
    let lost = |name, effect| Trouble {
        name,
        effect,
        answered: false,
    };
    let policy = "Policy doesn't allow this to be performed.";
    let quota = "Quota exceeded for volumes: Requested 1, but already used 10 of 10 volumes";
    let room = "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.";
    vec![
        trouble("400", Effect::status(400)),
        trouble("401", Effect::status(401)),
        trouble("403 policy", Effect::status(403).message(policy)),
        trouble("403 quota", Effect::status(403).message(quota)),
        // An absence: the message names the object.
        lost("404", Effect::status(404)),
        trouble("409", Effect::status(409)),
        trouble("413 quota", Effect::status(413).message(room)),
        trouble("429", Effect::status(429).retry_after(5)),
        trouble("500", Effect::status(500)),
        trouble("500 after", Effect::status_after(500)),
        trouble("503", Effect::status(503).retry_after(5)),
        lost("time-out", Effect::delay(Duration::from_hours(1))),
        lost("reset", Effect::cut(When::Before)),
        lost("reset after", Effect::cut(When::After)),
        trouble("truncated", Effect::Truncated),
        lost("html 200", Effect::html(200)),
        trouble("html 502", Effect::html(502)),
    ]
}

/// The codes that leave it open whether something was done: the provisioner, the attacher and the snapshotter ask again.
const OPEN: [Code; 4] = [
    Code::Unavailable,
    Code::Aborted,
    Code::DeadlineExceeded,
    Code::Cancelled,
];

/// The codes that are right for a fault.
struct Expected(&'static [(&'static str, &'static [Code])]);

impl Expected {
    fn of(&self, trouble: &str) -> &'static [Code] {
        let found = self.0.iter().find(|(name, _)| *name == trouble);
        found.map_or(&[Code::Unavailable], |(_, codes)| codes)
    }
}

/// Runs `call` once over each fault of `operation`, on a cloud and a driver of its own, and checks its code and its message.
async fn over_all_faults<P>(
    operation: &str,
    expected: &Expected,
    prepare: impl AsyncFn(&Sim, &Driver) -> P,
    call: impl AsyncFn(&Driver, &P) -> Result<(), Status>,
) {
    let (prepare, call) = (&prepare, &call);
    let over = troubles()
        .into_iter()
        .map(|trouble| async move { over_one(operation, trouble, expected, prepare, call).await });
    let wrong: Vec<String> = futures::future::join_all(over).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{operation}:\n{}", wrong.join("\n"));
}

async fn over_one<P>(
    operation: &str,
    trouble: Trouble,
    expected: &Expected,
    prepare: &impl AsyncFn(&Sim, &Driver) -> P,
    call: &impl AsyncFn(&Driver, &P) -> Result<(), Status>,
) -> Option<String> {
    let sim = cloud(|_| {}).await;
    let driver = Driver::with(&sim.access().cloud_conf(), |args| args.request_timeout = REQUEST).await;
    let prepared = prepare(&sim, &driver).await;
    sim.fault(Fault::on(operation).effect(trouble.effect)).expect("a fault");
    let (code, message) = match call(&driver, &prepared).await {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    let name = trouble.name;
    let right = expected.of(name);
    if !right.contains(&code) {
        return Some(format!("{name}: {code:?} and not one of {right:?}: {message}"));
    }
    // What the cloud is not asked for, because it wants to be left alone, has no request.
    let asked =
        trouble.answered && !matches!(code, Code::Ok | Code::DeadlineExceeded) && !message.contains("not asked");
    if asked && !message.contains("req-") {
        return Some(format!("{name}: no request id in: {message}"));
    }
    let met = name == "time-out" || sim.log().iter().any(|entry| entry.operation == operation);
    (!met).then(|| format!("{name}: {operation} was never asked for"))
}

const NOTHING: fn(&Sim, &Driver) -> std::future::Ready<()> = |_, _| std::future::ready(());

#[tokio::test]
async fn create_volume_is_final_only_when_nothing_was_made() {
    let expected = Expected(&[
        ("400", &[Code::InvalidArgument]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        // Found by its name afterwards.
        ("500 after", &[Code::Ok, Code::Unavailable]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("truncated", &[Code::Ok, Code::Unavailable]),
        ("time-out", &OPEN),
        ("404", &[Code::InvalidArgument]),
        ("500", &OPEN),
        ("503", &OPEN),
        ("reset", &OPEN),
        ("html 200", &OPEN),
        ("html 502", &OPEN),
    ]);
    over_all_faults("create_volume", &expected, NOTHING, async |driver, ()| {
        let answer = driver
            .controller()
            .create_volume(within(create_request("pvc-1"), CALL))
            .await;
        answer.map(drop)
    })
    .await;
}

#[tokio::test]
async fn delete_volume_tells_what_kept_the_volume() {
    let expected = Expected(&[
        ("400", &[Code::Internal, Code::FailedPrecondition]),
        ("403 policy", &[Code::PermissionDenied]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::Ok]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal, Code::DeadlineExceeded]),
        ("500 after", &[Code::Internal, Code::Ok]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("time-out", &OPEN),
        // The answer has no body that matters: its end is waited for, and it does not come.
        ("html 200", &[Code::FailedPrecondition, Code::DeadlineExceeded]),
        ("truncated", &[Code::Ok]),
        ("reset", &OPEN),
        ("html 502", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("delete_volume", &expected, prepare, async |driver, volume| {
        let request = csi_proto::csi::v1::DeleteVolumeRequest {
            volume_id: volume.clone(),
            ..Default::default()
        };
        driver.controller().delete_volume(within(request, CALL)).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn controller_publish_volume_leaves_open_what_may_still_be_attached() {
    let expected = Expected(&[
        ("400", &[Code::Internal]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::NotFound, Code::Aborted]),
        ("409", &OPEN),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500 after", &[Code::Ok, Code::Unavailable]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("truncated", &[Code::Ok, Code::Unavailable]),
        ("html 200", &[Code::Unavailable, Code::DeadlineExceeded]),
        ("time-out", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("attach_volume", &expected, prepare, async |driver, volume| {
        let request = crate::support::publish_request(volume, NODE);
        driver
            .controller()
            .controller_publish_volume(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn controller_unpublish_volume_tells_what_keeps_the_volume_attached() {
    let expected = Expected(&[
        ("400", &[Code::Internal]),
        ("403 policy", &[Code::PermissionDenied]),
        ("403 quota", &[Code::ResourceExhausted]),
        // Nova says that it is not attached, and Cinder that it is: whoever is right tells it later.
        ("404", &[Code::Aborted, Code::DeadlineExceeded, Code::Internal]),
        ("409", &OPEN),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal, Code::DeadlineExceeded]),
        ("500 after", &[Code::Internal, Code::Ok]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("html 200", &[Code::DeadlineExceeded, Code::Aborted]),
        ("truncated", &[Code::Ok]),
        ("time-out", &OPEN),
        ("reset", &OPEN),
        ("html 502", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| {
        let volume = driver.volume("pvc-1").await;
        driver.publish(&volume, NODE).await.expect("attached");
        volume
    };
    over_all_faults("detach_volume", &expected, prepare, async |driver, volume| {
        let request = csi_proto::csi::v1::ControllerUnpublishVolumeRequest {
            volume_id: volume.clone(),
            node_id: NODE.into(),
            ..Default::default()
        };
        driver
            .controller()
            .controller_unpublish_volume(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn controller_expand_volume_is_infeasible_only_for_what_cannot_be_had() {
    let expected = Expected(&[
        ("400", &[Code::Internal]),
        ("403 policy", &[Code::PermissionDenied]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::NotFound]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal]),
        ("500 after", &[Code::Internal, Code::Ok]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("html 200", &[Code::DeadlineExceeded, Code::Aborted, Code::Internal]),
        ("truncated", &[Code::Ok]),
        ("time-out", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("extend_volume", &expected, prepare, async |driver, volume| {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: 2 * GIB,
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        driver
            .controller()
            .controller_expand_volume(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn controller_modify_volume_is_infeasible_only_for_what_cinder_refuses() {
    let expected = Expected(&[
        ("400", &[Code::InvalidArgument]),
        ("403 policy", &[Code::PermissionDenied]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::NotFound]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal]),
        ("500 after", &[Code::Internal, Code::Ok]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        (
            "html 200",
            &[
                Code::DeadlineExceeded,
                Code::Aborted,
                Code::Internal,
                Code::InvalidArgument,
            ],
        ),
        ("truncated", &[Code::Ok]),
        ("time-out", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("retype_volume", &expected, prepare, async |driver, volume| {
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.clone(),
            mutable_parameters: [("type".to_owned(), "slow".to_owned())].into(),
            ..Default::default()
        };
        driver
            .controller()
            .controller_modify_volume(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn create_snapshot_is_final_only_when_nothing_was_made() {
    let expected = Expected(&[
        ("400", &[Code::InvalidArgument, Code::FailedPrecondition]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::NotFound, Code::Aborted, Code::Unavailable]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500 after", &[Code::Ok, Code::Unavailable]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("truncated", &[Code::Ok, Code::Unavailable]),
        ("time-out", &OPEN),
        ("500", &OPEN),
        ("503", &OPEN),
        ("reset", &OPEN),
        ("html 200", &OPEN),
        ("html 502", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("create_snapshot", &expected, prepare, async |driver, volume| {
        let request = CreateSnapshotRequest {
            name: "snapshot-1".into(),
            source_volume_id: volume.clone(),
            ..Default::default()
        };
        driver
            .controller()
            .create_snapshot(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn delete_snapshot_tells_what_kept_the_snapshot() {
    let expected = Expected(&[
        ("400", &[Code::Internal, Code::FailedPrecondition]),
        ("403 policy", &[Code::PermissionDenied]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::Ok]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal, Code::DeadlineExceeded]),
        ("500 after", &[Code::Internal, Code::Ok]),
        ("reset after", &[Code::Ok, Code::Unavailable]),
        ("html 200", &[Code::FailedPrecondition, Code::DeadlineExceeded]),
        ("truncated", &[Code::Ok]),
        ("time-out", &OPEN),
        ("reset", &OPEN),
        ("html 502", &OPEN),
    ]);
    let prepare = async |_: &Sim, driver: &Driver| {
        let request = CreateSnapshotRequest {
            name: "snapshot-1".into(),
            source_volume_id: driver.volume("pvc-1").await,
            ..Default::default()
        };
        let answer = driver
            .controller()
            .create_snapshot(patient(request))
            .await
            .expect("a snapshot");
        answer.into_inner().snapshot.expect("a snapshot").snapshot_id
    };
    over_all_faults("delete_snapshot", &expected, prepare, async |driver, snapshot| {
        let request = DeleteSnapshotRequest {
            snapshot_id: snapshot.clone(),
            ..Default::default()
        };
        driver
            .controller()
            .delete_snapshot(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

/// What an RPC that only looks is answered with.
const LOOK: Expected = Expected(&[
    ("400", &[Code::Internal]),
    ("403 policy", &[Code::PermissionDenied]),
    ("403 quota", &[Code::ResourceExhausted]),
    ("404", &[Code::NotFound]),
    ("409", &[Code::Aborted]),
    ("413 quota", &[Code::ResourceExhausted]),
    ("500", &[Code::Internal]),
    ("500 after", &[Code::Internal]),
    ("truncated", &[Code::Internal]),
    ("html 200", &[Code::Internal]),
    ("time-out", &OPEN),
]);

#[tokio::test]
async fn validate_volume_capabilities_and_get_volume_tell_why_they_cannot_look() {
    let prepare = async |_: &Sim, driver: &Driver| driver.volume("pvc-1").await;
    over_all_faults("get_volume", &LOOK, prepare, async |driver, volume| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume.clone(),
            volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
            ..Default::default()
        };
        driver
            .controller()
            .validate_volume_capabilities(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
    over_all_faults("get_volume", &LOOK, prepare, async |driver, volume| {
        let request = ControllerGetVolumeRequest {
            volume_id: volume.clone(),
        };
        driver
            .controller()
            .controller_get_volume(within(request, CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn list_volumes_and_list_snapshots_tell_why_they_cannot_look() {
    over_all_faults("list_volumes_detail", &LOOK, NOTHING, async |driver, ()| {
        driver
            .controller()
            .list_volumes(within(ListVolumesRequest::default(), CALL))
            .await
            .map(drop)
    })
    .await;
    over_all_faults("list_snapshots_detail", &LOOK, NOTHING, async |driver, ()| {
        driver
            .controller()
            .list_snapshots(within(ListSnapshotsRequest::default(), CALL))
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn get_capacity_tells_why_it_cannot_look() {
    // Without the right to see quotas, or where there are none, nothing bounds the capacity.
    let expected = Expected(&[
        ("400", &[Code::Internal]),
        ("403 policy", &[Code::Ok]),
        ("403 quota", &[Code::ResourceExhausted]),
        ("404", &[Code::Ok]),
        ("409", &[Code::Aborted]),
        ("413 quota", &[Code::ResourceExhausted]),
        ("500", &[Code::Internal]),
        ("500 after", &[Code::Internal]),
        ("truncated", &[Code::Internal]),
        ("html 200", &[Code::Internal]),
        ("time-out", &OPEN),
    ]);
    over_all_faults("get_volume_quota", &expected, NOTHING, async |driver, ()| {
        driver
            .controller()
            .get_capacity(within(GetCapacityRequest::default(), CALL))
            .await
            .map(drop)
    })
    .await;
}
