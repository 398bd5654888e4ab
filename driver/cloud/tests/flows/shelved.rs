// SPDX-License-Identifier: Apache-2.0
//! Volumes of shelved servers, with and without a host.

use std::time::Duration;

use cinder_cloud::{
    AttachOptions, AttachOutcome, Cloud, CloudError, CloudOptions, NewVolume, Obstacle, ServerId, Volume, VolumeId,
    VolumeStatus,
};
use openstack_sim::{Effect, Fault, SimConfig, VolumeType};
use tokio::time::{Instant, sleep};

use crate::support::{ONE, Stage, TWO, latencies, new, stage, stage_with, tick};

async fn attach(stage: &Stage, volume: &VolumeId, server: &str) -> Result<AttachOutcome, CloudError> {
    let options = AttachOptions::default();
    stage.cloud.attach(volume, &ServerId::new(server), options).await
}

async fn detach(stage: &Stage, volume: &VolumeId, server: &str) -> Result<(), CloudError> {
    stage.cloud.detach(volume, Some(&ServerId::new(server))).await
}

async fn status(stage: &Stage, volume: &VolumeId) -> VolumeStatus {
    stage
        .cloud
        .volume(volume)
        .await
        .expect("an answer")
        .expect("a volume")
        .status
}

/// A volume attached to server one, which then enters this state.
async fn volume_at_server_in(stage: &Stage, vm_state: &str) -> Volume {
    let volume = stage.create("pvc-1").await;
    attach(stage, &volume.id, ONE).await.expect("attached");
    assert!(stage.sim.set_server_state(ONE, vm_state, None));
    volume
}

fn assert_free(stage: &Stage) {
    let state = stage.sim.state();
    assert!(
        state.mappings.is_empty() && state.attachments.is_empty(),
        "{:?}, {:?}",
        state.mappings,
        state.attachments
    );
}

