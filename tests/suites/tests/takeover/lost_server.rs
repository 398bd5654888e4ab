// SPDX-License-Identifier: Apache-2.0
//! A volume with a Cinder attachment to a deleted server. cinder-csi-plugin does not check this when it detaches.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use reqwest::Method;
use serde_json::{Value, json};
use suites::cluster::PATIENCE;
use suites::expect::expect_field;

use crate::site::{CLASS, Site};

/// Name of the claim and its pod.
const CLAIM: &str = "of-a-lost-server";
/// Id of the server.
const SERVER: &str = "1057a11e-0000-4000-8000-000000000001";

/// Creates the volume with cinder-csi-plugin, and the stale attachment.
pub(crate) async fn leave_record(site: &Site) -> Result<()> {
    let world = &site.world;
    world.run_pod_of_class(CLAIM, CLASS).await?;
    world.delete_pod(CLAIM).await?;
    let mut volume = world.volume(CLAIM).await?;
    let volume = volume["spec"]["csi"]["volumeHandle"].take();
    let volume = volume.as_str().context("a volume without a handle")?;
    await_status(site, volume, "available").await?;
    let simulator = site.cluster().simulator()?;
    let mut server = simulator.state().await?["servers"][0].take();
    ensure!(server.is_object(), "the cloud has no server");
    for (key, value) in [("id", json!(SERVER)), ("name", json!("lost")), ("by_id", Value::Null)] {
        server[key] = value;
    }
    let path = format!("servers/{SERVER}");
    simulator.admin(Method::PUT, &path, Some(server)).await?;
    attach(site, volume).await?;
    await_status(site, volume, "in-use").await?;
    let path = format!("{path}?leave_attachments=true");
    simulator.admin(Method::DELETE, &path, None).await?;
    await_status(site, volume, "in-use").await
}

/// Uses the volume with this driver, and deletes it.
pub(crate) async fn use_volume(site: &Site) -> Result<()> {
    site.world.run_pod_of_class(CLAIM, CLASS).await?;
    site.world.delete_pod_and_claim(CLAIM).await
}

async fn await_status(site: &Site, volume: &str, status: &str) -> Result<()> {
    wait_for(&format!("volume {volume} to be {status}"), PATIENCE, async || {
        let volumes = site.world.cloud_things("volumes").await?;
        let entry = volumes.iter().find(|entry| entry["id"] == volume);
        let entry = entry.with_context(|| format!("the cloud has no volume {volume}"))?;
        expect_field(entry, "/status", status)
    })
    .await
}

/// Attaches the volume to the server, as a user of Nova.
async fn attach(site: &Site, volume: &str) -> Result<()> {
    let simulator = site.cluster().simulator()?;
    let access = simulator.access();
    let path = access.auth_url.splitn(4, '/').nth(3);
    let path = path.context("an auth-url without a path")?;
    let domain = json!({ "name": access.domain_name });
    let user = json!({ "name": access.username, "password": access.password, "domain": domain });
    let auth = json!({ "auth": {
        "identity": { "methods": ["password"], "password": { "user": user } },
        "scope": { "project": { "name": access.project_name, "domain": domain } },
    }});
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .context("no HTTP client")?;
    let base = simulator.url();
    let login = client.post(format!("{base}/{path}/auth/tokens")).json(&auth);
    let login = login.send().await.context("Keystone does not answer")?;
    let token = login.headers().get("X-Subject-Token");
    let token = token.context("an answer without a token")?;
    let url = format!("{base}/compute/v2.1/servers/{SERVER}/os-volume_attachments");
    let body = json!({ "volumeAttachment": { "volumeId": volume } });
    let answer = client.post(url).header("X-Auth-Token", token).json(&body).send().await;
    let answer = answer.context("Nova does not answer")?;
    let status = answer.status();
    ensure!(
        status.is_success(),
        "Nova answers {status}: {}",
        answer.text().await.unwrap_or_default()
    );
    Ok(())
}
