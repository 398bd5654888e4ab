// SPDX-License-Identifier: Apache-2.0
//! Expansion of volumes to the requested size, as Cinder confirms it.

use std::time::Duration;

use cinder_cloud::{AttachOptions, CloudError, GiB, ServerId, VolumeId, VolumeStatus};
use openstack_sim::{Effect, Fault, SimConfig, When};

use crate::support::{NOTHING, ONE, latencies, stage, stage_with, tick};

fn gib(size: u64) -> GiB {
    GiB::new(size).expect("size")
}

#[tokio::test(start_paused = true)]
async fn expansion_of_free_volume_needs_three_calls() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.sim.clear_log();
    let grown = stage.cloud.expand_volume(&volume.id, gib(5)).await.expect("grown");
    assert_eq!((grown.size, grown.status), (gib(5), VolumeStatus::Available));
    assert_eq!(stage.operations(), ["get_volume", "extend_volume", "get_volume"]);
}

#[tokio::test(start_paused = true)]
async fn expansion_preserves_attachment() {
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
async fn running_expansion_is_awaited() {
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
    // The other expansion was too small, so the driver requests the rest.
    let more = stage
        .cloud
        .expand_volume(&volume.id, gib(4))
        .await
        .expect("grown again");
    assert_eq!(more.size, gib(4));
}

#[tokio::test(start_paused = true)]
async fn expansion_survives_lost_answer() {
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
async fn failed_expansion_is_reported_with_message() {
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
async fn expansion_reports_missing_volume() {
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
