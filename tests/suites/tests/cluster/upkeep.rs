// SPDX-License-Identifier: Apache-2.0
//! The operator of an installed driver.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::json;

use crate::leaders::leader;
use crate::metrics;
use crate::snapshots::take;
use crate::world::{DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, USERS, WITHIN, World};

pub(crate) async fn repairs_changed_and_deleted_operands(world: &World) -> Result<()> {
    world.cluster.kubectl(&["delete", "storageclass", "cinder"]).await?;
    let patch = r#"{"spec": {"fsGroupPolicy": "None"}}"#;
    world
        .cluster
        .kubectl(&["patch", "csidriver", DRIVER, "--type=merge", "-p", patch])
        .await?;
    wait_for("the repair", PATIENCE, async || {
        world.cluster.get(&["storageclass", "cinder"]).await?;
        let driver = world.cluster.get(&["csidriver", DRIVER]).await?;
        ensure!(
            driver["spec"]["fsGroupPolicy"] == "File",
            "fsGroupPolicy is {}",
            driver["spec"]["fsGroupPolicy"]
        );
        Ok(())
    })
    .await?;
    world.healthy().await
}

pub(crate) async fn driver_container_has_administrator_files(world: &World) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files", "namespace": NAMESPACE},
        "data": {"word": "from the administrator"}});
    world.cluster.apply(&map.to_string()).await?;
    let volume = r"
- {op: add, path: /spec/template/spec/volumes/-, value: {name: files, configMap: {name: files}}}
- {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: files, mountPath: /opt/files, readOnly: true}}
";
    let target = json!({"kind": "Deployment", "name": "cinder-csi-controller"});
    world
        .patch_spec(&json!({"overrides": [{"target": target, "type": "json", "patch": volume}]}))
        .await?;
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
        ensure!(
            !read.is_empty() && read.iter().all(|text| text == "from the administrator"),
            "{read:?}"
        );
        Ok(())
    })
    .await?;
    world.patch_spec(&json!({"overrides": null})).await?;
    world.healthy().await?;
    world
        .cluster
        .kubectl(&["delete", "configmap", "files", "-n", NAMESPACE])
        .await
        .map(drop)
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
    let words = ["annotate", "cindercsidriver", DRIVER, &note, "--overwrite"];
    world.cluster.kubectl(&words).await?;
    wait_for("another reconcile", PATIENCE, async || {
        let now = operator_metric(world, reconciles).await?;
        ensure!(now > seen, "{now} reconciles as before");
        Ok(())
    })
    .await
}

/// Returns the driver's operands with their resource versions.
pub(crate) async fn owned_versions(world: &World) -> Result<Vec<(String, String)>> {
    let selector = format!("csi.openstack.org/instance={DRIVER}");
    let kinds = "clusterroles,clusterrolebindings,csidrivers,storageclasses";
    let namespaced = "deployments,daemonsets,serviceaccounts,secrets,roles,rolebindings,services,configmaps,\
                      poddisruptionbudgets,networkpolicies";
    let mut versions = world.versions(&[kinds, "-l", &selector]).await?;
    versions.extend(world.versions(&[namespaced, "-n", NAMESPACE, "-l", &selector]).await?);
    Ok(versions)
}

pub(crate) async fn idle_operator_writes_nothing(world: &World) -> Result<()> {
    world.healthy().await?;
    // The operator reports the last change before the idle period begins.
    looked(world).await?;
    let before = owned_versions(world).await?;
    let status = world.driver().await?["status"].clone();
    let words = [
        "annotate",
        "storageclass",
        "cinder",
        "example.org/looked=once",
        "--overwrite",
    ];
    world.cluster.kubectl(&words).await?;
    looked(world).await?;
    let after = owned_versions(world).await?;
    let changed: Vec<_> = before
        .iter()
        .filter(|object| !after.contains(object))
        .map(|(name, _)| name.as_str())
        .collect();
    // The annotation above is the only write.
    ensure!(changed == ["StorageClass/cinder"], "written at rest: {changed:?}");
    let now = world.driver().await?["status"].clone();
    ensure!(now == status, "the status changed at rest from {status} to {now}");
    Ok(())
}

