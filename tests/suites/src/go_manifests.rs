// SPDX-License-Identifier: Apache-2.0
//! The Go driver in a cluster, from its own manifests or its chart: they come with its Go module.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, Command, Image, snapshot_controller, wait_for, workspace_root};
use serde_json::{Value, json};

use crate::cluster::{DRIVER, PATIENCE, World, snapshots::install_controller};
use crate::openstack::keys;
use crate::programs;

/// Where the manifests put it.
pub const NAMESPACE: &str = "kube-system";
/// The Deployment of its controller.
pub const CONTROLLER: &str = "csi-cinder-controllerplugin";
/// The DaemonSet of its node plugins.
pub const NODE: &str = "csi-cinder-nodeplugin";
/// The Secret with its `cloud.conf`.
pub const SECRET: &str = "cloud-config";
/// What the manifests give as `--cluster`.
pub const CLUSTER_ID: &str = "kubernetes";
const MODULE: &str = "k8s.io/cloud-provider-openstack";
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(5);
/// What the Go driver runs on a node, and the configuration of that.
const TOOLS: [&str; 15] = [
    "/usr/sbin/mke2fs",
    "/usr/sbin/e2fsck",
    "/usr/sbin/dumpe2fs",
    "/usr/sbin/fsck",
    "/usr/sbin/xfs_repair",
    "/usr/sbin/mkfs.xfs",
    "/usr/sbin/xfs_growfs",
    "/usr/sbin/xfs_io",
    "/usr/sbin/resize2fs",
    "/usr/sbin/blkid",
    "/usr/sbin/blockdev",
    "/usr/bin/mount",
    "/usr/bin/umount",
    "/usr/bin/findmnt",
    "/etc/mke2fs.conf",
];

/// The names by which it calls some of them.
const LINKS: [(&str, &str); 4] = [
    ("/usr/sbin/mkfs.ext3", "mke2fs"),
    ("/usr/sbin/mkfs.ext4", "mke2fs"),
    ("/usr/sbin/fsck.ext3", "e2fsck"),
    ("/usr/sbin/fsck.ext4", "e2fsck"),
];

/// The manifests as they were published, but for the credentials of a cloud and for images that cannot be pulled here.
#[derive(Debug)]
pub struct Manifests {
    objects: Vec<Value>,
}

impl Manifests {
    /// Reads them; their Secret gets this `cloud.conf`.
    pub async fn read(cloud_conf: &str) -> Result<Self> {
        let directory = module().await?.join("manifests/cinder-csi-plugin");
        let mut objects = Vec::new();
        let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            for document in serde_yaml::Deserializer::from_str(&text) {
                let value: Value = serde::Deserialize::deserialize(document)
                    .with_context(|| format!("{} is not YAML", file.display()))?;
                if value.is_object() {
                    objects.push(value);
                }
            }
        }
        ensure!(
            objects.len() > 10,
            "{} has {} objects",
            directory.display(),
            objects.len()
        );
        for object in &mut objects {
            fit(object, cloud_conf);
        }
        Ok(Self { objects })
    }

    /// The same without the Secret, for a cluster that has its credentials: the published Secret would replace them by a sample.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let objects = self.objects.iter().filter(|object| object["kind"] != "Secret");
        Self {
            objects: objects.cloned().collect(),
        }
    }

    /// The objects.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The images that they name.
    pub fn images(&self) -> BTreeSet<&str> {
        let pods = self
            .objects
            .iter()
            .filter_map(|object| object.pointer("/spec/template/spec/containers")?.as_array());
        pods.flatten()
            .filter_map(|container| container["image"].as_str())
            .collect()
    }
}

fn fit(object: &mut Value, cloud_conf: &str) {
    if object["kind"] == "Secret" {
        // The published one has the credentials of nobody.
        object["stringData"] = json!({"cloud.conf": cloud_conf});
        object["data"] = Value::Null;
    }
    let containers = object.pointer_mut("/spec/template/spec/containers");
    for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
        // There is no registry here.
        if container["imagePullPolicy"] == "Always" {
            container["imagePullPolicy"] = json!("IfNotPresent");
        }
    }
}

/// The directory of the chart, as it was published.
pub async fn chart() -> Result<PathBuf> {
    Ok(module().await?.join("charts/cinder-csi-plugin"))
}

/// The directory of the Go driver's module.
async fn module() -> Result<PathBuf> {
    let go = || Command::new("go").directory(workspace_root().join("tests/tools/csi"));
    // A module has no directory until it is in the cache, from where `go clean` may have taken what the driver was built of.
    go().args(["mod", "download", MODULE])
        .timeout(DOWNLOAD_TIMEOUT)
        .output()
        .await
        .with_context(|| format!("cannot fetch the module {MODULE}"))?;
    let directory = go()
        .args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", MODULE])
        .output()
        .await
        .with_context(|| format!("cannot find the module {MODULE}"))?;
    Ok(PathBuf::from(directory.trim()))
}

/// How the Go driver logs in to the cloud of a cluster. On real services it does so as the project's member: it asks for more than
/// the access rules of the application credential allow.
pub fn cloud_conf(world: &World) -> Result<String> {
    let Ok(openstack) = world.openstack() else {
        return Ok(world.login()?.cloud_conf());
    };
    let mut keys = keys(openstack.member_conf())?;
    keys.insert("auth-url".to_owned(), openstack.auth_url());
    let lines: Vec<_> = keys.iter().map(|(key, value)| format!("{key} = \"{value}\"")).collect();
    Ok(format!("[Global]\n{}\n", lines.join("\n")))
}

