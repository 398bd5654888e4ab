// SPDX-License-Identifier: Apache-2.0
//! The operator of an installed driver.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::json;
use suites::expect::{expect_equal, expect_field, expect_parts};

use crate::leaders::leader;
use crate::metrics;
use crate::snapshots::take;
use crate::world::{CLASS, DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, USERS, World};

/// The StorageClass that the operator creates.
const OWN_CLASS: [&str; 2] = ["storageclass", CLASS];
/// The CinderCSIDriver object.
const OBJECT: [&str; 2] = ["cindercsidriver", DRIVER];

pub(crate) async fn repairs_changed_and_deleted_operands(world: &World) -> Result<()> {
    world.remove(&OWN_CLASS).await?;
    let driver = ["csidriver", DRIVER];
    let change = json!({"spec": {"fsGroupPolicy": "None"}});
    world.patch(&driver, &change).await?;
    wait_for("the class", PATIENCE, async || world.get(&OWN_CLASS).await).await?;
    world.wait_for_field(&driver, "/spec/fsGroupPolicy", "File").await?;
    world.healthy().await
}

pub(crate) async fn driver_container_has_administrator_files(world: &World) -> Result<()> {
    let content = "from the administrator";
    world.write_config_map("files", "word", content).await?;
    let volume = r"
- {op: add, path: /spec/template/spec/volumes/-, value: {name: files, configMap: {name: files}}}
- {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: files, mountPath: /opt/files, readOnly: true}}
";
    let target = json!({"kind": "Deployment", "name": "cinder-csi-controller"});
    let overrides = json!({"overrides": [{"target": target, "type": "json", "patch": volume}]});
    world.patch_spec(&overrides).await?;
    wait_for("the file in the driver's container", PATIENCE, async || {
        let mut read = Vec::new();
        for node in world.cluster.nodes() {
            for container in node.containers(NAMESPACE, DRIVER_CONTAINER).await? {
                if container.pod.contains("controller") {
                    let path = format!("/proc/{}/root/opt/files/word", container.pid);
                    read.push(node.exec(&["busybox", "cat", &path]).await?);
                }
            }
        }
        let is_everywhere = !read.is_empty() && read.iter().all(|text| text == content);
        ensure!(is_everywhere, "{read:?}");
        Ok(())
    })
    .await?;
    world.change_spec(&json!({"overrides": null})).await?;
    world.remove(&["configmap", "files", "-n", NAMESPACE]).await
}

/// Returns a counter of the operator's metrics, summed over its labels.
pub(crate) async fn operator_metric(world: &World, name: &str) -> Result<f64> {
    let text = metrics::page(world).await?;
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    ensure!(!values.is_empty(), "the operator has no metric {name}");
    Ok(values.iter().sum())
}

/// Waits until the leading operator has reconciled the driver once more.
pub(crate) async fn looked(world: &World) -> Result<()> {
    let reconciles = "cinder_csi_operator_reconcile_total";
    let seen = wait_for("the first reconcile", PATIENCE, async || {
        operator_metric(world, reconciles).await
    })
    .await?;
    // An annotation without a meaning triggers a reconcile.
    let note = format!("example.org/looked={}.{seen}", leader(world).await?);
    world.annotate(&OBJECT, &note).await?;
    wait_for("another reconcile", PATIENCE, async || {
        let now = operator_metric(world, reconciles).await?;
        ensure!(now > seen, "{now} reconciles as before");
        Ok(())
    })
    .await
}

pub(crate) async fn idle_operator_writes_nothing(world: &World) -> Result<()> {
    world.healthy().await?;
    // The operator reports the last change before the idle period begins.
    looked(world).await?;
    let before = world.operand_versions().await?;
    let status = world.driver().await?["status"].take();
    world.annotate(&OWN_CLASS, "example.org/looked=once").await?;
    looked(world).await?;
    let after = world.operand_versions().await?;
    let changed = before.iter().filter(|object| !after.contains(object));
    let changed: Vec<_> = changed.map(|(name, _)| name.as_str()).collect();
    // The annotation above is the only write.
    expect_equal("written objects", &changed, &["StorageClass/cinder"])?;
    expect_equal("status", &world.driver().await?["status"], &status)
}

pub(crate) async fn unmanaged_driver_is_unchanged(world: &World) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Unmanaged"})).await?;
    // The status considers the change when it has the new generation.
    let generation = world.driver().await?["metadata"]["generation"].take();
    let observed = "/status/observedGeneration";
    world.wait_for_field(&OBJECT, observed, generation).await?;
    world.remove(&OWN_CLASS).await?;
    looked(world).await?;
    let words = [&OWN_CLASS[..], &["--ignore-not-found"]].concat();
    world.expect_no_object(&words).await?;
    world.change_spec(&json!({"managementState": "Managed"})).await?;
    world.get(&OWN_CLASS).await.map(drop)
}

