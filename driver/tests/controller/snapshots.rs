// SPDX-License-Identifier: Apache-2.0
//! Snapshots and backups over gRPC, and volumes created from them.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_proto::csi::v1::{
    CapacityRange, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, GetSnapshotRequest,
    ListSnapshotsRequest, ListSnapshotsResponse, Snapshot, VolumeContentSource,
};
use openstack_sim::{Effect, Fault, Quota, Sim};
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, UNKNOWN, ZONE, cloud, create_request, patient, refused, zones};

fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn request(name: &str, volume: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        name: name.into(),
        source_volume_id: volume.into(),
        ..CreateSnapshotRequest::default()
    }
}

fn backup_request(name: &str, volume: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        parameters: parameters(&[("type", "backup")]),
        ..request(name, volume)
    }
}

async fn take(driver: &Driver, request: CreateSnapshotRequest) -> Result<Snapshot, Status> {
    let answer = driver.controller().create_snapshot(patient(request)).await?;
    Ok(answer.into_inner().snapshot.expect("a snapshot"))
}

/// Retries until the snapshot is ready, as the snapshotter does.
async fn ready(sim: &Sim, driver: &Driver, request: CreateSnapshotRequest) -> Snapshot {
    take(driver, request.clone()).await.expect("a snapshot");
    assert!(sim.settled(Duration::from_secs(10)).await);
    let snapshot = take(driver, request).await.expect("the same snapshot");
    assert!(snapshot.ready_to_use);
    snapshot
}

async fn remove(driver: &Driver, id: &str) -> Result<(), Status> {
    let request = DeleteSnapshotRequest {
        snapshot_id: id.into(),
        ..DeleteSnapshotRequest::default()
    };
    driver.controller().delete_snapshot(patient(request)).await.map(drop)
}

async fn list(driver: &Driver, request: ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
    let answer = driver.controller().list_snapshots(patient(request)).await?;
    Ok(answer.into_inner())
}

fn ids(answer: &ListSnapshotsResponse) -> Vec<String> {
    let snapshots = answer.entries.iter().filter_map(|entry| entry.snapshot.as_ref());
    snapshots.map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

async fn get(driver: &Driver, id: &str) -> Result<Snapshot, Status> {
    let request = GetSnapshotRequest {
        snapshot_id: id.into(),
        ..GetSnapshotRequest::default()
    };
    let answer = driver.controller().get_snapshot(patient(request)).await?;
    Ok(answer.into_inner().snapshot.expect("a snapshot"))
}

fn of_snapshot(name: &str, id: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })),
        }),
        ..create_request(name)
    }
}

