// SPDX-License-Identifier: Apache-2.0
//! What a switch changes: objects that depend on it, and the words in which the check names them.

use anyhow::{Context as _, Result, ensure};
use harness::{Answer, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, PATIENCE, USERS, claim, pod};

use crate::site::Site;

/// A claim with ReadWriteMany and a file system.
const SHARED: &str = "shared-files";
/// A pod with an in-line volume, which no node takes.
const INLINE: &str = "inline";
/// A StorageClass with a misspelt parameter.
const MISSPELT: &str = "misspelt";

/// Lines and words that every check of the Go driver's manifests prints beside those objects.
pub(crate) const EXPECTED: [&str; 9] = [
    "SharedFileSystem: PersistentVolumes with ReadWriteMany and a file system\n",
    "users/shared-files",
    "InlineVolume: pods with in-line volumes",
    "users/inline",
    "Flag: --pvc-annotations\n",
    "Deployment kube-system/csi-cinder-controllerplugin, container cinder-csi-plugin",
    "ConfigurationKey: [BlockStorage] rescan-on-resize\n  In: Secret kube-system/cloud-config\n",
    "spec.blockStorage.rescanOnResize",
    r#"UnknownParameter: "tpye" of StorageClass misspelt (did you mean "type"?)"#,
];

/// Makes what the switch changes, with the Go driver.
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
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [class, shared, inline]});
    site.cluster().apply(&list.to_string()).await?;
    wait_for("a volume with ReadWriteMany", PATIENCE, async || {
        let found = site.cluster().get(&["pvc", SHARED, "-n", USERS]).await?;
        ensure!(found["status"]["phase"] == "Bound", "{}", found["status"]);
        Ok(())
    })
    .await
}

/// Removes it.
async fn remove_what_changes(site: &Site) -> Result<()> {
    site.world.delete("pod", INLINE).await?;
    site.world.delete_claim(SHARED).await?;
    site.cluster()
        .kubectl(&["delete", "storageclass", MISSPELT])
        .await
        .map(drop)
}

/// What `kubectl cinder-csi` answers; it prints no secret.
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

/// `kubectl cinder-csi adopt --check` with the object of a file.
pub(crate) async fn adopt(site: &Site, object: &Value) -> Result<Answer> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file")?;
    std::fs::write(file.path(), object.to_string()).context("cannot write the object")?;
    run(site, &["adopt", "--check", "-f", &file.path().display().to_string()]).await
}

/// Waits until open findings stop the migration, removes the objects among them, and accepts the others.
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
    site.cluster().kubectl(&words).await.map(drop)
}