pub(crate) async fn removal_waits_for_volume(world: &World) -> Result<()> {
    world.run_pod("last", None).await?;
    let volume = world.volume_name("last").await?;
    let delete = ["delete", "cindercsidriver", DRIVER, "--wait=false"];
    world.kubectl(&delete).await?;
    wait_for("the name of the volume in the status", PATIENCE, async || {
        let status = world.driver().await?["status"].take();
        expect_parts(&status["deletion"]["blockers"].to_string(), &[&volume])?;
        expect_parts(&status["conditions"].to_string(), &[&volume])
    })
    .await?;
    // The driver still works: the pod is deleted, and its volume is detached and deleted.
    world.sh("last", "echo still > /data/still && sync").await?;
    world.delete_pod_and_volume("last").await?;
    world.no_operands().await?;
    wait_for("the end of the object", PATIENCE, async || {
        world.expect_no_object(&["cindercsidrivers"]).await
    })
    .await?;
    // The driver can be installed again.
    world.ask_for_driver().await
}

pub(crate) async fn removed_state_deletes_operands_only(world: &World) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Removed"})).await?;
    world.no_operands().await?;
    world.condition("Available", "False").await?;
    world.ask_for_driver().await
}

pub(crate) async fn metrics_report_work_of_both_programs(world: &World) -> Result<()> {
    world.healthy().await?;
    world.run_pod("counted", None).await?;
    world.delete_pod_and_volume("counted").await?;
    for name in ["cinder_csi_operator_reconcile_total", "cinder_csi_operator_condition"] {
        ensure!(operator_metric(world, name).await? > 0.0, "{name} is 0");
    }
    // Two controllers run, but only the leader works, so the sum counts each operation once.
    let mut metrics_text = world.controller_metrics().await?;
    metrics_text.push_str(&world.driver_metrics("node", 9897).await?);
    for node in world.cluster.nodes() {
        // The port is on the node's network; it serves no plain HTTP.
        let url = "http://127.0.0.1:9897/metrics";
        let read = node.exec(&["busybox", "wget", "-q", "-O", "-", url]).await;
        ensure!(read.is_err(), "metrics in plain HTTP: {read:?}");
    }
    let call = |method: &str| {
        let labels = "driver_name=\"cinder.csi.openstack.org\",grpc_status_code=\"OK\"";
        format!("csi_operations_seconds_count{{{labels},method_name=\"/csi.v1.{method}\"}}")
    };
    let calls = [call("Controller/CreateVolume"), call("Node/NodeStageVolume")];
    let requests = "openstack_api_requests_total{request=\"volume_create\"}";
    expect_parts(&metrics_text, &[&calls[0], &calls[1], requests])?;
    ensure!(!metrics_text.contains("pvc-"), "a volume's name is a label");
    Ok(())
}

pub(crate) async fn removal_waits_for_snapshot(world: &World) -> Result<()> {
    world.healthy().await?;
    world.run_pod("pictured", None).await?;
    take(world, "picture", "pictured", CLASS).await?;
    let mut snapshot = world.get_of_users("volumesnapshot", "picture").await?;
    let content = snapshot["status"]["boundVolumeSnapshotContentName"].take();
    let content = content.as_str().context("the snapshot is not bound")?;
    // A snapshot blocks the deletion of its volume; a retained volume blocks nothing.
    let volume = world.volume_name("pictured").await?;
    reclaim(world, &volume, "Retain").await?;
    world.delete_pod_and_claim("pictured").await?;

    let removed = json!({"managementState": "Removed", "deletion": {"ignoreRetained": true}});
    world.patch_spec(&removed).await?;
    let blocked = world
        .reason("DeletionBlocked", "True", "SnapshotsExist", &[content])
        .await?;
    println!("    DeletionBlocked: {}", blocked["message"]);
    let blockers = json!([{"kind": "VolumeSnapshotContent", "count": 1, "names": [content]}]);
    expect_field(&world.driver().await?, "/status/deletion/blockers", blockers)?;

    // The driver must still exist to delete it.
    world.remove(&["volumesnapshot", "picture", "-n", USERS]).await?;
    world.no_operands().await?;
    world.expect_cloud_volumes(1).await?;

    world.patch_spec(&json!({"deletion": null})).await?;
    world.ask_for_driver().await?;
    reclaim(world, &volume, "Delete").await?;
    world.nothing_left().await
}

/// Sets the reclaim policy of a volume.
async fn reclaim(world: &World, volume: &str, policy: &str) -> Result<()> {
    let change = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    world.patch(&["pv", volume], &change).await
}
