// SPDX-License-Identifier: Apache-2.0
//! Volumes from snapshots and volumes, and the checks before the driver creates or adopts a volume.

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{
    CloudError, GiB, NewBackup, NewSnapshot, NewVolume, Source, VolumeMode, VolumeStatus, metadata_keys,
};
use openstack_sim::{Effect, Fault, SimConfig};

use crate::backups::complete_backup;
use crate::support::{NOTHING, Stage, latencies, new, stage, stage_with, tick};

fn from(name: &str, source: Source) -> NewVolume {
    NewVolume {
        source: Some(source),
        ..new(name)
    }
}

async fn take_snapshot(stage: &Stage, name: &str) -> (cinder_cloud::Volume, String) {
    let volume = stage.create(name).await;
    let snapshot = NewSnapshot {
        name: format!("snapshot of {name}"),
        volume_id: volume.id.clone(),
        force: true,
        description: String::new(),
        metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    };
    let snapshot = stage.cloud.create_snapshot(snapshot).await.expect("a snapshot");
    (volume, snapshot.id.to_string())
}

#[tokio::test(start_paused = true)]
async fn copies_report_source_on_every_call() {
    let stage = stage().await;
    let (volume, snapshot) = take_snapshot(&stage, "pvc-1").await;
    for _ in 0..2 {
        let clone = from("clone", Source::Volume(volume.id.clone()));
        let clone = stage.cloud.create_volume(clone).await.expect("a clone").volume;
        assert_eq!(clone.source_volid.as_ref(), Some(&volume.id));
        let restored = from("restored", Source::PointInTime(snapshot.clone()));
        let restored = stage.cloud.create_volume(restored).await.expect("a copy").volume;
        assert_eq!(restored.snapshot_id.as_deref(), Some(snapshot.as_str()));
    }
    assert_eq!(stage.sim.count("create_volume"), 3);
}

#[tokio::test(start_paused = true)]
async fn copy_must_not_be_smaller_than_source() {
    let stage = stage().await;
    let two = NewVolume {
        size: GiB::new(2).expect("size"),
        ..new("pvc-2")
    };
    let source = stage.cloud.create_volume(two).await.expect("a source").volume;
    let larger = NewVolume {
        size: GiB::new(3).expect("size"),
        ..from("larger", Source::Volume(source.id.clone()))
    };
    let larger = stage.cloud.create_volume(larger).await.expect("larger").volume;
    assert_eq!(larger.size.get(), 3);
    stage.sim.clear_log();
    let smaller = from("smaller", Source::Volume(source.id.clone()));
    let error = stage.cloud.create_volume(smaller).await.expect_err("too small");
    assert!(matches!(error, CloudError::SourceTooLarge { .. }), "{error:?}");
    assert_eq!(stage.sim.count("create_volume"), 0);
}

#[tokio::test(start_paused = true)]
async fn distinguishes_missing_failed_and_busy_sources() {
    let stage = stage().await;
    for id in [NOTHING, "no-uuid"] {
        for source in [Source::PointInTime(id.to_owned()), Source::Volume(id.into())] {
            let error = stage.cloud.create_volume(from("copy", source)).await.expect_err("none");
            assert!(matches!(error, CloudError::NoSource { .. }), "{error:?}");
        }
    }
    let (volume, _) = take_snapshot(&stage, "pvc-1").await;
    let id = volume.id.as_str();
    assert!(stage.sim.set_volume_status(id, openstack_sim::VolumeStatus::Error));
    let broken = stage
        .cloud
        .create_volume(from("copy", Source::Volume(volume.id.clone())))
        .await
        .expect_err("broken");
    assert!(matches!(broken, CloudError::Broken { .. }), "{broken:?}");
    assert!(stage.sim.set_volume_status(id, openstack_sim::VolumeStatus::Detaching));
    let busy = stage
        .cloud
        .create_volume(from("copy", Source::Volume(volume.id.clone())))
        .await
        .expect_err("busy");
    assert!(matches!(busy, CloudError::Busy { .. }), "{busy:?}");
}

