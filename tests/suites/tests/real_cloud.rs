// SPDX-License-Identifier: Apache-2.0
//! Tests of our driver with real Keystone, Cinder and Nova, in addition to csi-sanity.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use csi_proto::csi::v1::{Volume, VolumeContentSource};
use harness::wait_for_some;
use reqwest::Method;
use serde_json::json;
use suites::drivers::{Driver, Ours, Role};
use suites::expect::{expect_equal, expect_field, expect_none};
use suites::gateway::Exchange;
use suites::lab::{Lab, in_lab};
use suites::life::{Life, Source};
use suites::openstack::{Api, Service};
use suites::real_cloud::{RealCloud, with_driver};

/// Maximum number of requests of a volume lifecycle: one login and one search for the name, four changes, and five
/// queries that are repeated until their change is complete.
const REQUESTS_OF_A_LIFE: usize = 11;
/// Number of repetitions of tests that could pass by chance.
const ROUNDS: usize = 5;
const STATE_TIMEOUT: Duration = Duration::from_mins(1);

#[test]
fn volume_lifecycle_stays_within_request_budget() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let controller = Ours::new(Role::Controller).start(&lab, &cloud).await?;
        let node = Ours::new(Role::Node).start(&lab, &cloud).await?;
        let mut counts = Vec::new();
        for name in ["pvc-first", "pvc-second", "pvc-third"] {
            let life = Life::mounted(&lab, controller.channel(), node.channel(), name, "ext4")?;
            cloud.forget_calls();
            let volume = life.create().await?;
            life.bring_up(&volume).await?;
            let devices = lab.shell("ls /dev/disk/by-id").await?;
            ensure!(devices.lines().count() == 1, "the server has the devices {devices:?}");
            life.write_file(&lab).await?;
            life.expect_file(&lab).await?;
            life.take_down(&volume).await?;
            let devices = lab.shell("ls /dev/disk/by-id").await?;
            ensure!(devices.is_empty(), "the server still has the devices {devices:?}");
            life.delete(&volume).await?;
            // DeleteVolume does not respond before the end.
            expect_none("resources in Cinder", &cloud.api().block_storage().await?)?;
            let calls = cloud.calls();
            for call in &calls {
                println!("{name}: {} {} {}", call.method, call.path, call.status);
            }
            counts.push(requests_without_repetitions(&calls));
        }
        println!("requests of three lives, one after the other: {counts:?}");
        let most = counts.iter().max().context("no life")?;
        ensure!(
            *most <= REQUESTS_OF_A_LIFE,
            "a life took more than {REQUESTS_OF_A_LIFE} different requests: {counts:?}"
        );
        node.stop().await?;
        controller.stop().await?;
        cloud.stop().await
    });
}

/// The number of requests. Queries with the same path between two changes count once, because their number depends on
/// how fast the services are.
fn requests_without_repetitions(calls: &[Exchange]) -> usize {
    let parts = calls.split_inclusive(|call| call.method != "GET");
    parts
        .map(|part| {
            let paths: BTreeSet<_> = part.iter().map(|call| (&call.method, &call.path)).collect();
            paths.len()
        })
        .sum()
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
            api.send(Method::DELETE, Service::Compute, &mapping, None).await?;
            // Queries Nova first and then Cinder, so Cinder's response is newer.
            wait_for_some("Nova to forget the attachment", STATE_TIMEOUT, async || {
                let nova = api.call(Method::GET, Service::Compute, &mapping, None).await?;
                if nova.status != 404 {
                    return Ok(None);
                }
                let cinder = api.volume(&volume).await?;
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
        let id = create(api, "states").await?;
        attach(api, server, &id).await?;
        let extend = json!({ "os-extend": { "new_size": 2 } });
        api.volume_action(&id, &extend).await?;
        reach(api, &id, &["extending", "in-use"]).await?;

        // The state of the virt driver survives a restart of nova-compute, and a detach still works.
        cloud.restart("nova-compute").await?;
        let mapping = format!("/servers/{server}/os-volume_attachments/{id}");
        api.send(Method::DELETE, Service::Compute, &mapping, None).await?;
        reach(api, &id, &["in-use", "detaching", "available"]).await?;

        for (volume_type, policy) in [("slow", "never"), ("other", "on-demand")] {
            let retype = json!({ "os-retype": { "new_type": volume_type, "migration_policy": policy } });
            api.volume_action(&id, &retype).await?;
            reach(api, &id, &["retyping", "available"]).await?;
            expect_field(&api.volume(&id).await?, "/volume_type", volume_type)?;
        }
        remove(api, &id).await?;
        cloud.stop().await
    });
}