pub(crate) async fn unmanaged_driver_is_unchanged(world: &World) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Unmanaged"})).await?;
    // The status considers the change when it has the new generation.
    wait_for("the status of an unmanaged driver", PATIENCE, async || {
        let object = world.cluster.get(&["cindercsidriver", DRIVER]).await?;
        ensure!(
            object["status"]["observedGeneration"] == object["metadata"]["generation"],
            "{}",
            object["status"]
        );
        Ok(())
    })
    .await?;
    world.cluster.kubectl(&["delete", "storageclass", "cinder"]).await?;
    looked(world).await?;
    let class = world
        .cluster
        .kubectl(&["get", "storageclass", "cinder", "--ignore-not-found", "-o", "name"])
        .await?;
    ensure!(class.is_empty(), "an unmanaged driver's class was made anew");
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    world.healthy().await?;
    world.cluster.get(&["storageclass", "cinder"]).await.map(drop)
}

/// Waits until no operand remains, also on the nodes.
pub(crate) async fn no_operands(world: &World) -> Result<()> {
    wait_for("the end of the driver", PATIENCE, async || {
        let selector = format!("csi.openstack.org/instance={DRIVER}");
        let kinds = "deployments,daemonsets,pods,serviceaccounts,secrets,roles,rolebindings";
        for words in [
            &[
                "get",
                "csidrivers,storageclasses,clusterroles,clusterrolebindings",
                "-l",
                &selector,
                "-o",
                "name",
            ][..],
            &["get", kinds, "-n", NAMESPACE, "-l", &selector, "-o", "name"],
        ] {
            let remaining = world.cluster.kubectl(words).await?;
            ensure!(
                remaining.trim().is_empty(),
                "left: {}",
                remaining.split_whitespace().collect::<Vec<_>>().join(", ")
            );
        }
        let nodes = world.cluster.get(&["csinodes"]).await?;
        ensure!(
            !nodes.to_string().contains(&format!("\"name\":\"{DRIVER}\"")),
            "a node still has the driver"
        );
        Ok(())
    })
    .await?;
    for node in world.cluster.nodes() {
        let links = node
            .exec_within(Duration::from_secs(10), &["ls", "/var/lib/kubelet/plugins_registry"])
            .await?;
        ensure!(!links.contains(DRIVER), "{} still has {links}", node.name());
    }
    Ok(())
}

pub(crate) async fn removal_waits_for_volume(world: &World) -> Result<()> {
    world.start_pod("last", None).await?;
    world.ready("last").await?;
    let claim = world.cluster.get(&["pvc", "last", "-n", crate::world::USERS]).await?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("the claim is not bound")?
        .to_owned();
    world
        .cluster
        .kubectl(&["delete", "cindercsidriver", DRIVER, "--wait=false"])
        .await?;
    wait_for("the name of the volume in the status", PATIENCE, async || {
        let object = world.cluster.get(&["cindercsidriver", DRIVER]).await?;
        let blockers = object["status"]["deletion"]["blockers"].to_string();
        ensure!(blockers.contains(&volume), "the blockers are {blockers}");
        let conditions = object["status"]["conditions"].to_string();
        ensure!(
            conditions.contains(&volume),
            "the conditions do not name {volume}: {conditions}"
        );
        Ok(())
    })
    .await?;
    // The driver still works: the pod is deleted, and its volume is detached and deleted.
    world.sh("last", "echo still > /data/still && sync").await?;
    world.delete_pod_and_volume("last").await?;
    no_operands(world).await?;
    wait_for("the end of the object", PATIENCE, async || {
        let remaining = world
            .cluster
            .kubectl(&["get", "cindercsidrivers", "-o", "name"])
            .await?;
        ensure!(remaining.trim().is_empty(), "left: {remaining}");
        Ok(())
    })
    .await?;
    // The driver can be installed again.
    world.ask_for_driver().await
}

