// SPDX-License-Identifier: Apache-2.0
//! Zones of volumes that are created from snapshots, backups and volumes.

use std::time::Duration;

use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_proto::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, Snapshot, TopologyRequirement, VolumeContentSource,
};
use openstack_sim::Sim;
use tonic::Code;

use crate::support::{Driver, cloud, create_request, patient, refused, zone, zones};

/// A cloud with zones `a` and `b`.
async fn two_zones(copies_across_zones: bool) -> Sim {
    cloud(|config| {
        config.zones = vec!["a".into(), "b".into()];
        config.copies_across_zones = copies_across_zones;
    })
    .await
}

fn in_zones(name: &str, requirement: TopologyRequirement) -> CreateVolumeRequest {
    CreateVolumeRequest {
        accessibility_requirements: Some(requirement),
        ..create_request(name)
    }
}

fn copy_of(source: Type, request: CreateVolumeRequest) -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..request
    }
}

fn of_snapshot(id: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: id.into() })
}

fn of_volume(id: &str) -> Type {
    Type::Volume(VolumeSource { volume_id: id.into() })
}

/// A volume in zone `b`.
async fn in_b(driver: &Driver) -> String {
    let created = driver.create(in_zones("pvc-1", zones(&["b"], &["b"]))).await;
    created.expect("a volume").volume_id
}

/// Takes a snapshot or a backup of the volume, and waits until it is complete.
async fn take_snapshot(sim: &Sim, driver: &Driver, volume: &str, kind: &str) -> Snapshot {
    let request = CreateSnapshotRequest {
        name: format!("{kind}-1"),
        source_volume_id: volume.into(),
        parameters: [("type".to_owned(), kind.to_owned())].into(),
        ..CreateSnapshotRequest::default()
    };
    let take = async || {
        let answer = driver.controller().create_snapshot(patient(request.clone())).await;
        answer.expect(kind).into_inner().snapshot.expect("a snapshot")
    };
    take().await;
    assert!(sim.settled(Duration::from_secs(10)).await);
    let done = take().await;
    assert!(done.ready_to_use);
    done
}

#[tokio::test(start_paused = true)]
async fn copy_uses_zone_of_source_issue_3088() {
    let sim = two_zones(false).await;
    let driver = Driver::start(&sim);
    let volume = in_b(&driver).await;
    let snapshot = take_snapshot(&sim, &driver, &volume, "snapshot").await;
    for (name, source) in [
        ("restored", of_snapshot(&snapshot.snapshot_id)),
        ("clone", of_volume(&volume)),
    ] {
        let request = copy_of(source, in_zones(name, zones(&["a", "b"], &["a", "b"])));
        let copy = driver.create(request).await.expect("the cloud copies within one zone");
        assert_eq!(copy.accessible_topology, [zone("b")], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_reports_zone_and_unreachable_copy_fails_issue_1945_issue_3126() {
    let sim = two_zones(false).await;
    let driver = Driver::start(&sim);
    let volume = in_b(&driver).await;
    let snapshot = take_snapshot(&sim, &driver, &volume, "snapshot").await;
    assert_eq!(snapshot.accessible_topology, [zone("b")]);
    let source = of_snapshot(&snapshot.snapshot_id);
    let request = copy_of(source, in_zones("restored", zones(&["a"], &["a"])));
    let refusal = refused(driver.create(request).await, Code::ResourceExhausted);
    assert!(refusal.contains("zone b") && refusal.contains("(a)"), "{refusal}");
    assert_eq!(sim.state().volumes.len(), 1, "the source alone");
}

#[tokio::test(start_paused = true)]
async fn unconstrained_copy_may_use_any_zone_issue_3088() {
    let sim = two_zones(false).await;
    let driver = Driver::start(&sim);
    let volume = in_b(&driver).await;
    // A backup does not belong to a zone. It is restored in the requested zone.
    let backup = take_snapshot(&sim, &driver, &volume, "backup").await;
    assert_eq!(backup.accessible_topology, []);
    let request = copy_of(
        of_snapshot(&backup.snapshot_id),
        in_zones("restored", zones(&["a"], &["a"])),
    );
    let restored = driver.create(request).await.expect("restored elsewhere");
    assert_eq!(restored.accessible_topology, [zone("a")]);

    // If zones of storage are ignored, a copy is accessible from the requested topology.
    let conf = format!("{}[BlockStorage]\nignore-volume-az = true\n", sim.access().cloud_conf());
    let driver = Driver::start_with(&sim, &conf, |_| {});
    let snapshot = take_snapshot(&sim, &driver, &volume, "snapshot").await;
    assert_eq!(snapshot.accessible_topology, []);
    let request = copy_of(
        of_snapshot(&snapshot.snapshot_id),
        in_zones("free", zones(&["compute-1"], &["compute-1"])),
    );
    let free = driver.create(request).await.expect("a copy");
    assert_eq!(free.accessible_topology, [zone("compute-1")]);
}

#[tokio::test(start_paused = true)]
async fn cloud_may_copy_across_zones() {
    let sim = two_zones(true).await;
    let driver = Driver::start(&sim);
    let volume = in_b(&driver).await;
    let request = copy_of(of_volume(&volume), in_zones("clone", zones(&["a"], &["a"])));
    let copy = driver.create(request).await.expect("a copy");
    assert_eq!(copy.accessible_topology, [zone("a")]);
}
