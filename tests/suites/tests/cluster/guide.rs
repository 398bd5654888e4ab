//! The examples of the user guide, applied as they stand there, in their order.

use anyhow::{Context as _, Result, bail, ensure};
use harness::{wait_for, workspace_root};
use serde_json::{Value, json};

use crate::world::{PATIENCE, USERS, WITHIN, World};

/// One example of the page: its objects, and the name that its first line gives.
struct Example {
    name: String,
    objects: Vec<Value>,
}

pub(crate) async fn every_example_of_the_user_guide_works_as_it_stands_there(world: &World) -> Result<()> {
    let volume = volume_of_nobody(world).await?;
    let page = std::fs::read_to_string(workspace_root().join("docs/guide.md")).context("cannot read the guide")?;
    let page = page.replace("<namespace>", USERS).replace("<volume id>", &volume);
    let examples = examples(&page)?;
    ensure!(!examples.is_empty(), "the guide has no examples");
    for example in &examples {
        let outcome = async {
            world.cluster.apply(&example.manifests()).await?;
            for object in &example.objects {
                works(world, object).await?;
            }
            Ok(())
        };
        let outcome: Result<()> = outcome.await;
        outcome.with_context(|| format!("example {}", example.name))?;
        println!("    {}", example.name);
    }
    for copy in ["restored", "clone"] {
        let greeting = world.sh(copy, "cat /data/greeting").await?;
        ensure!(greeting.trim() == "hello", "pod {copy} reads {greeting:?}");
    }
    let class = world.cluster.get(&["storageclass", "cinder-fast"]).await?;
    ensure!(
        class["parameters"]["type"] == "fast",
        "the class of type fast is {class}"
    );
    let kept = world.sh("imported", "cat /data/log").await?;
    ensure!(!kept.is_empty(), "the imported volume is empty");

    // Copies before what they were made of: a clone may need its source.
    for kind in ["daemonsets,pods", "volumegroupsnapshots", "volumesnapshots", "pvc"] {
        let words = ["delete", kind, "--all", "-n", USERS, WITHIN];
        world.cluster.kubectl_within(PATIENCE, &words).await?;
    }
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}).to_string();
    world
        .cluster
        .kubectl(&["patch", "pv", "imported", "--type=merge", "-p", &patch])
        .await?;
    for (kind, name) in [
        ("storageclass", "shared"),
        ("storageclass", "here"),
        ("volumegroupsnapshotclass", "together"),
        ("volumeattributesclass", "archive"),
    ] {
        world.cluster.kubectl(&["delete", kind, name]).await?;
    }
    world.nothing_left().await?;
    world.apply_driver().await?;
    world.healthy().await
}

impl Example {
    /// The objects for kubectl, those of a namespace in the users' one.
    fn manifests(&self) -> String {
        let in_namespace = |object: &Value| {
            let mut object = object.clone();
            let kind = object["kind"].as_str().unwrap_or_default();
            if !kind.ends_with("Class") && !["CinderCSIDriver", "PersistentVolume"].contains(&kind) {
                object["metadata"]["namespace"] = json!(USERS);
            }
            object.to_string()
        };
        let manifests: Vec<_> = self.objects.iter().map(in_namespace).collect();
        manifests.join("\n---\n")
    }
}

/// A volume with a file on it that Kubernetes has forgotten.
async fn volume_of_nobody(world: &World) -> Result<String> {
    world.start_pod("old", None).await?;
    world.ready("old").await?;
    let claim = world.cluster.get(&["pvc", "old", "-n", USERS]).await?;
    let name = claim["spec"]["volumeName"].as_str().context("an unbound claim")?;
    let volume = world.cluster.get(&["pv", name]).await?;
    let id = volume["spec"]["csi"]["volumeHandle"].as_str().context("no handle")?;
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}).to_string();
    world
        .cluster
        .kubectl(&["patch", "pv", name, "--type=merge", "-p", &patch])
        .await?;
    world.delete_pod("old").await?;
    world.delete_claim("old").await?;
    world
        .cluster
        .kubectl_within(PATIENCE, &["delete", "pv", name, WITHIN])
        .await?;
    Ok(id.to_owned())
}

/// The YAML blocks of a page that begin with a comment `# NAME.yaml`.
fn examples(page: &str) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    for block in page.split("```yaml\n").skip(1) {
        let (block, _) = block.split_once("```").context("a block without an end")?;
        let (name, _) = block.split_once('\n').context("an empty block")?;
        let name = name.strip_prefix("# ").and_then(|name| name.strip_suffix(".yaml"));
        let name = name.with_context(|| format!("a block does not begin with its name: {block}"))?;
        let objects = serde_yaml::Deserializer::from_str(block)
            .map(|document| serde::Deserialize::deserialize(document).with_context(|| format!("example {name}")))
            .collect::<Result<Vec<Value>>>()?;
        examples.push(Example {
            name: name.to_owned(),
            objects,
        });
    }
    Ok(examples)
}

/// Waits until an object of an example is as its reader expects it.
async fn works(world: &World, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("an object without a kind")?;
    let name = object["metadata"]["name"]
        .as_str()
        .context("an object without a name")?;
    match kind {
        "CinderCSIDriver" => return world.healthy().await,
        "Pod" => return world.ready(name).await,
        "StorageClass" | "VolumeGroupSnapshotClass" | "VolumeAttributesClass" => return Ok(()),
        _ => {}
    }
    wait_for(&format!("{kind} {name}"), PATIENCE, async || {
        let status = world.cluster.get(&[kind, name, "-n", USERS]).await?["status"].clone();
        let spec = &object["spec"];
        let is_good = match kind {
            "PersistentVolume" => status["phase"] == "Bound",
            "PersistentVolumeClaim" => {
                status["phase"] == "Bound"
                    && status["capacity"] == spec["resources"]["requests"]
                    && (spec["volumeAttributesClassName"].is_null()
                        || status["currentVolumeAttributesClassName"] == spec["volumeAttributesClassName"])
            }
            "DaemonSet" => status["numberReady"] == world.cluster.nodes().len(),
            "VolumeSnapshot" | "VolumeGroupSnapshot" => status["readyToUse"] == true,
            _ => bail!("the test does not know what to expect of it"),
        };
        ensure!(is_good, "{status}");
        Ok(())
    })
    .await
}
