// SPDX-License-Identifier: Apache-2.0
//! The cluster of the migration, with pods that write continuously to volumes of the Go driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, Command, wait_for};
use serde_json::{Value, json};
use suites::cluster::writers::Writers;
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, Watch, World, longest_gap, snapshots, storage_class};
use suites::expect::expect_equal;
use suites::go_manifests::{self as go, Manifests};
use tokio::task::JoinHandle;

/// Name of the administrator's own StorageClass and VolumeSnapshotClass, which the operator does not use.
pub(crate) const CLASS: &str = "standard";

/// Environment of the scenarios; each one continues from the previous one.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) manifests: Manifests,
    pub(crate) writers: Writers,
    /// Mounts and volume handles of the writers' pods, which must not change.
    before: BTreeMap<String, (String, String)>,
}

impl Site {
    /// Installs the Go driver and starts the writers.
    pub(crate) async fn begin(world: World) -> Result<Self> {
        let world = world.with_images().await?;
        // Includes a value that this driver does not read from the file.
        let conf = format!(
            "{}\n[BlockStorage]\nrescan-on-resize = false\n",
            go::cloud_conf(&world)?
        );
        let manifests = go::install(&world.cluster, &conf).await?;
        create_classes(&world).await?;
        let writers = Writers::start(&world, CLASS).await?;
        let mut site = Self {
            world,
            manifests,
            writers,
            before: BTreeMap::new(),
        };
        site.before = site.volumes().await?;
        Ok(site)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.world.cluster
    }

    /// Returns the version of the product.
    pub(crate) fn version(&self) -> Result<&str> {
        Ok(&self.world.product()?.version)
    }

    /// Returns mount and handle of each writer's volume.
    async fn volumes(&self) -> Result<BTreeMap<String, (String, String)>> {
        let mut all = BTreeMap::new();
        for name in self.writers.names() {
            // Mount id, parent id, device, and root: a new mount differs.
            let mount = self.world.sh(name, "grep ' /data ' /proc/self/mountinfo").await?;
            let volume = self.world.volume(name).await?;
            all.insert(name.clone(), (mount, volume["spec"]["csi"]["volumeHandle"].to_string()));
        }
        Ok(all)
    }

    /// Fails if a write was lost, a pod restarted, or a volume was remounted.
    pub(crate) async fn undisturbed(&self) -> Result<()> {
        let written = self.writers.check(&self.world).await?;
        expect_equal("volumes of the writers", &self.volumes().await?, &self.before)?;
        println!("    no write lost of {written}, the mounts are the same");
        Ok(())
    }

    /// Expands a claim by 1 GiB to this size, and waits until its pod has it.
    pub(crate) async fn grow(&self, claim: &str, gib: u64) -> Result<()> {
        self.world.expand_claim(claim, gib).await?;
        wait_for(&format!("{claim} to grow"), PATIENCE, async || {
            let kilobytes = self.world.file_system_size(claim).await?;
            // A file system is slightly smaller than its device.
            ensure!(kilobytes > (gib - 1) << 20, "it has {kilobytes} KiB");
            Ok(())
        })
        .await
    }

    /// Takes a snapshot of a claim, and waits until it is ready to use.
    pub(crate) async fn snapshot(&self, name: &str, claim: &str) -> Result<()> {
        snapshots::take(&self.world, name, claim, CLASS).await
    }

    /// Creates and deletes a pod with a new volume.
    pub(crate) async fn a_life(&self, name: &str) -> Result<()> {
        self.a_life_of_class(name, CLASS).await
    }

    /// Like [`Site::a_life`], with another class.
    pub(crate) async fn a_life_of_class(&self, name: &str, class: &str) -> Result<()> {
        self.world.run_pod_of_class(name, class).await?;
        self.world.delete_pod_and_claim(name).await
    }