fn of_volume(name: &str, id: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(Type::Volume(VolumeSource { volume_id: id.into() })),
        }),
        ..create_request(name)
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_has_all_fields_of_specification() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let marked = CreateSnapshotRequest {
        parameters: parameters(&[
            ("csi.storage.k8s.io/volumesnapshot/name", "snap"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "shop"),
            ("csi.storage.k8s.io/volumesnapshotcontent/name", "content"),
        ]),
        ..request("snap-1", &volume)
    };
    let snapshot = take(&driver, marked).await.expect("a snapshot");
    assert_eq!(
        (
            snapshot.size_bytes,
            snapshot.source_volume_id.as_str(),
            snapshot.ready_to_use
        ),
        (GIB, volume.as_str(), true)
    );
    assert!(snapshot.creation_time.is_some_and(|time| time.seconds > 1_700_000_000));
    assert_eq!(snapshot.accessible_topology, zones(&["nova"], &[]).preferred);
    let created = sim.state().snapshots.remove(0);
    assert_eq!(
        created.metadata,
        parameters(&[
            ("cinder.csi.openstack.org/cluster", "test"),
            ("cinder.csi.openstack.org/zone", "nova"),
            ("csi.storage.k8s.io/volumesnapshot/name", "snap"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "shop"),
            ("csi.storage.k8s.io/volumesnapshotcontent/name", "content"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn pending_snapshot_is_not_returned() {
    let sim = cloud(|config| config.latencies.snapshot = Duration::from_mins(1)).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let mut controller = driver.controller();
    let hasty = crate::support::within(request("snap-1", &volume), Duration::from_secs(2));
    let early = controller.create_snapshot(hasty).await;
    refused(early, Code::DeadlineExceeded);
    let patient = crate::support::within(request("snap-1", &volume), Duration::from_mins(2));
    let answer = controller.create_snapshot(patient).await.expect("it is cut");
    let snapshot = answer.into_inner().snapshot.expect("a snapshot");
    assert!(snapshot.ready_to_use);
    assert_eq!(sim.count("create_snapshot"), 1);
    assert_eq!(sim.state().snapshots[0].id, snapshot.snapshot_id);
}

#[tokio::test(start_paused = true)]
async fn snapshot_name_belongs_to_one_volume() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let (one, two) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    for request in [request, backup_request] {
        let first = take(&driver, request("snap", &one)).await.expect("a snapshot");
        let second = take(&driver, request("snap", &one)).await.expect("the same");
        assert_eq!(first.snapshot_id, second.snapshot_id);
        refused(take(&driver, request("snap", &two)).await, Code::AlreadyExists);
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_request_never_reaches_cloud() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.clear_log();
    refused(take(&driver, request("", &volume)).await, Code::InvalidArgument);
    refused(take(&driver, request("snap", "")).await, Code::InvalidArgument);
    for (key, value) in [("type", "bakcup"), ("force-create", "maybe"), ("incremental", "x")] {
        let wrong = CreateSnapshotRequest {
            parameters: parameters(&[(key, value)]),
            ..request("snap", &volume)
        };
        let text = refused(take(&driver, wrong).await, Code::InvalidArgument);
        assert!(text.contains(key), "{text}");
    }
    refused(take(&driver, request("snap", "no-uuid")).await, Code::NotFound);
    assert!(sim.log().is_empty());
    refused(take(&driver, request("snap", UNKNOWN)).await, Code::NotFound);
    refused(take(&driver, backup_request("snap", UNKNOWN)).await, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn snapshot_in_other_zone_is_refused() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let elsewhere = |request: CreateSnapshotRequest| CreateSnapshotRequest {
        accessibility_requirements: Some(zones(&[], &["east"])),
        ..request
    };
    let text = refused(
        take(&driver, elsewhere(request("snap", &volume))).await,
        Code::ResourceExhausted,
    );
    assert!(text.contains("nova") && text.contains("east"), "{text}");
    assert!(sim.state().snapshots.is_empty());
    // Backups can be restored in any zone.
    let backup = ready(&sim, &driver, elsewhere(backup_request("backup", &volume))).await;
    assert!(backup.accessible_topology.is_empty());
    let here = CreateSnapshotRequest {
        accessibility_requirements: Some(zones(&[], &["nova"])),
        ..request("snap", &volume)
    };
    let snapshot = take(&driver, here).await.expect("a snapshot");
    assert_eq!(snapshot.accessible_topology[0].segments[ZONE], "nova");
}

#[tokio::test(start_paused = true)]
async fn listed_backups_have_no_zone() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let snapshot = take(&driver, request("snap", &volume)).await.expect("a snapshot");
    let backup = ready(&sim, &driver, backup_request("backup", &volume)).await;
    // Another driver took this snapshot, so its zone is the one of its volume.
    assert!(sim.set_snapshot(&snapshot.snapshot_id, |snapshot| snapshot.metadata.clear()));
    let request = ListSnapshotsRequest::default();
    let listed = driver.controller().list_snapshots(patient(request)).await;
    let entries = listed.expect("a list").into_inner().entries;
    let listed: BTreeMap<_, _> = (entries.into_iter().filter_map(|entry| entry.snapshot))
        .map(|listed| (listed.snapshot_id, listed.accessible_topology))
        .collect();
    assert_eq!(listed[&snapshot.snapshot_id], zones(&["nova"], &[]).preferred);
    assert!(listed[&backup.snapshot_id].is_empty(), "{listed:?}");
}

#[tokio::test(start_paused = true)]
async fn exceeded_snapshot_quota_is_resource_exhausted() {
    let sim = cloud(|config| {
        config.quota = Quota {
            snapshots: 0,
            ..Quota::default()
        };
    })
    .await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    refused(take(&driver, request("snap", &volume)).await, Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn class_may_forbid_snapshot_in_use_issue_832() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let careful = CreateSnapshotRequest {
        parameters: parameters(&[("force-create", "false")]),
        ..request("snap", &volume)
    };
    refused(take(&driver, careful).await, Code::FailedPrecondition);
    take(&driver, request("snap", &volume)).await.expect("a snapshot");
}

#[tokio::test(start_paused = true)]
async fn next_call_replaces_failed_snapshot() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.fault(Fault::on("create_snapshot").times(1).effect(Effect::work_fails()))
        .expect("rule");
    refused(take(&driver, request("snap", &volume)).await, Code::Internal);
    take(&driver, request("snap", &volume)).await.expect("a snapshot");
    assert_eq!(sim.state().snapshots.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn backup_is_returned_before_it_is_ready() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let backup = ready(&sim, &driver, backup_request("backup", &volume)).await;
    assert_eq!(
        (backup.size_bytes, backup.source_volume_id.as_str()),
        (GIB, volume.as_str())
    );
    assert_eq!(get(&driver, &backup.snapshot_id).await.expect("it is there"), backup);
    assert_eq!(sim.state().backups[0].metadata["type"], "backup");
    remove(&driver, &backup.snapshot_id).await.expect("deleted");
    let state = sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn backup_is_adopted_after_deletion_of_volume() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let backup = ready(&sim, &driver, backup_request("backup", &volume)).await;
    driver.delete(&volume).await.expect("deleted");
    let again = take(&driver, backup_request("backup", &volume)).await;
    assert_eq!(again.expect("the same backup"), backup);
}

#[tokio::test(start_paused = true)]
async fn late_backup_is_reported_and_continues() {
    let sim = cloud(|config| config.latencies.backup = Duration::from_mins(10)).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let early = take(&driver, backup_request("backup", &volume))
        .await
        .expect("under way");
    assert!(!early.ready_to_use);
    // The limit of 30 s plus the addition of the class has not passed yet.
    let again = take(&driver, backup_request("backup", &volume))
        .await
        .expect("under way");
    assert_eq!(again.snapshot_id, early.snapshot_id);
}

#[tokio::test(start_paused = true)]
async fn failed_backup_is_final() {
    let sim = cloud(|config| config.latencies.backup = Duration::from_secs(20)).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let fails = Fault::on("create_backup").times(1).effect(Effect::work_fails());
    sim.fault(fails).expect("rule");
    let early = take(&driver, backup_request("backup", &volume))
        .await
        .expect("under way");
    assert!(sim.settled(Duration::from_mins(1)).await);
    for _ in 0..3 {
        let again = take(&driver, backup_request("backup", &volume)).await.expect("its id");
        assert_eq!((&again.snapshot_id, again.ready_to_use), (&early.snapshot_id, false));
    }
    refused(
        take(&driver, backup_request("backup", &volume)).await,
        Code::FailedPrecondition,
    );
    remove(&driver, &early.snapshot_id).await.expect("deleted");
    let state = sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn delete_of_missing_snapshot_succeeds() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    refused(remove(&driver, "").await, Code::InvalidArgument);
    for id in ["no-uuid", UNKNOWN] {
        remove(&driver, id).await.expect("gone already");
        refused(get(&driver, id).await, Code::NotFound);
    }
    refused(get(&driver, "").await, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn every_call_reports_content_source() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let snapshot = take(&driver, request("snap", &volume))
        .await
        .expect("a snapshot")
        .snapshot_id;
    let backup = ready(&sim, &driver, backup_request("backup", &volume))
        .await
        .snapshot_id;
    for wanted in [
        of_snapshot("from-snapshot", &snapshot),
        of_snapshot("from-backup", &backup),
        of_volume("clone", &volume),
    ] {
        let first = driver.create(wanted.clone()).await.expect("a copy");
        let second = driver.create(wanted.clone()).await.expect("the same");
        assert_eq!(first, second);
        assert_eq!(first.content_source, wanted.volume_content_source);
        assert_eq!(
            first.volume_context,
            parameters(&[("cinder.csi.openstack.org/resizeRequired", "true")])
        );
    }
    assert_eq!(sim.state().volumes.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn copy_is_never_smaller_than_source() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let sized = |request: CreateVolumeRequest, size: i64| CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: size,
            limit_bytes: 0,
        }),
        ..request
    };
    let two = sized(create_request("source"), 2 * GIB);
    let volume = driver.create(two).await.expect("a source").volume_id;
    let snapshot = take(&driver, request("snap", &volume))
        .await
        .expect("a snapshot")
        .snapshot_id;
    let larger = sized(of_snapshot("larger", &snapshot), 3 * GIB);
    assert_eq!(driver.create(larger).await.expect("larger").capacity_bytes, 3 * GIB);
    for small in [of_snapshot("small", &snapshot), of_volume("small", &volume)] {
        refused(driver.create(sized(small, GIB)).await, Code::OutOfRange);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_source_is_not_found() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    for id in ["no-uuid", UNKNOWN] {
        refused(driver.create(of_snapshot("copy", id)).await, Code::NotFound);
        refused(driver.create(of_volume("copy", id)).await, Code::NotFound);
    }
    refused(driver.create(of_snapshot("copy", "")).await, Code::InvalidArgument);
    let nothing = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: None }),
        ..create_request("copy")
    };
    refused(driver.create(nothing).await, Code::InvalidArgument);
    assert!(sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn snapshot_lists_support_filters_and_pages() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let (one, two) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    let mut of_one = Vec::new();
    for name in ["a", "b"] {
        of_one.push(
            take(&driver, request(name, &one))
                .await
                .expect("a snapshot")
                .snapshot_id,
        );
    }
    of_one.push(ready(&sim, &driver, backup_request("c", &one)).await.snapshot_id);
    let other = take(&driver, request("d", &two)).await.expect("a snapshot").snapshot_id;
    let mut all = of_one.clone();
    all.push(other.clone());
    all.sort();
    of_one.sort();

    let everything = list(&driver, ListSnapshotsRequest::default()).await.expect("a list");
    assert_eq!((ids(&everything), everything.next_token.as_str()), (all.clone(), ""));
    let by_volume = ListSnapshotsRequest {
        source_volume_id: one.clone(),
        ..ListSnapshotsRequest::default()
    };
    assert_eq!(ids(&list(&driver, by_volume.clone()).await.expect("a list")), of_one);
    for (snapshot_id, source_volume_id, found) in [
        (&other, "", true),
        (&other, two.as_str(), true),
        (&other, one.as_str(), false),
        (&of_one[0], "", true),
    ] {
        let by_id = ListSnapshotsRequest {
            snapshot_id: snapshot_id.clone(),
            source_volume_id: source_volume_id.into(),
            ..ListSnapshotsRequest::default()
        };
        assert_eq!(
            list(&driver, by_id).await.expect("a list").entries.len(),
            usize::from(found)
        );
    }
    for (snapshot_id, source_volume_id) in [(UNKNOWN, ""), ("no-uuid", ""), ("", UNKNOWN), ("", "no-uuid")] {
        let nothing = ListSnapshotsRequest {
            snapshot_id: snapshot_id.into(),
            source_volume_id: source_volume_id.into(),
            ..ListSnapshotsRequest::default()
        };
        assert!(list(&driver, nothing).await.expect("a list").entries.is_empty());
    }

    let mut paged = Vec::new();
    let mut token = String::new();
    sim.clear_log();
    loop {
        let page = ListSnapshotsRequest {
            max_entries: 3,
            starting_token: token,
            ..ListSnapshotsRequest::default()
        };
        let page = list(&driver, page).await.expect("a page");
        paged.extend(ids(&page));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
        // A page resumes after the last returned entry, even if that was deleted.
        remove(&driver, paged.last().expect("an entry")).await.expect("deleted");
    }
    assert_eq!(paged, all);
    let log = sim.log();
    let lists = log.iter().filter(|entry| entry.operation == "list_snapshots_detail");
    let lists = lists.filter(|entry| !entry.path.contains('?'));
    assert_eq!(lists.count(), 1, "all pages are cut from one list");
}

#[tokio::test(start_paused = true)]
async fn rejects_invalid_snapshot_page() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let wrong = |max_entries, starting_token: &str| ListSnapshotsRequest {
        max_entries,
        starting_token: starting_token.into(),
        ..ListSnapshotsRequest::default()
    };
    refused(list(&driver, wrong(-1, "")).await, Code::InvalidArgument);
    refused(list(&driver, wrong(0, "invalid-token")).await, Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn delete_refusal_names_snapshots_of_volume_issue_2181() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let snapshot = take(&driver, request("snap", &volume))
        .await
        .expect("a snapshot")
        .snapshot_id;
    let text = refused(driver.delete(&volume).await, Code::FailedPrecondition);
    assert!(text.contains("snap") && text.contains(&snapshot), "{text}");
    remove(&driver, &snapshot).await.expect("deleted");
    driver.delete(&volume).await.expect("deleted");
}

/// An API node with a lagging database does not show a new snapshot.
#[tokio::test(start_paused = true)]
async fn protected_snapshot_is_deleted_despite_404() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.protect_other_clusters = true;
    });
    let volume = driver.volume("pvc-1").await;
    let snapshot = take(&driver, request("snap", &volume)).await.expect("a snapshot");
    for operation in ["get_snapshot", "get_backup"] {
        sim.fault(Fault::on(operation).times(1).effect(Effect::status(404)))
            .expect("a rule");
    }
    remove(&driver, &snapshot.snapshot_id).await.expect("deleted");
    assert!(sim.state().snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn objects_of_other_cluster_are_protected() {
    let sim = cloud(|_| {}).await;
    let ours = Driver::start(&sim);
    let volume = ours.volume("pvc-1").await;
    let snapshot = take(&ours, request("snap", &volume))
        .await
        .expect("a snapshot")
        .snapshot_id;
    let theirs = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.cluster = "theirs".into();
        args.protect_other_clusters = true;
    });
    for answer in [remove(&theirs, &snapshot).await, theirs.delete(&volume).await] {
        let text = refused(answer, Code::FailedPrecondition);
        assert!(text.contains("cluster test"), "{text}");
    }
    let state = sim.state();
    assert_eq!((state.volumes.len(), state.snapshots.len()), (1, 1));
    remove(&ours, &snapshot).await.expect("deleted");
    ours.delete(&volume).await.expect("deleted");
}
