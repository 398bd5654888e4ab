// SPDX-License-Identifier: Apache-2.0
//! The costs of a full reconcile, and the cases in which a reconcile of volumes is sufficient.

use cinder_operator_core::cluster::VolumeObject;

use super::*;

/// An installed driver at rest.
async fn mk_resting() -> World {
    let world = World::managed();
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    world.api.take_writes();
    world.api.take_reads();
    world
}

fn put_volume(world: &World, name: &str, more: &Value) {
    let mut volume = json!({"metadata": {"name": name}, "spec": {"csi": {"driver": NAME, "volumeHandle": name}}});
    json_patch::merge(&mut volume, more);
    let volume: VolumeObject = serde_json::from_value(volume).expect("a volume");
    world.context.cluster.change(|index| drop(index.put(&volume)));
}

fn annotate(world: &World) {
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    metadata["annotations"] = json!({"a": "b"});
    world.api.change(DRIVER, "/metadata", metadata);
}

/// The number of volumes according to `/metrics`.
fn counted(world: &World) -> Option<f64> {
    let families = world.context.metrics.registry().gather();
    let family = families
        .iter()
        .find(|family| family.name() == "cinder_csi_operator_volumes")?;
    let is_kind = |metric: &&prometheus::proto::Metric| {
        metric
            .get_label()
            .iter()
            .any(|label| label.value() == "PersistentVolume")
    };
    let metric = family.get_metric().iter().find(is_kind)?;
    Some(metric.get_gauge().get_value())
}

#[tokio::test]
async fn volume_changes_cause_no_requests() {
    let world = mk_resting().await;
    let before = world.driver().status;
    for name in ["pv1", "pv2", "pv3"] {
        put_volume(&world, name, &json!({}));
        world.look().await.expect("looked");
    }
    assert_eq!((world.api.take_reads().len(), world.api.take_writes()), (0, Vec::new()));
    assert_eq!(world.driver().status, before);
    assert_eq!(counted(&world), Some(3.0));
}

#[tokio::test]
async fn stuck_volume_is_reported_without_full_reconcile() {
    let world = mk_resting().await;
    let stuck = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    put_volume(&world, "pv1", &stuck);
    world.look().await.expect("looked");
    assert_eq!(world.api.take_reads().len(), 0);
    assert_eq!(
        world
            .driver()
            .status
            .and_then(|status| status.volumes)
            .map(|volumes| volumes.stuck_count),
        Some(1)
    );

    world
        .context
        .cluster
        .change(|index| drop(index.remove::<VolumeObject>("pv1")));
    world.look().await.expect("looked");
    assert_eq!(world.api.take_reads().len(), 0);
    assert_eq!(world.driver().status.and_then(|status| status.volumes), None);
}

#[rstest]
#[case::another_object_changed(|world: &World| world.context.request_full_reconcile(NAME))]
#[case::the_spec_changed(|world: &World| world.api.change(DRIVER, "/metadata/generation", json!(2)))]
#[case::an_annotation_changed(annotate)]
#[case::it_is_another_object(|world: &World| world.api.change(DRIVER, "/metadata/uid", json!("another")))]
#[tokio::test]
async fn other_changes_cause_full_reconcile(#[case] change: fn(&World)) {
    let world = mk_resting().await;
    change(&world);
    put_volume(&world, "pv1", &json!({}));
    world.look().await.expect("looked");
    assert_ne!(world.api.take_reads().len(), 0);
}

#[tokio::test]
async fn full_reconcile_lists_each_kind_once() {
    let world = mk_resting().await;
    world.context.request_full_reconcile(NAME);
    world.look().await.expect("looked");
    let mut lists = BTreeMap::<String, usize>::new();
    for path in world.api.take_reads() {
        *lists.entry(path).or_default() += 1;
    }
    assert_eq!(lists.get("/apis/storage.k8s.io/v1/storageclasses"), Some(&1));
    lists.retain(|_, count| *count > 1);
    assert_eq!(lists, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn continuous_volume_changes_do_not_delay_full_reconcile() {
    let world = mk_resting().await;
    for second in 0..290 {
        put_volume(&world, &format!("pv{second}"), &json!({}));
        world.look().await.expect("looked");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(world.api.take_reads().len(), 0);
    tokio::time::advance(Duration::from_secs(11)).await;
    world.look().await.expect("looked");
    assert_ne!(world.api.take_reads().len(), 0);
}

#[tokio::test]
async fn change_during_reconcile_causes_another_one() {
    let world = mk_resting().await;
    world.context.request_full_reconcile(NAME);
    let driver = world.driver();
    let driver = DriverRef::new(&driver, &world.context);
    world.context.request_full_reconcile(NAME);
    let values = (Facts::default(), Decision::default(), Outcome::default());
    volumes::remember_reconcile(&world.context, &driver, values, (None, Duration::from_mins(5)));
    world.look().await.expect("looked");
    assert_ne!(world.api.take_reads().len(), 0);
}

#[tokio::test]
async fn failed_reconcile_is_followed_by_full_one() {
    let world = mk_resting().await;
    world.api.break_writes_to(Some("/status"));
    put_volume(
        &world,
        "pv1",
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    world.look().await.expect_err("the status cannot be written");
    world.api.take_reads();
    world.api.break_writes_to(None);
    world.look().await.expect("looked");
    assert_ne!(world.api.take_reads().len(), 0);
    let volumes = world.driver().status.and_then(|status| status.volumes);
    assert_eq!(volumes.map(|volumes| volumes.stuck_count), Some(1));
}

#[tokio::test(start_paused = true)]
async fn queue_time_starts_with_first_change() {
    let waits = |world: &World| {
        let families = world.context.metrics.registry().gather();
        let is_queue =
            |family: &&prometheus::proto::MetricFamily| family.name() == "cinder_csi_operator_queue_duration_seconds";
        let family = families.iter().find(is_queue).expect("the family");
        let waits = family.get_metric().first().expect("a series").get_histogram();
        (waits.get_sample_count(), waits.get_sample_sum())
    };
    let world = World::managed();
    let (second, third) = (Duration::from_secs(2), Duration::from_secs(3));
    let first = Instant::now();
    tokio::time::sleep(second).await;
    world.context.record_change(NAME, Instant::now());
    world.context.record_change(NAME, first);
    tokio::time::sleep(third).await;
    world.context.record_change(NAME, Instant::now());
    world.look().await.expect("looked");
    assert_eq!(waits(&world), (1, 5.0));
    // A reconcile after a timer has no waiting change.
    world.look().await.expect("looked");
    assert_eq!(waits(&world).0, 1);
}
