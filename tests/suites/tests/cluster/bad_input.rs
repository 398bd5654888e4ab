// SPDX-License-Identifier: Apache-2.0
//! Errors of an administrator: each results in a condition with reason and message, and does not affect running
//! components.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::world::{DRIVER, NAMESPACE, World};

/// Returns all running components and the driver's inputs, which bad input must not change.
async fn running(world: &World) -> Result<Vec<(String, Value)>> {
    let selector = format!("csi.openstack.org/instance={DRIVER}");
    let mut seen = Vec::new();
    for kind in ["deployments", "daemonsets", "pods", "secrets"] {
        let list = world.cluster.get(&[kind, "-n", NAMESPACE, "-l", &selector]).await?;
        for item in list["items"].as_array().cloned().unwrap_or_default() {
            let what = json!([
                item["metadata"]["uid"],
                item["metadata"]["generation"],
                item["data"],
                item["spec"]["nodeName"],
                item["status"]["containerStatuses"]
                    .as_array()
                    .map(|all| all.iter().map(|c| c["restartCount"].clone()).collect::<Vec<_>>())
            ]);
            seen.push((format!("{kind}/{}", item["metadata"]["name"]), what));
        }
    }
    ensure!(seen.len() >= 5, "only {} objects run: {seen:?}", seen.len());
    Ok(seen)
}

/// Makes the input invalid, waits for the condition, and checks its message and that nothing else changed.
async fn refused(world: &World, reason: &str, words: &[&str], worsen: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    world.healthy().await?;
    let before = running(world).await?;
    worsen().await?;
    let degraded = world
        .condition("Degraded", "True", |condition| condition["reason"] == reason)
        .await?;
    let message = degraded["message"].as_str().unwrap_or_default();
    println!("    Degraded {reason}: {message}");
    for word in words {
        ensure!(message.contains(word), "the message does not name {word}: {message}");
    }
    world.condition("Available", "True", |_| true).await?;
    let after = running(world).await?;
    ensure!(
        before == after,
        "something that ran was disturbed\nbefore {before:?}\nafter  {after:?}"
    );
    Ok(())
}

fn cloud(secret: &str, key: &str, entry: &str) -> Value {
    json!({"clouds": [{"name": "default", "credentialsSecretRef": {"name": secret, "key": key}, "cloudName": entry}]})
}

pub(crate) async fn unknown_cloud_is_reported(world: &World) -> Result<()> {
    refused(
        world,
        "UnknownCloud",
        &["nowhere", "openstack-credentials", "clouds.yaml"],
        async || {
            world
                .patch_spec(&cloud("openstack-credentials", "clouds.yaml", "nowhere"))
                .await
        },
    )
    .await?;
    world.ask_for_driver().await
}

pub(crate) async fn missing_secret_is_reported(world: &World) -> Result<()> {
    refused(world, "SecretMissing", &["absent", NAMESPACE], async || {
        world.patch_spec(&cloud("absent", "clouds.yaml", "openstack")).await
    })
    .await?;
    world.ask_for_driver().await
}

pub(crate) async fn refuses_secret_with_invalid_credentials(world: &World) -> Result<()> {
    let wrong = "not-the-right-one";
    refused(
        world,
        "CredentialsRejected",
        &["openstack-credentials", "401"],
        async || world.secret("clouds.yaml", &world.clouds_yaml(wrong)?).await,
    )
    .await?;
    let object = world.cluster.get(&["cindercsidriver", DRIVER]).await?;
    ensure!(!object.to_string().contains(wrong), "the object tells the secret");
    world.ask_for_driver().await
}

pub(crate) async fn refuses_malformed_cloud_conf(world: &World) -> Result<()> {
    world
        .secret(
            "cloud.conf",
            "[Global]\nauth-url = https://keystone.example.org/v3\npassword 'open\n",
        )
        .await?;
    refused(world, "SecretMalformed", &["cloud.conf", "line 3"], async || {
        world
            .patch_spec(&cloud("openstack-credentials", "cloud.conf", "openstack"))
            .await
    })
    .await?;
    world.ask_for_driver().await
}

pub(crate) async fn foreign_storage_class_is_unchanged_and_reported(world: &World) -> Result<()> {
    let foreign = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "taken"},
        "provisioner": "somebody.else.example.org",
    });
    world.cluster.apply(&foreign.to_string()).await?;
    let before = world.cluster.get(&["storageclass", "taken"]).await?;
    refused(world, "OwnershipConflict", &["StorageClass", "taken"], async || {
        world
            .patch_spec(&json!({"storageClasses": {"items": [{"name": "cinder"}, {"name": "taken"}]}}))
            .await
    })
    .await?;
    let after = world.cluster.get(&["storageclass", "taken"]).await?;
    ensure!(before == after, "the class of somebody else was touched: {after}");
    world.cluster.kubectl(&["delete", "storageclass", "taken"]).await?;
    // The operator creates the class automatically now that the name is free.
    world.condition("Degraded", "False", |_| true).await?;
    world.cluster.get(&["storageclass", "taken"]).await?;
    world.ask_for_driver().await?;
    let missing = world
        .cluster
        .kubectl(&["get", "storageclass", "taken", "--ignore-not-found", "-o", "name"])
        .await?;
    ensure!(missing.is_empty(), "a class that is no longer asked for was not pruned");
    Ok(())
}
