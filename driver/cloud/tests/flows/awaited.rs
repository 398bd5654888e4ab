// SPDX-License-Identifier: Apache-2.0
//! Requests that create something are not sent once no caller waits for the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use cinder_cloud::{AttachOptions, CallerLiveness, CloudError, NewBackup, NewGroupSnapshot, NewSnapshot, Volume};
use openstack_sim::{GroupType, SimConfig};
use rstest::rstest;

use crate::support::{ONE, Stage, new, stage_with};

/// Runs the operation that contains a request.
async fn run(stage: &Stage, volume: &Volume, request: &str) -> Result<(), CloudError> {
    let cloud = &stage.cloud;
    let (name, volume_id, metadata) = ("one".to_owned(), volume.id.clone(), BTreeMap::new());
    match request {
        "create_volume" => cloud.create_volume(new("pvc-2")).await.map(drop),
        "attach_volume" => {
            let attached = cloud.attach(&volume.id, &ONE.into(), AttachOptions::default()).await;
            attached.map(drop)
        }
        "create_snapshot" => {
            let snapshot = NewSnapshot {
                name,
                volume_id,
                force: true,
                description: String::new(),
                metadata,
            };
            cloud.create_snapshot(snapshot).await.map(drop)
        }
        "create_backup" => {
            let backup = NewBackup {
                name,
                volume_id,
                incremental: false,
                availability_zone: None,
                description: String::new(),
                metadata,
            };
            cloud.create_backup(backup).await.map(drop)
        }
        _ => {
            let group = NewGroupSnapshot {
                name,
                volumes: BTreeSet::from([volume_id]),
                group_type: Some("together".to_owned()),
                cluster: "test".to_owned(),
            };
            cloud.create_group_snapshot(group).await.map(drop)
        }
    }
}

#[rstest]
#[case("create_volume", 0)]
#[case("attach_volume", 0)]
#[case("create_snapshot", 0)]
// The operation first takes the snapshot that freezes the data.
#[case("create_backup", 1)]
#[case("create_group", 0)]
#[case("create_group_snapshot", 1)]
#[tokio::test(start_paused = true)]
async fn request_without_caller_is_not_sent(#[case] request: &str, #[case] earlier: usize) {
    let stage = stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together")],
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    stage.sim.clear_log();
    // The caller ends after the earlier requests of the operation.
    let checks = AtomicUsize::new(0);
    let awaited = CallerLiveness::new(move || checks.fetch_add(1, Ordering::Relaxed) < earlier);
    let run = || Box::pin(run(&stage, &volume, request));
    let error = awaited.during(run()).await;
    let error = error.expect_err("no caller waits");
    assert!(matches!(error, CloudError::Unawaited(_)), "{error}");
    assert_eq!(stage.sim.count(request), 0);

    run().await.expect("a later call succeeds");
    assert_eq!(stage.sim.count(request), 1);
}
