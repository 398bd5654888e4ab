// SPDX-License-Identifier: Apache-2.0
//! Tests of the migration from the Go driver, step by step, with simulated pods and kubelets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{wait_for, workspace_root};
use serde::Deserialize as _;
use serde_json::{Value, json};
use suites::expect::{expect_equal, expect_field, expect_none, expect_parts};
use suites::go_manifests::{CLUSTER_ID, CONTROLLER, Manifests, NODE};

use crate::api::{PATIENCE, path_of};
use crate::world::{DAEMON_SET, DEPLOYMENT, DRIVER, NODES, OBJECT, PODS, World, now};

const CSI_DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/cinder.csi.openstack.org";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const APPS: &str = "/apis/apps/v1/namespaces/kube-system";
const OLD_PODS: &str = "/api/v1/namespaces/kube-system/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEASE_NAME: &str = "external-attacher-leader-cinder-csi-openstack-org";
/// Duration of the other attacher's Lease after the end of its pod.
const LEASE_SECONDS: u8 = 6;

pub(crate) async fn migration_never_has_two_leaders(world: &World) -> Result<()> {
    install(world).await?;
    let old_driver = world.api.get(CSI_DRIVER).await?;
    let _operator = world.start_operator("takeover", &[]).await?;
    world.ask_for_driver(json!({"clusterID": CLUSTER_ID})).await?;
    degraded(world, "OwnershipConflict").await?;
    world.patch_spec(&json!({"adoption": {"mode": "Migrate"}})).await?;
    degraded(world, "AdoptionForbidden").await?;
    // The other controller is unchanged without the role.
    expect_replicas(world, 1).await?;
    role(world, "role.yaml", true).await?;

    // Open findings stop the migration before any change.
    degraded(world, "MigrationHeldUp").await?;
    world.api.expect_missing(DAEMON_SET).await?;
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
    expect_replicas(world, 1).await?;
    our_pod(world, NODES[0], false).await?;

    // The other controller is scaled down. While it has a pod, our controller does not start.
    wait_for_step(world, "StoppingController").await?;
    stopped(world).await?;
    world.api.expect_missing(DEPLOYMENT).await?;
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
    // The CSIDriver does not change hands before our controller serves.
    let uid = &old_driver["metadata"]["uid"];
    expect_field(&world.api.get(CSI_DRIVER).await?, "/metadata/uid", uid.clone())?;

    // Our controller is complete: the DaemonSets change, but no pods yet.
    world.controller_runs().await?;
    wait_for("the CSIDriver to change hands", PATIENCE, async || {
        let new_driver = world.api.get(CSI_DRIVER).await?;
        ensure!(new_driver["metadata"]["uid"] != *uid, "it is that of the other driver");
        expect_field(&new_driver, "/spec/volumeLifecycleModes", json!(["Persistent"]))
    })
    .await?;
    let old_set = format!("{APPS}/daemonsets/{NODE}");
    wait_for("the end of the other DaemonSet", PATIENCE, async || {
        let Some(set) = world.api.find(&old_set).await? else {
            return Ok(());
        };
        ensure!(set["metadata"]["deletionTimestamp"].is_string(), "it is not deleted");
        expect_field(&set, "/metadata/finalizers", json!(["orphan"]))?;
        // The garbage collector would do this.
        world.api.release(&old_set).await
    })
    .await?;
    expect_none("leaving node plugins", &leaving(world).await?)?;

    // Nodes follow one after the other, only where a pod of ours waits.
    for node in NODES {
        our_pod(world, node, false).await?;
    }
    for (index, node) in NODES.into_iter().enumerate() {
        wait_for(&format!("the node plugin of {node} to go"), PATIENCE, async || {
            expect_equal("leaving node plugins", &leaving(world).await?, &[node])
        })
        .await?;
        world.register(node, false).await?;
        world.api.delete(&format!("{OLD_PODS}/old-{node}")).await?;
        let is_last = index + 1 == NODES.len();
        wait_for_step(world, if is_last { "Done" } else { "ReplacingNodes" }).await?;
        expect_none("leaving node plugins", &leaving(world).await?)?;
        our_pod(world, node, true).await?;
        world.register(node, true).await?;
    }
    let object = world.api.get(OBJECT).await?;
    let leftovers = object["status"]["adoption"]["leftovers"].to_string();
    let expected = [
        CONTROLLER,
        "ClusterRole csi-attacher-role",
        "ServiceAccount kube-system/csi-cinder-node-sa",
        "Secret kube-system/cloud-config",
    ];
    expect_parts(&leftovers, &expected)?;

    world.api.delete(&old_controller()).await?;
    world.api.delete(&format!("{LEASES}/{LEASE_NAME}")).await?;
    for name in ["attacher", "provisioner", "snapshotter", "resizer", "nodeplugin"] {
        world.api.delete(&format!("{BINDINGS}/csi-{name}-binding")).await?;
    }
    wait_for("nothing to be left", PATIENCE, async || {
        let object = world.api.get(OBJECT).await?;
        // A change triggers a reconcile, because foreign objects are not watched.
        world.patch_spec(&json!({"logLevel": "Debug"})).await?;
        expect_field(&object, "/status/adoption", Value::Null)
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
        expect_replicas(world, 1).await
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

fn old_controller() -> String {
    format!("{APPS}/deployments/{CONTROLLER}")
}

/// Fails unless the other controller has this number of desired replicas.
async fn expect_replicas(world: &World, count: u8) -> Result<()> {
    expect_field(&world.api.get(&old_controller()).await?, "/spec/replicas", count)
}

/// Waits until the other controller is scaled down, and its replicas are recorded in an annotation.
async fn stopped(world: &World) -> Result<()> {
    wait_for("the other controller to be scaled down", PATIENCE, async || {
        expect_replicas(world, 0).await?;
        let old = world.api.get(&old_controller()).await?;
        let note = old["metadata"]["annotations"]["csi.openstack.org/takeover"].to_string();
        expect_parts(&note, &["replicas"])
    })
    .await
}

/// Installs the other driver from its own manifests, with the objects that controllers would create.
async fn install(world: &World) -> Result<()> {
    let manifests = Manifests::read("[Global]\n").await?;
    for object in manifests.objects() {
        world.api.create_object(object).await?;
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
    let renewed = json!({"spec": {"renewTime": now("+%FT%T.%6NZ")?}});
    let lease = format!("{LEASES}/{LEASE_NAME}");
    world.api.merge(&lease, &renewed).await.map(drop)
}

/// Creates or deletes the objects of a file of the shipped migration role.
async fn role(world: &World, file: &str, give: bool) -> Result<()> {
    let file = workspace_root().join("config/rbac/adoption").join(file);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).context("the role is not YAML")?;
        if give {
            world.api.create_object(&object).await?;
        } else {
            world.api.delete(&path_of(&object)?).await?;
        }
    }
    Ok(())
}

async fn degraded(world: &World, reason: &str) -> Result<()> {
    wait_for(&format!("Degraded ({reason})"), PATIENCE, async || {
        world.reason("Degraded", "True", reason).await
    })
    .await?;
    nothing_of_ours(world).await
}

async fn held_up(world: &World, cause: &str) -> Result<()> {
    wait_for(&format!("Degraded ({cause})"), PATIENCE, async || {
        let message = world.reason("Degraded", "True", "MigrationHeldUp").await?;
        expect_parts(&message, &[cause])
    })
    .await?;
    nothing_of_ours(world).await
}

async fn nothing_of_ours(world: &World) -> Result<()> {
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.expect_missing(path).await?;
    }
    Ok(())
}

async fn wait_for_step(world: &World, step: &str) -> Result<()> {
    let pointer = "/status/adoption/step";
    world.api.wait_for_field(OBJECT, pointer, step).await.map(drop)
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
        world.create_node_pod(node, &revision).await?;
    }
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": if serves { "True" } else { "False" }}],
        "containerStatuses": [{"name": "cinder-csi-driver", "image": "driver", "imageID": "", "ready": serves,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }});
    world.api.merge(&format!("{path}/status"), &status).await.map(drop)
}
