// SPDX-License-Identifier: Apache-2.0
//! Objects whose behavior changes in a migration, and the output of the check about them.

use anyhow::{Context as _, Result, ensure};
use harness::{Answer, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, USERS, claim, pod};
use suites::go_manifests as go;

use crate::site::Site;

/// Name of a ReadWriteMany claim with a file system.
const SHARED: &str = "shared-files";
/// Name of a pod with an in-line volume, which no node supports.
const INLINE: &str = "inline";
/// Name of a StorageClass with a misspelt parameter.
const MISSPELT: &str = "misspelt";

/// Name of the class of a region, and of its claim and pod. Its Secret has an empty key `cloud`, which selects the only
/// cloud.
pub(crate) const REGION: &str = "region-one";
/// The Secret of the class, named as in cinder-csi-plugin's documentation of regions.
const REGION_SECRET: &str = "openstack-config-region-one";
/// Service account of cinder-csi-plugin's controller.
const GO_ACCOUNT: &str = "csi-cinder-controller-sa";

/// Lines and words that every check of the Go driver's manifests prints in addition to those objects.
pub(crate) const EXPECTED: [&str; 12] = [
    "SecretAccess: Secrets in namespace kube-system\n",
    "  In: Secret kube-system/openstack-config-region-one of StorageClass region-one, PersistentVolume pvc-",
    "kubectl create role cinder-csi-controller-secrets -n kube-system",
    "SharedFileSystem: PersistentVolumes with ReadWriteMany and a file system\n",
    "users/shared-files",
    "InlineVolume: pods with in-line volumes",
    "users/inline",
    "Flag: --pvc-annotations\n",
    "Deployment kube-system/csi-cinder-controllerplugin, container cinder-csi-plugin",
    "ConfigurationKey: [BlockStorage] rescan-on-resize\n  In: Secret kube-system/cloud-config, key cloud.conf\n",
    "spec.blockStorage.rescanOnResize to false",
    r#"UnknownParameter: "tpye" of StorageClass misspelt (did you mean "type"?)"#,
];

/// Creates the objects with the Go driver.
pub(crate) async fn make_what_changes(site: &Site) -> Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": MISSPELT}, "provisioner": DRIVER,
        "volumeBindingMode": "Immediate", "parameters": {"tpye": "fast"},
    });
    let mut shared = claim(SHARED, "Filesystem");
    shared["spec"]["storageClassName"] = json!(MISSPELT);
    shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    let mut inline = pod(INLINE, "true", Some("no-such-node"));
    inline["spec"]["volumes"] =
        json!([{"name": "data", "csi": {"driver": DRIVER, "volumeAttributes": {"capacity": "1Gi"}}}]);
    let mut items = vec![class, shared, inline];
    items.extend(region());
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    site.cluster().apply(&list.to_string()).await?;
    site.world.start_pod_of_class(REGION, REGION).await?;
    site.world.ready(REGION).await?;
    wait_for("a volume with ReadWriteMany", PATIENCE, async || {
        let claim = site.cluster().get(&["pvc", SHARED, "-n", USERS]).await?;
        ensure!(claim["status"]["phase"] == "Bound", "{}", claim["status"]);
        Ok(())
    })
    .await
}

/// Returns the class of a region, its Secret, and the role of cinder-csi-plugin's sidecars to read it, which the
/// manifests contain as a comment.
fn region() -> Vec<Value> {
    // XFS, because a machine without CAP_SYS_RESOURCE cannot expand a mounted ext4.
    let mut parameters = json!({"csi.storage.k8s.io/fstype": "xfs"});
    for call in [
        "provisioner",
        "controller-publish",
        "controller-expand",
        "node-stage",
        "node-publish",
    ] {
        parameters[format!("csi.storage.k8s.io/{call}-secret-name")] = json!(REGION_SECRET);
        parameters[format!("csi.storage.k8s.io/{call}-secret-namespace")] = json!(go::NAMESPACE);
    }
    let metadata = |name: &str| json!({"name": name, "namespace": go::NAMESPACE});
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [REGION_SECRET], "verbs": ["get"]});
    vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(REGION_SECRET), "stringData": {"cloud": ""}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata("go-secrets"), "rules": [rule]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata("go-secrets"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "go-secrets"},
            "subjects": [{"kind": "ServiceAccount", "name": GO_ACCOUNT, "namespace": go::NAMESPACE}]}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": REGION}, "provisioner": DRIVER,
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer", "parameters": parameters}),
    ]
}

