// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use openstack_sim::{Effect, Fault, Latencies};
use tonic::Code;

use crate::support::{Driver, NODE, UNKNOWN, cloud, refused};

#[tokio::test(start_paused = true)]
async fn delete_returns_after_volume_disappeared() {
    let sim = cloud(|config| {
        config.latencies = Latencies {
            delete: Duration::from_millis(200),
            ..Latencies::default()
        }
    })
    .await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.delete(&volume).await.expect("deleted");
    assert!(sim.state().volumes.is_empty());
    driver.delete(&volume).await.expect("deleted already");
    driver.delete(UNKNOWN).await.expect("never there");
}

/// An API node with a lagging database does not show a new volume.
#[tokio::test(start_paused = true)]
async fn protected_volume_is_deleted_despite_404() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.protect_other_clusters = true;
    });
    let volume = driver.volume("pvc-1").await;
    sim.fault(Fault::on("get_volume").times(1).effect(Effect::status(404)))
        .expect("a rule");
    driver.delete(&volume).await.expect("deleted");
    assert!(sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn delete_ignores_invalid_id_without_request() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    driver.volume("warm-up").await;
    sim.clear_log();
    for id in [
        "fake-vol-id",
        "../servers",
        "some/path",
        "11111111222243338444555555555555",
    ] {
        driver.delete(id).await.expect("nothing to delete");
    }
    assert_eq!(sim.log(), []);
    refused(driver.delete("").await, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn attached_volume_is_not_deleted() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let message = refused(driver.delete(&volume).await, Code::FailedPrecondition);
    assert!(message.contains(&volume) && message.contains(NODE), "{message}");
    assert_eq!(sim.state().volumes.len(), 1);
}