/// Installs the Go driver from its own manifests, with this configuration, in a cluster that has none of its images yet, and waits
/// until it serves.
pub async fn install(cluster: &Cluster, cloud_conf: &str) -> Result<Manifests> {
    let manifests = Manifests::read(cloud_conf).await?;
    load_images(&manifests, cluster).await?;
    apply_snapshots(cluster).await?;
    cluster
        .progress()
        .say("installing the Go driver from its own manifests");
    apply(&manifests, cluster).await?;
    serves(cluster).await?;
    Ok(manifests)
}

/// Makes images of those names, of programs that were built here.
async fn load_images(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
    let mut of_nodes = Vec::new();
    for name in manifests.images() {
        let program = name.rsplit('/').next().unwrap_or(name);
        let program = program.split(':').next().unwrap_or(program);
        match program {
            "livenessprobe" | "csi-node-driver-registrar" => of_nodes.push(name),
            "cinder-csi-plugin" => cluster.import(&driver_image(name).await?).await?,
            sidecar => {
                let path = format!("/{sidecar}");
                let image = Image::new(name)
                    .file(cluster.tools().path(sidecar)?, &path)
                    .entrypoint(path);
                cluster.import(&image).await?;
            }
        }
    }
    cluster.load_node_sidecars(&of_nodes).await
}

/// Applies them as an administrator does, and what the sidecars need that were built here: they are newer than those that the
/// manifests name.
pub async fn apply(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "newer-sidecars"},
        "rules": [
            {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattributesclasses"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["snapshot.storage.k8s.io"], "resources": ["volumesnapshots"], "verbs": ["watch", "update"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "newer-sidecars"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "newer-sidecars"},
        "subjects": [{"kind": "ServiceAccount", "name": "csi-cinder-controller-sa", "namespace": NAMESPACE}],
    });
    let all = json!({"apiVersion": "v1", "kind": "List",
            "items": manifests.objects().iter().chain([&role, &binding]).collect::<Vec<_>>()});
    cluster.apply(&all.to_string()).await.map(drop)
}

/// Applies the kinds of snapshots and a snapshot-controller, which the manifests expect of a cluster.
async fn apply_snapshots(cluster: &Cluster) -> Result<()> {
    let kinds = cluster.tools().path("snapshot-crds")?;
    let kinds = kinds.to_str().context("the path of the CRDs is not UTF-8")?;
    cluster.kubectl(&["apply", "-f", kinds]).await?;
    cluster.import(&snapshot_controller(cluster.tools())?).await?;
    install_controller(cluster).await
}

/// Deletes all of it, and waits for the end of its pods.
pub async fn delete(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
    for object in manifests.objects() {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let mut words = vec![
            "delete",
            kind.as_str().unwrap_or_default(),
            name.as_str().unwrap_or_default(),
            "--ignore-not-found",
            "--cascade=foreground",
            "--timeout=90s",
        ];
        if object["metadata"]["namespace"].is_string() {
            words.extend(["-n", NAMESPACE]);
        }
        cluster.kubectl_within(PATIENCE, &words).await?;
    }
    Ok(())
}

/// The Go driver with the file systems' tools, as its own image has them. No entry point: the manifests' arguments begin with the
/// program.
async fn driver_image(name: &str) -> Result<Image> {
    let mut image = Image::new(name)
        .program(&programs::go_driver()?, "/bin/cinder-csi-plugin")
        .await?;
    for (name, tool) in LINKS {
        image = image.link(name, tool);
    }
    for tool in TOOLS {
        image = image.program(Path::new(tool), tool).await?;
    }
    Ok(image)
}

/// Waits until the Go driver's pods, those of the manifests, are Ready and every node's kubelet knows the driver from its registrar.
pub async fn serves(cluster: &Cluster) -> Result<()> {
    serves_as(cluster, CONTROLLER, NODE).await
}

/// The same for a Deployment and a DaemonSet of these names.
pub async fn serves_as(cluster: &Cluster, controller: &str, node: &str) -> Result<()> {
    wait_for("the Go driver's pods", PATIENCE, async || {
        for (kind, name, wanted, have) in [
            ("deployment", controller, "/spec/replicas", "/status/availableReplicas"),
            (
                "daemonset",
                node,
                "/status/desiredNumberScheduled",
                "/status/numberReady",
            ),
        ] {
            let object = cluster.get(&[kind, name, "-n", NAMESPACE]).await?;
            let (wanted, have) = (object.pointer(wanted), object.pointer(have));
            ensure!(
                wanted == have && wanted.and_then(Value::as_u64) > Some(0),
                "{kind} {name}: {}",
                object["status"]
            );
            ensure!(
                object["metadata"]["generation"] == object["status"]["observedGeneration"],
                "{kind} {name} is not seen yet"
            );
            let updated = object
                .pointer("/status/updatedReplicas")
                .or(object.pointer("/status/updatedNumberScheduled"));
            ensure!(
                updated == wanted,
                "{kind} {name} is being updated: {}",
                object["status"]
            );
        }
        for node in cluster.nodes() {
            registered(cluster, node.name()).await?;
        }
        Ok(())
    })
    .await
}

/// Fails unless a node's kubelet knows the driver.
pub async fn registered(cluster: &Cluster, node: &str) -> Result<()> {
    let entry = cluster.get(&["csinode", node]).await?;
    let drivers = entry["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    ensure!(
        drivers.iter().any(|driver| driver["name"] == DRIVER),
        "the CSINode of {node} does not name the driver"
    );
    Ok(())
}