/// Grants this driver's sidecars the permission, as the finding recommends.
async fn grant_secrets(site: &Site) -> Result<()> {
    const ROLE: &str = "cinder-csi-controller-secrets";
    let name = format!("--resource-name={REGION_SECRET}");
    let words = [
        "create",
        "role",
        ROLE,
        "-n",
        go::NAMESPACE,
        "--verb=get",
        "--resource=secrets",
        &name,
    ];
    site.cluster().kubectl(&words).await?;
    let (role, account) = (
        format!("--role={ROLE}"),
        format!("--serviceaccount={NAMESPACE}:cinder-csi-controller"),
    );
    let words = ["create", "rolebinding", ROLE, "-n", go::NAMESPACE, &role, &account];
    site.cluster().kubectl(&words).await.map(drop)
}

/// Deletes these objects, except the class of a region and its pod.
async fn remove_what_changes(site: &Site) -> Result<()> {
    site.world.delete("pod", INLINE).await?;
    site.world.delete_claim(SHARED).await?;
    site.cluster()
        .kubectl(&["delete", "storageclass", MISSPELT])
        .await
        .map(drop)
}

/// Runs `kubectl cinder-csi`; checks that it prints no secret.
pub(crate) async fn run(site: &Site, words: &[&str]) -> Result<Answer> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let program = directory.path().join("kubectl-cinder_csi");
    std::os::unix::fs::symlink(&site.product.operator, &program).context("cannot link the plugin")?;
    let command = site.cluster().command_in_network(&program.display().to_string())?;
    let answer = command.args(words).answer().await?;
    let login = site.world.login()?.cloud_conf();
    let secrets = login.lines().filter_map(|line| line.split_once('='));
    for (key, value) in secrets.filter(|(key, _)| key.contains("secret") || key.contains("password")) {
        let value = value.trim().trim_matches('"');
        ensure!(
            !answer.stdout.contains(value) && !answer.stderr.contains(value),
            "the value of {key} is printed"
        );
    }
    Ok(answer)
}

/// Runs `kubectl cinder-csi adopt --check` with an object from a file.
pub(crate) async fn adopt(site: &Site, object: &Value) -> Result<Answer> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file")?;
    std::fs::write(file.path(), object.to_string()).context("cannot write the object")?;
    run(site, &["adopt", "--check", "-f", &file.path().display().to_string()]).await
}

/// Waits until open findings stop the migration. Then deletes some of the objects, and accepts the other findings.
/// Grants the permission to read the Secret of a region, which acceptance does not replace.
pub(crate) async fn resolve_findings(site: &Site) -> Result<()> {
    let names_objects = |found: &Value| {
        let message = found["message"].as_str().unwrap_or_default();
        found["reason"] == "MigrationHeldUp" && message.contains("PersistentVolumes with ReadWriteMany")
    };
    site.world.condition("Degraded", "True", names_objects).await?;
    ensure!(site.object().await?["status"]["adoption"]["step"] == "Preparing");
    remove_what_changes(site).await?;
    let object = site.object().await?;
    let uid = object["metadata"]["uid"].as_str().context("no uid")?;
    let accepted = format!("csi.openstack.org/accept-findings={uid}");
    let words = ["annotate", "cindercsidriver", DRIVER, &accepted];
    site.cluster().kubectl(&words).await?;
    let lacks_access = |found: &Value| {
        let message = found["message"].as_str().unwrap_or_default();
        found["reason"] == "MigrationHeldUp" && message.contains("Acceptance does not include SecretAccess")
    };
    site.world.condition("Degraded", "True", lacks_access).await?;
    ensure!(site.object().await?["status"]["adoption"]["step"] == "Preparing");
    grant_secrets(site).await
}

/// Detaches, attaches to the other node, expands and deletes a volume with a Secret in its class and PersistentVolume.
pub(crate) async fn use_volume_with_secret(site: &Site) -> Result<()> {
    let cluster = site.cluster();
    let claim = cluster.get(&["pvc", REGION, "-n", USERS]).await?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("a claim without a volume")?;
    let object = cluster.get(&["pv", volume]).await?;
    ensure!(
        object["spec"]["csi"]["controllerPublishSecretRef"]["name"] == REGION_SECRET,
        "{object}"
    );
    let pod = cluster.get(&["pod", REGION, "-n", USERS]).await?;
    let mut others = cluster
        .nodes()
        .iter()
        .filter(|node| pod["spec"]["nodeName"] != node.name());
    let other = others.next().context("no other node")?.name();
    site.world.delete_pod(REGION).await?;
    site.world.start_pod_on(REGION, other, REGION).await?;
    site.world.ready(REGION).await?;
    site.grow(REGION, 2).await?;
    site.world.delete_pod(REGION).await?;
    site.world.delete_claim(REGION).await?;
    wait_for("the deletion of the volume with a Secret", PATIENCE, async || {
        let object = cluster
            .kubectl(&["get", "pv", volume, "--ignore-not-found", "-o", "name"])
            .await?;
        ensure!(object.trim().is_empty(), "{object} exists");
        Ok(())
    })
    .await?;
    site.a_life_of_class("new-of-region", REGION).await
}
