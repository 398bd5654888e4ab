// SPDX-License-Identifier: Apache-2.0
//! Attaching and detaching, including incomplete attachments and deleted servers.

use std::time::Duration;

use cinder_cloud::{AttachOptions, CloudError, NewVolume, ObjectKind, ServerId, VolumeId, VolumeStatus};
use openstack_sim::{Effect, Fault, SimConfig, VolumeType, When};

use crate::support::{NOTHING, ONE, Stage, TWO, latencies, new, stage, stage_with, tick};

async fn attach(stage: &Stage, volume: &VolumeId, server: &str) -> Result<cinder_cloud::AttachOutcome, CloudError> {
    stage
        .cloud
        .attach(volume, &ServerId::new(server), AttachOptions::default())
        .await
}

async fn status(stage: &Stage, volume: &VolumeId) -> VolumeStatus {
    stage.cloud.volume(volume).await.expect("asked").expect("there").status
}

#[tokio::test(start_paused = true)]
async fn attach_and_detach_await_final_status() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| {
            l.attach = Duration::from_millis(200);
            l.detach = Duration::from_millis(150);
            l.settle = Duration::from_millis(250);
        }),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    for _ in 0..2 {
        let attached = attach(&stage, &volume.id, ONE).await.expect("attached");
        assert!(attached.device.is_some());
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
        stage
            .cloud
            .detach(&volume.id, Some(&ServerId::new(ONE)))
            .await
            .expect("detached");
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
    }
    // Nova has deleted its records, or it would have rejected the second attachment first.
    assert_eq!(stage.sim.count("attach_volume"), 2);
}

#[tokio::test(start_paused = true)]
async fn repeated_attach_and_detach_change_nothing() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let first = attach(&stage, &volume.id, ONE).await.expect("attached");
    let (another, server) = (stage.other_process(), ServerId::new(ONE));
    let by_another = another.attach(&volume.id, &server, AttachOptions::default());
    for again in [
        attach(&stage, &volume.id, ONE).await.expect("attached before"),
        by_another.await.expect("attached before"),
    ] {
        assert_eq!((&again.device, &again.volume), (&first.device, &first.volume));
        assert_eq!((first.already, again.already), (false, true));
    }
    for _ in 0..2 {
        stage
            .cloud
            .detach(&volume.id, Some(&ServerId::new(ONE)))
            .await
            .expect("detached");
    }
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
}

#[tokio::test(start_paused = true)]
async fn recent_attachment_needs_one_request() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let first = attach(&stage, &volume.id, ONE).await.expect("attached");
    stage.sim.clear_log();
    let again = attach(&stage, &volume.id, ONE).await.expect("attached before");
    assert_eq!((&again.device, &again.volume), (&first.device, &first.volume));
    assert!(again.already);
    assert_eq!(stage.operations(), ["get_volume"]);
    attach(&stage, &volume.id, TWO).await.expect_err("elsewhere");
}

#[tokio::test(start_paused = true)]
async fn attach_detects_changes_of_other_processes() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let server = ServerId::new(ONE);
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let another = stage.other_process();
    another.detach(&volume.id, Some(&server)).await.expect("detached");
    let reattached = attach(&stage, &volume.id, ONE).await.expect("attached anew");
    assert!(!reattached.already);
    another.detach(&volume.id, Some(&server)).await.expect("detached");
    let options = AttachOptions::default();
    another.attach(&volume.id, &server, options).await.expect("attached");
    let again = attach(&stage, &volume.id, ONE).await.expect("attached before");
    assert!(again.already);
}

#[tokio::test(start_paused = true)]
async fn detached_volume_is_reattached_at_once() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    for server in [Some(ServerId::new(ONE)), None] {
        let attached = attach(&stage, &volume.id, ONE).await.expect("attached");
        assert!(!attached.already);
        stage.cloud.detach(&volume.id, server.as_ref()).await.expect("detached");
    }
    // The same after a detachment that failed half-way.
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let refused = Fault::on("detach_volume").times(1).effect(Effect::status(403));
    stage.sim.fault(refused).expect("a rule");
    let detached = stage.cloud.detach(&volume.id, Some(&ServerId::new(ONE))).await;
    detached.expect_err("refused");
    let still = attach(&stage, &volume.id, ONE).await.expect("attached still");
    assert!(still.already);
}

#[tokio::test(start_paused = true)]
async fn attach_rejects_volume_of_other_server() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let error = attach(&stage, &volume.id, TWO).await.expect_err("elsewhere");
    let CloudError::AttachedElsewhere { servers, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*servers, [ServerId::new(ONE)]);
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(TWO)))
        .await
        .expect("not there");
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
    stage.cloud.detach(&volume.id, None).await.expect("detached from all");
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
}

