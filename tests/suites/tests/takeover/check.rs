// SPDX-License-Identifier: Apache-2.0
//! Objects whose behavior changes in a migration, and the output of the check about them.

use anyhow::{Context as _, Result, ensure};
use harness::{Answer, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, Plugin, USERS, claim_of_class, pod, storage_class};
use suites::expect::{expect_equal, expect_field};
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
    let class = storage_class(MISSPELT, &json!({"tpye": "fast"}));
    let mut shared = claim_of_class(SHARED, MISSPELT);
    shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    let mut inline = pod(INLINE, "true", Some("no-such-node"));
    inline["spec"]["volumes"] =
        json!([{"name": "data", "csi": {"driver": DRIVER, "volumeAttributes": {"capacity": "1Gi"}}}]);
    let mut items = vec![class, shared, inline];
    items.extend(region());
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    site.world.apply(&list).await?;
    site.world.run_pod_of_class(REGION, REGION).await?;
    let shared = ["pvc", SHARED, "-n", USERS];
    let phase = "/status/phase";
    site.world.wait_for_field(&shared, phase, "Bound").await.map(drop)
}

/// Returns the class of a region, its Secret, and the role of cinder-csi-plugin's sidecars to read it, which the
/// manifests contain as a comment.
fn region() -> Vec<Value> {
    // XFS, because a machine without CAP_SYS_RESOURCE cannot expand a mounted ext4.
    let mut parameters = json!({"csi.storage.k8s.io/fstype": "xfs"});
    let of_controller = ["provisioner", "controller-publish", "controller-expand"];
    for call in of_controller.into_iter().chain(["node-stage", "node-publish"]) {
        parameters[format!("csi.storage.k8s.io/{call}-secret-name")] = json!(REGION_SECRET);
        parameters[format!("csi.storage.k8s.io/{call}-secret-namespace")] = json!(go::NAMESPACE);
    }
    let metadata = |name: &str| json!({"name": name, "namespace": go::NAMESPACE});
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [REGION_SECRET], "verbs": ["get"]});
    let mut class = storage_class(REGION, &parameters);
    class["allowVolumeExpansion"] = json!(true);
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    vec![
        class,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(REGION_SECRET), "stringData": {"cloud": ""}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata("go-secrets"), "rules": [rule]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata("go-secrets"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "go-secrets"},
            "subjects": [{"kind": "ServiceAccount", "name": GO_ACCOUNT, "namespace": go::NAMESPACE}]}),
    ]
}

/// Grants this driver's sidecars the permission, as the finding recommends.
async fn grant_secrets(site: &Site) -> Result<()> {
    const ROLE: &str = "cinder-csi-controller-secrets";
    let name = format!("--resource-name={REGION_SECRET}");
    let create = |kind| ["create", kind, ROLE, "-n", go::NAMESPACE];
    let rights = ["--verb=get", "--resource=secrets", &name];
    site.world.kubectl(&[&create("role")[..], &rights].concat()).await?;
    let role = format!("--role={ROLE}");
    let account = format!("--serviceaccount={NAMESPACE}:cinder-csi-controller");
    let arguments = [&create("rolebinding")[..], &[&role, &account]].concat();
    site.world.kubectl(&arguments).await.map(drop)
}

/// Deletes these objects, except the class of a region and its pod.
async fn remove_what_changes(site: &Site) -> Result<()> {
    site.world.delete("pod", INLINE).await?;
    site.world.delete_claim(SHARED).await?;
    site.world.remove(&["storageclass", MISSPELT]).await
}

/// Runs `kubectl cinder-csi`; checks that it prints no secret.
pub(crate) async fn run(site: &Site, words: &[&str]) -> Result<Answer> {
    let plugin = Plugin::install(&site.world)?;
    let answer = plugin.command(&site.world, words)?.answer().await?;
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
    held_up(site, "PersistentVolumes with ReadWriteMany").await?;
    remove_what_changes(site).await?;
    site.acknowledge("accept-findings").await?;
    held_up(site, "Acceptance does not include SecretAccess").await?;
    grant_secrets(site).await
}

/// Waits until the operator reports this cause of a stopped migration.
async fn held_up(site: &Site, cause: &str) -> Result<()> {
    let words = [cause];
    site.world.reason("Degraded", "True", "MigrationHeldUp", &words).await?;
    let step = "/status/adoption/step";
    expect_field(&site.world.driver().await?, step, "Preparing")
}

/// Detaches, attaches to the other node, expands and deletes a volume with a Secret in its class and PersistentVolume.
pub(crate) async fn use_volume_with_secret(site: &Site) -> Result<()> {
    let world = &site.world;
    let object = world.volume(REGION).await?;
    let reference = &object["spec"]["csi"]["controllerPublishSecretRef"]["name"];
    expect_equal("Secret of the volume", reference, REGION_SECRET)?;
    let first = world.node_of(REGION).await?.name();
    let mut others = world.cluster.nodes().iter().filter(|node| node.name() != first);
    let other = others.next().context("no other node")?.name();
    world.delete_pod(REGION).await?;
    world.start_pod_on(REGION, other, REGION).await?;
    world.ready(REGION).await?;
    site.grow(REGION, 2).await?;
    let volume = world.volume_name(REGION).await?;
    world.delete_pod_and_claim(REGION).await?;
    wait_for("the deletion of the volume with a Secret", PATIENCE, async || {
        let volume = ["pv", &volume, "--ignore-not-found"];
        world.expect_no_object(&volume).await
    })
    .await?;
    site.a_life_of_class("new-of-region", REGION).await
}
