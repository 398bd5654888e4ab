// SPDX-License-Identifier: Apache-2.0
//! Growth to the size that was asked for, read back.

use std::time::Duration;

use cinder_cloud::{AttachOptions, CloudError, GiB, ServerId, VolumeId, VolumeStatus};
use openstack_sim::{Effect, Fault, SimConfig, When};

use crate::support::{NOTHING, ONE, latencies, stage, stage_with, tick};

fn gib(size: u64) -> GiB {
    GiB::new(size).expect("size")
}

#[tokio::test(start_paused = true)]
async fn a_free_volume_grows_with_a_look_a_request_and_the_proof() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.sim.clear_log();
    let grown = stage.cloud.expand_volume(&volume.id, gib(5)).await.expect("grown");
    assert_eq!((grown.size, grown.status), (gib(5), VolumeStatus::Available));
    assert_eq!(stage.operations(), ["get_volume", "extend_volume", "get_volume"]);
}

#[tokio::test(start_paused = true)]
async fn an_attached_volume_grows_and_stays_attached() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let server = ServerId::new(ONE);
    stage
        .cloud
        .attach(&volume.id, &server, AttachOptions::default())
        .await
        .expect("attached");
    let grown = stage.cloud.expand_volume(&volume.id, gib(2)).await.expect("grown");
    assert_eq!((grown.size, &grown.status), (gib(2), &VolumeStatus::InUse));
    assert!(grown.attachment_to(&server).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_somebody_else_began_is_waited_for_and_not_asked_for_again() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.extend = Duration::from_millis(400)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let (cloud, id) = (stage.cloud.clone(), volume.id.clone());
    let first = tokio::spawn(async move { cloud.expand_volume(&id, gib(3)).await });
    while stage.sim.count("extend_volume") == 0 {
        tick().await;
    }
    first.abort();
    let grown = stage.cloud.expand_volume(&volume.id, gib(3)).await.expect("grown");
    assert_eq!(grown.size, gib(3));
    assert_eq!(stage.sim.count("extend_volume"), 1);
    // What was under way was too little: the rest is asked for.
    let more = stage
        .cloud
        .expand_volume(&volume.id, gib(4))
        .await
        .expect("grown again");
    assert_eq!(more.size, gib(4));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_after_and_the_request_not_repeated_blindly() {
    let stage = stage().await;
    for (effect, requests) in [(Effect::cut(When::After), 1), (Effect::cut(When::Before), 2)] {
        let volume = stage.create(&format!("pvc-{requests}")).await;
        stage.sim.clear_faults();
        stage.sim.clear_log();
        stage
            .sim
            .fault(Fault::on("extend_volume").times(1).effect(effect))
            .expect("rule");
        let grown = stage.cloud.expand_volume(&volume.id, gib(2)).await.expect("grown");
        assert_eq!(grown.size, gib(2));
        assert_eq!(stage.sim.count("extend_volume"), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_fails_is_told_with_the_message_and_never_taken_for_done() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage
        .sim
        .fault(Fault::on("extend_volume").effect(Effect::work_fails().message("no space on the backend")))
        .expect("rule");
    let error = stage.cloud.expand_volume(&volume.id, gib(2)).await.expect_err("failed");
    let CloudError::ExpandFailed {
        size,
        wanted,
        status,
        message,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*size, *wanted, status.as_str()), (gib(1), gib(2), "error_extending"));
    assert!(message.contains("no space on the backend"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_there_is_told_as_such() {
    let stage = stage().await;
    for id in [NOTHING, "no-uuid"] {
        let error = stage
            .cloud
            .expand_volume(&VolumeId::new(id), gib(2))
            .await
            .expect_err("nothing");
        assert!(matches!(error, CloudError::NotFound { .. }), "{error:?}");
    }
}
