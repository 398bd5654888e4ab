// SPDX-License-Identifier: Apache-2.0
//! Tests of the migration from the Go driver, step by step, with simulated pods and kubelets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{wait_for, workspace_root};
use serde::Deserialize as _;
use serde_json::{Value, json};
use suites::go_manifests::{CLUSTER_ID, CONTROLLER, Manifests, NODE};

use crate::world::{DAEMON_SET, DEPLOYMENT, DRIVER, NODES, OBJECT, PATIENCE, PODS, REVISION_LABEL, World};

const CSI_DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const APPS: &str = "/apis/apps/v1/namespaces/kube-system";
const OLD_PODS: &str = "/api/v1/namespaces/kube-system/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
const LEASE_NAME: &str = "external-attacher-leader-cinder-csi-openstack-org";
/// Duration of the other attacher's Lease after the end of its pod.
const LEASE_SECONDS: u8 = 6;

pub(crate) async fn migration_never_has_two_leaders(world: &World) -> Result<()> {
    install(world).await?;
    let old_driver = world.api.get(&driver()).await?;
    let _operator = world.start_operator("takeover", &[]).await?;
    world.ask_for_driver(json!({"clusterID": CLUSTER_ID})).await?;
    degraded(world, "OwnershipConflict").await?;
    world.patch_spec(&json!({"adoption": {"mode": "Migrate"}})).await?;
    degraded(world, "AdoptionForbidden").await?;
    ensure!(
        world.api.get(&format!("{APPS}/deployments/{CONTROLLER}")).await?["spec"]["replicas"] == 1,
        "the other controller was touched without the role"
    );
    role(world, "role.yaml", true).await?;

    // Open findings stop the migration before any change.
    degraded(world, "MigrationHeldUp").await?;
    ensure!(
        world.api.find(DAEMON_SET).await?.is_none(),
        "our DaemonSet exists despite open findings"
    );
    let object = world.api.get(OBJECT).await?;
    let accepted =
        json!({"metadata": {"annotations": {"csi.openstack.org/accept-findings": object["metadata"]["uid"]}}});
    world.api.merge(OBJECT, &accepted).await?;
    // Without permission to list all pods, the operator cannot exclude an installation in another namespace.
    held_up(world, "another namespace").await?;
    role(world, "cluster_role.yaml", true).await?;

    // Before any change of the other driver, a pod of ours must start, and a dry run of our controller must pass.
    wait_for_step(world, "StartingNodes").await?;
    wait_for("our DaemonSet", PATIENCE, async || world.api.get(DAEMON_SET).await).await?;
    ensure!(
        replicas(world).await? == 1,
        "the other controller was stopped before a pod of ours ran"
    );
    our_pod(world, NODES[0], false).await?;

    // The other controller is scaled down. While it has a pod, our controller does not start.
    wait_for_step(world, "StoppingController").await?;
    stopped(world).await?;
    ensure!(
        world.api.find(DEPLOYMENT).await?.is_none(),
        "our controller is there beside a pod of the other one"
    );
    hold_lease(world).await?;
    let begun = std::time::Instant::now();
    world.api.delete(&format!("{OLD_PODS}/{CONTROLLER}-x")).await?;
    wait_for("our controller", PATIENCE, async || world.api.get(DEPLOYMENT).await).await?;
    let waited = begun.elapsed();
    ensure!(
        waited + Duration::from_secs(1) > Duration::from_secs(LEASE_SECONDS.into()),
        "it started {waited:?} after the other one's pod ended, in spite of its lease"
    );
    taken_back_and_begun_again(world).await?;
    ensure!(
        world.api.get(&driver()).await?["metadata"]["uid"] == old_driver["metadata"]["uid"],
        "the CSIDriver changed hands before our controller serves"
    );

    // Our controller is complete: the DaemonSets change, but no pods yet.
    let deployment = world.api.get(DEPLOYMENT).await?;
    let replicas = &deployment["spec"]["replicas"];
    let done = json!({"status": {"observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
        "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
    world.api.merge(&format!("{DEPLOYMENT}/status"), &done).await?;
    wait_for("the CSIDriver to change hands", PATIENCE, async || {
        let new_driver = world.api.get(&driver()).await?;
        ensure!(
            new_driver["metadata"]["uid"] != old_driver["metadata"]["uid"]
                && new_driver["spec"]["volumeLifecycleModes"] == json!(["Persistent"]),
            "the CSIDriver is {new_driver}"
        );
        Ok(())
    })
    .await?;
    let old_set = format!("{APPS}/daemonsets/{NODE}");
    wait_for("the end of the other DaemonSet", PATIENCE, async || {
        let Some(set) = world.api.find(&old_set).await? else {
            return Ok(());
        };
        ensure!(set["metadata"]["deletionTimestamp"].is_string(), "it is not deleted");
        ensure!(
            set["metadata"]["finalizers"] == json!(["orphan"]),
            "{}",
            set["metadata"]
        );
        // The garbage collector would do this.
        world
            .api
            .merge(&old_set, &json!({"metadata": {"finalizers": null}}))
            .await?;
        Ok(())
    })
    .await?;
    ensure!(
        leaving(world).await?.is_empty(),
        "node plugins went before one of ours was there"
    );

    // Nodes follow one after the other, only where a pod of ours waits.
    for node in NODES {
        our_pod(world, node, false).await?;
    }
    for (index, node) in NODES.into_iter().enumerate() {
        wait_for(&format!("the node plugin of {node} to go"), PATIENCE, async || {
            let leaving = leaving(world).await?;
            ensure!(leaving == [node], "these go: {leaving:?}");
            Ok(())
        })
        .await?;
        world.register(node, false).await?;
        world.api.delete(&format!("{OLD_PODS}/old-{node}")).await?;
        wait_for_step(
            world,
            if index + 1 < NODES.len() {
                "ReplacingNodes"
            } else {
                "Done"
            },
        )
        .await?;
        ensure!(
            leaving(world).await?.is_empty(),
            "the next one goes before this node is served"
        );
        our_pod(world, node, true).await?;
        world.register(node, true).await?;
    }
    let object = world.api.get(OBJECT).await?;
    let leftovers = object["status"]["adoption"]["leftovers"].to_string();
    for expected in [
        CONTROLLER,
        "ClusterRole csi-attacher-role",
        "ServiceAccount kube-system/csi-cinder-node-sa",
        "Secret kube-system/cloud-config",
    ] {
        ensure!(leftovers.contains(expected), "{expected} is not among {leftovers}");
    }

    for path in [
        format!("{APPS}/deployments/{CONTROLLER}"),
        format!("{LEASES}/{LEASE_NAME}"),
    ] {
        world.api.delete(&path).await?;
    }
    for name in ["attacher", "provisioner", "snapshotter", "resizer", "nodeplugin"] {
        world.api.delete(&format!("{BINDINGS}/csi-{name}-binding")).await?;
    }
    wait_for("nothing to be left", PATIENCE, async || {
        let object = world.api.get(OBJECT).await?;
        // A change triggers a reconcile, because foreign objects are not watched.
        world.patch_spec(&json!({"logLevel": "Debug"})).await?;
        ensure!(
            object["status"]["adoption"].is_null(),
            "{}",
            object["status"]["adoption"]
        );
        Ok(())
    })
    .await?;
    role(world, "cluster_role.yaml", false).await?;
    role(world, "role.yaml", false).await
}

/// Reverts the mode before our controller serves: the other controller is scaled up again, and no pod of ours runs next
/// to it.
async fn taken_back_and_begun_again(world: &World) -> Result<()> {
    world.patch_spec(&json!({"adoption": {"mode": "Refuse"}})).await?;
    wait_for("the other controller to have its pods again", PATIENCE, async || {
        ensure!(replicas(world).await? == 1, "it is scaled to 0");
        Ok(())
    })
    .await?;
    nothing_of_ours(world).await?;
    world.api.delete(&format!("{PODS}/node-pod-{}", NODES[0])).await?;
    world.patch_spec(&json!({"adoption": {"mode": "Migrate"}})).await?;
    our_pod(world, NODES[0], false).await?;
    stopped(world).await?;
    wait_for("our controller", PATIENCE, async || world.api.get(DEPLOYMENT).await)
        .await
        .map(drop)
}

/// Returns the desired replicas of the other controller.
async fn replicas(world: &World) -> Result<Value> {
    let old = world.api.get(&format!("{APPS}/deployments/{CONTROLLER}")).await?;
    Ok(old["spec"]["replicas"].clone())
}

/// Waits until the other controller is scaled down, and its replicas are recorded in an annotation.
async fn stopped(world: &World) -> Result<()> {
    wait_for("the other controller to be scaled down", PATIENCE, async || {
        let old = world.api.get(&format!("{APPS}/deployments/{CONTROLLER}")).await?;
        let note = old["metadata"]["annotations"]["csi.openstack.org/takeover"].to_string();
        ensure!(old["spec"]["replicas"] == 0, "{}", old["spec"]["replicas"]);
        ensure!(note.contains("replicas"), "the note is {note}");
        Ok(())
    })
    .await
}

fn driver() -> String {
    format!("{CSI_DRIVERS}/{DRIVER}")
}

/// Installs the other driver from its own manifests, with the objects that controllers would create.
async fn install(world: &World) -> Result<()> {
    let manifests = Manifests::read("[Global]\n").await?;
    for object in manifests.objects() {
        let api = object["apiVersion"].as_str().unwrap_or_default();
        let base = if api.contains('/') {
            format!("/apis/{api}")
        } else {
            format!("/api/{api}")
        };
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .map(|name| format!("/namespaces/{name}"));
        let plural = format!("{}s", object["kind"].as_str().unwrap_or_default().to_lowercase());
        let collection = format!("{base}{}/{plural}", namespace.unwrap_or_default());
        world.api.create(&collection, object).await?;
    }
    let containers =
        json!([{"name": "cinder-csi-plugin", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"}]);
    let volumes = json!([{"name": "socket-dir", "hostPath": {"path": format!("/var/lib/kubelet/plugins/{DRIVER}")}}]);
    let mut pods = vec![(format!("{CONTROLLER}-x"), NODES[0], json!([]))];
    pods.extend(NODES.map(|node| (format!("old-{node}"), node, volumes.clone())));
    for (name, node, volumes) in pods {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "serviceAccountName": "default",
            "containers": containers, "volumes": volumes}});
        // No controller creates the service account.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
        if world.api.find(&format!("{accounts}/default")).await?.is_none() {
            world.api.create(accounts, &account).await?;
        }
        world.api.create(OLD_PODS, &pod).await?;
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME},
        "spec": {"holderIdentity": format!("{CONTROLLER}-x"), "leaseDurationSeconds": LEASE_SECONDS}});
    world.api.create(LEASES, &lease).await?;
    for node in NODES {
        world.register(node, true).await?;
    }
    Ok(())
}

/// Renews the attacher's Lease for the last time.
async fn hold_lease(world: &World) -> Result<()> {
    let now = std::process::Command::new("date")
        .args(["-u", "+%FT%T.%6NZ"])
        .output()
        .context("cannot run date")?;
    let renewed = String::from_utf8_lossy(&now.stdout).trim().to_owned();
    world
        .api
        .merge(
            &format!("{LEASES}/{LEASE_NAME}"),
            &json!({"spec": {"renewTime": renewed}}),
        )
        .await
        .map(drop)
}

/// Creates or deletes the objects of a file of the shipped migration role.
async fn role(world: &World, file: &str, give: bool) -> Result<()> {
    let file = workspace_root().join("config/rbac/adoption").join(file);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).context("the role is not YAML")?;
        let collection = match object["kind"].as_str() {
            Some("Role") => format!("{ROLES}/roles"),
            Some("RoleBinding") => format!("{ROLES}/rolebindings"),
            Some("ClusterRole") => format!("{CLUSTER_ROLES}/clusterroles"),
            _ => format!("{CLUSTER_ROLES}/clusterrolebindings"),
        };
        if give {
            world.api.create(&collection, &object).await?;
        } else {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            world.api.delete(&format!("{collection}/{name}")).await?;
        }
    }
    Ok(())
}