#[tokio::test(start_paused = true)]
async fn attach_distinguishes_missing_volume_and_server() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let error = attach(&stage, &VolumeId::new(NOTHING), ONE)
        .await
        .expect_err("no volume");
    assert!(
        matches!(
            error,
            CloudError::NotFound {
                kind: ObjectKind::Volume,
                ..
            }
        ),
        "{error:?}"
    );
    let error = attach(&stage, &volume.id, NOTHING).await.expect_err("no server");
    assert!(
        matches!(
            error,
            CloudError::NotFound {
                kind: ObjectKind::Server,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn attach_waits_for_detachment_elsewhere() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.detach = Duration::from_millis(600)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let server = ServerId::new(ONE);
    let (detached, attached) = tokio::join!(stage.cloud.detach(&volume.id, Some(&server)), async {
        // Waits until the detachment is in progress.
        while status(&stage, &volume.id).await != VolumeStatus::Detaching {
            tick().await;
        }
        attach(&stage, &volume.id, TWO).await
    });
    detached.expect("detached");
    attached.expect("attached to the other server");
    let servers = stage
        .cloud
        .volume(&volume.id)
        .await
        .expect("asked")
        .expect("there")
        .servers();
    assert_eq!(servers, [ServerId::new(TWO)]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_attachment_is_resumed_or_undone() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.attach = Duration::from_secs(1)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let cut = tokio::time::timeout(Duration::from_millis(300), attach(&stage, &volume.id, ONE)).await;
    assert!(cut.is_err(), "{cut:?}");
    attach(&stage, &volume.id, ONE).await.expect("joined");
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect("detached");

    let cut = tokio::time::timeout(Duration::from_millis(300), attach(&stage, &volume.id, ONE)).await;
    assert!(cut.is_err(), "{cut:?}");
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect("arrived, then detached");
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
    assert!(stage.sim.state().attachments.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lost_nova_answers_are_tolerated() {
    let stage = stage().await;
    for (number, effect) in [
        Effect::cut(When::After),
        Effect::status_after(504),
        Effect::status_after(500),
    ]
    .into_iter()
    .enumerate()
    {
        let volume = stage.create(&format!("pvc-{number}")).await;
        stage
            .sim
            .fault(Fault::on("attach_volume").times(1).effect(effect.clone()))
            .expect("rule");
        attach(&stage, &volume.id, ONE).await.expect("attached");
        stage
            .sim
            .fault(Fault::on("detach_volume").times(1).effect(effect))
            .expect("rule");
        stage
            .cloud
            .detach(&volume.id, Some(&ServerId::new(ONE)))
            .await
            .expect("detached");
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
    }
    assert_eq!(stage.sim.count("attach_volume"), 3);
}

#[tokio::test(start_paused = true)]
async fn failed_attachment_is_reported_with_request_id() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage
        .sim
        .fault(Fault::on("attach_volume").times(1).effect(Effect::work_fails()))
        .expect("rule");
    let error = attach(&stage, &volume.id, ONE).await.expect_err("given up");
    assert!(matches!(error, CloudError::AttachFailed { .. }), "{error:?}");
    assert!(
        error.request_id().is_some() && error.to_string().contains(volume.id.as_str()),
        "{error}"
    );
    attach(&stage, &volume.id, ONE).await.expect("the second time");
}

#[tokio::test(start_paused = true)]
async fn failed_detachment_is_reported() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    stage
        .sim
        .fault(Fault::on("detach_volume").times(1).effect(Effect::work_fails()))
        .expect("rule");
    stage
        .sim
        .set_latencies(latencies(|l| l.release = Duration::from_millis(100)));
    let error = stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect_err("given up");
    assert!(matches!(error, CloudError::Conflict(_)), "{error:?}");
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
}

#[tokio::test(start_paused = true)]
async fn detach_succeeds_when_volume_disappears() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    // Long enough for a poll of Cinder, which follows the first poll of Nova.
    stage
        .sim
        .set_latencies(latencies(|l| l.detach = Duration::from_secs(3)));
    stage.sim.clear_log();
    stage
        .sim
        .fault(Fault::on("get_volume").effect(Effect::status(404)))
        .expect("rule");
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect("what is gone is detached");
    assert!(stage.sim.count("get_volume") > 0, "Cinder was asked");
}

#[tokio::test(start_paused = true)]
async fn busy_server_is_retried_until_conflict() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    assert!(stage.sim.set_server_state(ONE, "active", Some("rebooting")));
    let (attached, ()) = tokio::join!(attach(&stage, &volume.id, ONE), async {
        while stage.sim.count("attach_volume") < 2 {
            tick().await;
        }
        assert!(stage.sim.set_server_state(ONE, "active", None));
    });
    attached.expect("attached when the server was free");
}

#[tokio::test(start_paused = true)]
async fn attachments_of_deleted_server_are_removed() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    stage.sim.remove_server(ONE, true);
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect("cleared");
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
}

