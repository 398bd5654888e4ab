// SPDX-License-Identifier: Apache-2.0
//! Applies the pages of the documentation as a reader does: examples and commands, in the order of the pages.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Command, Image, wait_for, workspace_root};
use serde_json::{Value, json};
use suites::cluster::NAMESPACE;
use suites::documentation::{self, Example, MIGRATION, Page, Part, Proof, proof};
use tempfile::TempDir;

use crate::world::{PATIENCE, SECRET, USERS, WITHIN, World};

/// Samples that another scenario applies, because they need other credentials or another cloud.
const OTHER_SCENARIOS: [&str; 2] = ["openstack-credentials.yaml", "several-clouds-patch.yaml"];
/// Image of the CronJob.
const KUBECTL_IMAGE: &str = "registry.k8s.io/kubectl:v1.36.3";
/// Classes of all kinds.
const CLASSES: &str = "storageclasses,volumesnapshotclasses,volumegroupsnapshotclasses,volumeattributesclasses";
/// Copy of the kubeconfig with the namespace of the users as the default.
const KUBECONFIG: &str = "kubeconfig";
/// Namespace that `config/rbac/operand-namespace` names.
const OPERAND_NAMESPACE: &str = "cinder-csi-drivers";

/// Runs commands of the pages as an administrator with a clone of the repository.
struct Shell<'world> {
    world: &'world World,
    /// Working directory with the folder `config` and a `clouds.yaml`.
    directory: TempDir,
}

pub(crate) async fn pages_apply_in_their_order(world: &World) -> Result<()> {
    world.cluster.import(&kubectl_image(world)?).await?;
    let volume = unused_volume(world).await?;
    let names = [("<namespace>", USERS), ("<volume id>", volume.as_str())];
    let shell = Shell::open(world)?;
    // The installation page creates this Secret.
    let arguments = ["delete", "secret", SECRET, "-n", NAMESPACE];
    world.cluster.kubectl(&arguments).await?;
    let mut classes = BTreeMap::new();
    for page in documentation::pages()? {
        if page.name == MIGRATION {
            continue;
        }
        let outcome = shell.apply_page(&page, &names).await;
        outcome.with_context(|| format!("page {}", page.name))?;
        let present = class_uids(world).await?;
        let changed: Vec<_> = classes
            .iter()
            .filter(|(name, uid)| present.get(*name) != Some(*uid))
            .collect();
        ensure!(
            changed.is_empty(),
            "page {} deleted or recreated {changed:?}",
            page.name
        );
        classes = present;
    }
    works_after_all_pages(world).await?;
    delete_examples(world).await?;
    world.apply_driver().await?;
    world.healthy().await
}

/// Runs the commands of the removal, and of the deletion of the policies, in a cluster with all optional manifests.
pub(crate) async fn uninstall_page_removes_everything(world: &World) -> Result<()> {
    world.healthy().await?;
    let shell = Shell::open(world)?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERAND_NAMESPACE}});
    world.cluster.apply(&namespace.to_string()).await?;
    let mut commands = Vec::new();
    for page in documentation::pages()? {
        let removal = page
            .commands()
            .filter(|command| proof(&page.name, command) == Some(Proof::Removal));
        commands.extend(removal.map(str::to_owned));
    }
    for command in &commands {
        if let Some(manifests) = command.strip_prefix("kubectl delete -k") {
            // The installed objects of `config/default` do not change.
            shell
                .run(&format!("kubectl apply --server-side --force-conflicts -k {manifests}"))
                .await?;
        }
    }
    for command in &commands {
        shell.run(command).await?;
        if command.ends_with("config/admission") {
            // The removal of `config/default` contains the policies.
            shell.run("kubectl apply -k config/admission").await?;
        }
    }
    let kinds =
        "crds,namespaces,clusterroles,clusterrolebindings,csidrivers,storageclasses,validatingadmissionpolicies";
    let remaining = world.cluster.kubectl(&["get", kinds, "-o", "name"]).await?;
    let remaining: Vec<&str> = remaining
        .lines()
        .filter(|name| name.contains("cinder") && !name.ends_with(OPERAND_NAMESPACE))
        .collect();
    ensure!(remaining.is_empty(), "left: {}", remaining.join(", "));
    let arguments = ["delete", "namespace", OPERAND_NAMESPACE, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &arguments).await.map(drop)
}

impl<'world> Shell<'world> {
    fn open(world: &'world World) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a directory")?;
        let config = directory.path().join("config");
        std::os::unix::fs::symlink(workspace_root().join("config"), config).context("cannot link config")?;
        let clouds = world.login()?.clouds_yaml();
        std::fs::write(directory.path().join("clouds.yaml"), clouds).context("cannot write clouds.yaml")?;
        let kubeconfig = directory.path().join(KUBECONFIG);
        std::fs::copy(world.cluster.kubeconfig()?, kubeconfig).context("cannot copy the kubeconfig")?;
        Ok(Self { world, directory })
    }

    /// Runs a command with the namespace of the users as the default.
    async fn run(&self, command: &str) -> Result<String> {
        let cluster = &self.world.cluster;
        let kubectl = cluster.tools().path("kubectl")?;
        // The flag -n would refuse manifests of other namespaces.
        let script = format!(
            "kubectl() {{ '{}' \"$@\"; }}\nkubectl config set-context --current --namespace={USERS} >/dev/null\n{command}",
            kubectl.display()
        );
        let bash: Command = cluster.command_in_network("bash")?;
        bash.args(["-euo", "pipefail", "-c", &script])
            .directory(self.directory.path())
            .env("KUBECONFIG", self.directory.path().join(KUBECONFIG))
            .timeout(PATIENCE)
            .output()
            .await
    }

