// SPDX-License-Identifier: Apache-2.0
//! Errors of an administrator: each results in a condition with reason and message, and does not affect running
//! components.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use suites::cluster::{NAMESPACE, OPERANDS};
use suites::expect::expect_equal;

use crate::world::World;

/// Returns all running components and the driver's inputs, which bad input must not change.
async fn running(world: &World) -> Result<Vec<Value>> {
    let mut seen = world.operand_pods("").await?;
    for item in world
        .list(&["deployments,daemonsets,secrets", "-n", NAMESPACE, "-l", OPERANDS])
        .await?
    {
        seen.push(json!([
            item["metadata"]["uid"],
            item["metadata"]["generation"],
            item["data"]
        ]));
    }
    ensure!(seen.len() >= 5, "only {} objects run: {seen:?}", seen.len());
    Ok(seen)
}

/// Makes the input invalid, waits for the condition, and checks its message and that nothing else changed.
async fn refused(world: &World, reason: &str, words: &[&str], worsen: impl Future<Output = Result<()>>) -> Result<()> {
    world.healthy().await?;
    let before = running(world).await?;
    worsen.await?;
    let degraded = world.reason("Degraded", "True", reason, words).await?;
    println!("    Degraded {reason}: {}", degraded["message"]);
    world.condition("Available", "True").await?;
    expect_equal("running objects", &running(world).await?, &before)
}

/// Like [`refused`], for another cloud in the spec.
async fn cloud_refused(world: &World, reason: &str, words: &[&str], cloud: [&str; 3]) -> Result<()> {
    let [secret, key, entry] = cloud;
    let reference = json!({"name": secret, "key": key});
    let cloud = json!({"name": "default", "credentialsSecretRef": reference, "cloudName": entry});
    let spec = json!({"clouds": [cloud]});
    refused(world, reason, words, world.patch_spec(&spec)).await?;
    world.ask_for_driver().await
}

pub(crate) async fn unknown_cloud_is_reported(world: &World) -> Result<()> {
    let words = ["nowhere", "openstack-credentials", "clouds.yaml"];
    let cloud = ["openstack-credentials", "clouds.yaml", "nowhere"];
    cloud_refused(world, "UnknownCloud", &words, cloud).await
}

pub(crate) async fn missing_secret_is_reported(world: &World) -> Result<()> {
    let cloud = ["absent", "clouds.yaml", "openstack"];
    cloud_refused(world, "SecretMissing", &["absent", NAMESPACE], cloud).await
}

pub(crate) async fn refuses_secret_with_invalid_credentials(world: &World) -> Result<()> {
    let wrong = "not-the-right-one";
    let secret = world.clouds_yaml(wrong)?;
    let words = ["openstack-credentials", "401"];
    let change = world.secret("clouds.yaml", &secret);
    refused(world, "CredentialsRejected", &words, change).await?;
    let object = world.driver().await?;
    ensure!(!object.to_string().contains(wrong), "the object tells the secret");
    world.ask_for_driver().await
}

pub(crate) async fn refuses_malformed_cloud_conf(world: &World) -> Result<()> {
    let malformed = "[Global]\nauth-url = https://keystone.example.org/v3\npassword 'open\n";
    world.secret("cloud.conf", malformed).await?;
    let cloud = ["openstack-credentials", "cloud.conf", "openstack"];
    cloud_refused(world, "SecretMalformed", &["cloud.conf", "line 3"], cloud).await
}

pub(crate) async fn foreign_storage_class_is_unchanged_and_reported(world: &World) -> Result<()> {
    let taken = ["storageclass", "taken"];
    let foreign = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "taken"},
        "provisioner": "somebody.else.example.org",
    });
    world.apply(&foreign).await?;
    let before = world.get(&taken).await?;
    let classes = json!({"storageClasses": {"items": [{"name": "cinder"}, {"name": "taken"}]}});
    let words = ["StorageClass", "taken"];
    refused(world, "OwnershipConflict", &words, world.patch_spec(&classes)).await?;
    expect_equal("class of somebody else", &world.get(&taken).await?, &before)?;
    world.remove(&taken).await?;
    // The operator creates the class automatically now that the name is free.
    world.condition("Degraded", "False").await?;
    world.get(&taken).await?;
    world.ask_for_driver().await?;
    // An undesired class is pruned.
    world
        .expect_no_object(&["storageclass", "taken", "--ignore-not-found"])
        .await
}
