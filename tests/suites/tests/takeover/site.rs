// SPDX-License-Identifier: Apache-2.0
//! The cluster of the migration, with pods that write continuously to volumes of the Go driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, Command, Product, Profile, wait_for};
use serde_json::{Value, json};
use suites::cluster::writers::Writers;
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, USERS, World};
use suites::go_manifests::{self as go, Manifests};
use tokio::task::JoinHandle;

/// Name of the administrator's own StorageClass and VolumeSnapshotClass, which the operator does not use.
pub(crate) const CLASS: &str = "standard";

/// Environment of the scenarios; each one continues from the previous one.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) product: Product,
    pub(crate) manifests: Manifests,
    pub(crate) writers: Writers,
    /// Mounts and volume handles of the writers' pods, which must not change.
    before: BTreeMap<String, (String, String)>,
}

impl Site {
    /// Installs the Go driver and starts the writers.
    pub(crate) async fn begin(world: World) -> Result<Self> {
        let cluster = &world.cluster;
        let product = Product::build(Profile::from_environment()?, cluster.progress()).await?;
        cluster.load_images(&product).await?;
        // Includes a value that this driver does not read from the file.
        let conf = format!(
            "{}\n[BlockStorage]\nrescan-on-resize = false\n",
            go::cloud_conf(&world)?
        );
        let manifests = go::install(cluster, &conf).await?;
        classes(cluster).await?;
        let writers = Writers::start(cluster, CLASS).await?;
        let mut site = Self {
            world,
            product,
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

    /// Returns mount and handle of each writer's volume.
    async fn volumes(&self) -> Result<BTreeMap<String, (String, String)>> {
        let mut all = BTreeMap::new();
        for name in self.writers.names() {
            // Mount id, parent id, device, and root: a new mount differs.
            let mount = self.world.sh(name, "grep ' /data ' /proc/self/mountinfo").await?;
            let claim = self.cluster().get(&["pvc", name, "-n", USERS]).await?;
            let volume = claim["spec"]["volumeName"]
                .as_str()
                .context("a claim without a volume")?;
            let volume = self.cluster().get(&["pv", volume]).await?;
            all.insert(name.clone(), (mount, volume["spec"]["csi"]["volumeHandle"].to_string()));
        }
        Ok(all)
    }

    /// Fails if a write was lost, a pod restarted, or a volume was remounted.
    pub(crate) async fn undisturbed(&self) -> Result<()> {
        let written = self.writers.check(self.cluster()).await?;
        let now = self.volumes().await?;
        for (name, known) in &now {
            ensure!(
                self.before.get(name) == Some(known),
                "the volume of {name} was {:?} and is {known:?}",
                self.before.get(name)
            );
        }
        println!("    no write lost of {written}, the mounts are the same");
        Ok(())
    }

    /// Expands a claim by 1 GiB to this size, and waits until its pod has it.
    pub(crate) async fn grow(&self, claim: &str, gib: u64) -> Result<()> {
        let patch = json!({"spec": {"resources": {"requests": {"storage": format!("{gib}Gi")}}}}).to_string();
        let words = ["patch", "pvc", claim, "-n", USERS, "--type=merge", "-p", &patch];
        self.cluster().kubectl(&words).await?;
        wait_for(&format!("{claim} to grow"), PATIENCE, async || {
            let output = self.world.sh(claim, "df -k /data | tail -n 1").await?;
            let kilobytes = output
                .split_whitespace()
                .nth(1)
                .and_then(|size| size.parse::<u64>().ok());
            // A file system is slightly smaller than its device.
            ensure!(
                kilobytes.is_some_and(|kilobytes| kilobytes > (gib - 1) << 20),
                "df printed {output}"
            );
            Ok(())
        })
        .await
    }

    /// Takes a snapshot of a claim, and waits until it is ready to use.
    pub(crate) async fn snapshot(&self, name: &str, claim: &str) -> Result<()> {
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name, "namespace": USERS},
            "spec": {"volumeSnapshotClassName": CLASS, "source": {"persistentVolumeClaimName": claim}},
        });
        self.cluster().apply(&snapshot.to_string()).await?;
        wait_for(&format!("snapshot {name}"), PATIENCE, async || {
            let object = self.cluster().get(&["volumesnapshot", name, "-n", USERS]).await?;
            ensure!(object["status"]["readyToUse"] == true, "{}", object["status"]);
            Ok(())
        })
        .await
    }

    /// Creates and deletes a pod with a new volume.
    pub(crate) async fn a_life(&self, name: &str) -> Result<()> {
        self.a_life_of_class(name, CLASS).await
    }

    /// Like [`Site::a_life`], with another class.
    pub(crate) async fn a_life_of_class(&self, name: &str, class: &str) -> Result<()> {
        self.world.start_pod_of_class(name, class).await?;
        self.world.ready(name).await?;
        self.world.delete("pod", name).await?;
        self.world.delete("pvc", name).await
    }

    /// Returns the CinderCSIDriver object.
    pub(crate) async fn object(&self) -> Result<Value> {
        self.cluster().get(&["cindercsidriver", DRIVER]).await
    }

    /// Watches pods and registrations from now on.
    pub(crate) async fn watch_pods(&self) -> Result<Watch> {
        Watch::start(self.cluster()).await
    }
}

