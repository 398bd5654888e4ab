//! What a volume's life costs: OpenStack calls, alone and in a crowd.

use std::time::{Duration, Instant};

use openstack_sim::{Latencies, SimConfig};

use crate::support::{stage, stage_with};

#[tokio::test]
async fn a_life_at_the_latencies_of_real_services_costs_twelve_calls_at_most() {
    let stage = stage_with(SimConfig {
        latencies: Latencies::real(),
        ..SimConfig::default()
    })
    .await;
    for life in 0..4 {
        stage.sim.clear_log();
        stage.life(&format!("pvc-{life}")).await;
        assert!(stage.calls() <= 12, "life {life}: {:?}", stage.operations());
    }
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test]
async fn a_life_in_a_cloud_that_answers_at_once_costs_nine_calls_at_most() {
    let stage = stage().await;
    for life in 0..3 {
        stage.sim.clear_log();
        stage.life(&format!("pvc-{life}")).await;
        assert!(stage.calls() <= 9, "life {life}: {:?}", stage.operations());
    }
}

#[tokio::test]
async fn a_cloud_that_answers_at_once_is_not_waited_for_once_it_is_known() {
    let stage = stage().await;
    for life in 0..6 {
        stage.life(&format!("learn-{life}")).await;
    }
    let started = Instant::now();
    stage.life("pvc").await;
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn looks_do_not_grow_with_the_number_of_volumes() {
    let stage = stage_with(SimConfig {
        latencies: Latencies::real(),
        ..SimConfig::default()
    })
    .await;
    let names: Vec<String> = (0..40).map(|number| format!("crowd-{number}")).collect();
    futures::future::join_all(names.iter().map(|name| stage.life(name))).await;
    let log = stage.operations();
    let count = |operation: &str| log.iter().filter(|found| **found == operation).count();
    assert_eq!(count("create_volume"), 40);
    assert_eq!(count("attach_volume"), 40);
    assert_eq!(count("detach_volume"), 40);
    assert_eq!(count("delete_volume"), 40);
    assert!(stage.sim.state().volumes.is_empty());
    // Five requests that there must be, a proof of its end for each deletion, and what all share.
    assert!(log.len() <= 40 * 7, "{} calls for 40 lives: {log:?}", log.len());
}
