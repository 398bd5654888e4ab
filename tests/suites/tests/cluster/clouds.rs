// SPDX-License-Identifier: Apache-2.0
//! Changes of credentials while volumes are in use, and volumes that wait for a login.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use suites::cluster::Plugin;
use suites::cluster::credentials::{controllers, failed_calls, rotate};
use suites::expect::{expect_equal, expect_field};

use crate::diagnose::cause;
use crate::servers::{expect_stuck, nothing_stuck, wait_for_stuck};
use crate::world::{DRIVER, USERS, World};

pub(crate) async fn changed_credentials_are_used_without_restart(world: &World) -> Result<()> {
    world.healthy().await?;
    world.run_pod("writer", None).await?;
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
    let driver = ["cindercsidriver", DRIVER];
    let method = "/status/clouds/0/authMethod";
    world.wait_for_field(&driver, method, "Password").await?;
    world.run_pod("second", None).await?;
    world.delete_pod("second").await?;
    expect_equal("pods of the controller", &controllers(world).await?, &pods)?;
    expect_equal("failed calls", &failed_calls(world).await?, &failed)?;
    let driver = format!("CinderCSIDriver/{DRIVER}");
    world.event("SecretRotated", &driver, &[]).await?;
    world.delete_all().await?;
    rotate(world, world.good_secret()).await?;
    world.healthy().await
}

pub(crate) async fn blocked_deletion_reports_refused_credentials(world: &World) -> Result<()> {
    world.healthy().await?;
    let health = json!({"health": {"credentialCheckInterval": "10s", "stuck": {"delete": "5s"}}});
    world.patch_spec(&health).await?;
    world.run_pod("doomed", None).await?;
    world.delete_pod("doomed").await?;
    // Only the deletion must be pending.
    world.detached().await?;
    let simulator = world.cluster.simulator()?;
    let refusal = json!({"effect": {"status": {"status": 401}}});
    simulator.add_fault(&refusal).await?;
    let delete = ["delete", "pvc", "doomed", "-n", USERS, "--wait=false"];
    world.kubectl(&delete).await?;
    let outcome = deletion_is_reported(world).await;
    simulator.clear_faults().await?;
    outcome?;
    world.nothing_left().await?;
    nothing_stuck(world).await?;
    world.change_spec(&json!({"health": null})).await
}

/// Checks the reports about the refused login while it is refused.
async fn deletion_is_reported(world: &World) -> Result<()> {
    let reason = "CredentialsRefused";
    wait_for_stuck(world, reason).await?;
    world.reason("CredentialsValid", "False", "Unauthorized", &[]).await?;
    expect_stuck(world, reason, "Delete", "fix the Secret").await?;
    let plugin = Plugin::install(world)?;
    let report = cause(world, &plugin, "doomed", reason).await?;
    expect_field(&report, "/phase", Value::Null)?;
    let mut stuck = report["stuck"].as_array().into_iter().flatten();
    ensure!(stuck.any(|one| one["operation"] == "Delete"), "{report}");
    Ok(())
}
