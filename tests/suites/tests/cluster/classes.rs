// SPDX-License-Identifier: Apache-2.0
//! Classes that the operator manages: the default class, those of the spec, and VolumeAttributesClasses.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;
use suites::expect::{expect_equal, expect_field};

use crate::world::{PATIENCE, World};

const MARK: &str = "storageclass.kubernetes.io/is-default-class";

pub(crate) async fn default_class_yields_to_other_default(world: &World) -> Result<()> {
    default_classes(world, &["cinder"]).await?;

    let other = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs", "annotations": {MARK: "true"}},
        "provisioner": "example.org/theirs",
    });
    world.apply(&other).await?;
    default_classes(world, &["theirs"]).await?;
    world.remove(&["storageclass", "theirs"]).await?;
    default_classes(world, &["cinder"]).await?;

    // An annotation that a user sets on the class has precedence.
    let unmarked = format!("{MARK}=false");
    world.annotate(&["storageclass", "cinder"], &unmarked).await?;
    world.change_spec(&json!({"logLevel": "Debug"})).await?;
    default_classes(world, &[]).await?;
    let policy = |policy: &str| json!({"logLevel": "Normal", "storageClasses": {"default": {"policy": policy}}});
    world.patch_spec(&policy("Always")).await?;
    default_classes(world, &["cinder"]).await?;
    world.change_spec(&policy("IfNoneExists")).await
}

pub(crate) async fn recreated_class_keeps_annotations_of_other_clients(world: &World) -> Result<()> {
    let classes = |policy: &str| {
        let item = |name: &str| json!({"name": format!("os-{name}"), "volumeType": name, "reclaimPolicy": policy});
        json!({"storageClasses": {"items": [{"name": "cinder"}, item("fast"), item("slow")]}})
    };
    world.patch_spec(&classes("Delete")).await?;
    for (name, volume_type) in [("os-fast", "fast"), ("os-slow", "slow")] {
        let class = ["storageclass", name];
        world.wait_for_field(&class, "/parameters/type", volume_type).await?;
    }

    let slow = ["storageclass", "os-slow"];
    world.annotate(&slow, "example.org/note=for the archive").await?;
    world.patch_spec(&classes("Retain")).await?;
    wait_for("the recreated class", PATIENCE, async || {
        let class = world.get(&slow).await?;
        expect_field(&class, "/reclaimPolicy", "Retain")?;
        expect_field(&class, "/metadata/annotations/example.org~1note", "for the archive")
    })
    .await?;

    world.patch_spec(&json!({"storageClasses": {"items": null}})).await?;
    wait_for("the end of these classes", PATIENCE, async || {
        let names = world.names(&["storageclass"]).await?;
        ensure!(!names.iter().any(|name| name.contains("/os-")), "{names:?}");
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
    world.change_spec(&class("slow")).await?;
    world.run_pod("changes", None).await?;
    expect_field(&world.cloud_volume().await?, "/volume_type", "fast")?;

    world.change_attributes("changes", "archive").await?;
    expect_field(&world.cloud_volume().await?, "/volume_type", "slow")?;

    world.patch_spec(&class("fast")).await?;
    let words = ["users/changes"];
    world.reason("Degraded", "True", "PendingRecreate", &words).await?;
    world.delete_pod_and_volume("changes").await?;
    let archive = ["volumeattributesclass", "archive"];
    world.wait_for_field(&archive, "/parameters/type", "fast").await?;
    world.change_spec(&json!({"volumeAttributesClasses": null})).await
}

/// Waits until exactly these classes are marked as the default.
async fn default_classes(world: &World, expected: &[&str]) -> Result<()> {
    wait_for("the default class", PATIENCE, async || {
        let mut classes = world.list(&["storageclasses"]).await?;
        classes.retain(|class| class["metadata"]["annotations"][MARK] == "true");
        let names = classes.iter().filter_map(|class| class["metadata"]["name"].as_str());
        expect_equal("marked classes", &names.collect::<Vec<_>>(), &expected)
    })
    .await
}
