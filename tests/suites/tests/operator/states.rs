// SPDX-License-Identifier: Apache-2.0
//! Tests of Paused, DryRun, and removal.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::world::{CLASS, DEPLOYMENT, OBJECT, PATIENCE, World};

const VOLUMES: &str = "/api/v1/persistentvolumes";

async fn replicas(world: &World) -> Result<Value> {
    Ok(world.api.get(DEPLOYMENT).await?["spec"]["replicas"].clone())
}

pub(crate) async fn pause_ignores_drift_and_dry_run_reports_it(world: &World) -> Result<()> {
    let operator = world.installed("paused", &[], json!({})).await?;
    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.wait_for_condition("Progressing", "False", "Paused", &[]).await?;
    world.api.merge(DEPLOYMENT, &json!({"spec": {"replicas": 4}})).await?;
    wait_for("the drift in the status", PATIENCE, async || {
        let message = world.wait_for_condition("Progressing", "False", "Paused", &[]).await?;
        ensure!(message.contains("spec.replicas"), "{message}");
        Ok(())
    })
    .await?;
    ensure!(replicas(world).await? == 4, "drift was put right under Paused");

    world
        .patch_spec(&json!({"managementState": "DryRun", "logLevel": "Debug"}))
        .await?;
    let pending = wait_for("pending changes", PATIENCE, async || {
        let object = world.api.get(OBJECT).await?;
        let pending = object["status"]["pendingChanges"].clone();
        ensure!(
            object["status"]["observedGeneration"] == object["metadata"]["generation"] && pending.is_object(),
            "{pending}"
        );
        Ok(pending)
    })
    .await?;
    let changes = pending["changes"].as_array().context("no changes")?;
    let find = |resource: &str| changes.iter().find(|change| change["resource"] == resource);
    let deployment = find("Deployment cinder-csi/cinder-csi-controller").context("no change of the controller")?;
    ensure!(
        deployment["disruptive"] == true && deployment["fields"].to_string().contains("spec.replicas"),
        "{deployment}"
    );
    ensure!(find("DaemonSet cinder-csi/cinder-csi-node").is_some(), "{pending}");
    ensure!(replicas(world).await? == 4, "something was changed under DryRun");

    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    ensure!(replicas(world).await? != 4, "drift was not put right");
    let status = world.api.get(OBJECT).await?["status"].clone();
    ensure!(status["pendingChanges"].is_null(), "{}", status["pendingChanges"]);
    operator.process.stop().await?;
    Ok(())
}

async fn add_volume(world: &World, name: &str, policy: &str) -> Result<()> {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "finalizers": []},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
            "csi": {"driver": crate::world::DRIVER, "volumeHandle": name}}});
    world.api.create(VOLUMES, &volume).await.map(drop)
}

async fn remove_volume(world: &World, name: &str) -> Result<()> {
    let path = format!("{VOLUMES}/{name}");
    world.api.delete(&path).await?;
    if world.api.find(&path).await?.is_some() {
        world
            .api
            .merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await?;
    }
    Ok(())
}

/// Waits until nothing of the driver remains, and ends deleted pods meanwhile.
async fn wait_until_removed(world: &World) -> Result<()> {
    wait_for("the end of the object", PATIENCE, async || {
        // There is no garbage collector here.
        for path in [DEPLOYMENT, crate::world::DAEMON_SET] {
            if let Some(object) = world.api.find(path).await?
                && !object["metadata"]["deletionTimestamp"].is_null()
            {
                world
                    .api
                    .merge(path, &json!({"metadata": {"finalizers": null}}))
                    .await?;
            }
        }
        for node in crate::world::NODES {
            world.register(node, false).await?;
        }
        ensure!(world.api.find(OBJECT).await?.is_none(), "it is still there");
        Ok(())
    })
    .await
}

