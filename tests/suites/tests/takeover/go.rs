//! The Go driver in a cluster, from its own manifests.

use std::path::Path;

use anyhow::{Result, ensure};
use harness::{Cluster, Image, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, PATIENCE};
pub(crate) use suites::go_manifests::{CLUSTER_ID, CONTROLLER, Manifests, NAMESPACE, NODE};

/// What the Go driver runs on a node, and the configuration of that.
const TOOLS: [&str; 11] = [
    "/usr/sbin/mke2fs",
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

/// Its configuration with the credentials of the cluster's cloud.
pub(crate) fn cloud_conf(cluster: &Cluster) -> Result<String> {
    let access = cluster.simulator()?.access();
    Ok(format!(
        "[Global]\nauth-url = {}\nregion = {}\napplication-credential-id = {}\napplication-credential-secret = {}\n",
        access.auth_url, access.region, access.application_credential_id, access.application_credential_secret
    ))
}

/// Makes images of those names, of programs that were built here.
pub(crate) async fn load_images(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
    let mut of_nodes = Vec::new();
    for name in manifests.images() {
        let program = name.rsplit('/').next().unwrap_or(name);
        let program = program.split(':').next().unwrap_or(program);
        match program {
            "livenessprobe" | "csi-node-driver-registrar" => of_nodes.push(name),
            "cinder-csi-plugin" => cluster.import(&driver_image(cluster, name).await?).await?,
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
pub(crate) async fn apply(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
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

/// Deletes all of it, and waits for the end of its pods.
pub(crate) async fn delete(manifests: &Manifests, cluster: &Cluster) -> Result<()> {
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
async fn driver_image(cluster: &Cluster, name: &str) -> Result<Image> {
    let mut image = Image::new(name)
        .program(cluster.tools().path("cinder-csi-plugin")?, "/bin/cinder-csi-plugin")
        .await?
        .link("/usr/sbin/mkfs.ext4", "mke2fs");
    for tool in TOOLS {
        image = image.program(Path::new(tool), tool).await?;
    }
    Ok(image)
}

/// Waits until the Go driver's pods, those of the manifests, are Ready and every node's kubelet knows the driver from its registrar.
pub(crate) async fn serves(cluster: &Cluster) -> Result<()> {
    serves_as(cluster, CONTROLLER, NODE).await
}

/// The same for a Deployment and a DaemonSet of these names.
pub(crate) async fn serves_as(cluster: &Cluster, controller: &str, node: &str) -> Result<()> {
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
pub(crate) async fn registered(cluster: &Cluster, node: &str) -> Result<()> {
    let entry = cluster.get(&["csinode", node]).await?;
    let drivers = entry["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    ensure!(
        drivers.iter().any(|driver| driver["name"] == DRIVER),
        "the CSINode of {node} does not name the driver"
    );
    Ok(())
}
