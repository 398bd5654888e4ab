// SPDX-License-Identifier: Apache-2.0
//! The files of `config/samples`, which the pages of the documentation include, applied as they stand there.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Image, wait_for, workspace_root};
use serde_json::{Value, json};

use crate::world::{PATIENCE, USERS, WITHIN, World};

/// The files that this scenario applies, in an order in which each finds what it needs.
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
/// Those that others apply: the demo, and the scenario with two clouds.
const ELSEWHERE: &[&str] = &["cindercsidriver", "openstack-credentials", "pod", "several-clouds"];
/// The image of the scheduled job.
const KUBECTL_IMAGE: &str = "registry.k8s.io/kubectl:v1.36.3";

/// The objects of one file.
struct Example {
    objects: Vec<Value>,
}

pub(crate) async fn every_example_of_the_documentation_works_as_it_stands_there(world: &World) -> Result<()> {
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
    let kept = world.sh("imported", "cat /data/log").await?;
    ensure!(!kept.is_empty(), "the imported volume is empty");
    let class = world.cluster.get(&["volumesnapshotclass", "cinder-velero"]).await?;
    ensure!(
        class["metadata"]["labels"]["velero.io/csi-volumesnapshot-class"] == "true",
        "Velero does not find the class {class}"
    );

    // Copies before what they were made of: a clone may need its source.
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

/// Fails when a file of the folder is in neither list, or one of the lists is no file.
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

/// The image of the scheduled job, of the kubectl that the cluster has.
fn kubectl_image(world: &World) -> Result<Image> {
    let kubectl = world.cluster.tools().path("kubectl")?;
    let image = Image::new(KUBECTL_IMAGE).file(kubectl, "/bin/kubectl");
    Ok(image.entrypoint("/bin/kubectl"))
}

impl Example {
    /// A file of `config/samples`, with what stands for names in angle brackets.
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

/// Runs the job of a CronJob three times, as three nights would: the two newest snapshots stay.
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

/// Waits until an object of an example is as its reader expects it.
async fn works(world: &World, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("an object without a kind")?;
    let name = object["metadata"]["name"]
        .as_str()
        .context("an object without a name")?;
    match kind {
        "CinderCSIDriver" => return world.healthy().await,
        "Pod" => return world.ready(name).await,
        "CronJob" => return nights(world, name).await,
        // They are what they say as soon as they exist.
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
