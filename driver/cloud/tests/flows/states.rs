// SPDX-License-Identifier: Apache-2.0
//! Attachments in unusual states: incomplete attachments, servers that reject requests, and views that disagree.

use std::time::Duration;

use cinder_cloud::{
    AttachOptions, AttachOutcome, CloudError, CloudOptions, Obstacle, ServerId, VolumeId, VolumeStatus,
};
use openstack_sim::{AttachmentStatus, Effect, Fault, SimConfig, VolumeStatus as SimStatus};
use serde_json::{Value, json};

use crate::support::{NOTHING, ONE, Stage, TWO, latencies, stage, stage_with, tick};

async fn attach(stage: &Stage, volume: &VolumeId, server: &str) -> Result<AttachOutcome, CloudError> {
    stage
        .cloud
        .attach(volume, &ServerId::new(server), AttachOptions::default())
        .await
}

async fn detach(stage: &Stage, volume: &VolumeId, server: &str) -> Result<(), CloudError> {
    stage.cloud.detach(volume, Some(&ServerId::new(server))).await
}

/// Returns the obstacle of an error, after a check that the error names the volume, the server and `words`.
fn obstacle(error: &CloudError, volume: &VolumeId, server: &str, words: &[&str]) -> Obstacle {
    let text = error.to_string();
    let obstacle = match error {
        CloudError::Obstructed { obstacle, .. } => Some(*obstacle),
        _ => None,
    };
    for word in [volume.as_str(), server].iter().chain(words) {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    obstacle.unwrap_or_else(|| unreachable!("another error: {error:?}"))
}

/// Creates an incomplete attachment: Cinder has a record, Nova does not, as when Nova stops between two calls.
async fn half_attach(stage: &Stage, volume: &VolumeId, server: Option<&str>) -> String {
    let access = stage.sim.access();
    let login = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": access.username, "password": access.password, "domain": {"name": access.domain_name},
        }}},
        "scope": {"project": {"name": access.project_name, "domain": {"name": access.domain_name}}},
    }});
    let answer = stage
        .post(&format!("{}/auth/tokens", access.auth_url), &[], &login)
        .await;
    let token = answer.headers()["x-subject-token"].to_str().expect("text");
    let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
    let url = format!("{}/volume/v3/{}/attachments", access.base_url, access.project_id);
    let headers = [("x-auth-token", token), ("openstack-api-version", "volume 3.44")];
    let answer = stage.post(&url, &headers, &body).await;
    let created: Value = serde_json::from_slice(answer.body()).expect("an attachment");
    created["attachment"]["id"].as_str().expect("an id").to_owned()
}

/// The same stage with this `stuck_after`.
fn with_stuck_after(stage: Stage, stuck_after: Duration) -> Stage {
    let options = CloudOptions {
        stuck_after,
        ..stage.options()
    };
    let cloud = cinder_cloud::Cloud::new((*stage.cloud.config()).clone(), options).expect("a cloud");
    Stage { cloud, ..stage }
}

#[tokio::test(start_paused = true)]
async fn incomplete_attachment_blocks_no_other_server_issue_2553() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    half_attach(&stage, &volume.id, Some(ONE)).await;
    attach(&stage, &volume.id, TWO).await.expect("cleared, then attached");
    let state = stage.sim.state();
    assert_eq!((state.attachments.len(), state.mappings.len()), (1, 1));
    assert_eq!(state.volumes[0].status, SimStatus::InUse);
}

