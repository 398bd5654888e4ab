// SPDX-License-Identifier: Apache-2.0
//! Creation and deletion of volumes, with lost answers and failures at every step.

use std::time::Duration;

use cinder_cloud::{CloudError, GiB, NewVolume, ServerId, VolumeId, VolumeStatus};
use openstack_sim::{Effect, Fault, Quota, SimConfig, When};

use crate::support::{NOTHING, ONE, latencies, new, stage, stage_with, tick};

#[tokio::test(start_paused = true)]
async fn repeated_creation_adopts_volume() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.create = Duration::from_millis(150)),
        ..SimConfig::default()
    })
    .await;
    let first = stage.cloud.create_volume(new("pvc-1")).await.expect("made");
    assert_eq!(first.volume.status, VolumeStatus::Available);
    assert!(!first.adopted);
    let second = stage.cloud.create_volume(new("pvc-1")).await.expect("found");
    assert_eq!((second.volume.id, second.adopted), (first.volume.id, true));
    assert_eq!(stage.sim.count("create_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn interrupted_creation_is_completed() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.create = Duration::from_millis(800)),
        ..SimConfig::default()
    })
    .await;
    let cloud = stage.cloud.clone();
    let first = tokio::spawn(async move { cloud.create_volume(new("pvc-1")).await });
    let progress = loop {
        match stage.cloud.progress("pvc-1") {
            Some(progress) => break progress,
            None => tick().await,
        }
    };
    assert_eq!((progress.operation, progress.status), ("create", "creating".to_owned()));
    first.abort();
    assert!(first.await.expect_err("cut short").is_cancelled());
    assert_eq!(stage.cloud.progress("pvc-1"), None, "nobody waits any more");
    let joined = stage.cloud.create_volume(new("pvc-1")).await.expect("found");
    assert_eq!(joined.volume.status, VolumeStatus::Available);
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_volume_is_not_adopted() {
    let stage = stage().await;
    stage.create("pvc-1").await;
    let bigger = NewVolume {
        size: GiB::new(2).expect("size"),
        ..new("pvc-1")
    };
    let error = stage.cloud.create_volume(bigger).await.expect_err("differs");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
    assert!(
        error.to_string().contains("size 2 GiB is wanted, it has 1 GiB"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn lost_answer_creates_no_second_volume() {
    let stage = stage().await;
    for effect in [
        Effect::cut(When::After),
        Effect::status_after(504),
        Effect::status_after(500),
    ] {
        stage.sim.clear_faults();
        stage
            .sim
            .fault(Fault::on("create_volume").times(1).effect(effect.clone()))
            .expect("rule");
        let name = format!("pvc-{effect:?}");
        let volume = stage
            .cloud
            .create_volume(new(&name))
            .await
            .expect("found by name")
            .volume;
        assert_eq!(volume.status, VolumeStatus::Available);
        let named = stage
            .sim
            .state()
            .volumes
            .into_iter()
            .filter(|volume| volume.name.as_deref() == Some(&name))
            .count();
        assert_eq!(named, 1, "{effect:?}");
    }
    assert_eq!(stage.sim.count("create_volume"), 3);
}

#[tokio::test(start_paused = true)]
async fn lost_creation_request_is_sent_again() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("create_volume").times(1).effect(Effect::cut(When::Before)))
        .expect("rule");
    let error = stage.cloud.create_volume(new("pvc-1")).await.expect_err("lost");
    assert!(error.is_uncertain(), "{error:?}");
    assert!(stage.sim.state().volumes.is_empty());
    stage.create("pvc-1").await;
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_creation_is_removed_and_reported() {
    let stage = stage().await;
    let no_room =
        Effect::work_fails().message("schedule allocate volume:Could not find any available weighted backend.");
    stage
        .sim
        .fault(Fault::on("create_volume").times(1).effect(no_room))
        .expect("rule");
    let error = stage.cloud.create_volume(new("pvc-1")).await.expect_err("failed");
    let CloudError::VolumeFailed {
        status,
        removed,
        message,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(status, "error");
    assert!(*removed && message.contains("weighted backend"), "{error}");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_volume_is_removed_despite_lag() {
    let stage = stage().await;
    // The API node that receives the deletion does not show the new volume yet.
    for (operation, effect) in [
        ("create_volume", Effect::work_fails()),
        ("delete_volume", Effect::status(404)),
    ] {
        let fault = Fault::on(operation).times(1).effect(effect);
        stage.sim.fault(fault).expect("a rule");
    }
    let error = stage.cloud.create_volume(new("pvc-1")).await.expect_err("failed");
    assert!(
        matches!(error, CloudError::VolumeFailed { removed: true, .. }),
        "{error:?}"
    );
    assert!(stage.sim.state().volumes.is_empty());
    assert_eq!(stage.sim.count("delete_volume"), 2);
}

#[tokio::test(start_paused = true)]
async fn only_own_failed_volume_is_replaced() {
    let stage = stage().await;
    let ours = stage.create("ours").await;
    assert!(
        stage
            .sim
            .set_volume_status(ours.id.as_str(), openstack_sim::VolumeStatus::Error)
    );
    let again = stage.create("ours").await;
    assert_ne!(again.id, ours.id);

    let theirs = stage.create("theirs").await;
    assert!(
        stage
            .sim
            .set_volume_status(theirs.id.as_str(), openstack_sim::VolumeStatus::Error)
    );
    let metadata = [("cinder.csi.openstack.org/cluster".to_owned(), "other".to_owned())].into();
    let error = stage
        .cloud
        .create_volume(NewVolume {
            metadata,
            ..new("theirs")
        })
        .await
        .expect_err("not ours");
    assert!(
        matches!(error, CloudError::VolumeFailed { removed: false, .. }),
        "{error:?}"
    );
    assert!(stage.cloud.volume(&theirs.id).await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn rejected_creation_distinguishes_quota_and_parameters() {
    let quota = Quota {
        gigabytes: 5,
        ..Quota::default()
    };
    let stage = stage_with(SimConfig {
        quota,
        ..SimConfig::default()
    })
    .await;
    let big = NewVolume {
        size: GiB::new(6).expect("size"),
        ..new("big")
    };
    let error = stage.cloud.create_volume(big).await.expect_err("over quota");
    assert!(matches!(error, CloudError::Quota(_)), "{error:?}");
    let odd = NewVolume {
        volume_type: Some("no-such-type".to_owned()),
        ..new("odd")
    };
    let error = stage.cloud.create_volume(odd).await.expect_err("no type");
    assert!(matches!(error, CloudError::BadRequest(_)), "{error:?}");
    let far = NewVolume {
        availability_zone: Some("mars".to_owned()),
        ..new("far")
    };
    let error = stage.cloud.create_volume(far).await.expect_err("no zone");
    assert!(matches!(error, CloudError::BadRequest(_)), "{error:?}");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deletion_awaits_disappearance_and_is_idempotent() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_millis(200)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    assert!(stage.sim.state().volumes.is_empty());
    stage.cloud.delete_volume(&volume.id).await.expect("deleted before");
    stage
        .cloud
        .delete_volume(&VolumeId::new(NOTHING))
        .await
        .expect("never there");
}

#[tokio::test(start_paused = true)]
async fn deletion_survives_lost_answer() {
    let stage = stage().await;
    for when in [When::Before, When::After] {
        let volume = stage.create(&format!("pvc-{when:?}")).await;
        stage
            .sim
            .fault(Fault::on("delete_volume").times(1).effect(Effect::cut(when)))
            .expect("rule");
        stage.cloud.delete_volume(&volume.id).await.expect("deleted");
        stage.sim.clear_faults();
    }
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn attached_volume_is_not_deleted() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let server = ServerId::new(ONE);
    stage
        .cloud
        .attach(&volume.id, &server, cinder_cloud::AttachOptions::default())
        .await
        .expect("attached");
    let error = stage.cloud.delete_volume(&volume.id).await.expect_err("in use");
    let CloudError::VolumeInUse { servers, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*servers, [server]);
}

#[tokio::test(start_paused = true)]
async fn failed_deletion_is_reported_until_reset() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage
        .sim
        .fault(Fault::on("delete_volume").times(1).effect(Effect::work_fails()))
        .expect("rule");
    for _ in 0..2 {
        let error = stage.cloud.delete_volume(&volume.id).await.expect_err("failed");
        let (CloudError::VolumeFailed { status, .. } | CloudError::Broken { status, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(status, "error_deleting");
        assert!(error.to_string().contains("administrator"), "{error}");
    }
    assert!(
        stage
            .sim
            .set_volume_status(volume.id.as_str(), openstack_sim::VolumeStatus::Error)
    );
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn list_includes_all_pages() {
    let stage = stage_with(SimConfig {
        page_limit: 2,
        ..SimConfig::default()
    })
    .await;
    for number in 0..5 {
        stage.create(&format!("pvc-{number}")).await;
    }
    stage.sim.clear_log();
    let names = stage.cloud.map_volumes(|volume| Some(volume.name)).await;
    let names = names.expect("listed");
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 5);
    assert_eq!(stage.sim.count("list_volumes_detail"), 3);
}

#[tokio::test(start_paused = true)]
async fn volume_deletion_survives_lagging_node() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_secs(5)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let id = volume.id.as_str();
    stage.sim.clear_log();
    let lag = async {
        while stage.sim.count("delete_volume") == 0 {
            tick().await;
        }
        stage.sim.set_volume_status(id, openstack_sim::VolumeStatus::Available);
        while stage.sim.count("get_volume") == 0 {
            tick().await;
        }
        stage.sim.set_volume_status(id, openstack_sim::VolumeStatus::Deleting);
    };
    let (deleted, ()) = tokio::join!(stage.cloud.delete_volume(&volume.id), lag);
    deleted.expect("the first look was at an old record");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn volume_of_changed_class_gets_no_final_error() {
    let stage = stage().await;
    let claims = |size: u64| {
        let mut new = NewVolume {
            size: GiB::new(size).expect("a size"),
            ..new("pvc-1")
        };
        let pv = "csi.storage.k8s.io/pv/name".to_owned();
        new.metadata.insert(pv, "pvc-1".to_owned());
        new
    };
    stage.cloud.create_volume(claims(1)).await.expect("a volume");
    let error = stage.cloud.create_volume(claims(2)).await.expect_err("it differs");
    assert!(matches!(error, CloudError::Busy { .. }), "{error}");
    let other = NewVolume {
        size: GiB::new(2).expect("a size"),
        ..new("pvc-1")
    };
    let error = stage.cloud.create_volume(other).await.expect_err("not the claim's");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error}");
}