fn assert_unshelve(error: &CloudError) {
    let text = error.to_string();
    assert!(
        matches!(
            error,
            CloudError::Obstructed {
                obstacle: Obstacle::Server,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(text.contains(&format!("openstack server unshelve {ONE}")), "{text}");
    assert!(!text.contains("delete") && !text.contains("evacuate"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn detach_ends_on_shelved_servers() {
    for vm_state in ["shelved", "shelved_offloaded"] {
        let stage = stage().await;
        let volume = volume_at_server_in(&stage, vm_state).await;
        // A detachment takes longer when the attachment is very recent.
        sleep(Duration::from_secs(15)).await;
        stage.sim.clear_log();
        let started = Instant::now();
        detach(&stage, &volume.id, ONE).await.expect("detached");
        assert!(started.elapsed() < Duration::from_secs(10), "{vm_state}");
        assert_free(&stage);
        // The first request is in the lowest version.
        assert_eq!(stage.sim.count("detach_volume"), 2, "{vm_state}");
        attach(&stage, &volume.id, TWO)
            .await
            .expect("attached to the other server");
    }
}

#[tokio::test(start_paused = true)]
async fn detach_without_server_ends_on_shelved_servers() {
    for vm_state in ["shelved", "shelved_offloaded"] {
        let stage = stage().await;
        let volume = volume_at_server_in(&stage, vm_state).await;
        stage.cloud.detach(&volume.id, None).await.expect("detached");
        assert_free(&stage);
    }
}

#[tokio::test(start_paused = true)]
async fn detach_ends_long_after_shelving() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    tokio::time::sleep(Duration::from_hours(10)).await;
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn offloaded_detach_ends_in_every_volume_status() {
    use openstack_sim::VolumeStatus::{Attaching, Detaching, ErrorExtending, InUse, Reserved};
    for volume_status in [Attaching, Detaching, ErrorExtending, InUse, Reserved] {
        let stage = stage().await;
        let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
        assert!(stage.sim.set_volume_status(volume.id.as_str(), volume_status));
        detach(&stage, &volume.id, ONE).await.expect("detached");
        assert_free(&stage);
    }
}

#[tokio::test(start_paused = true)]
async fn attach_elsewhere_names_offloaded_server() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    let started = Instant::now();
    let error = attach(&stage, &volume.id, TWO).await.expect_err("reserved");
    let CloudError::AttachedElsewhere { servers, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*servers, [ServerId::new(ONE)]);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(stage.sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deletion_and_expansion_name_offloaded_server() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    let started = Instant::now();
    let error = stage.cloud.delete_volume(&volume.id).await.expect_err("reserved");
    let CloudError::VolumeInUse { servers, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*servers, [ServerId::new(ONE)]);
    let size = cinder_cloud::GiB::new(2).expect("a size");
    let error = stage.cloud.expand_volume(&volume.id, size).await.expect_err("reserved");
    assert!(matches!(error, CloudError::Busy { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(stage.sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn attach_to_offloaded_server_advises_unshelving() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    let hasty = CloudOptions {
        stuck_after: Duration::from_secs(1),
        ..stage.options()
    };
    let cloud = Cloud::new((*stage.cloud.config()).clone(), hasty).expect("a cloud");
    let one = ServerId::new(ONE);
    let error = cloud.attach(&volume.id, &one, AttachOptions::default()).await;
    assert_unshelve(&error.expect_err("the server has no host"));
    assert!(stage.sim.set_server_state(ONE, "active", None));
    let attached = attach(&stage, &volume.id, ONE).await.expect("attached by unshelving");
    assert!(attached.already);
}

#[tokio::test(start_paused = true)]
async fn shelved_servers_attach_and_release_new_volumes() {
    for vm_state in ["shelved", "shelved_offloaded"] {
        let stage = stage().await;
        let volume = stage.create("pvc-1").await;
        assert!(stage.sim.set_server_state(ONE, vm_state, None));
        attach(&stage, &volume.id, ONE).await.expect("attached");
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
        detach(&stage, &volume.id, ONE).await.expect("detached");
        assert_free(&stage);
    }
}

#[tokio::test(start_paused = true)]
async fn detach_survives_concurrent_offloading() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    stage
        .sim
        .set_latencies(latencies(|l| l.detach = Duration::from_secs(3)));
    let (detached, ()) = tokio::join!(detach(&stage, &volume.id, ONE), async {
        while status(&stage, &volume.id).await != VolumeStatus::Detaching {
            tick().await;
        }
        assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    });
    detached.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn detach_lost_by_offloading_is_requested_again() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    attach(&stage, &volume.id, ONE).await.expect("attached");
    let slow = latencies(|l| l.detach = Duration::from_hours(1));
    stage.sim.set_latencies(slow);
    let hasty = CloudOptions {
        stuck_after: Duration::from_secs(6),
        ..stage.options()
    };
    let cloud = Cloud::new((*stage.cloud.config()).clone(), hasty).expect("a cloud");
    let one = ServerId::new(ONE);
    let (detached, ()) = tokio::join!(cloud.detach(&volume.id, Some(&one)), async {
        while status(&stage, &volume.id).await != VolumeStatus::Detaching {
            tick().await;
        }
        assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    });
    detached.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn detach_undoes_attach_interrupted_by_offloading() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.attach = Duration::from_secs(3)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let hasty = CloudOptions {
        stuck_after: Duration::from_secs(6),
        ..stage.options()
    };
    let cloud = Cloud::new((*stage.cloud.config()).clone(), hasty).expect("a cloud");
    let one = ServerId::new(ONE);
    let (attached, ()) = tokio::join!(cloud.attach(&volume.id, &one, AttachOptions::default()), async {
        while stage.sim.count("attach_volume") == 0 {
            tick().await;
        }
        assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    });
    assert_unshelve(&attached.expect_err("the server has no host"));
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn detach_waits_for_shelving_and_unshelving() {
    for (vm_state, task, next) in [
        ("shelved_offloaded", "unshelving", "active"),
        ("shelved", "shelving_offloading", "shelved_offloaded"),
    ] {
        let stage = stage().await;
        let volume = volume_at_server_in(&stage, vm_state).await;
        assert!(stage.sim.set_server_state(ONE, vm_state, Some(task)));
        let (detached, ()) = tokio::join!(detach(&stage, &volume.id, ONE), async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            assert!(stage.sim.set_server_state(ONE, next, None));
        });
        detached.expect(task);
        assert_free(&stage);
    }
}

#[tokio::test(start_paused = true)]
async fn unshelved_server_retains_its_volume() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    assert!(stage.sim.set_server_state(ONE, "active", None));
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
    detach(&stage, &volume.id, TWO).await.expect("not there");
    assert_eq!(stage.sim.state().attachments.len(), 1);
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn deleted_shelved_server_releases_its_volume() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    stage.sim.remove_server(ONE, true);
    assert_eq!(status(&stage, &volume.id).await, VolumeStatus::Reserved);
    // The reservation may belong to a server that is about to be built.
    tokio::time::sleep(Duration::from_mins(5)).await;
    attach(&stage, &volume.id, TWO).await.expect("attached");
    let state = stage.sim.state();
    assert_eq!((state.attachments.len(), state.mappings.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn detach_from_deleted_shelved_server_ends() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    stage.sim.remove_server(ONE, true);
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

async fn shared_volume(stage: &Stage) -> Volume {
    let shared = NewVolume {
        volume_type: Some("shared".to_owned()),
        ..new("pvc-1")
    };
    stage.cloud.create_volume(shared).await.expect("a volume").volume
}

fn with_shared_type() -> SimConfig {
    SimConfig {
        volume_types: vec![VolumeType {
            multiattach: true,
            ..VolumeType::new("shared")
        }],
        ..SimConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn multiattach_volume_is_detached_from_shelved_server() {
    for cinder_fails in [false, true] {
        let stage = stage_with(with_shared_type()).await;
        let volume = shared_volume(&stage).await;
        for server in [ONE, TWO] {
            attach(&stage, &volume.id, server).await.expect("attached");
        }
        assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
        if cinder_fails {
            let fault = Fault::on("detach_volume").effect(Effect::work_fails());
            stage.sim.fault(fault).expect("a rule");
        }
        detach(&stage, &volume.id, ONE).await.expect("detached");
        let state = stage.sim.state();
        let servers: Vec<_> = state
            .attachments
            .iter()
            .map(|attachment| attachment.server_id.as_deref())
            .collect();
        assert_eq!(servers, [Some(TWO)]);
        assert_eq!(state.mappings.len(), 1);
        assert_eq!(status(&stage, &volume.id).await, VolumeStatus::InUse);
    }
}

#[tokio::test(start_paused = true)]
async fn multiattach_volume_waits_for_unshelving() {
    let stage = stage_with(with_shared_type()).await;
    let volume = shared_volume(&stage).await;
    assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    let error = attach(&stage, &volume.id, ONE).await.expect_err("Nova refuses");
    assert_unshelve(&error);
}

#[tokio::test(start_paused = true)]
async fn old_nova_detach_advises_unshelving() {
    for vm_state in ["shelved", "shelved_offloaded"] {
        let stage = stage_with(SimConfig {
            compute_version: (2, 19),
            ..SimConfig::default()
        })
        .await;
        let volume = volume_at_server_in(&stage, vm_state).await;
        let error = detach(&stage, &volume.id, ONE).await.expect_err("Nova refuses");
        assert_unshelve(&error);
        assert!(error.to_string().contains("2.20"), "{error}");
        assert!(stage.sim.set_server_state(ONE, "active", None));
        detach(&stage, &volume.id, ONE).await.expect("detached");
        assert_free(&stage);
    }
}

#[tokio::test(start_paused = true)]
async fn locked_shelved_server_is_named() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    assert!(stage.sim.set_server_locked(ONE, true));
    let text = detach(&stage, &volume.id, ONE).await.expect_err("locked").to_string();
    assert!(
        text.contains("openstack server unlock") && !text.contains("delete"),
        "{text}"
    );
    assert!(stage.sim.set_server_locked(ONE, false));
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn stuck_shelved_detach_advises_no_deletion() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved").await;
    stage
        .sim
        .set_latencies(latencies(|l| l.detach = Duration::from_mins(5)));
    let hasty = CloudOptions {
        stuck_after: Duration::from_secs(1),
        ..stage.options()
    };
    let cloud = Cloud::new((*stage.cloud.config()).clone(), hasty).expect("a cloud");
    let error = cloud
        .detach(&volume.id, Some(&ServerId::new(ONE)))
        .await
        .expect_err("slow");
    let text = error.to_string();
    assert!(text.contains("--offload") && !text.contains("delete"), "{text}");
    assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn ignored_cinder_failure_proves_no_detachment() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
    let fault = Fault::on("detach_volume").effect(Effect::work_fails());
    stage.sim.fault(fault).expect("a rule");
    let fault = Fault::on("delete_attachment").effect(Effect::status(500));
    stage.sim.fault(fault).expect("a rule");
    detach(&stage, &volume.id, ONE).await.expect_err("Cinder still has it");
    assert_eq!(stage.sim.state().attachments.len(), 1);
    stage.sim.clear_faults();
    detach(&stage, &volume.id, ONE).await.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn offloading_hides_no_failure_of_cinder() {
    let stage = stage().await;
    let volume = volume_at_server_in(&stage, "shelved").await;
    stage
        .sim
        .set_latencies(latencies(|l| l.answer = Duration::from_millis(100)));
    let fault = Fault::on("detach_volume").skip(1).effect(Effect::work_fails());
    stage.sim.fault(fault).expect("a rule");
    stage.sim.clear_log();
    let (detached, ()) = tokio::join!(detach(&stage, &volume.id, ONE), async {
        // The client has observed the server on its host.
        while stage.sim.count("get_server") == 0 {
            tick().await;
        }
        assert!(stage.sim.set_server_state(ONE, "shelved_offloaded", None));
    });
    detached.expect("detached");
    assert_free(&stage);
}

#[tokio::test(start_paused = true)]
async fn shelved_detach_survives_lost_answers() {
    for effect in [
        Effect::status(500),
        Effect::status_after(500),
        Effect::status_after(504),
    ] {
        let stage = stage().await;
        let volume = volume_at_server_in(&stage, "shelved_offloaded").await;
        let fault = Fault::on("detach_volume").skip(1).times(1).effect(effect);
        stage.sim.fault(fault).expect("a rule");
        detach(&stage, &volume.id, ONE).await.expect("detached");
        assert_free(&stage);
    }
}