#[tokio::test(start_paused = true)]
async fn duplicate_incomplete_attachment_blocks_no_server_issue_2553() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    half_attach(&stage, &volume.id, Some(ONE)).await;
    // Cinder permits two attachments to one server, as in a migration. The incomplete one remains next to the
    // complete one.
    attach(&stage, &volume.id, ONE).await.expect("attached");
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_eq!(stage.sim.state().volumes[0].status, SimStatus::Reserved);
    stage
        .cloud
        .delete_volume(&volume.id)
        .await
        .expect("cleared, then deleted");
    let state = stage.sim.state();
    assert_eq!((state.volumes.len(), state.attachments.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn detach_removes_incomplete_attachment_issue_2553() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    half_attach(&stage, &volume.id, Some(ONE)).await;
    // A detachment from another server does not change the attachment.
    detach(&stage, &volume.id, TWO).await.expect("not there");
    assert_eq!(stage.sim.state().attachments.len(), 1);
    stage.cloud.detach(&volume.id, None).await.expect("cleared");
    let state = stage.sim.state();
    assert_eq!(
        (state.attachments.len(), state.volumes[0].status),
        (0, SimStatus::Available)
    );
}

#[tokio::test(start_paused = true)]
async fn building_server_retains_its_volume() {
    let stage = with_stuck_after(stage().await, Duration::from_secs(1));
    let volume = stage.create("pvc-1").await;
    assert!(stage.sim.set_server_state(TWO, "building", Some("scheduling")));
    half_attach(&stage, &volume.id, Some(TWO)).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    attach(&stage, &volume.id, ONE)
        .await
        .expect_err("reserved for the new server");
    stage
        .cloud
        .delete_volume(&volume.id)
        .await
        .expect_err("reserved for the new server");
    assert_eq!(stage.sim.state().attachments.len(), 1);

    assert!(stage.sim.set_server_state(TWO, "active", None));
    attach(&stage, &volume.id, ONE).await.expect("built without it");
}

#[tokio::test(start_paused = true)]
async fn recent_reservation_of_unknown_server_is_respected() {
    let stage = with_stuck_after(stage().await, Duration::from_secs(1));
    let volume = stage.create("pvc-1").await;
    half_attach(&stage, &volume.id, Some(NOTHING)).await;
    attach(&stage, &volume.id, ONE).await.expect_err("reserved just now");
    stage
        .cloud
        .delete_volume(&volume.id)
        .await
        .expect_err("reserved just now");
    assert_eq!(stage.sim.state().attachments.len(), 1);

    tokio::time::sleep(Duration::from_mins(5)).await;
    attach(&stage, &volume.id, ONE).await.expect("cleared, then attached");
}

#[tokio::test(start_paused = true)]
async fn reservation_without_server_is_reported_issue_2553() {
    let stage = with_stuck_after(stage().await, Duration::from_secs(1));
    let volume = stage.create("pvc-1").await;
    let id = half_attach(&stage, &volume.id, None).await;
    let error = attach(&stage, &volume.id, ONE).await.expect_err("somebody else's");
    assert_eq!(
        obstacle(&error, &volume.id, ONE, &[&id, "reserved", "no server"]),
        Obstacle::Stuck
    );
    assert!(error.request_id().is_some(), "{error}");
    detach(&stage, &volume.id, ONE).await.expect("not there");
    assert_eq!(stage.sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn attachment_known_to_cinder_remains_issue_2115() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let id = volume.id.as_str();
    stage
        .sim
        .add_attachment(id, Some(ONE), AttachmentStatus::Attached)
        .expect("a record of Cinder's");
    let error = detach(&stage, &volume.id, ONE)
        .await
        .expect_err("the guest may have it");
    let words = ["no record", "ACTIVE"];
    assert_eq!(obstacle(&error, &volume.id, ONE, &words), Obstacle::Disagreement);
    assert_eq!(stage.sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn detach_awaits_nova_record_issue_2709() {
    let mut config = SimConfig::default();
    config.latencies.settle = Duration::from_millis(700);
    let stage = stage_with(config).await;
    let volume = stage.create("pvc-1").await;
    for server in [ONE, TWO] {
        attach(&stage, &volume.id, server).await.expect("attached at once");
        detach(&stage, &volume.id, server).await.expect("detached");
        assert!(stage.sim.state().mappings.is_empty(), "Nova still has its record");
    }
    // Nova rejected no attachment because of the previous one.
    assert_eq!(stage.sim.count("attach_volume"), 2);
}

#[tokio::test(start_paused = true)]
async fn detach_works_on_stopped_server_issue_1056() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    assert!(stage.sim.set_server_state(ONE, "stopped", None));
    detach(&stage, &volume.id, ONE).await.expect("detached");
    attach(&stage, &volume.id, TWO).await.expect("attached elsewhere");
    assert!(stage.sim.set_server_state(TWO, "resized", None));
    detach(&stage, &volume.id, TWO)
        .await
        .expect("detached before the resize is confirmed");
}

#[tokio::test(start_paused = true)]
async fn rejection_names_server_state_issue_737() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    assert!(stage.sim.set_server_state(ONE, "error", None));
    let error = attach(&stage, &volume.id, ONE).await.expect_err("in error");
    assert_eq!(
        obstacle(&error, &volume.id, ONE, &["ERROR", "openstack server show"]),
        Obstacle::Server
    );
    assert!(stage.sim.set_server_state(ONE, "suspended", None));
    let error = attach(&stage, &volume.id, ONE).await.expect_err("suspended");
    assert_eq!(
        obstacle(&error, &volume.id, ONE, &["SUSPENDED", "resume"]),
        Obstacle::Server
    );
    assert!(stage.sim.set_server_state(ONE, "active", None));
    for (fault, words) in [
        (
            format!("Instance {ONE} is locked"),
            ["locked", "openstack server unlock"],
        ),
        (
            "Service is unavailable at this time.".to_owned(),
            ["nova-compute", "evacuate"],
        ),
    ] {
        let refusal = |operation: &str| {
            let effect = Effect::status(409).message(fault.clone());
            stage
                .sim
                .fault(Fault::on(operation).times(1).effect(effect))
                .expect("a rule");
        };
        refusal("attach_volume");
        let error = attach(&stage, &volume.id, ONE).await.expect_err("refused");
        assert_eq!(obstacle(&error, &volume.id, ONE, &words), Obstacle::Server);
        attach(&stage, &volume.id, ONE).await.expect("attached");
        refusal("detach_volume");
        let error = detach(&stage, &volume.id, ONE).await.expect_err("refused");
        assert_eq!(obstacle(&error, &volume.id, ONE, &words), Obstacle::Server);
        assert!(error.request_id().is_some(), "{error}");
        detach(&stage, &volume.id, ONE).await.expect("detached");
    }
}

#[tokio::test(start_paused = true)]
async fn stuck_attachment_is_reported_issue_1206() {
    let mut config = SimConfig::default();
    config.latencies.attach = Duration::from_secs(4);
    let stage = with_stuck_after(stage_with(config).await, Duration::from_secs(1));
    let volume = stage.create("pvc-1").await;
    let error = attach(&stage, &volume.id, ONE).await.expect_err("it takes too long");
    assert_eq!(
        obstacle(&error, &volume.id, ONE, &["reserved", "ACTIVE", "nova-compute"]),
        Obstacle::Stuck
    );
    assert!(error.request_id().is_some(), "{error}");
    let patient = with_stuck_after(stage, Duration::from_secs(90));
    attach(&patient, &volume.id, ONE).await.expect("it goes on");
    assert_eq!(patient.sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stuck_detachment_is_reported_issue_2965() {
    let stage = with_stuck_after(stage().await, Duration::from_secs(1));
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    stage
        .sim
        .set_latencies(latencies(|l| l.detach = Duration::from_secs(4)));
    let error = detach(&stage, &volume.id, ONE).await.expect_err("it takes too long");
    assert_eq!(
        obstacle(&error, &volume.id, ONE, &["detaching", "out-of-service"]),
        Obstacle::Stuck
    );
    let patient = with_stuck_after(stage, Duration::from_secs(90));
    detach(&patient, &volume.id, ONE).await.expect("it goes on");
    let now = patient.cloud.volume(&volume.id).await.expect("asked").expect("there");
    assert_eq!(now.status, VolumeStatus::Available);
    assert_eq!(accepted(&patient, "detach_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn attach_waits_for_volume_creation_issue_3124() {
    let mut config = SimConfig::default();
    config.latencies.create = Duration::from_millis(600);
    let stage = stage_with(config).await;
    let (attached, ()) = tokio::join!(
        async {
            let id = loop {
                if let Some(volume) = stage.sim.state().volumes.first() {
                    break VolumeId::new(volume.id.clone());
                }
                tick().await;
            };
            attach(&stage, &id, ONE).await
        },
        async {
            stage.create("pvc-1").await;
        }
    );
    attached.expect("attached as soon as it was there");
    assert_eq!(accepted(&stage, "attach_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_volume_is_reported_on_attach() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.sim.set_volume_status(volume.id.as_str(), SimStatus::Error);
    let error = attach(&stage, &volume.id, ONE).await.expect_err("failed");
    assert!(matches!(error, CloudError::Broken { .. }), "{error:?}");
    assert!(
        error.to_string().contains(ONE) && error.to_string().contains("req-"),
        "{error}"
    );
    stage.sim.set_volume_status(volume.id.as_str(), SimStatus::Available);
    attach(&stage, &volume.id, ONE).await.expect("attached");
    stage
        .sim
        .set_volume_status(volume.id.as_str(), SimStatus::ErrorExtending);
    attach(&stage, &volume.id, ONE)
        .await
        .expect("it is there, whatever else failed");
    let error = detach(&stage, &volume.id, ONE)
        .await
        .expect_err("Cinder does not let go");
    assert!(matches!(error, CloudError::Broken { .. }), "{error:?}");
}

/// The number of accepted requests.
fn accepted(stage: &Stage, operation: &str) -> usize {
    let log = stage.sim.log();
    log.iter()
        .filter(|entry| entry.operation == operation && entry.status < 300)
        .count()
}

#[tokio::test(start_paused = true)]
async fn requests_to_one_server_are_serialized_issue_944() {
    let mut config = SimConfig::default();
    // Nova answers an attach request when the device is reserved, one request at a time.
    config.latencies.accept = Duration::from_millis(30);
    config.latencies.attach = Duration::from_millis(60);
    config.latencies.detach = Duration::from_millis(60);
    let stage = stage_with(config).await;
    let names: Vec<String> = (0..24).map(|number| format!("pvc-{number}")).collect();
    let volumes = futures::future::join_all(names.iter().map(|name| stage.create(name))).await;
    let (first, second) = volumes.split_at(12);
    futures::future::join_all(
        first
            .iter()
            .map(async |volume| attach(&stage, &volume.id, ONE).await.expect("attached")),
    )
    .await;
    // Some volumes are attached while others are detached.
    tokio::join!(
        futures::future::join_all(
            second
                .iter()
                .map(async |volume| attach(&stage, &volume.id, ONE).await.expect("attached"))
        ),
        futures::future::join_all(
            first
                .iter()
                .map(async |volume| detach(&stage, &volume.id, ONE).await.expect("detached"))
        ),
    );
    assert_eq!(
        (accepted(&stage, "attach_volume"), stage.sim.count("attach_volume")),
        (24, 24)
    );
    assert_eq!(
        (accepted(&stage, "detach_volume"), stage.sim.count("detach_volume")),
        (12, 12)
    );
    assert_eq!(stage.sim.state().mappings.len(), 12);
}