#[tokio::test(start_paused = true)]
async fn volume_of_other_source_is_not_adopted() {
    let stage = stage().await;
    let (volume, snapshot) = take_snapshot(&stage, "pvc-1").await;
    stage.create("copy").await;
    for source in [Source::PointInTime(snapshot), Source::Volume(volume.id.clone())] {
        let error = stage
            .cloud
            .create_volume(from("copy", source))
            .await
            .expect_err("was made blank");
        assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
    }
    let clone = from("clone", Source::Volume(volume.id));
    stage.cloud.create_volume(clone).await.expect("a clone");
    let error = stage.cloud.create_volume(new("clone")).await.expect_err("has a source");
    assert!(error.to_string().contains("source nothing is wanted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn larger_volume_is_adopted_within_limit() {
    let stage = stage().await;
    let two = NewVolume {
        size: GiB::new(2).expect("size"),
        ..new("pvc-1")
    };
    stage.cloud.create_volume(two).await.expect("made");
    stage.cloud.create_volume(new("pvc-1")).await.expect("large enough");
    let limited = NewVolume {
        largest: GiB::new(1),
        ..new("pvc-1")
    };
    let error = stage.cloud.create_volume(limited).await.expect_err("too large");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn unsuitable_multiattach_volume_is_removed() {
    let stage = stage().await;
    let shared = NewVolume {
        multiattach: true,
        ..new("pvc-1")
    };
    let error = stage
        .cloud
        .create_volume(shared)
        .await
        .expect_err("type fast is for one");
    assert!(matches!(error, CloudError::NotMultiattach { .. }), "{error:?}");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn multiattach_type_is_checked_before_creation() {
    let stage = stage().await;
    let shared = || NewVolume {
        multiattach: true,
        volume_type: Some("fast".to_owned()),
        ..new("pvc-1")
    };
    let error = stage.cloud.create_volume(shared()).await;
    let error = error.expect_err("type fast is for one");
    assert!(matches!(error, CloudError::NotMultiattach { .. }), "{error:?}");
    assert_eq!(stage.sim.count("create_volume"), 0);

    // When the types cannot be listed, the new volume shows the setting.
    let refused = Fault::on("list_volume_types").effect(Effect::policy("volume_extension:type_get_all"));
    stage.sim.fault(refused).expect("rule");
    let another = stage.other_process();
    let error = another.create_volume(shared()).await.expect_err("seen when it is made");
    assert!(matches!(error, CloudError::NotMultiattach { .. }), "{error:?}");
    assert_eq!(stage.sim.count("create_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn next_call_removes_unsuitable_multiattach_volume() {
    let stage = stage().await;
    let shared = || NewVolume {
        multiattach: true,
        ..new("pvc-1")
    };
    let refused = Fault::on("delete_volume")
        .times(1)
        .effect(Effect::policy("volume:delete"));
    stage.sim.fault(refused).expect("rule");
    let error = stage.cloud.create_volume(shared()).await.expect_err("it is left");
    assert!(matches!(error, CloudError::Busy { .. }), "{error:?}");
    let stale = &stage.sim.state().volumes[0];
    assert_eq!(stale.metadata[metadata_keys::REQUESTED_MULTIATTACH], "true");
    let error = stage
        .cloud
        .create_volume(shared())
        .await
        .expect_err("type fast is for one");
    assert!(matches!(error, CloudError::NotMultiattach { .. }), "{error:?}");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn adopted_volume_is_checked_after_creation() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.create = Duration::from_millis(500)),
        zones: vec!["nova".to_owned(), "east".to_owned()],
        ..SimConfig::default()
    })
    .await;
    let request = || NewVolume {
        availability_zone: Some("east".to_owned()),
        ..new("pvc-1")
    };
    let cloud = stage.cloud.clone();
    let killed = tokio::spawn(async move { cloud.create_volume(request()).await });
    while stage.sim.count("create_volume") == 0 {
        tick().await;
    }
    killed.abort();
    let stale = stage.sim.state().volumes[0].clone();
    assert_eq!(stale.status.as_str(), "creating");
    // The result of a Cinder that falls back to its default zone.
    let moved = stage
        .sim
        .set_volume(&stale.id, |volume| volume.availability_zone = "nova".to_owned());
    assert!(moved);
    let created = stage.cloud.create_volume(request()).await.expect("made anew").volume;
    assert_ne!(created.id.as_str(), stale.id);
    assert_eq!(created.availability_zone.as_deref(), Some("east"));
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn copy_uses_zone_of_its_source() {
    let stage = stage_with(SimConfig {
        zones: vec!["nova".to_owned(), "east".to_owned()],
        ..SimConfig::default()
    })
    .await;
    let source = NewVolume {
        availability_zone: Some("east".to_owned()),
        ..new("source")
    };
    let source = stage.cloud.create_volume(source).await.expect("a source").volume;
    let copy = NewVolume {
        availability_zone: Some("nova".to_owned()),
        acceptable_zones: vec!["nova".to_owned(), "east".to_owned()],
        ..from("copy", Source::Volume(source.id))
    };
    let copy = stage.cloud.create_volume(copy).await.expect("a copy").volume;
    assert_eq!(copy.availability_zone.as_deref(), Some("east"));
}

#[tokio::test(start_paused = true)]
async fn next_call_removes_misplaced_volume() {
    let stage = stage().await;
    // The result of a Cinder that falls back to its default zone.
    let mut misplaced = new("pvc-1");
    misplaced
        .metadata
        .insert(metadata_keys::REQUESTED_ZONES.to_owned(), "east,west".to_owned());
    let stale = stage.cloud.create_volume(misplaced).await.expect("in nova").volume;
    let request = NewVolume {
        acceptable_zones: vec!["west".to_owned()],
        ..new("pvc-1")
    };
    let created = stage.cloud.create_volume(request).await.expect("made anew").volume;
    assert_ne!(created.id, stale.id);
    assert_eq!(stage.cloud.volume(&stale.id).await.expect("a look"), None);
}

#[tokio::test(start_paused = true)]
async fn complete_volume_in_other_zone_remains() {
    let stage = stage().await;
    for (name, requested) in [("pvc-1", Some("nova,east")), ("pvc-2", None)] {
        let mut earlier = new(name);
        let mark = requested.map(|zones| (metadata_keys::REQUESTED_ZONES.to_owned(), zones.to_owned()));
        earlier.metadata.extend(mark);
        let existing = stage.cloud.create_volume(earlier).await.expect("in nova").volume;
        let request = NewVolume {
            acceptable_zones: vec!["west".to_owned()],
            ..new(name)
        };
        let error = stage.cloud.create_volume(request).await.expect_err("elsewhere");
        assert!(matches!(error, CloudError::Busy { .. }), "{error:?}");
        assert!(stage.cloud.volume(&existing.id).await.expect("a look").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn failed_creation_of_killed_process_is_repeated() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.create = Duration::from_millis(100)),
        ..SimConfig::default()
    })
    .await;
    stage
        .sim
        .fault(Fault::on("create_volume").times(1).effect(Effect::work_fails()))
        .expect("rule");
    let cloud = stage.cloud.clone();
    let killed = tokio::spawn(async move { cloud.create_volume(new("pvc-1")).await });
    while stage.sim.count("create_volume") == 0 {
        tick().await;
    }
    killed.abort();
    assert!(stage.sim.settled(Duration::from_secs(5)).await);
    assert_eq!(stage.sim.state().volumes[0].status.as_str(), "error");
    let created = stage.create("pvc-1").await;
    assert_eq!(created.status, VolumeStatus::Available);
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

/// Creates a volume of `mode`, and a clone, a snapshot and a backup of it as sources.
async fn sources(stage: &Stage, mode: Option<VolumeMode>) -> Vec<Source> {
    let name = mode.map_or("unknown", VolumeMode::name);
    let volume = NewVolume { mode, ..new(name) };
    let volume = stage.cloud.create_volume(volume).await.expect("a volume").volume;
    assert_eq!(volume.mode(), mode);
    let snapshot = NewSnapshot {
        name: format!("snapshot of {name}"),
        volume_id: volume.id.clone(),
        force: true,
        description: String::new(),
        metadata: BTreeMap::new(),
    };
    let snapshot = stage.cloud.create_snapshot(snapshot).await.expect("a snapshot");
    let recorded = mode.map(|mode| (metadata_keys::VOLUME_MODE.to_owned(), mode.name().to_owned()));
    let backup = NewBackup {
        name: format!("backup of {name}"),
        volume_id: volume.id.clone(),
        incremental: false,
        availability_zone: None,
        description: String::new(),
        metadata: recorded.into_iter().collect(),
    };
    let backup = complete_backup(stage, backup).await;
    vec![
        Source::Volume(volume.id),
        Source::PointInTime(snapshot.id.to_string()),
        Source::PointInTime(backup.id.to_string()),
    ]
}

#[tokio::test(start_paused = true)]
async fn raw_device_never_becomes_file_system() {
    let stage = stage().await;
    for source in sources(&stage, Some(VolumeMode::Block)).await {
        let request = NewVolume {
            mode: Some(VolumeMode::Filesystem),
            ..from("copy", source.clone())
        };
        let error = stage
            .cloud
            .create_volume(request.clone())
            .await
            .expect_err("another mode");
        assert!(matches!(error, CloudError::SourceMode { .. }), "{source:?}: {error:?}");
        assert!(error.to_string().contains("allowVolumeModeChange"), "{error}");
        assert_eq!(stage.sim.state().volumes.len(), 1);
        let allowed = NewVolume {
            allow_mode_change: true,
            ..request
        };
        let created = stage.cloud.create_volume(allowed).await.expect("allowed").volume;
        assert_eq!(created.mode(), Some(VolumeMode::Filesystem));
        stage.cloud.delete_volume(&created.id).await.expect("it is unused");
    }
}

#[tokio::test(start_paused = true)]
async fn other_mode_changes_are_allowed() {
    let stage = stage().await;
    let cases = [
        (None, VolumeMode::Filesystem),
        (Some(VolumeMode::Filesystem), VolumeMode::Block),
        (Some(VolumeMode::Block), VolumeMode::Block),
    ];
    for (number, (of, mode)) in cases.into_iter().enumerate() {
        for (copy, source) in sources(&stage, of).await.into_iter().enumerate() {
            let request = NewVolume {
                mode: Some(mode),
                ..from(&format!("copy-{number}-{copy}"), source)
            };
            let created = stage
                .cloud
                .create_volume(request.clone())
                .await
                .expect("allowed")
                .volume;
            assert_eq!(created.mode(), request.mode, "{of:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_volume_of_other_mode() {
    let stage = stage().await;
    let with = |mode| NewVolume { mode, ..new("pvc-1") };
    let created = stage
        .cloud
        .create_volume(with(Some(VolumeMode::Block)))
        .await
        .expect("a volume");
    let error = stage.cloud.create_volume(with(Some(VolumeMode::Filesystem))).await;
    let error = error.expect_err("it is a raw device");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
    for mode in [Some(VolumeMode::Block), None] {
        let again = stage.cloud.create_volume(with(mode)).await.expect("the same").volume;
        assert_eq!(again.id, created.volume.id);
    }
}
