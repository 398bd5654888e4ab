// SPDX-License-Identifier: Apache-2.0
//! The number of OpenStack calls in the life of a volume, alone and in a crowd.

use std::time::Duration;

use openstack_sim::{Effect, Fault, Latencies, SimConfig};
use tokio::time::Instant;

use crate::support::{stage, stage_with};

/// Longer than an attachment counts as new.
const POD: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn lifecycle_at_real_latencies_costs_fourteen_calls() {
    let stage = stage_with(SimConfig {
        latencies: Latencies::real(),
        ..SimConfig::default()
    })
    .await;
    for life in 0..4 {
        stage.sim.clear_log();
        stage.life(&format!("pvc-{life}")).await;
        assert!(stage.calls() <= 14, "life {life}: {:?}", stage.operations());
    }
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lifecycle_in_fast_cloud_costs_ten_calls() {
    let stage = stage().await;
    for life in 0..3 {
        stage.sim.clear_log();
        stage.life(&format!("pvc-{life}")).await;
        assert!(stage.calls() <= 10, "life {life}: {:?}", stage.operations());
    }
}

#[tokio::test(start_paused = true)]
async fn fast_cloud_is_polled_without_delay() {
    let stage = stage().await;
    for life in 0..6 {
        stage.life_with_pod(&format!("learn-{life}"), POD).await;
    }
    // The fastest of several lives: a busy machine delays some of them, a wait delays all.
    let mut fastest = Duration::MAX;
    for life in 0..5 {
        let started = Instant::now();
        stage.life_with_pod(&format!("pvc-{life}"), POD).await;
        fastest = fastest.min(started.elapsed().saturating_sub(POD));
    }
    assert!(fastest < Duration::from_millis(500), "{fastest:?}");
}

#[tokio::test(start_paused = true)]
async fn immediate_detachment_waits_for_next_second() {
    let stage = stage().await;
    for life in 0..6 {
        let started = Instant::now();
        stage.life(&format!("pvc-{life}")).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

/// Runs this number of lives at once on one server, and returns the calls of each.
async fn crowd(count: usize) -> f64 {
    let stage = stage_with(SimConfig {
        latencies: Latencies::real(),
        ..SimConfig::default()
    })
    .await;
    let names: Vec<String> = (0..count).map(|number| format!("crowd-{number}")).collect();
    // Each step of each life succeeds, or this panics.
    futures::future::join_all(names.iter().map(|name| stage.life(name))).await;
    let log = stage.sim.log();
    for operation in ["create_volume", "attach_volume", "detach_volume", "delete_volume"] {
        let entries: Vec<_> = log.iter().filter(|entry| entry.operation == operation).collect();
        // Cinder and Nova rejected no request, and the driver sent none twice.
        assert_eq!(entries.len(), count, "{operation}");
        assert!(entries.iter().all(|entry| entry.status < 300), "{operation}");
    }
    assert!(stage.sim.state().volumes.is_empty());
    stage.calls() as f64 / count as f64
}

#[tokio::test(start_paused = true)]
async fn forty_parallel_lifecycles_share_calls_issue_1069() {
    let each = crowd(40).await;
    assert!(each <= 10.0, "{each} calls each");
}

#[tokio::test(start_paused = true)]
async fn hundred_parallel_lifecycles_share_calls_issue_1069() {
    let each = crowd(100).await;
    assert!(each <= 10.0, "{each} calls each");
}

#[tokio::test(start_paused = true)]
async fn crowd_without_change_list_polls_directly() {
    let stage = stage_with(SimConfig {
        latencies: Latencies::real(),
        ..SimConfig::default()
    })
    .await;
    // A filter that the configuration of Cinder does not enable.
    let refusal = Effect::status(400).message("Invalid filters updated_at are found in query options.");
    stage
        .sim
        .fault(Fault::on("list_volumes_detail").times(1).skip(20).effect(refusal))
        .expect("a rule");
    let names: Vec<String> = (0..20).map(|number| format!("crowd-{number}")).collect();
    futures::future::join_all(names.iter().map(|name| stage.life_with_pod(name, POD))).await;
    let refused = stage.sim.log().iter().filter(|entry| entry.status == 400).count();
    assert_eq!(refused, 1, "it is not asked again");
    assert!(stage.sim.state().volumes.is_empty());
    // Each operation polls separately, and the first estimate for an attachment is too short for this cloud.
    assert!(stage.calls() <= 20 * 11, "{}", stage.calls());
}

#[tokio::test(start_paused = true)]
async fn repeated_deletion_sends_no_request() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    stage.sim.clear_log();
    stage.cloud.delete_volume(&volume.id).await.expect("deleted before");
    assert_eq!(stage.calls(), 0, "{:?}", stage.operations());
    let by_another = stage.other_process().delete_volume(&volume.id).await;
    by_another.expect("deleted before");
    stage.cloud.detach(&volume.id, None).await.expect("nowhere");
    assert!(stage.calls() > 0);
}
