// SPDX-License-Identifier: Apache-2.0
//! Applies the files of `config/samples`, which the documentation includes, without changes.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Image, wait_for, workspace_root};
use serde_json::{Value, json};

use crate::world::{PATIENCE, USERS, WITHIN, World};

/// Files of this scenario, in the order of their dependencies.
const EXAMPLES: &[&str] = &[
    "driver-with-snapshots",
    "first",
    "xfs",
    "raw-block",
    "ephemeral",
    "read-write-once-pod",
    "multi-attach",
    "statefulset",
    "expansion",
    "snapshot",
    "snapshot-restore",
    "backup",
    "clone",
    "snapshot-schedule",
    "database-group-snapshot",
    "volume-attributes",
    "topology",
    "static-provisioning",
    "encrypted",
    "volume-types",
    "velero",
];
/// Files that the demo and the scenario with two clouds apply.
const ELSEWHERE: &[&str] = &["cindercsidriver", "openstack-credentials", "pod", "several-clouds"];
/// Image of the CronJob.
const KUBECTL_IMAGE: &str = "registry.k8s.io/kubectl:v1.36.3";

/// Objects of one file.
struct Example {
    objects: Vec<Value>,
}

pub(crate) async fn documented_examples_work(world: &World) -> Result<()> {
    every_file_is_applied()?;
    world.cluster.import(&kubectl_image(world)?).await?;
    let volume = volume_of_nobody(world).await?;
    for &name in EXAMPLES {
        let example = Example::read(name, &[("<namespace>", USERS), ("<volume id>", &volume)])?;
        let outcome = async {
            world.cluster.apply(&example.manifests()).await?;
            for object in &example.objects {
                works(world, object).await?;
            }
            Ok(())
        };
        let outcome: Result<()> = outcome.await;
        outcome.with_context(|| format!("example {name}"))?;
        println!("    {name}");
    }
    for copy in ["restored", "clone"] {
        let greeting = world.sh(copy, "cat /data/greeting").await?;
        ensure!(greeting.trim() == "hello", "pod {copy} reads {greeting:?}");
    }
    let content = world.sh("imported", "cat /data/log").await?;
    ensure!(!content.is_empty(), "the imported volume is empty");
    let class = world.cluster.get(&["volumesnapshotclass", "cinder-velero"]).await?;
    ensure!(
        class["metadata"]["labels"]["velero.io/csi-volumesnapshot-class"] == "true",
        "Velero does not find the class {class}"
    );

    // Copies are deleted before their sources, because a clone may depend on its source.
    for kind in [
        "statefulsets,daemonsets,cronjobs,jobs,pods",
        "volumegroupsnapshots",
        "volumesnapshots",
        "pvc",
    ] {
        let words = ["delete", kind, "--all", "-n", USERS, WITHIN];
        world.cluster.kubectl_within(PATIENCE, &words).await?;
    }
    for name in ["configmap", "serviceaccount", "role", "rolebinding"] {
        let object = format!("{name}/nightly-snapshot");
        world.cluster.kubectl(&["delete", &object, "-n", USERS]).await?;
    }
    world
        .cluster
        .kubectl(&["delete", "service", "web", "-n", USERS])
        .await?;
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}).to_string();
    world
        .cluster
        .kubectl(&["patch", "pv", "imported", "--type=merge", "-p", &patch])
        .await?;
    for (kind, name) in [
        ("storageclass", "shared"),
        ("storageclass", "here"),
        ("storageclass", "encrypted"),
        ("volumesnapshotclass", "cinder-velero"),
        ("volumegroupsnapshotclass", "consistent"),
        ("volumeattributesclass", "archive"),
    ] {
        world.cluster.kubectl(&["delete", kind, name]).await?;
    }
    world.nothing_left().await?;
    world.apply_driver().await?;
    world.healthy().await
}

