// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use csi_proto::csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};
use openstack_sim::VolumeType;
use tonic::{Code, Status};

use crate::support::{Driver, UNKNOWN, cloud, create_request, patient, refused};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

async fn modify(
    driver: &Driver,
    volume_id: &str,
    pairs: &[(&str, &str)],
) -> Result<ControllerModifyVolumeResponse, Status> {
    let request = ControllerModifyVolumeRequest {
        volume_id: volume_id.into(),
        mutable_parameters: map(pairs),
        ..ControllerModifyVolumeRequest::default()
    };
    let answer = driver.controller().controller_modify_volume(patient(request)).await?;
    Ok(answer.into_inner())
}

#[tokio::test(start_paused = true)]
async fn repeated_modify_changes_nothing() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let class = [
        ("type", "slow"),
        ("metadata.tier", "gold"),
        ("csi.storage.k8s.io/pvc/name", "data"),
    ];
    modify(&driver, &volume, &class).await.expect("modified");
    let state = sim.state();
    let found = state.volume(&volume).expect("a volume");
    assert_eq!(found.volume_type, "slow");
    assert_eq!(found.metadata.get("tier").map(String::as_str), Some("gold"));
    sim.clear_log();
    modify(&driver, &volume, &class).await.expect("the same");
    let methods: Vec<String> = sim.log().iter().map(|entry| entry.method.clone()).collect();
    assert_eq!(methods, ["GET"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_attribute_changes_nothing() {
    let sim = cloud(|config| {
        config.volume_types.push(VolumeType::new("far").on_backend("other"));
    })
    .await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    for class in [
        &[("tpye", "slow"), ("metadata.tier", "gold")][..],
        &[("type", "no-such-type"), ("metadata.tier", "gold")],
        &[("type", "slow"), ("migration-policy", "perhaps")],
        &[("metadata.cinder.csi.openstack.org/cluster", "mine")],
        // The volume would have to migrate, which the class does not allow.
        &[("type", "far"), ("metadata.tier", "gold")],
        &[],
    ] {
        refused(modify(&driver, &volume, class).await, Code::InvalidArgument);
    }
    let state = sim.state();
    let found = state.volume(&volume).expect("a volume");
    assert_eq!(found.volume_type, "fast");
    assert!(!found.metadata.contains_key("tier"));
    modify(&driver, &volume, &[("type", "far"), ("migration-policy", "on-demand")])
        .await
        .expect("it may move");
}

#[tokio::test(start_paused = true)]
async fn modify_of_missing_volume_is_not_found() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    for (id, code) in [
        (UNKNOWN, Code::NotFound),
        ("fake-vol-id", Code::NotFound),
        ("", Code::InvalidArgument),
    ] {
        refused(modify(&driver, id, &[("type", "slow")]).await, code);
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_class_overrides_storage_class() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let mut request = create_request("pvc-1");
    request.parameters = map(&[("type", "fast")]);
    request.mutable_parameters = map(&[("type", "slow"), ("metadata.tier", "gold")]);
    let created = driver.create(request.clone()).await.expect("a volume");
    let state = sim.state();
    let found = state.volume(&created.volume_id).expect("a volume");
    assert_eq!(found.volume_type, "slow");
    assert_eq!(found.metadata.get("tier").map(String::as_str), Some("gold"));

    let again = driver.create(request.clone()).await.expect("the same volume");
    assert_eq!(again.volume_id, created.volume_id);
    for other in [&[("type", "fast")][..], &[("type", "slow"), ("metadata.tier", "tin")]] {
        request.mutable_parameters = map(other);
        refused(driver.create(request.clone()).await, Code::AlreadyExists);
    }
    request.name = "pvc-2".into();
    request.mutable_parameters = map(&[("colour", "red")]);
    refused(driver.create(request).await, Code::InvalidArgument);
}
