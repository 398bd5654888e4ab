// SPDX-License-Identifier: Apache-2.0
//! Scenarios of replaced credentials, and of a Keystone with a certificate of a private CA.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;
use suites::cluster::credentials::{ROTATION, controllers, failed_calls, rotate};
use suites::cluster::{Login, NAMESPACE, OpenStack, SECRET, SECURE_KEYSTONE, World};
use suites::expect::expect_equal;
use suites::keystone::Keystone;

const AUTHORITY: &str = "keystone-authority";

pub(crate) async fn replaced_credential_survives_revocation_of_old_one(world: &World) -> Result<()> {
    let member = Keystone::login(world.openstack()?.member_conf()).await?;
    world.run_pod("writer", None).await?;
    let (pods, failed) = (controllers(world).await?, failed_calls(world).await?);
    let first = credential(world, &member, "first").await?;
    take_over(world, &first).await?;
    let second = credential(world, &member, "second").await?;
    take_over(world, &second).await?;
    member.revoke(&first.id).await?;

    world.run_pod("later", None).await?;
    expect_equal("pods of the controller", &controllers(world).await?, &pods)?;
    expect_equal("failed calls", &failed_calls(world).await?, &failed)?;
    world.delete_all().await?;
    take_over(world, &world.login()?).await?;
    member.revoke(&second.id).await?;
    world.healthy().await
}

/// Writes a Secret and waits until the driver uses it.
async fn take_over(world: &World, login: &Login) -> Result<()> {
    rotate(world, world.secret("clouds.yaml", &login.clouds_yaml())).await
}

pub(crate) async fn keystone_with_private_ca_is_trusted(world: &World) -> Result<()> {
    let openstack = world.openstack()?;
    let login = Login {
        auth_url: openstack.secure_auth_url(),
        ..world.login()?
    };
    // No pod has the CA yet; the driver continues with its old configuration.
    world.secret("clouds.yaml", &login.clouds_yaml()).await?;
    let kind = "CredentialsValid";
    let words = ["caBundleRef"];
    world.reason(kind, "Unknown", "NotChecked", &words).await?;
    world.condition("Available", "True").await?;

    let authority = openstack.authority();
    world.write_config_map(AUTHORITY, "ca.crt", authority).await?;
    let reference = json!({"kind": "ConfigMap", "name": AUTHORITY, "key": "ca.crt"});
    let secret = json!({"name": SECRET, "key": "clouds.yaml"});
    let entry =
        json!({"name": "default", "credentialsSecretRef": secret, "cloudName": "openstack", "caBundleRef": reference});
    world.patch_spec(&json!({ "clouds": [entry] })).await?;
    // This Keystone's catalog has http URLs for Cinder and Nova.
    let words = ["allow_http_endpoints"];
    world.reason(kind, "False", "EndpointMissing", &words).await?;
    let content = login.clouds_yaml_with(&json!({ "allow_http_endpoints": true }));
    world.secret("clouds.yaml", &content).await?;
    world.reason(kind, "True", "TLSVerificationOff", &[]).await?;
    wait_for("a login of the driver with TLS", ROTATION, async || {
        ensure!(logins(openstack) > 0, "the driver has not logged in with TLS");
        Ok(())
    })
    .await?;
    world.healthy().await?;
    world.run_pod("trusting", None).await?;
    world.delete_pod_and_volume("trusting").await?;

    rotate(world, world.ask_for_driver()).await?;
    world.remove(&["configmap", AUTHORITY, "-n", NAMESPACE]).await
}

/// Returns the number of the driver's logins with TLS.
fn logins(openstack: &OpenStack) -> usize {
    let calls = openstack.calls();
    let is_login = |call: &&suites::gateway::Exchange| {
        call.port == SECURE_KEYSTONE && call.status == 201 && !call.user_agent.contains("operator")
    };
    calls.iter().filter(is_login).count()
}

/// Creates an application credential of the project's member.
async fn credential(world: &World, member: &Keystone, name: &str) -> Result<Login> {
    let name = format!("e2e-{name}-{}", std::process::id());
    let (id, secret) = member.application_credential(&name, None).await?;
    Ok(Login {
        id,
        secret,
        ..world.login()?
    })
}