pub(crate) async fn removal_waits_for_volumes_unless_ignored(world: &World) -> Result<()> {
    let operator = world
        .installed("removal", &[], json!({"deletion": {"drainTimeout": "5s"}}))
        .await?;
    add_volume(world, "kept", "Retain").await?;
    add_volume(world, "used", "Delete").await?;
    world.api.delete(OBJECT).await?;
    let message = world
        .wait_for_condition("DeletionBlocked", "True", "VolumesInUse", &[])
        .await?;
    ensure!(
        message.contains("2 PersistentVolumes") && message.contains("kept"),
        "{message}"
    );
    let blockers = world.api.get(OBJECT).await?["status"]["deletion"]["blockers"].clone();
    ensure!(
        blockers == json!([{"kind": "PersistentVolume", "count": 2, "names": ["kept", "used"]}]),
        "{blockers}"
    );
    ensure!(world.api.find(CLASS).await?.is_some(), "something was removed");
    world.patch_spec(&json!({"deletion": {"ignoreRetained": true}})).await?;
    wait_for("one blocker", PATIENCE, async || {
        let blockers = world.api.get(OBJECT).await?["status"]["deletion"]["blockers"].clone();
        ensure!(blockers[0]["names"] == json!(["used"]), "{blockers}");
        Ok(())
    })
    .await?;
    remove_volume(world, "used").await?;
    wait_until_removed(world).await?;
    ensure!(world.api.find(DEPLOYMENT).await?.is_none(), "the controller is left");
    remove_volume(world, "kept").await?;
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn orphans_run_without_labels(world: &World) -> Result<()> {
    let operator = world
        .installed("orphan", &[], json!({"deletion": {"policy": "Orphan"}}))
        .await?;
    add_volume(world, "mine", "Delete").await?;
    let operands = world.operands().await?;
    world.patch_spec(&json!({"managementState": "Removed"})).await?;
    let message = world
        .wait_for_condition("Available", "Unknown", "Orphaned", &[])
        .await?;
    ensure!(message.contains("goes on running"), "{message}");
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    let message = world
        .wait_for_condition("Degraded", "True", "OwnershipConflict", &[])
        .await?;
    ensure!(message.contains("Set spec.adoption.mode to Adopt"), "{message}");
    world.api.delete(OBJECT).await?;
    wait_for("the end of the object", PATIENCE, async || {
        ensure!(world.api.find(OBJECT).await?.is_none(), "it is still there");
        Ok(())
    })
    .await?;
    let outcome = released(world, &operands).await;
    for object in &operands {
        world.api.delete(&object.path).await?;
    }
    remove_volume(world, "mine").await?;
    operator.process.stop().await?;
    outcome
}

async fn released(world: &World, operands: &[crate::api::Object]) -> Result<()> {
    for object in operands {
        let current = world.api.find(&object.path).await?;
        let current = current.with_context(|| format!("{} is gone", object.label()))?;
        let metadata = &current["metadata"];
        ensure!(
            metadata["labels"]["csi.openstack.org/instance"].is_null()
                && metadata["annotations"]["csi.openstack.org/owner-uid"].is_null(),
            "{} has its marks: {metadata}",
            object.label()
        );
        ensure!(
            current["spec"] == object.value["spec"],
            "{} was changed",
            object.label()
        );
    }
    Ok(())
}

pub(crate) async fn forced_deletion_needs_acknowledgement_of_object(world: &World) -> Result<()> {
    let spec = json!({"deletion": {"policy": "Force", "drainTimeout": "5s"}});
    let operator = world.installed("force", &[], spec).await?;
    add_volume(world, "lost", "Delete").await?;
    let mark = |uid: &str| json!({"metadata": {"annotations": {"csi.openstack.org/force-delete": uid}}});
    world.api.merge(OBJECT, &mark("some-other-uid")).await?;
    world.api.delete(OBJECT).await?;
    let message = world
        .wait_for_condition("DeletionBlocked", "True", "VolumesInUse", &[])
        .await?;
    ensure!(message.contains("csi.openstack.org/force-delete"), "{message}");
    let uid = world.api.get(OBJECT).await?["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    world.api.merge(OBJECT, &mark(&uid)).await?;
    wait_until_removed(world).await?;
    remove_volume(world, "lost").await?;
    operator.process.stop().await?;
    Ok(())
}
