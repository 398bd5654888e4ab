// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use cinder_cloud::{Changes, CloudError, MigrationPolicy, VolumeId};
use openstack_sim::{Effect, Fault, Quota, SimConfig, VolumeStatus, VolumeType, When};

use crate::support::{NOTHING, ONE, Stage, latencies, stage, stage_with};

/// The write calls of a modification.
const WRITES: [&str; 2] = ["retype_volume", "merge_volume_metadata"];

fn to_type(name: &str) -> Changes {
    Changes {
        volume_type: Some(name.to_owned()),
        ..Changes::default()
    }
}

fn with_metadata(pairs: &[(&str, &str)]) -> Changes {
    let pairs = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
    Changes {
        metadata: pairs.collect(),
        ..Changes::default()
    }
}

impl Stage {
    fn writes(&self) -> usize {
        WRITES.iter().map(|operation| self.sim.count(operation)).sum()
    }

    fn type_of(&self, id: &VolumeId) -> String {
        let state = self.sim.state();
        state.volume(id.as_str()).expect("a volume").volume_type.clone()
    }
}

/// Types `fast` and `slow` on one backend, `far` on another, `shared` with multiattach, `east` for another zone.
async fn types(slowly: Duration) -> Stage {
    stage_with(SimConfig {
        volume_types: vec![
            VolumeType::new("fast"),
            VolumeType::new("slow"),
            VolumeType::new("far").on_backend("other"),
            VolumeType {
                multiattach: true,
                ..VolumeType::new("shared")
            },
            VolumeType::new("east").spec("RESKEY:availability_zones", "east"),
        ],
        latencies: latencies(|latencies| latencies.retype = slowly),
        ..SimConfig::default()
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn retype_is_awaited_and_confirmed() {
    let stage = types(Duration::from_millis(50)).await;
    let volume = stage.create("pvc-1").await;
    let modified = stage.cloud.modify_volume(&volume.id, &to_type("slow")).await;
    assert_eq!(modified.expect("modified").volume_type.as_deref(), Some("slow"));
    assert_eq!(stage.type_of(&volume.id), "slow");
}

#[tokio::test(start_paused = true)]
async fn equal_change_sends_no_write() {
    let stage = types(Duration::ZERO).await;
    let volume = stage.create("pvc-1").await;
    let changes = Changes {
        volume_type: Some("slow".to_owned()),
        ..with_metadata(&[("tier", "gold")])
    };
    stage.cloud.modify_volume(&volume.id, &changes).await.expect("modified");
    assert_eq!(stage.writes(), 2);
    stage.sim.clear_log();
    let again = stage.cloud.modify_volume(&volume.id, &changes).await.expect("the same");
    assert_eq!(again.metadata.get("tier").map(String::as_str), Some("gold"));
    assert_eq!((stage.writes(), stage.calls()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn unlisted_metadata_is_retained() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    for pair in [("tier", "gold"), ("owner", "me")] {
        let changes = with_metadata(&[pair]);
        stage.cloud.modify_volume(&volume.id, &changes).await.expect("modified");
    }
    let modified = stage.cloud.volume(&volume.id).await.expect("a look").expect("a volume");
    assert_eq!(modified.metadata.get("tier").map(String::as_str), Some("gold"));
    assert_eq!(modified.metadata.get("owner").map(String::as_str), Some("me"));
    assert!(modified.metadata.contains_key("cinder.csi.openstack.org/cluster"));
}

#[tokio::test(start_paused = true)]
async fn impossible_change_fails_before_writes() {
    let stage = types(Duration::ZERO).await;
    let volume = stage.create("pvc-1").await;
    for volume_type in ["no-such-type", "east"] {
        let changes = Changes {
            volume_type: Some(volume_type.to_owned()),
            ..with_metadata(&[("tier", "gold")])
        };
        let error = stage
            .cloud
            .modify_volume(&volume.id, &changes)
            .await
            .expect_err(volume_type);
        assert!(matches!(error, CloudError::CannotModify { .. }), "{error}");
    }
    assert_eq!(stage.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn retype_in_use_cannot_change_multiattach() {
    let stage = types(Duration::ZERO).await;
    let volume = stage.create("pvc-1").await;
    let server = ONE.into();
    stage
        .cloud
        .attach(&volume.id, &server, cinder_cloud::AttachOptions::default())
        .await
        .expect("attached");
    let error = stage.cloud.modify_volume(&volume.id, &to_type("shared")).await;
    let error = error.expect_err("in use");
    assert!(matches!(error, CloudError::CannotModify { .. }), "{error}");
    assert_eq!(stage.writes(), 0);
    let modified = stage.cloud.modify_volume(&volume.id, &to_type("slow")).await;
    assert_eq!(modified.expect("modified").volume_type.as_deref(), Some("slow"));
}

#[tokio::test(start_paused = true)]
async fn migration_requires_policy_on_demand() {
    let stage = types(Duration::from_millis(20)).await;
    let volume = stage.create("pvc-1").await;
    let changes = Changes {
        volume_type: Some("far".to_owned()),
        ..with_metadata(&[("tier", "gold")])
    };
    let error = stage
        .cloud
        .modify_volume(&volume.id, &changes)
        .await
        .expect_err("it would have to move");
    assert!(error.to_string().contains("migration-policy"), "{error}");
    let CloudError::RetypeFailed {
        wanted,
        found,
        migration,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (wanted.as_str(), found.as_str(), migration),
        ("far", "fast", MigrationPolicy::Never)
    );
    assert_eq!(stage.sim.count("merge_volume_metadata"), 0, "nothing else was changed");

    let changes = Changes {
        migration: MigrationPolicy::OnDemand,
        ..changes
    };
    let modified = stage.cloud.modify_volume(&volume.id, &changes).await.expect("moved");
    assert_eq!(modified.volume_type.as_deref(), Some("far"));
    assert_eq!(modified.metadata.get("tier").map(String::as_str), Some("gold"));
}

#[tokio::test(start_paused = true)]
async fn failed_migration_retains_old_type() {
    let stage = types(Duration::ZERO).await;
    let volume = stage.create("pvc-1").await;
    let fails = Fault::on("retype_volume").times(1).effect(Effect::work_fails());
    stage.sim.fault(fails).expect("a rule");
    let changes = Changes {
        migration: MigrationPolicy::OnDemand,
        ..to_type("far")
    };
    let error = stage
        .cloud
        .modify_volume(&volume.id, &changes)
        .await
        .expect_err("failed");
    assert!(matches!(error, CloudError::RetypeFailed { .. }), "{error}");
    let modified = stage.cloud.modify_volume(&volume.id, &changes).await;
    assert_eq!(modified.expect("the next one").volume_type.as_deref(), Some("far"));
}

#[tokio::test(start_paused = true)]
async fn retype_survives_lost_answer() {
    let stage = types(Duration::from_millis(50)).await;
    let volume = stage.create("pvc-1").await;
    let lost = Fault::on("retype_volume").times(1).effect(Effect::cut(When::After));
    stage.sim.fault(lost).expect("a rule");
    let modified = stage.cloud.modify_volume(&volume.id, &to_type("slow")).await;
    assert_eq!(modified.expect("modified").volume_type.as_deref(), Some("slow"));
    assert_eq!(stage.sim.count("retype_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn retype_of_earlier_process_is_joined() {
    let stage = types(Duration::from_millis(300)).await;
    let volume = stage.create("pvc-1").await;
    let changes = to_type("slow");
    {
        let first = stage.cloud.modify_volume(&volume.id, &changes);
        tokio::pin!(first);
        let begun = stage.sim.wait_until(Duration::from_secs(10), |state| {
            state.volumes.iter().any(|one| one.status == VolumeStatus::Retyping)
        });
        tokio::select! {
            _ = &mut first => panic!("it takes longer"),
            begun = begun => assert!(begun),
        }
    }
    let modified = stage.cloud.modify_volume(&volume.id, &changes).await;
    assert_eq!(modified.expect("modified").volume_type.as_deref(), Some("slow"));
    // The answer to the first request was lost, so the log may lack it.
    assert!(stage.sim.count("retype_volume") <= 1);
}

#[tokio::test(start_paused = true)]
async fn modification_reports_missing_or_failed_volume() {
    let stage = types(Duration::ZERO).await;
    let error = stage
        .cloud
        .modify_volume(&NOTHING.into(), &to_type("slow"))
        .await
        .expect_err("nothing");
    assert!(matches!(error, CloudError::NotFound { .. }), "{error}");
    let volume = stage.create("pvc-1").await;
    stage.sim.set_volume_status(volume.id.as_str(), VolumeStatus::Error);
    let error = stage
        .cloud
        .modify_volume(&volume.id, &to_type("slow"))
        .await
        .expect_err("failed");
    assert!(matches!(error, CloudError::Broken { .. }), "{error}");
    assert_eq!(stage.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn capacity_follows_quotas_for_project_members() {
    let stage = stage_with(SimConfig {
        quota: Quota {
            gigabytes: 10,
            per_volume_gigabytes: 4,
            ..Quota::default()
        },
        ..SimConfig::default()
    })
    .await;
    stage.create("pvc-1").await;
    stage.sim.clear_log();
    let free = stage
        .cloud
        .free_capacity(Some("fast"), Some("nova"))
        .await
        .expect("room");
    let gib = |size: Option<cinder_cloud::GiB>| size.map(cinder_cloud::GiB::get);
    assert_eq!((gib(free.available), gib(free.largest)), (Some(9), Some(4)));
    let calls = stage.calls();
    assert_eq!(
        stage
            .cloud
            .free_capacity(Some("fast"), Some("nova"))
            .await
            .expect("room"),
        free
    );
    stage.cloud.free_capacity(Some("slow"), None).await.expect("room");
    assert_eq!(stage.calls(), calls, "all of it is remembered, the refusal included");
}
