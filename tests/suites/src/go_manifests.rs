// SPDX-License-Identifier: Apache-2.0
//! The Go driver in a cluster, from the manifests or the chart in its Go module.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, Command, Image, snapshot_controller, wait_for, workspace_root};
use serde_json::{Value, json};

use crate::cluster::{DRIVER, PATIENCE, World, snapshots::install_controller};
use crate::expect::expect_field;
use crate::openstack::keys;
use crate::programs;

/// Namespace of the manifests.
pub const NAMESPACE: &str = "kube-system";
/// Name of its controller Deployment.
pub const CONTROLLER: &str = "csi-cinder-controllerplugin";
/// Name of its node DaemonSet.
pub const NODE: &str = "csi-cinder-nodeplugin";
/// Name of the Secret with its `cloud.conf`.
pub const SECRET: &str = "cloud-config";
/// Value of `--cluster` in the manifests.
pub const CLUSTER_ID: &str = "kubernetes";
const MODULE: &str = "k8s.io/cloud-provider-openstack";
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(5);
/// Programs that the Go driver runs on a node, and their configuration.
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

/// Additional names of these programs.
const LINKS: [(&str, &str); 4] = [
    ("/usr/sbin/mkfs.ext3", "mke2fs"),
    ("/usr/sbin/mkfs.ext4", "mke2fs"),
    ("/usr/sbin/fsck.ext3", "e2fsck"),
    ("/usr/sbin/fsck.ext4", "e2fsck"),
];

/// The published manifests, with a cloud's credentials and with images that are available here.
#[derive(Debug)]
pub struct Manifests {
    objects: Vec<Value>,
}

impl Manifests {
    /// Reads the manifests, and sets this `cloud.conf` in their Secret.
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
        let count = objects.len();
        ensure!(count > 10, "{} has {count} objects", directory.display());
        for object in &mut objects {
            fit(object, cloud_conf);
        }
        Ok(Self { objects })
    }

    /// Returns the manifests without the Secret, whose published sample would replace existing credentials.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let objects = self.objects.iter().filter(|object| object["kind"] != "Secret");
        Self {
            objects: objects.cloned().collect(),
        }
    }

    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Returns the images in the manifests.
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
        // The published Secret contains only a sample.
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

/// Returns the directory of the published chart.
pub async fn chart() -> Result<PathBuf> {
    Ok(module().await?.join("charts/cinder-csi-plugin"))
}

/// Returns the directory of the Go driver's module.
async fn module() -> Result<PathBuf> {
    let go = || Command::new("go").directory(workspace_root().join("tests/tools/csi"));
    // The module's directory exists only after a download; `go clean` may have removed it.
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

/// Returns the Go driver's configuration for the cloud of a cluster. On real services, it uses the member's password,
/// because the access rules of the application credential do not suffice.
pub fn cloud_conf(world: &World) -> Result<String> {
    let Ok(openstack) = world.openstack() else {
        return Ok(world.login()?.cloud_conf());
    };
    let mut keys = keys(openstack.member_conf())?;
    keys.insert("auth-url".to_owned(), openstack.auth_url());
    let lines: Vec<_> = keys.iter().map(|(key, value)| format!("{key} = \"{value}\"")).collect();
    Ok(format!("[Global]\n{}\n", lines.join("\n")))
}

/// Installs the Go driver from its own manifests with this configuration, in a cluster without its images. Waits until
/// it serves.
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

/// Builds the images of the manifests from local programs, and imports them.
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

/// Applies the manifests as an administrator does, with the permissions that the local sidecars need: they are newer
/// than those in the manifests.
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

/// Applies the snapshot kinds and a snapshot-controller, which the manifests require.
async fn apply_snapshots(cluster: &Cluster) -> Result<()> {
    let kinds = cluster.tools().path("snapshot-crds")?;
    let kinds = kinds.to_str().context("the path of the CRDs is not UTF-8")?;
    cluster.kubectl(&["apply", "-f", kinds]).await?;
    cluster.import(&snapshot_controller(cluster.tools())?).await?;
    install_controller(cluster).await
}

/// Deletes all objects and waits for the end of the pods.
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

/// Builds an image with the Go driver and the file system tools, as its own image has. It has no entry point, because
/// the arguments in the manifests begin with the program.
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

/// Waits until the Go driver's pods are Ready and every node's kubelet has registered the driver.
pub async fn serves(cluster: &Cluster) -> Result<()> {
    serves_as(cluster, CONTROLLER, NODE).await
}

/// Like [`serves`], with other names of Deployment and DaemonSet.
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
            let updated = object.pointer("/status/updatedReplicas");
            let updated = updated.or(object.pointer("/status/updatedNumberScheduled"));
            let is_complete = wanted == have && wanted == updated && wanted.and_then(Value::as_u64) > Some(0);
            ensure!(is_complete, "{kind} {name}: {}", object["status"]);
            let generation = object["metadata"]["generation"].clone();
            expect_field(&object, "/status/observedGeneration", generation)?;
        }
        for node in cluster.nodes() {
            registered(cluster, node.name()).await?;
        }
        Ok(())
    })
    .await
}

/// Fails if a node's kubelet has not registered the driver.
async fn registered(cluster: &Cluster, node: &str) -> Result<()> {
    let entry = cluster.get(&["csinode", node]).await?;
    let mut drivers = entry["spec"]["drivers"].as_array().into_iter().flatten();
    let is_registered = drivers.any(|driver| driver["name"] == DRIVER);
    ensure!(is_registered, "the CSINode of {node} does not name the driver");
    Ok(())
}