pub(crate) async fn removed_state_deletes_operands_only(world: &World) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Removed"})).await?;
    no_operands(world).await?;
    world.condition("Available", "False", |_| true).await?;
    world.ask_for_driver().await
}

pub(crate) async fn metrics_report_work_of_both_programs(world: &World) -> Result<()> {
    world.healthy().await?;
    world.start_pod("counted", None).await?;
    world.ready("counted").await?;
    world.delete_pod_and_volume("counted").await?;
    for name in ["cinder_csi_operator_reconcile_total", "cinder_csi_operator_condition"] {
        ensure!(operator_metric(world, name).await? > 0.0, "{name} is 0");
    }
    // Two controllers run, but only the leader works, so the sum counts each operation once.
    let mut metrics_text = world.controller_metrics().await?;
    metrics_text.push_str(&world.driver_metrics("node", 9897).await?);
    for node in world.cluster.nodes() {
        // The port is on the node's network; it serves no plain HTTP.
        let read = node
            .exec(&["busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:9897/metrics"])
            .await;
        ensure!(read.is_err(), "metrics in plain HTTP: {read:?}");
    }
    for sample in [
        "csi_operations_seconds_count{driver_name=\"cinder.csi.openstack.org\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\"}",
        "csi_operations_seconds_count{driver_name=\"cinder.csi.openstack.org\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Node/NodeStageVolume\"}",
        "openstack_api_requests_total{request=\"volume_create\"}",
    ] {
        ensure!(
            metrics_text.contains(sample),
            "no metrics page of the driver has {sample}"
        );
    }
    ensure!(!metrics_text.contains("pvc-"), "a volume's name is a label");
    Ok(())
}

pub(crate) async fn removal_waits_for_snapshot(world: &World) -> Result<()> {
    world.healthy().await?;
    world.start_pod("pictured", None).await?;
    world.ready("pictured").await?;
    take(world, "picture", "pictured").await?;
    let snapshot = world.cluster.get(&["volumesnapshot", "picture", "-n", USERS]).await?;
    let content = snapshot["status"]["boundVolumeSnapshotContentName"]
        .as_str()
        .context("the snapshot is not bound")?
        .to_owned();
    // A snapshot blocks the deletion of its volume; a retained volume blocks nothing.
    let claim = world.cluster.get(&["pvc", "pictured", "-n", USERS]).await?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("the claim is not bound")?
        .to_owned();
    reclaim(world, &volume, "Retain").await?;
    world.delete_pod("pictured").await?;
    world.delete_claim("pictured").await?;

    let removed = json!({"managementState": "Removed", "deletion": {"ignoreRetained": true}});
    world.patch_spec(&removed).await?;
    let blocked = world
        .condition("DeletionBlocked", "True", |condition| {
            condition["reason"] == "SnapshotsExist"
        })
        .await?;
    println!("    DeletionBlocked: {}", blocked["message"]);
    ensure!(
        blocked["message"].as_str().is_some_and(|text| text.contains(&content)),
        "{blocked}"
    );
    let blockers = world.driver().await?["status"]["deletion"]["blockers"].clone();
    ensure!(
        blockers == json!([{"kind": "VolumeSnapshotContent", "count": 1, "names": [content]}]),
        "{blockers}"
    );

    // The driver must still exist to delete it.
    let words = ["delete", "volumesnapshot", "picture", "-n", USERS, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    no_operands(world).await?;
    let remaining = world.cloud_volumes().await?;
    ensure!(remaining.len() == 1, "the cloud has {remaining:?}");

    world.patch_spec(&json!({"deletion": null})).await?;
    world.ask_for_driver().await?;
    reclaim(world, &volume, "Delete").await?;
    world.nothing_left().await
}

/// Sets the reclaim policy of a volume.
async fn reclaim(world: &World, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}}).to_string();
    let words = ["patch", "pv", volume, "--type=merge", "-p", &patch];
    world.cluster.kubectl(&words).await.map(drop)
}
