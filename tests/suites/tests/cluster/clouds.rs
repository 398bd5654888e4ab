// SPDX-License-Identifier: Apache-2.0
//! Changes of credentials while volumes are in use, and volumes that wait for a login.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;
use suites::cluster::credentials::{cloud, controllers, failed_calls, rotate};

use crate::diagnose::cause;
use crate::plugin::Plugin;
use crate::world::{DRIVER, PATIENCE, USERS, World};

pub(crate) async fn changed_credentials_are_used_without_restart(world: &World) -> Result<()> {
    world.healthy().await?;
    world.start_pod("writer", None).await?;
    world.ready("writer").await?;
    let (pods, failed) = (controllers(world).await?, failed_calls(world).await?);
    // Other credentials for the same project.
    let access = world.cluster.simulator()?.access();
    let clouds = json!({"clouds": {"openstack": {
        "region_name": access.region,
        "auth": {
            "auth_url": access.auth_url,
            "username": access.username,
            "password": access.password,
            "user_domain_name": access.domain_name,
            "project_name": access.project_name,
            "project_domain_name": access.domain_name,
        },
    }}});
    rotate(world, world.secret("clouds.yaml", &clouds.to_string())).await?;
    cloud(world, PATIENCE, |cloud| cloud["authMethod"] == "Password").await?;
    world.start_pod("second", None).await?;
    world.ready("second").await?;
    world.delete_pod("second").await?;
    ensure!(
        controllers(world).await? == pods,
        "a pod of the controller was restarted"
    );
    ensure!(failed_calls(world).await? == failed, "a call failed");
    let driver = format!("CinderCSIDriver/{DRIVER}");
    world.event("SecretRotated", &driver, &[]).await?;
    world.delete_pod("writer").await?;
    for claim in ["second", "writer"] {
        world.delete_claim(claim).await?;
    }
    world.nothing_left().await?;
    rotate(world, world.good_secret()).await?;
    world.healthy().await
}

pub(crate) async fn blocked_deletion_reports_refused_credentials(world: &World) -> Result<()> {
    world.healthy().await?;
    let health = json!({"health": {"credentialCheckInterval": "10s", "stuck": {"delete": "5s"}}});
    world.patch_spec(&health).await?;
    world.start_pod("doomed", None).await?;
    world.ready("doomed").await?;
    world.delete_pod("doomed").await?;
    // Only the deletion must be pending.
    world.detached().await?;
    let simulator = world.cluster.simulator()?;
    simulator
        .add_fault(&json!({"effect": {"status": {"status": 401}}}))
        .await?;
    world
        .cluster
        .kubectl(&["delete", "pvc", "doomed", "-n", USERS, "--wait=false"])
        .await?;
    let stuck = wait_for("the cause in the status", PATIENCE, async || {
        let stuck = world.driver().await?["status"]["volumes"]["stuck"].clone();
        ensure!(stuck.to_string().contains("CredentialsRefused"), "{stuck}");
        Ok(())
    })
    .await;
    let valid = world
        .condition("CredentialsValid", "False", |condition| {
            condition["reason"] == "Unauthorized"
        })
        .await;
    let object = world.driver().await?;
    let plugin = Plugin::install(world)?;
    let report = cause(world, &plugin, "doomed", "CredentialsRefused").await;
    simulator.clear_faults().await?;
    stuck?;
    let report = report?;
    ensure!(
        report["phase"].is_null()
            && report["stuck"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["operation"] == "Delete")),
        "{report}"
    );
    valid?;
    let stuck = &object["status"]["volumes"]["stuck"][0];
    ensure!(
        stuck["reason"] == "CredentialsRefused" && stuck["operation"] == "Delete",
        "{stuck}"
    );
    ensure!(
        stuck["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains("fix the Secret")),
        "{stuck}"
    );
    world.nothing_left().await?;
    wait_for("the end of the trouble", PATIENCE, async || {
        let object = world.driver().await?;
        ensure!(object["status"]["volumes"].is_null(), "{}", object["status"]["volumes"]);
        Ok(())
    })
    .await?;
    world.patch_spec(&json!({"health": null})).await?;
    world.healthy().await
}