/// Fails if a file of the folder is in neither list, or a list contains a missing file.
fn every_file_is_applied() -> Result<()> {
    let folder = workspace_root().join("config/samples");
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(&folder).context("cannot list config/samples")? {
        let path = entry.context("cannot list config/samples")?.path();
        files.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    }
    let known: BTreeSet<String> = EXAMPLES.iter().chain(ELSEWHERE).map(|&name| name.to_owned()).collect();
    ensure!(
        files == known,
        "config/samples has {files:?}, and the lists here {known:?}"
    );
    Ok(())
}

/// Builds the image of the CronJob from the cluster's kubectl.
fn kubectl_image(world: &World) -> Result<Image> {
    let kubectl = world.cluster.tools().path("kubectl")?;
    let image = Image::new(KUBECTL_IMAGE).file(kubectl, "/bin/kubectl");
    Ok(image.entrypoint("/bin/kubectl"))
}

impl Example {
    /// Reads a file of `config/samples`, and replaces the placeholders in angle brackets.
    fn read(name: &str, names: &[(&str, &str)]) -> Result<Self> {
        let path = workspace_root()
            .join("config/samples")
            .join(name)
            .with_extension("yaml");
        let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for (placeholder, value) in names {
            text = text.replace(placeholder, value);
        }
        let objects = serde_yaml::Deserializer::from_str(&text)
            .map(|document| serde::Deserialize::deserialize(document).with_context(|| format!("example {name}")))
            .collect::<Result<Vec<Value>>>()?;
        ensure!(!objects.is_empty(), "example {name} has no objects");
        Ok(Self { objects })
    }

    /// Returns the objects as manifests, with namespaced ones in the users' namespace.
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

/// Creates a volume with a file that has no object in Kubernetes.
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

/// Runs the job of a CronJob three times: the two newest snapshots remain.
async fn nights(world: &World, name: &str) -> Result<()> {
    let mut snapshots = Vec::new();
    for night in ["night-1", "night-2", "night-3"] {
        let from = format!("--from=cronjob/{name}");
        let create = ["create", "job", night, &from, "-n", USERS];
        world.cluster.kubectl(&create).await?;
        let job = format!("job/{night}");
        let words = ["wait", &job, "--for=condition=complete", "-n", USERS, WITHIN];
        world.cluster.kubectl_within(PATIENCE, &words).await?;
        let latest = [
            "get",
            "volumesnapshots",
            "-n",
            USERS,
            "-l",
            "nightly=latest",
            "-o",
            "name",
        ];
        snapshots.push(world.cluster.kubectl(&latest).await?);
    }
    let [_, second, third] = &snapshots[..] else {
        bail!("three nights make {snapshots:?}");
    };
    let previous = [
        "get",
        "volumesnapshots",
        "-n",
        USERS,
        "-l",
        "nightly=previous",
        "-o",
        "name",
    ];
    ensure!(world.cluster.kubectl(&previous).await? == *second, "{snapshots:?}");
    let all = ["get", "volumesnapshots", "-n", USERS, "-l", "nightly", "-o", "name"];
    let all = world.cluster.kubectl(&all).await?;
    ensure!(all.lines().count() == 2 && all.contains(third.trim()), "left: {all}");
    Ok(())
}

/// Waits until an object of an example is ready.
async fn works(world: &World, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("an object without a kind")?;
    let name = object["metadata"]["name"]
        .as_str()
        .context("an object without a name")?;
    match kind {
        "CinderCSIDriver" => return world.healthy().await,
        "Pod" => return world.ready(name).await,
        "CronJob" => return nights(world, name).await,
        // These have no status.
        "StorageClass"
        | "VolumeSnapshotClass"
        | "VolumeGroupSnapshotClass"
        | "VolumeAttributesClass"
        | "Service"
        | "ConfigMap"
        | "ServiceAccount"
        | "Role"
        | "RoleBinding" => return Ok(()),
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
            "StatefulSet" => status["readyReplicas"] == spec["replicas"],
            "VolumeSnapshot" | "VolumeGroupSnapshot" => status["readyToUse"] == true,
            _ => bail!("the test does not know what to expect of it"),
        };
        ensure!(is_good, "{status}");
        Ok(())
    })
    .await
}
