// SPDX-License-Identifier: Apache-2.0
//! Classes that the operator manages: the default class, those of the spec, and VolumeAttributesClasses.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, claim};

const MARK: &str = "storageclass.kubernetes.io/is-default-class";

pub(crate) async fn default_class_yields_to_other_default(world: &World) -> Result<()> {
    default_classes(world, &["cinder"]).await?;

    let other = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs", "annotations": {MARK: "true"}},
        "provisioner": "example.org/theirs",
    });
    world.cluster.apply(&other.to_string()).await?;
    default_classes(world, &["theirs"]).await?;
    world.cluster.kubectl(&["delete", "storageclass", "theirs"]).await?;
    default_classes(world, &["cinder"]).await?;

    // An annotation that a user sets on the class has precedence.
    let no = format!("{MARK}=false");
    world
        .cluster
        .kubectl(&["annotate", "storageclass", "cinder", &no, "--overwrite"])
        .await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    world.healthy().await?;
    default_classes(world, &[]).await?;
    world
        .patch_spec(&json!({"logLevel": "Normal", "storageClasses": {"default": {"policy": "Always"}}}))
        .await?;
    default_classes(world, &["cinder"]).await?;
    world
        .patch_spec(&json!({"storageClasses": {"default": {"policy": "IfNoneExists"}}}))
        .await?;
    world.healthy().await
}

pub(crate) async fn recreated_class_keeps_annotations_of_other_clients(world: &World) -> Result<()> {
    let classes = |policy: &str| {
        let item = |name: &str| json!({"name": format!("os-{name}"), "volumeType": name, "reclaimPolicy": policy});
        json!({"storageClasses": {"items": [{"name": "cinder"}, item("fast"), item("slow")]}})
    };
    world.patch_spec(&classes("Delete")).await?;
    wait_for("the classes of the volume types", PATIENCE, async || {
        for name in ["fast", "slow"] {
            let class = world.cluster.get(&["storageclass", &format!("os-{name}")]).await?;
            ensure!(class["parameters"]["type"] == name, "{class}");
        }
        Ok(())
    })
    .await?;

    let words = [
        "annotate",
        "storageclass",
        "os-slow",
        "example.org/note=for the archive",
    ];
    world.cluster.kubectl(&words).await?;
    world.patch_spec(&classes("Retain")).await?;
    wait_for("the class that is made anew", PATIENCE, async || {
        let class = world.cluster.get(&["storageclass", "os-slow"]).await?;
        ensure!(class["reclaimPolicy"] == "Retain", "{}", class["reclaimPolicy"]);
        let note = &class["metadata"]["annotations"]["example.org/note"];
        ensure!(note == "for the archive", "the note is {note}");
        Ok(())
    })
    .await?;

    world.patch_spec(&json!({"storageClasses": {"items": null}})).await?;
    wait_for("the end of these classes", PATIENCE, async || {
        let names = world.cluster.kubectl(&["get", "storageclass", "-o", "name"]).await?;
        ensure!(!names.contains("/os-"), "{names}");
        Ok(())
    })
    .await?;
    world.healthy().await
}

pub(crate) async fn volume_changes_attributes_class(world: &World) -> Result<()> {
    let class = |volume_type: &str| {
        let parameters = json!({"type": volume_type, "metadata.tier": "archive"});
        json!({"volumeAttributesClasses": {"items": [{"name": "archive", "parameters": parameters}]}})
    };
    world.patch_spec(&class("slow")).await?;
    world.healthy().await?;
    world
        .start_pod_of("changes", None, &claim("changes", "Filesystem"))
        .await?;
    world.ready("changes").await?;
    ensure!(volume_type(world).await? == "fast", "the volume does not begin as fast");

    world.change_attributes("changes", "archive").await?;
    ensure!(volume_type(world).await? == "slow", "the cloud has another type");

    world.patch_spec(&class("fast")).await?;
    world
        .condition("Degraded", "True", |found| {
            let message = found["message"].as_str().unwrap_or_default();
            found["reason"] == "PendingRecreate" && message.contains("users/changes")
        })
        .await?;
    world.delete_pod_and_volume("changes").await?;
    wait_for("the class that is made anew", PATIENCE, async || {
        let class = world.cluster.get(&["volumeattributesclass", "archive"]).await?;
        ensure!(class["parameters"]["type"] == "fast", "{}", class["parameters"]);
        Ok(())
    })
    .await?;
    world.patch_spec(&json!({"volumeAttributesClasses": null})).await?;
    world.healthy().await
}

/// Waits until exactly these classes are marked as the default.
async fn default_classes(world: &World, expected: &[&str]) -> Result<()> {
    wait_for("the default class", PATIENCE, async || {
        let classes = world.cluster.get(&["storageclasses"]).await?;
        let items = classes["items"].as_array().context("a list without items")?;
        let is_marked = |class: &&Value| class["metadata"]["annotations"][MARK] == "true";
        let marked: Vec<_> = items
            .iter()
            .filter(is_marked)
            .map(|class| class["metadata"]["name"].as_str().unwrap_or_default())
            .collect();
        ensure!(marked == expected, "marked are {marked:?}, not {expected:?}");
        Ok(())
    })
    .await
}

/// Returns the type of the only volume in the cloud.
async fn volume_type(world: &World) -> Result<String> {
    let state = world.cluster.simulator()?.state().await?;
    let volume_type = &state["volumes"][0]["volume_type"];
    Ok(volume_type
        .as_str()
        .context("there is no volume, or one without a type")?
        .to_owned())
}
