// SPDX-License-Identifier: Apache-2.0
//! Loads a cluster: creates, attaches and deletes claims as external-provisioner and external-attacher do, and adds and
//! removes nodes.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use suites::api::Api;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::objects::{make_node, namespace_of, node_name, remove_node, uid, volume};
use super::{DRIVER, Scale};

/// Claims per second.
pub(super) const CLAIMS: u32 = 5;
/// Interval at which nodes are added.
pub(super) const NODES: Duration = Duration::from_secs(5);
/// Time for which a volume is attached, and for which a node exists.
const STAY: Duration = Duration::from_secs(10);
/// Limit of concurrent lifecycles. At this rate, it is reached only if the API server does not answer.
const AT_ONCE: usize = 512;
/// First number of the load's objects, beyond those of the cluster.
const BEYOND: u32 = 10_000_000;

/// Loads the API server until the future is dropped.
pub(super) async fn load(api: &Api, scale: Scale) -> Result<Infallible> {
    let claims = every(Duration::from_secs(1) / CLAIMS, async |number| {
        claim(api, scale, number).await
    });
    let nodes = every(NODES, async |number| {
        make_node(api, number).await?;
        sleep(STAY).await;
        remove_node(api, number).await
    });
    tokio::select! {
        ended = claims => ended,
        ended = nodes => ended,
    }
}

/// Starts a lifecycle with each tick, independent of the previous ones.
async fn every(pace: Duration, live: impl AsyncFn(u32) -> Result<()>) -> Result<Infallible> {
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let live = &live;
    let ticks = stream::unfold((ticks, BEYOND), |(mut ticks, number)| async move {
        ticks.tick().await;
        Some((number, (ticks, number + 1)))
    });
    ticks
        .map(async |number| live(number).await)
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |()| Ok(()))
        .await?;
    std::future::pending().await
}

/// Runs the lifecycle of a claim with its volume and attachment.
async fn claim(api: &Api, scale: Scale, number: u32) -> Result<()> {
    let claims = format!("/api/v1/namespaces/{}/persistentvolumeclaims", namespace_of(number));
    let name = format!("data-web-{number}");
    let path = format!("{claims}/{name}");
    let claim_object = json!({
        "metadata": {"name": name, "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "cinder",
            "resources": {"requests": {"storage": "20Gi"}}},
    });
    api.create(&claims, &claim_object).await?;

    let volumes = "/api/v1/persistentvolumes";
    let made = api.create(volumes, &volume(number)).await?;
    let volume = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let volume_path = format!("{volumes}/{volume}");
    api.merge(&format!("{volume_path}/status"), &phase("Bound")).await?;
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}});
    api.merge(&path, &bound).await?;
    api.merge(&format!("{path}/status"), &phase("Bound")).await?;

    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    let attachment = format!("csi-{}", uid(number));
    let attachment_object = json!({
        "metadata": {"name": attachment},
        "spec": {"attacher": DRIVER, "nodeName": node_name(number % scale.nodes), "source": {"persistentVolumeName": volume}},
    });
    api.create(attachments, &attachment_object).await?;
    let attachment = format!("{attachments}/{attachment}");
    api.merge(&format!("{attachment}/status"), &json!({"status": {"attached": true}}))
        .await?;
    sleep(STAY).await;
    api.delete(&attachment).await?;
    let free = json!({"metadata": {"finalizers": null}});
    api.merge(&path, &free).await?;
    api.delete(&path).await?;
    api.merge(&format!("{volume_path}/status"), &phase("Released")).await?;
    api.merge(&volume_path, &free).await?;
    api.delete(&volume_path).await
}

fn phase(phase: &str) -> Value {
    json!({"status": {"phase": phase}})
}