/// No published suite tests successful group snapshots.
#[test]
fn group_snapshot_is_restored() {
    with_driver(Role::Both, async |lab, _, driver| {
        let mut lives = Vec::new();
        for name in ["pvc-one", "pvc-two"] {
            let life = Life::mounted(lab, driver.channel(), driver.channel(), name, "ext4")?;
            let volume = life.create().await?;
            lives.push((life, volume));
        }
        let volumes: Vec<&Volume> = lives.iter().map(|(_, volume)| volume).collect();
        let (life, _) = lives.first().context("no volume")?;
        // Cinder does not show specs of group types to members, so the class must name a consistent one.
        let parameters = [("group-type", "consistent")];
        let group = life.group_snapshot("groupsnapshot-1", &volumes, &parameters).await?;
        let members = group.snapshots.iter();
        let sources: BTreeSet<&str> = members.map(|member| member.source_volume_id.as_str()).collect();
        let expected: BTreeSet<&str> = volumes.iter().map(|volume| volume.volume_id.as_str()).collect();
        expect_equal("sources of the members", &sources, &expected)?;

        let member = group.snapshots.first().context("no member")?;
        restore(lab, driver, &member.snapshot_id).await?;
        life.delete_group_snapshot(&group).await?;
        for (life, volume) in &lives {
            life.delete(volume).await?;
        }
        Ok(())
    });
}

#[test]
fn backup_is_restored_as_snapshot() {
    with_driver(Role::Both, async |lab, _, driver| {
        let life = Life::mounted(lab, driver.channel(), driver.channel(), "pvc-backed-up", "ext4")?;
        let volume = life.create().await?;
        let parameters = [("type", "backup")];
        let backup = life.snapshot("snapshot-backup", &volume, &parameters).await?;
        // A backup outlives its volume.
        life.delete(&volume).await?;
        restore(lab, driver, &backup.snapshot_id).await?;
        life.delete_snapshot(&backup.snapshot_id).await
    });
}

/// Creates a volume from a snapshot twice, and deletes it; the second response contains the source too.
async fn restore(lab: &Lab, driver: &Driver, snapshot: &str) -> Result<()> {
    let life = Life::mounted(lab, driver.channel(), driver.channel(), "pvc-restored", "ext4")?;
    let source = Source::Snapshot(snapshot.to_owned());
    let expected = Some(VolumeContentSource::from(&source));
    let first = life.create_as(1, Some(&source)).await?;
    let second = life.create_as(1, Some(&source)).await?;
    for volume in [&first, &second] {
        expect_equal("source", &volume.content_source, &expected)?;
    }
    expect_equal("volume of the second call", &second.volume_id, &first.volume_id)?;
    life.delete(&first).await
}

/// Polls a volume until it has the last of these states. States may be too short to be observed, but all observed ones
/// must be known and in order.
async fn reach(api: &Api, id: &str, order: &[&str]) -> Result<()> {
    let last = order.last().context("no state")?;
    let mut seen: Vec<String> = Vec::new();
    wait_for_some(&format!("the volume to be {last}"), STATE_TIMEOUT, async || {
        let volume = api.volume(id).await?;
        let status = volume["status"].as_str().unwrap_or_default();
        ensure!(!status.starts_with("error"), "after {seen:?} the volume is {status}");
        if seen.last().is_none_or(|seen| seen != status) {
            seen.push(status.to_owned());
        }
        Ok((status == *last).then_some(()))
    })
    .await
    .with_context(|| format!("the states were {seen:?}"))?;
    println!("{seen:?}");
    let mut known = order.iter();
    let in_order = seen.iter().all(|status| known.any(|known| known == status));
    ensure!(in_order, "the states were {seen:?} and not {order:?}");
    Ok(())
}

async fn create(api: &Api, name: &str) -> Result<String> {
    let body = json!({ "volume": { "size": 1, "name": name, "volume_type": "fast" } });
    let made = api.send(Method::POST, Service::Volume, "/volumes", Some(&body)).await?;
    let id = made["volume"]["id"].as_str().context("no id")?;
    reach(api, id, &["creating", "available"]).await?;
    Ok(id.to_owned())
}

async fn attach(api: &Api, server: &str, id: &str) -> Result<()> {
    let path = format!("/servers/{server}/os-volume_attachments");
    let body = json!({ "volumeAttachment": { "volumeId": id } });
    api.send(Method::POST, Service::Compute, &path, Some(&body)).await?;
    reach(api, id, &["reserved", "attaching", "in-use"]).await
}

async fn remove(api: &Api, id: &str) -> Result<()> {
    let path = format!("/volumes/{id}");
    api.send(Method::DELETE, Service::Volume, &path, None).await?;
    wait_for_some("the volume to go", STATE_TIMEOUT, async || {
        let answer = api.call(Method::GET, Service::Volume, &path, None).await?;
        Ok((answer.status == 404).then_some(()))
    })
    .await
}