    /// Sets an annotation of the CinderCSIDriver object to its uid.
    pub(crate) async fn acknowledge(&self, name: &str) -> Result<()> {
        let object = self.world.driver().await?;
        let uid = object["metadata"]["uid"].as_str().context("an object without a uid")?;
        let annotation = format!("csi.openstack.org/{name}={uid}");
        self.world.annotate(&["cindercsidriver", DRIVER], &annotation).await
    }
}

async fn create_classes(world: &World) -> Result<()> {
    // XFS, because a machine without CAP_SYS_RESOURCE cannot expand a mounted ext4.
    let mut class = storage_class(CLASS, &json!({"csi.storage.k8s.io/fstype": "xfs"}));
    class["allowVolumeExpansion"] = json!(true);
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    world.apply(&class).await?;
    let snapshots = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": CLASS},
        "driver": DRIVER, "deletionPolicy": "Delete", "parameters": {"force-create": "true"},
    });
    world.apply(&snapshots).await
}

/// `kubectl get --watch` of all pods, and of all CSINodes.
pub(crate) struct Watches {
    pods: JoinHandle<Result<String>>,
    file: PathBuf,
    registrations: Watch,
}

impl Watches {
    pub(crate) async fn start(world: &World) -> Result<Self> {
        let path = "{.metadata.name} {.spec.drivers[*].name}";
        let registrations = Watch::start(world, "registrations", &["csinodes"], path).await?;
        let file = world.cluster.logs()?.join("watch/pods");
        let kubectl = world.cluster.tools().path("kubectl")?.display().to_string();
        let script = format!("exec {kubectl} get pods -A --watch --output-watch-events -o json > \"$0\"");
        let command: Command = world
            .cluster
            .command_in_network("bash")?
            .args(["-c", &script])
            .arg(&file)
            .timeout(PATIENCE * 3);
        let pods = tokio::spawn(async move { command.output().await });
        wait_for("the watch of pods", PATIENCE, async || {
            let length = fs::metadata(&file).map(|file| file.len()).unwrap_or_default();
            ensure!(length > 0, "nothing in {}", file.display());
            Ok(())
        })
        .await?;
        Ok(Self {
            pods,
            file,
            registrations,
        })
    }

    /// Ends the watches. Fails if both controllers ever had pods at the same time. Prints the longest time without a
    /// registration on a node.
    pub(crate) fn stop(self) -> Result<()> {
        ensure!(!self.pods.is_finished(), "the watch of pods ended too early");
        self.pods.abort();
        never_two_controllers(&fs::read_to_string(&self.file).context("cannot read the watch of pods")?)?;
        let gap = longest_gap(&self.registrations.stop()?)?;
        println!("    longest gap in a node's CSINode: {gap:?}");
        Ok(())
    }
}

/// Uses the order of the watch's events. The last one may be incomplete.
fn never_two_controllers(events: &str) -> Result<()> {
    let (mut theirs, mut ours) = (BTreeSet::new(), BTreeSet::new());
    let mut seen = (false, false);
    for event in serde_json::Deserializer::from_str(events).into_iter::<Value>() {
        let Ok(event) = event else { break };
        let pod = &event["object"];
        let metadata = &pod["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let pods = if metadata["labels"]["app"] == go::CONTROLLER {
            seen.0 = true;
            &mut theirs
        } else if metadata["namespace"] == NAMESPACE
            && metadata["labels"]["app.kubernetes.io/component"] == "controller"
        {
            seen.1 = true;
            &mut ours
        } else {
            continue;
        };
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        // The containers of such a pod have ended. The kubelet deletes it later.
        if event["type"] == "DELETED" || matches!(phase, "Succeeded" | "Failed") {
            pods.remove(&name);
        } else {
            pods.insert(name);
        }
        ensure!(
            theirs.is_empty() || ours.is_empty(),
            "there were pods of both controllers at once: {theirs:?} and {ours:?}"
        );
    }
    expect_equal("controllers in the watch", &seen, &(true, true))?;
    println!("    never were there pods of both controllers");
    Ok(())
}