async fn classes(cluster: &Cluster) -> Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": DRIVER,
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer",
            "parameters": {"csi.storage.k8s.io/fstype": "xfs"}},
        {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": CLASS},
            "driver": DRIVER, "deletionPolicy": "Delete", "parameters": {"force-create": "true"}},
    ]});
    cluster.apply(&objects.to_string()).await.map(drop)
}

/// `kubectl get --watch` of all pods, and of all CSINodes.
pub(crate) struct Watch {
    running: Vec<JoinHandle<Result<String>>>,
    pods: std::path::PathBuf,
    registrations: std::path::PathBuf,
}

impl Watch {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let directory = cluster.logs()?.join("watch");
        fs::create_dir_all(&directory).context("cannot make a directory")?;
        let (pods, registrations) = (directory.join("pods"), directory.join("registrations"));
        let kubectl = cluster.tools().path("kubectl")?.display().to_string();
        let get_pods = format!("exec {kubectl} get pods -A --watch --output-watch-events -o json > \"$0\"");
        let get_registrations = format!(
            "{kubectl} get csinodes --watch -o jsonpath='{{.metadata.name}} {{.spec.drivers[*].name}}{{\"\\n\"}}' | while read -r line; \
             do echo \"$EPOCHREALTIME $line\" >> \"$0\"; done"
        );
        let mut running = Vec::new();
        for (script, file) in [(get_pods, &pods), (get_registrations, &registrations)] {
            let command: Command = cluster
                .command_in_network("bash")?
                .args(["-c", &script])
                .arg(file)
                .timeout(PATIENCE * 3);
            running.push(tokio::spawn(async move { command.output().await }));
        }
        wait_for("the watches", PATIENCE, async || {
            for file in [&pods, &registrations] {
                let length = fs::metadata(file).map(|file| file.len()).unwrap_or_default();
                ensure!(length > 0, "nothing in {}", file.display());
            }
            Ok(())
        })
        .await?;
        Ok(Self {
            running,
            pods,
            registrations,
        })
    }

    /// Ends the watches. Fails if both controllers ever had pods at the same time. Prints the longest time without a
    /// registration on a node.
    pub(crate) fn stop(self) -> Result<()> {
        for watch in self.running {
            ensure!(!watch.is_finished(), "a watch ended too early");
            watch.abort();
        }
        never_two_controllers(&fs::read_to_string(&self.pods).context("cannot read the watch of pods")?)?;
        let lines = fs::read_to_string(&self.registrations).context("cannot read the watch of CSINodes")?;
        println!("    longest gap in a node's CSINode: {:.1} s", longest_gap(&lines));
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
        if event["type"] == "DELETED" {
            pods.remove(&name);
        } else {
            pods.insert(name);
        }
        ensure!(
            theirs.is_empty() || ours.is_empty(),
            "there were pods of both controllers at once: {theirs:?} and {ours:?}"
        );
    }
    ensure!(
        seen == (true, true),
        "the watch saw only one of the controllers: {seen:?}"
    );
    println!("    never were there pods of both controllers");
    Ok(())
}

/// Returns the longest time in seconds for which a registered driver was missing in a CSINode.
fn longest_gap(lines: &str) -> f64 {
    let mut missing: BTreeMap<&str, f64> = BTreeMap::new();
    let mut longest: f64 = 0.0;
    for line in lines.lines() {
        let mut words = line.split_whitespace();
        let (Some(at), Some(node)) = (words.next().and_then(|at| at.parse::<f64>().ok()), words.next()) else {
            continue;
        };
        if words.any(|word| word == DRIVER) {
            longest = longest.max(missing.remove(node).map_or(0.0, |since| at - since));
        } else {
            missing.entry(node).or_insert(at);
        }
    }
    longest
}