async fn degraded(world: &World, reason: &str) -> Result<()> {
    wait_for(&format!("Degraded ({reason})"), PATIENCE, async || {
        let (now, message) = world.condition("Degraded", "True").await?;
        ensure!(now == reason, "{now}: {message}");
        Ok(())
    })
    .await?;
    nothing_of_ours(world).await
}

async fn held_up(world: &World, cause: &str) -> Result<()> {
    wait_for(&format!("Degraded ({cause})"), PATIENCE, async || {
        let (reason, message) = world.condition("Degraded", "True").await?;
        ensure!(
            reason == "MigrationHeldUp" && message.contains(cause),
            "{reason}: {message}"
        );
        Ok(())
    })
    .await?;
    nothing_of_ours(world).await
}

async fn nothing_of_ours(world: &World) -> Result<()> {
    for path in [DEPLOYMENT, DAEMON_SET] {
        ensure!(world.api.find(path).await?.is_none(), "{path} is there");
    }
    Ok(())
}

async fn wait_for_step(world: &World, step: &str) -> Result<()> {
    wait_for(&format!("step {step}"), PATIENCE, async || {
        let object = world.api.get(OBJECT).await?;
        let adoption = &object["status"]["adoption"];
        ensure!(
            adoption["step"] == step,
            "{adoption} {}",
            object["status"]["conditions"]
        );
        Ok(())
    })
    .await
}