    /// Applies the examples of a page and runs its commands, in their order.
    async fn apply_page(&self, page: &Page, names: &[(&str, &str)]) -> Result<()> {
        let mut count = 0;
        for part in &page.parts {
            match part {
                Part::Example(example) => {
                    let is_elsewhere = example
                        .sample
                        .as_deref()
                        .is_some_and(|name| OTHER_SCENARIOS.contains(&name));
                    let has_command = page.commands().any(|command| example.is_named_in(command));
                    if example.has_objects()? && !is_elsewhere && !has_command {
                        let objects = objects(example, names)?;
                        self.world.cluster.apply(&manifests(&objects)).await?;
                        wait_for_objects(self.world, &objects).await?;
                        count += 1;
                    }
                }
                Part::Command(command) if proof(&page.name, command) == Some(Proof::Pages) => {
                    self.run(command).await?;
                    for example in page.examples().filter(|example| example.is_named_in(command)) {
                        wait_for_objects(self.world, &objects(example, names)?).await?;
                    }
                    count += 1;
                }
                Part::Command(_) => {}
            }
        }
        if count > 0 {
            println!("    {}: {count} examples and commands", page.name);
        }
        Ok(())
    }
}

/// Returns the uids of all classes by kind and name.
async fn class_uids(world: &World) -> Result<BTreeMap<String, String>> {
    let column = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
    let list = world.cluster.kubectl(&["get", CLASSES, "-o", column]).await?;
    let pairs = list.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, uid)| (name.to_owned(), uid.to_owned())).collect())
}

/// Checks the data of copies and of an imported volume, and the class for Velero.
async fn works_after_all_pages(world: &World) -> Result<()> {
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
    Ok(())
}

/// Deletes the objects of the examples. Copies are deleted before their sources, because a clone may depend on its
/// source.
async fn delete_examples(world: &World) -> Result<()> {
    for kind in [
        "statefulsets,daemonsets,cronjobs,jobs,pods",
        "volumegroupsnapshots",
        "volumesnapshots",
        "pvc",
    ] {
        let arguments = ["delete", kind, "--all", "-n", USERS, WITHIN];
        world.cluster.kubectl_within(PATIENCE, &arguments).await?;
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
        ("storageclass", "archive"),
        ("volumesnapshotclass", "cinder-velero"),
        ("volumegroupsnapshotclass", "consistent"),
        ("volumeattributesclass", "archive"),
        ("volumeattributesclass", "gold"),
    ] {
        world.cluster.kubectl(&["delete", kind, name]).await?;
    }
    let arguments = ["delete", "secret", "cloud-west", "-n", NAMESPACE];
    world.cluster.kubectl(&arguments).await?;
    world.nothing_left().await
}

/// Builds the image of the CronJob from the cluster's kubectl.
fn kubectl_image(world: &World) -> Result<Image> {
    let kubectl = world.cluster.tools().path("kubectl")?;
    let image = Image::new(KUBECTL_IMAGE).file(kubectl, "/bin/kubectl");
    Ok(image.entrypoint("/bin/kubectl"))
}

/// Returns the objects of an example, with values in place of the placeholders in angle brackets.
fn objects(example: &Example, names: &[(&str, &str)]) -> Result<Vec<Value>> {
    let mut text = example.text.clone();
    for (placeholder, value) in names {
        text = text.replace(placeholder, value);
    }
    let sample = example.sample.clone();
    Example { sample, text }.documents()
}

/// Returns objects as manifests, with namespaced ones in the users' namespace unless they name another one.
fn manifests(objects: &[Value]) -> String {
    let in_namespace = |object: &Value| {
        let mut object = object.clone();
        let kind = object["kind"].as_str().unwrap_or_default();
        let is_namespaced = !kind.ends_with("Class") && !["CinderCSIDriver", "PersistentVolume"].contains(&kind);
        if is_namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(USERS);
        }
        object.to_string()
    };
    let manifests: Vec<_> = objects.iter().map(in_namespace).collect();
    manifests.join("\n---\n")
}

/// Creates a volume with a file that has no object in Kubernetes.
async fn unused_volume(world: &World) -> Result<String> {
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
        let arguments = ["wait", &job, "--for=condition=complete", "-n", USERS, WITHIN];
        world.cluster.kubectl_within(PATIENCE, &arguments).await?;
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

/// Waits until the objects of an example are ready.
async fn wait_for_objects(world: &World, objects: &[Value]) -> Result<()> {
    for object in objects {
        let outcome = wait_for_object(world, object).await;
        outcome.with_context(|| format!("{} {}", object["kind"], object["metadata"]["name"]))?;
    }
    Ok(())
}

async fn wait_for_object(world: &World, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("an object without a kind")?;
    let name = object["metadata"]["name"]
        .as_str()
        .context("an object without a name")?;
    match kind {
        "CinderCSIDriver" => return world.healthy().await,
        "Pod" => return world.ready(name).await,
        "CronJob" => return nights(world, name).await,
        // These have no status.
        "Secret"
        | "StorageClass"
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