#[tokio::test(start_paused = true)]
async fn detach_ends_when_server_is_deleted() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.detach = Duration::from_secs(10)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let one = ServerId::new(ONE);
    let (detached, ()) = tokio::join!(stage.cloud.detach(&volume.id, Some(&one)), async {
        while stage.sim.count("detach_volume") < 1 {
            tick().await;
        }
        stage.sim.remove_server(ONE, true);
    });
    detached.expect("detached");
    assert!(stage.sim.state().attachments.is_empty());
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Available);
}

#[tokio::test(start_paused = true)]
async fn exclusive_attach_limits_multiattach_volumes() {
    let volume_types = vec![VolumeType {
        multiattach: true,
        ..VolumeType::new("shared")
    }];
    let stage = stage_with(SimConfig {
        volume_types,
        ..SimConfig::default()
    })
    .await;
    let request = NewVolume {
        volume_type: Some("shared".to_owned()),
        ..new("pvc-1")
    };
    let volume = stage.cloud.create_volume(request).await.expect("made").volume;
    assert!(volume.multiattach);
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let alone = AttachOptions {
        exclusive: true,
        ..AttachOptions::default()
    };
    let error = stage
        .cloud
        .attach(&volume.id, &ServerId::new(TWO), alone)
        .await
        .expect_err("not alone");
    assert!(matches!(error, CloudError::AttachedElsewhere { .. }), "{error:?}");
    attach(&stage, &volume.id, TWO).await.expect("attached to both");
    assert_eq!(
        stage
            .cloud
            .volume(&volume.id)
            .await
            .expect("asked")
            .expect("there")
            .servers()
            .len(),
        2
    );
    stage
        .cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect("detached from one");
    let servers = stage
        .cloud
        .volume(&volume.id)
        .await
        .expect("asked")
        .expect("there")
        .servers();
    assert_eq!(servers, [ServerId::new(TWO)]);
}

#[tokio::test(start_paused = true)]
async fn full_server_is_reported() {
    let stage = stage_with(SimConfig {
        volumes_per_server: 1,
        ..SimConfig::default()
    })
    .await;
    let (first, second) = (stage.create("pvc-1").await, stage.create("pvc-2").await);
    attach(&stage, &first.id, ONE).await.expect("attached");
    let error = attach(&stage, &second.id, ONE).await.expect_err("full");
    assert!(matches!(error, CloudError::TooManyAttachments { .. }), "{error:?}");
    let limit = AttachOptions {
        server_limit: Some(1),
        ..AttachOptions::default()
    };
    stage.sim.clear_log();
    let error = stage
        .cloud
        .attach(&second.id, &ServerId::new(ONE), limit.clone())
        .await
        .expect_err("over the limit");
    assert!(matches!(error, CloudError::TooManyAttachments { .. }), "{error:?}");
    assert_eq!(stage.sim.count("attach_volume"), 0);
    stage
        .cloud
        .attach(&first.id, &ServerId::new(ONE), limit)
        .await
        .expect("counts itself");
}

#[tokio::test(start_paused = true)]
async fn timeout_reports_last_status() {
    let mut config = SimConfig::default();
    config.latencies.attach = Duration::from_mins(10);
    let stage = stage_with(config).await;
    let volume = stage.create("pvc-1").await;
    let short = cinder_cloud::CloudOptions {
        operation_timeout: Duration::from_secs(2),
        ..stage.options()
    };
    let cloud = cinder_cloud::Cloud::new(stage.cloud.config().as_ref().clone(), short).expect("a cloud");
    let error = cloud
        .attach(&volume.id, &ServerId::new(ONE), AttachOptions::default())
        .await
        .expect_err("too slow");
    let CloudError::Timeout { last_status, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(last_status, "reserved");
    assert!(
        error.to_string().contains(volume.id.as_str()) && error.to_string().contains(ONE),
        "{error}"
    );
}

/// Nova rejects the request with 400 because the volume is already attached, and Cinder does not answer.
#[tokio::test(start_paused = true)]
async fn unexplained_rejection_is_not_final() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let silent = Fault::on_path(None, "^/volume/").effect(Effect::cut(When::Before));
    stage.sim.fault(silent).expect("a rule");
    let (another, server) = (stage.other_process(), ServerId::new(ONE));
    let again = another.attach(&volume.id, &server, AttachOptions::default()).await;
    let error = again.expect_err("Cinder is silent");
    assert!(matches!(error, CloudError::Conflict(_)), "{error:?}");
}
