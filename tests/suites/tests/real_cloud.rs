// SPDX-License-Identifier: Apache-2.0
//! Tests of our driver with real Keystone, Cinder and Nova, in addition to csi-sanity.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest, VolumeCapability, VolumeContentSource,
    volume_content_source,
};
use harness::wait_for_some;
use reqwest::Method;
use serde_json::{Value, json};
use suites::drivers::{Ours, Role};
use suites::lab::in_lab;
use suites::life::{GIB, Life};
use suites::openstack::{Api, Service};
use suites::real_cloud::RealCloud;
use tonic::transport::Channel;

/// Maximum number of requests of a volume lifecycle with the latencies of real services.
const CALLS_OF_A_LIFE: usize = 12;
/// Number of repetitions of tests that could pass by chance.
const ROUNDS: usize = 5;
const STATE_TIMEOUT: Duration = Duration::from_mins(1);
const VOLUME: &str = "3.60";
const COMPUTE: &str = "2.89";

#[test]
fn volume_lifecycle_stays_within_request_budget() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let controller = Ours::new(Role::Controller).start(&lab, &cloud).await?;
        let node = Ours::new(Role::Node).start(&lab, &cloud).await?;
        // The driver learns the latencies of this cloud in the first lifecycle.
        let mut counts = Vec::new();
        for name in ["pvc-first", "pvc-second", "pvc-third"] {
            let life = Life::mounted(&lab, controller.channel(), node.channel(), name, "ext4")?;
            cloud.forget_calls();
            let volume = life.create().await?;
            let context = life.attach(&volume).await?;
            let devices = lab.shell("ls /dev/disk/by-id").await?;
            ensure!(devices.lines().count() == 1, "the server has the devices {devices:?}");
            life.stage(&volume, &context).await?;
            life.publish(&volume, &context).await?;
            let target = life.target().display();
            lab.shell(&format!(
                "echo precious > {target}/file; sync {target}/file; grep -q precious {target}/file"
            ))
            .await?;
            life.unpublish(&volume).await?;
            life.unstage(&volume).await?;
            life.detach(&volume).await?;
            let devices = lab.shell("ls /dev/disk/by-id").await?;
            ensure!(devices.is_empty(), "the server still has the devices {devices:?}");
            life.delete(&volume).await?;
            let remaining = cloud.api().block_storage().await?;
            ensure!(
                remaining.is_empty(),
                "DeleteVolume answered before the end: {remaining:?}"
            );
            let calls = cloud.calls();
            for call in &calls {
                println!("{name}: {} {} {}", call.method, call.path, call.status);
            }
            counts.push(calls.len());
        }
        println!("calls of three lives, one after the other: {counts:?}");
        let least = counts.iter().min().context("no life")?;
        ensure!(
            *least <= CALLS_OF_A_LIFE,
            "no life took {CALLS_OF_A_LIFE} calls or fewer: {counts:?}"
        );
        node.stop().await?;
        controller.stop().await?;
        cloud.stop().await
    });
}

/// Our detach polls only Nova's record while it exists, and assumes that Cinder is done when it is deleted.
#[test]
fn nova_deletes_attachment_after_cinder() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let api = cloud.api();
        let server = &cloud.servers().first().context("no server")?.id;
        let volume = create(api, "forgotten").await?;
        for _ in 0..ROUNDS {
            attach(api, server, &volume).await?;
            let mapping = format!("/servers/{server}/os-volume_attachments/{volume}");
            api.call(Method::DELETE, Service::Compute, &mapping, COMPUTE, None)
                .await?
                .accepted()?;
            // Queries Nova first and then Cinder, so Cinder's response is newer.
            wait_for_some("Nova to forget the attachment", STATE_TIMEOUT, async || {
                let nova = api.call(Method::GET, Service::Compute, &mapping, COMPUTE, None).await?;
                if nova.status != 404 {
                    return Ok(None);
                }
                let cinder = show(api, &volume).await?;
                ensure!(
                    cinder["status"] == "available" && cinder["attachments"] == json!([]),
                    "Nova has forgotten the attachment, and Cinder says {cinder}"
                );
                Ok(Some(()))
            })
            .await?;
        }
        remove(api, &volume).await?;
        cloud.stop().await
    });
}

