// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::support::{NOTHING, ONE, stage, tick};

#[tokio::test(start_paused = true)]
async fn concurrent_lists_share_one_request() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.sim.clear_log();
    // A list that was requested at the moment of a change does not count.
    tick().await;
    for listed in join_all((0..20).map(|_| stage.cloud.listed_volumes())).await {
        assert_eq!(listed.expect("a list")[0].id, volume.id);
    }
    assert_eq!(stage.sim.count("list_volumes_detail"), 1);
}

#[tokio::test(start_paused = true)]
async fn next_list_shows_change() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.cloud.listed_volumes().await.expect("a list");
    let options = cinder_cloud::AttachOptions::default();
    stage
        .cloud
        .attach(&volume.id, &ONE.into(), options)
        .await
        .expect("attached");
    let listed = stage.cloud.listed_volumes().await.expect("a list");
    assert_eq!(*listed[0].servers, [ONE.into()]);
    stage.cloud.detach(&volume.id, None).await.expect("detached");
    let listed = stage.cloud.listed_volumes().await.expect("a list");
    assert!(listed[0].servers.is_empty());
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    assert!(stage.cloud.listed_volumes().await.expect("a list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn detaching_volume_is_listed_at_server() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let options = cinder_cloud::AttachOptions::default();
    stage
        .cloud
        .attach(&volume.id, &ONE.into(), options)
        .await
        .expect("attached");
    stage.sim.set_latencies(crate::support::latencies(|latencies| {
        latencies.detach = Duration::from_secs(5);
    }));
    let detachment = stage.cloud.detach(&volume.id, None);
    tokio::pin!(detachment);
    let begun = stage.sim.wait_until(Duration::from_secs(10), |state| {
        state.volumes.iter().any(|one| one.status.as_str() == "detaching")
    });
    tokio::select! {
        _ = &mut detachment => panic!("it takes longer"),
        begun = begun => assert!(begun),
    }
    let listed = stage.cloud.listed_volumes().await.expect("a list");
    assert_eq!(*listed[0].servers, [ONE.into()]);
}

#[tokio::test(start_paused = true)]
async fn lists_servers_by_id() {
    let stage = stage().await;
    let listed = stage.cloud.listed_servers().await.expect("a list");
    assert_eq!(listed.len(), 2);
    assert!(listed.contains_key(&ONE.into()) && !listed.contains_key(&NOTHING.into()));
}

#[tokio::test(start_paused = true)]
async fn outdated_list_is_freed() {
    let stage = stage().await;
    stage.create("pvc-1").await;
    let volumes = Arc::downgrade(&stage.cloud.listed_volumes().await.expect("a list"));
    let servers = Arc::downgrade(&stage.cloud.listed_servers().await.expect("a list"));
    assert!(
        volumes.upgrade().is_some() && servers.upgrade().is_some(),
        "kept for the next who asks"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(volumes.upgrade().is_none() && servers.upgrade().is_none());
}
