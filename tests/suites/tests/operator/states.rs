// SPDX-License-Identifier: Apache-2.0
//! Tests of Paused, DryRun, and removal.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};
use suites::expect::{expect_equal, expect_field, expect_parts};

use crate::api::{Object, PATIENCE};
use crate::world::{CLASS, DAEMON_SET, DEPLOYMENT, DRIVER, NODES, OBJECT, World};

const VOLUMES: &str = "/api/v1/persistentvolumes";

async fn replicas(world: &World) -> Result<Value> {
    Ok(world.api.get(DEPLOYMENT).await?["spec"]["replicas"].take())
}

pub(crate) async fn pause_ignores_drift_and_dry_run_reports_it(world: &World) -> Result<()> {
    let operator = world.installed("paused", &[], json!({})).await?;
    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.wait_for_reason("Progressing", "False", "Paused").await?;
    world.api.merge(DEPLOYMENT, &json!({"spec": {"replicas": 4}})).await?;
    wait_for("the drift in the status", PATIENCE, async || {
        let message = world.wait_for_reason("Progressing", "False", "Paused").await?;
        expect_parts(&message, &["spec.replicas"])
    })
    .await?;
    expect_equal("replicas under Paused", &replicas(world).await?, &4)?;

    let dry_run = json!({"managementState": "DryRun", "logLevel": "Debug"});
    world.patch_spec(&dry_run).await?;
    let pending = wait_for("pending changes", PATIENCE, async || {
        let mut object = world.api.get(OBJECT).await?;
        let generation = object["metadata"]["generation"].take();
        expect_field(&object, "/status/observedGeneration", generation)?;
        let pending = object["status"]["pendingChanges"].take();
        ensure!(pending.is_object(), "{pending}");
        Ok(pending)
    })
    .await?;
    let changes = pending["changes"].as_array().context("no changes")?;
    let find = |resource: &str| changes.iter().find(|change| change["resource"] == resource);
    let deployment = find("Deployment cinder-csi/cinder-csi-controller").context("no change of the controller")?;
    expect_field(deployment, "/disruptive", true)?;
    expect_parts(&deployment["fields"].to_string(), &["spec.replicas"])?;
    ensure!(find("DaemonSet cinder-csi/cinder-csi-node").is_some(), "{pending}");
    expect_equal("replicas under DryRun", &replicas(world).await?, &4)?;

    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    world.settled().await?;
    ensure!(replicas(world).await? != 4, "drift was not put right");
    expect_field(&world.api.get(OBJECT).await?, "/status/pendingChanges", Value::Null)?;
    operator.stop().await
}

async fn add_volume(world: &World, name: &str, policy: &str) -> Result<()> {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "finalizers": []},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
            "csi": {"driver": DRIVER, "volumeHandle": name}}});
    world.api.create_object(&volume).await.map(drop)
}

async fn remove_volume(world: &World, name: &str) -> Result<()> {
    let path = format!("{VOLUMES}/{name}");
    world.api.delete(&path).await?;
    if world.api.find(&path).await?.is_some() {
        world.api.release(&path).await?;
    }
    Ok(())
}

/// Waits until nothing of the driver remains, and ends deleted pods meanwhile.
async fn wait_until_removed(world: &World) -> Result<()> {
    wait_for("the end of the object", PATIENCE, async || {
        // There is no garbage collector here.
        for path in [DEPLOYMENT, DAEMON_SET] {
            if let Some(object) = world.api.find(path).await?
                && !object["metadata"]["deletionTimestamp"].is_null()
            {
                world.api.release(path).await?;
            }
        }
        for node in NODES {
            world.register(node, false).await?;
        }
        world.api.expect_missing(OBJECT).await
    })
    .await
}

pub(crate) async fn removal_waits_for_volumes_unless_ignored(world: &World) -> Result<()> {
    let soon = json!({"deletion": {"drainTimeout": "5s"}});
    let operator = world.installed("removal", &[], soon).await?;
    add_volume(world, "kept", "Retain").await?;
    add_volume(world, "used", "Delete").await?;
    world.api.delete(OBJECT).await?;
    let message = blocked(world).await?;
    expect_parts(&message, &["2 PersistentVolumes", "kept"])?;
    let blockers = json!([{"kind": "PersistentVolume", "count": 2, "names": ["kept", "used"]}]);
    expect_field(&world.api.get(OBJECT).await?, "/status/deletion/blockers", blockers)?;
    world.api.get(CLASS).await?;
    world.patch_spec(&json!({"deletion": {"ignoreRetained": true}})).await?;
    let names = "/status/deletion/blockers/0/names";
    world.api.wait_for_field(OBJECT, names, json!(["used"])).await?;
    remove_volume(world, "used").await?;
    wait_until_removed(world).await?;
    world.api.expect_missing(DEPLOYMENT).await?;
    remove_volume(world, "kept").await?;
    operator.stop().await
}

/// Waits until volumes block the deletion, and returns the message.
async fn blocked(world: &World) -> Result<String> {
    let reason = "VolumesInUse";
    world.wait_for_reason("DeletionBlocked", "True", reason).await
}

pub(crate) async fn orphans_run_without_labels(world: &World) -> Result<()> {
    let orphan = json!({"deletion": {"policy": "Orphan"}});
    let operator = world.installed("orphan", &[], orphan).await?;
    add_volume(world, "mine", "Delete").await?;
    let operands = world.operands().await?;
    world.patch_spec(&json!({"managementState": "Removed"})).await?;
    let message = world.wait_for_reason("Available", "Unknown", "Orphaned").await?;
    expect_parts(&message, &["goes on running"])?;
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    let message = world.wait_for_reason("Degraded", "True", "OwnershipConflict").await?;
    expect_parts(&message, &["Set spec.adoption.mode to Adopt"])?;
    world.api.delete(OBJECT).await?;
    wait_for("the end of the object", PATIENCE, async || {
        world.api.expect_missing(OBJECT).await
    })
    .await?;
    let outcome = released(world, &operands).await;
    for object in &operands {
        world.api.delete(&object.path).await?;
    }
    remove_volume(world, "mine").await?;
    operator.stop().await?;
    outcome
}

async fn released(world: &World, operands: &[Object]) -> Result<()> {
    for object in operands {
        let current = world.api.get(&object.path).await?;
        let marks = [
            "/metadata/labels/csi.openstack.org~1instance",
            "/metadata/annotations/csi.openstack.org~1owner-uid",
        ];
        for mark in marks {
            expect_field(&current, mark, Value::Null).with_context(|| object.label())?;
        }
        expect_equal(&object.label(), &current["spec"], &object.value["spec"])?;
    }
    Ok(())
}

pub(crate) async fn forced_deletion_needs_acknowledgement_of_object(world: &World) -> Result<()> {
    let spec = json!({"deletion": {"policy": "Force", "drainTimeout": "5s"}});
    let operator = world.installed("force", &[], spec).await?;
    add_volume(world, "lost", "Delete").await?;
    let mark = |uid: &Value| json!({"metadata": {"annotations": {"csi.openstack.org/force-delete": uid}}});
    world.api.merge(OBJECT, &mark(&json!("some-other-uid"))).await?;
    world.api.delete(OBJECT).await?;
    let message = blocked(world).await?;
    expect_parts(&message, &["csi.openstack.org/force-delete"])?;
    let object = world.api.get(OBJECT).await?;
    world.api.merge(OBJECT, &mark(&object["metadata"]["uid"])).await?;
    wait_until_removed(world).await?;
    remove_volume(world, "lost").await?;
    operator.stop().await
}