/// The driver's polling depends on the order: it must know all states, and which of them end a wait.
#[test]
fn volume_states_have_expected_order() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let api = cloud.api();
        let server = &cloud.servers().first().context("no server")?.id;
        let body = json!({ "volume": { "size": 1, "name": "states", "volume_type": "fast" } });
        let made = api
            .call(Method::POST, Service::Volume, "/volumes", VOLUME, Some(&body))
            .await?
            .accepted()?;
        let id = made["volume"]["id"].as_str().context("no id")?.to_owned();
        let seen = states(api, &id, "available").await?;
        is_part_of(&seen, &["creating", "available"])?;

        let mappings = format!("/servers/{server}/os-volume_attachments");
        let body = json!({ "volumeAttachment": { "volumeId": id } });
        api.call(Method::POST, Service::Compute, &mappings, COMPUTE, Some(&body))
            .await?
            .accepted()?;
        let seen = states(api, &id, "in-use").await?;
        is_part_of(&seen, &["reserved", "attaching", "in-use"])?;

        run_action(api, &id, &json!({ "os-extend": { "new_size": 2 } })).await?;
        let seen = states(api, &id, "in-use").await?;
        is_part_of(&seen, &["extending", "in-use"])?;

        // The state of the virt driver survives a restart of nova-compute, and a detach still works.
        cloud.restart("nova-compute").await?;
        let mapping = format!("{mappings}/{id}");
        api.call(Method::DELETE, Service::Compute, &mapping, COMPUTE, None)
            .await?
            .accepted()?;
        let seen = states(api, &id, "available").await?;
        is_part_of(&seen, &["in-use", "detaching", "available"])?;

        for (volume_type, policy) in [("slow", "never"), ("other", "on-demand")] {
            run_action(
                api,
                &id,
                &json!({ "os-retype": { "new_type": volume_type, "migration_policy": policy } }),
            )
            .await?;
            let seen = states(api, &id, "available").await?;
            is_part_of(&seen, &["retyping", "available"])?;
            let actual_type = show(api, &id).await?["volume_type"].clone();
            ensure!(
                actual_type == volume_type,
                "the type is {actual_type} and not {volume_type}"
            );
        }
        remove(api, &id).await?;
        cloud.stop().await
    });
}

/// No published suite tests successful group snapshots.
#[test]
fn group_snapshot_is_restored() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let driver = Ours::new(Role::Both).start(&lab, &cloud).await?;
        let mut lives = Vec::new();
        for name in ["pvc-one", "pvc-two"] {
            let life = Life::mounted(&lab, driver.channel(), driver.channel(), name, "ext4")?;
            let volume = life.create().await?;
            lives.push((life, volume));
        }
        let ids: Vec<String> = lives.iter().map(|(_, volume)| volume.volume_id.clone()).collect();
        let mut groups = GroupControllerClient::new(driver.channel());
        let request = CreateVolumeGroupSnapshotRequest {
            name: "groupsnapshot-1".to_owned(),
            source_volume_ids: ids.clone(),
            // Cinder does not show specs of group types to members, so the class must name a consistent one.
            parameters: BTreeMap::from([("group-type".to_owned(), "consistent".to_owned())]),
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        let group = wait_for_some("the group snapshot to be ready", STATE_TIMEOUT, async || {
            let answer = groups.create_volume_group_snapshot(request.clone()).await?.into_inner();
            Ok(answer.group_snapshot.filter(|group| group.ready_to_use))
        })
        .await?;
        let mut sources: Vec<&String> = group
            .snapshots
            .iter()
            .map(|snapshot| &snapshot.source_volume_id)
            .collect();
        sources.sort();
        let mut expected: Vec<&String> = ids.iter().collect();
        expected.sort();
        ensure!(sources == expected, "snapshots of {sources:?} and not of {expected:?}");

        let mut controller = ControllerClient::new(driver.channel());
        let member = group.snapshots.first().context("no member")?.snapshot_id.clone();
        let restored = restore(&mut controller, "pvc-restored", &member).await?;
        delete(&mut controller, &restored).await?;

        let snapshot_ids = group
            .snapshots
            .iter()
            .map(|snapshot| snapshot.snapshot_id.clone())
            .collect();
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id,
            snapshot_ids,
            ..DeleteVolumeGroupSnapshotRequest::default()
        };
        groups.delete_volume_group_snapshot(request).await?;
        for (life, volume) in &lives {
            life.delete(volume).await?;
        }
        driver.stop().await?;
        cloud.stop().await
    });
}

#[test]
fn backup_is_restored_as_snapshot() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let driver = Ours::new(Role::Both).start(&lab, &cloud).await?;
        let life = Life::mounted(&lab, driver.channel(), driver.channel(), "pvc-backed-up", "ext4")?;
        let volume = life.create().await?;
        let mut controller = ControllerClient::new(driver.channel());
        let request = CreateSnapshotRequest {
            source_volume_id: volume.volume_id.clone(),
            name: "snapshot-backup".to_owned(),
            parameters: BTreeMap::from([("type".to_owned(), "backup".to_owned())]),
            ..CreateSnapshotRequest::default()
        };
        let snapshot = wait_for_some("the backup to be ready", STATE_TIMEOUT, async || {
            let answer = controller.create_snapshot(request.clone()).await?.into_inner();
            Ok(answer.snapshot.filter(|snapshot| snapshot.ready_to_use))
        })
        .await?;
        // A backup outlives its volume.
        life.delete(&volume).await?;
        let restored = restore(&mut controller, "pvc-restored", &snapshot.snapshot_id).await?;
        delete(&mut controller, &restored).await?;
        let request = DeleteSnapshotRequest {
            snapshot_id: snapshot.snapshot_id,
            ..DeleteSnapshotRequest::default()
        };
        controller.delete_snapshot(request).await?;
        driver.stop().await?;
        cloud.stop().await
    });
}

