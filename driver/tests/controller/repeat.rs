// SPDX-License-Identifier: Apache-2.0
//! Tests that a fixed clock and seed make a run reproducible.

use csi_sources::Sources;
use futures::future::join_all;
use openstack_sim::{Effect, Fault, Latencies, LogEntry, When};

use crate::support::{Driver, NODE, OTHER_NODE, cloud, create_request, wait_until};

/// Runs the lifecycles of many volumes in parallel, with lost responses and a killed driver.
///
/// Returns the requests to the cloud with their times.
async fn requests(seed: u64) -> Vec<LogEntry> {
    let start = "2026-01-02T03:04:05Z".parse().expect("a time");
    let sim = cloud(|config| {
        config.sources = Sources::seeded(seed, start);
        config.latencies = Latencies::real();
    })
    .await;
    for (operation, effect) in [
        ("create_volume", Effect::cut(When::After)),
        ("list_volumes_detail", Effect::status(503)),
        ("attach_volume", Effect::status(429).retry_after(1)),
    ] {
        let fault = Fault::on(operation).skip(3).times(3).effect(effect);
        sim.fault(fault).expect("a rule");
    }
    let names: Vec<String> = (0..30).map(|number| format!("pvc-{number}")).collect();
    let first = Driver::start(&sim);
    tokio::select! {
        biased;
        _ = join_all(names.iter().map(|name| first.create(create_request(name)))) => panic!("it cannot be done yet"),
        () = wait_until("volumes", || sim.state().volumes.len() > 20) => {}
    }
    first.kill();
    let driver = Driver::start(&sim);
    join_all(names.iter().enumerate().map(async |(number, name)| {
        let node = [NODE, OTHER_NODE][number % 2];
        let volume = loop {
            if let Ok(volume) = driver.create(create_request(name)).await {
                break volume.volume_id;
            }
        };
        while driver.publish(&volume, node).await.is_err() {}
        while driver.unpublish(&volume, node).await.is_err() {}
        while driver.delete(&volume).await.is_err() {}
    }))
    .await;
    assert!(sim.state().volumes.is_empty());
    sim.log()
}

#[tokio::test(start_paused = true)]
async fn seed_determines_requests_and_times() {
    let (first, again, other) = (requests(7).await, requests(7).await, requests(8).await);
    for (number, (first, again)) in first.iter().zip(&again).enumerate() {
        assert_eq!(first, again, "request {number}");
    }
    assert_eq!(first.len(), again.len());
    assert_ne!(first, other);
}