/// Returns the nodes on which the other driver's pod is being deleted.
async fn leaving(world: &World) -> Result<Vec<&'static str>> {
    let mut nodes = Vec::new();
    for node in NODES {
        let pod = world.api.find(&format!("{OLD_PODS}/old-{node}")).await?;
        if pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string()) {
            nodes.push(node);
        }
    }
    Ok(nodes)
}

/// Creates our pod on a node: its container runs, and waits for the socket or serves.
async fn our_pod(world: &World, node: &str, serves: bool) -> Result<()> {
    let path = format!("{PODS}/node-pod-{node}");
    if world.api.find(&path).await?.is_none() {
        let daemon_set = wait_for("our DaemonSet", PATIENCE, async || world.api.get(DAEMON_SET).await).await?;
        let revision = world.revision(&daemon_set).await?;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("node-pod-{node}"), "labels": {
            "csi.openstack.org/instance": DRIVER, "app.kubernetes.io/component": "node", (REVISION_LABEL): revision}},
            "spec": {"nodeName": node, "serviceAccountName": "cinder-csi-node", "automountServiceAccountToken": false,
                "containers": [{"name": "cinder-csi-driver", "image": "driver"}]}});
        world.api.create(PODS, &pod).await?;
    }
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": if serves { "True" } else { "False" }}],
        "containerStatuses": [{"name": "cinder-csi-driver", "image": "driver", "imageID": "", "ready": serves,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }});
    world.api.merge(&format!("{path}/status"), &status).await.map(drop)
}