/// Creates a volume from a snapshot twice; the second response contains the source too.
async fn restore(controller: &mut ControllerClient<Channel>, name: &str, snapshot: &str) -> Result<String> {
    let source = VolumeContentSource {
        r#type: Some(volume_content_source::Type::Snapshot(
            volume_content_source::SnapshotSource {
                snapshot_id: snapshot.to_owned(),
            },
        )),
    };
    let access_mode = AccessMode {
        mode: Mode::SingleNodeWriter.into(),
    };
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange {
            required_bytes: GIB,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![VolumeCapability {
            access_mode: Some(access_mode),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        volume_content_source: Some(source.clone()),
        ..CreateVolumeRequest::default()
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = controller.create_volume(request.clone()).await?.into_inner();
        let volume = answer.volume.context("no volume")?;
        ensure!(
            volume.content_source.as_ref() == Some(&source),
            "made from {:?}",
            volume.content_source
        );
        ids.push(volume.volume_id);
    }
    ids.dedup();
    ensure!(ids.len() == 1, "two volumes of one name: {ids:?}");
    ids.pop().context("no volume")
}

async fn delete(controller: &mut ControllerClient<Channel>, id: &str) -> Result<()> {
    let request = DeleteVolumeRequest {
        volume_id: id.to_owned(),
        ..DeleteVolumeRequest::default()
    };
    controller.delete_volume(request).await?;
    Ok(())
}

async fn show(api: &Api, id: &str) -> Result<Value> {
    let answer = api
        .call(Method::GET, Service::Volume, &format!("/volumes/{id}"), VOLUME, None)
        .await?;
    Ok(answer.accepted()?["volume"].clone())
}

async fn run_action(api: &Api, id: &str, body: &Value) -> Result<()> {
    let path = format!("/volumes/{id}/action");
    let answer = api
        .call(Method::POST, Service::Volume, &path, VOLUME, Some(body))
        .await?;
    answer.accepted().with_context(|| format!("{body}")).map(drop)
}

/// Polls a volume until its status is `last`; returns the sequence of states.
async fn states(api: &Api, id: &str, last: &str) -> Result<Vec<String>> {
    let mut seen: Vec<String> = Vec::new();
    wait_for_some(&format!("the volume to be {last}"), STATE_TIMEOUT, async || {
        let status = show(api, id).await?["status"].as_str().unwrap_or_default().to_owned();
        ensure!(!status.starts_with("error"), "after {seen:?} the volume is {status}");
        if seen.last() != Some(&status) {
            seen.push(status.clone());
        }
        Ok((status == last).then_some(()))
    })
    .await?;
    Ok(seen)
}

/// States may be too short to be observed, but all observed ones must be known and in order.
fn is_part_of(seen: &[String], order: &[&str]) -> Result<()> {
    println!("{seen:?}");
    let mut known = order.iter();
    let in_order = seen.iter().all(|status| known.any(|known| known == status));
    ensure!(in_order, "the states were {seen:?} and not {order:?}");
    Ok(())
}

async fn create(api: &Api, name: &str) -> Result<String> {
    let body = json!({ "volume": { "size": 1, "name": name, "volume_type": "fast" } });
    let made = api
        .call(Method::POST, Service::Volume, "/volumes", VOLUME, Some(&body))
        .await?
        .accepted()?;
    let id = made["volume"]["id"].as_str().context("no id")?.to_owned();
    states(api, &id, "available").await?;
    Ok(id)
}

async fn attach(api: &Api, server: &str, id: &str) -> Result<()> {
    let path = format!("/servers/{server}/os-volume_attachments");
    let body = json!({ "volumeAttachment": { "volumeId": id } });
    api.call(Method::POST, Service::Compute, &path, COMPUTE, Some(&body))
        .await?
        .accepted()?;
    states(api, id, "in-use").await.map(drop)
}

async fn remove(api: &Api, id: &str) -> Result<()> {
    let path = format!("/volumes/{id}");
    api.call(Method::DELETE, Service::Volume, &path, VOLUME, None)
        .await?
        .accepted()?;
    wait_for_some("the volume to go", STATE_TIMEOUT, async || {
        let answer = api.call(Method::GET, Service::Volume, &path, VOLUME, None).await?;
        Ok((answer.status == 404).then_some(()))
    })
    .await
}
