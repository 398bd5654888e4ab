// SPDX-License-Identifier: Apache-2.0
//! Temporary outages of OpenStack services, with a volume in use, and with one that is created and one that is deleted
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use harness::wait_for;
use serde_json::Value;
use suites::cluster::{PATIENCE, USERS, World};

/// Number of refused requests after which an outage has affected the driver sufficiently.
const REFUSALS: usize = 5;
/// States that a volume does not leave during an outage.
const UNDER_WAY: [&str; 5] = ["creating", "attaching", "detaching", "deleting", "reserved"];
/// Longer than any of these states lasts without an outage.
const LONG: Duration = Duration::from_secs(6);

pub(crate) async fn recovers_from_keystone_outage(world: &World) -> Result<()> {
    comes_back(world, "keystone").await
}

pub(crate) async fn recovers_from_cinder_api_outage(world: &World) -> Result<()> {
    comes_back(world, "cinder-api").await
}

pub(crate) async fn recovers_from_cinder_volume_outage(world: &World) -> Result<()> {
    comes_back(world, "cinder-volume").await
}

pub(crate) async fn recovers_from_nova_api_outage(world: &World) -> Result<()> {
    comes_back(world, "nova-api").await
}

pub(crate) async fn recovers_from_nova_compute_outage(world: &World) -> Result<()> {
    comes_back(world, "nova-compute").await
}

pub(crate) async fn recovers_from_rabbitmq_outage(world: &World) -> Result<()> {
    comes_back(world, "rabbitmq").await
}

pub(crate) async fn recovers_from_database_outage(world: &World) -> Result<()> {
    comes_back(world, "mariadb").await
}

async fn comes_back(world: &World, service: &str) -> Result<()> {
    let openstack = world.openstack()?;
    for name in ["steady", "goes"] {
        world.start_pod(name, None).await?;
    }
    for name in ["steady", "goes"] {
        world.ready(name).await?;
    }
    let before = world.written_lines("steady").await?;
    openstack.stop_service(service).await?;
    let requests = openstack.calls().len();
    if service == "keystone" {
        // A token outlives the suite, so only a process that starts during the outage must log in.
        world.kill_controllers().await?;
    }
    world.start_pod("comes", None).await?;
    for kind in ["pod", "pvc"] {
        let words = ["delete", kind, "goes", "-n", USERS, "--wait=false"];
        world.kubectl(&words).await?;
    }
    let missed = missed(world, requests).await;
    openstack.start_service(service).await?;
    println!("    without {service}: {}", missed?);

    world.ready("comes").await?;
    // The pod could write to its volume all the time.
    let after = world.written_lines("steady").await?;
    ensure!(after > before, "{before} lines before, {after} after");
    world.expect_no_restart("steady").await?;
    world.delete_all().await?;
    world.healthy().await
}

/// Waits until the outage has affected the driver, by refused requests or a waiting volume, and describes the effect.
async fn missed(world: &World, asked: usize) -> Result<String> {
    let openstack = world.openstack()?;
    let mut waiting = BTreeMap::new();
    wait_for("the service to be missed", PATIENCE, async || {
        let calls = openstack.calls();
        let refused = calls.iter().skip(asked).filter(|call| call.status >= 500).count();
        if refused >= REFUSALS {
            return Ok(format!("{refused} requests were refused"));
        }
        // During an outage of Cinder, its volumes cannot be listed.
        let volumes = world.cloud_things("volumes").await.unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let now = volumes
            .iter()
            .map(|volume| (text(&volume["name"]), text(&volume["status"])));
        let now: BTreeSet<_> = now.filter(|(_, status)| UNDER_WAY.contains(&status.as_str())).collect();
        waiting.retain(|volume, _| now.contains(volume));
        for volume in now {
            let since: &Instant = waiting.entry(volume.clone()).or_insert_with(Instant::now);
            if since.elapsed() > LONG {
                return Ok(format!("a volume is {} and stays so", volume.1));
            }
        }
        bail!("{refused} requests were refused, these volumes wait: {waiting:?}")
    })
    .await
}
