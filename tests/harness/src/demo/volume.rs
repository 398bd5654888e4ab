//! The volume of the demo: a claim and a pod, from their creation to their end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{BUSYBOX_IMAGE, Cluster, wait_for};
use jiff::Timestamp;

use super::driver::Driver;
use super::record::{Record, Request};
use super::table::Row;
use super::title;

const MANIFESTS: &str = include_str!("claim.yaml");
const NAMESPACE: &str = "demo";
const STEP_TIMEOUT: Duration = Duration::from_mins(2);

/// When the volume was asked for and when it was gone, and how long users waited.
#[derive(Debug)]
pub(crate) struct Life {
    began: Timestamp,
    ended: Timestamp,
    until_written: Duration,
    until_gone: Duration,
    volume: String,
}

/// Creates claim and pod, shows the file, deletes both and waits until the volume is gone.
pub(crate) async fn live(cluster: &Cluster, driver: &Driver, class: &str) -> Result<Life> {
    title("A user creates a claim and a pod");
    let began = Timestamp::now();
    let started = Instant::now();
    let manifests = MANIFESTS
        .replace("STORAGE_CLASS", class)
        .replace("BUSYBOX_IMAGE", BUSYBOX_IMAGE);
    print!("{}", cluster.apply(&manifests).await?);
    wait_for("the pod with the volume", STEP_TIMEOUT, async || {
        let pod = cluster.get(&["pod", "writer", "-n", NAMESPACE]).await?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        ensure!(ready, "{}", last_event(cluster).await);
        Ok(())
    })
    .await?;
    let until_written = started.elapsed();
    let claim = cluster.get(&["pvc", "data", "-n", NAMESPACE]).await?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("the claim is not bound")?
        .to_owned();
    println!();
    for words in [
        &["get", "pvc,pod", "-n", NAMESPACE][..],
        &["get", "pv,volumeattachments"],
    ] {
        println!("{}", cluster.kubectl(words).await?);
    }
    title("The file on the mounted volume");
    for command in ["cat /data/hello", "df -h /data", "grep ' /data ' /proc/mounts"] {
        println!("$ {command}");
        println!(
            "{}",
            cluster
                .kubectl(&["exec", "-n", NAMESPACE, "writer", "--", "sh", "-c", command])
                .await?
        );
    }
    title("What OpenStack has");
    println!("{:#}", cluster.simulator()?.state().await?);

    title("The user deletes both");
    let started = Instant::now();
    let limit = format!("--timeout={}s", STEP_TIMEOUT.as_secs());
    for words in [
        ["delete", "pod", "writer", "-n", NAMESPACE, &limit],
        ["delete", "pvc", "data", "-n", NAMESPACE, &limit],
    ] {
        print!(
            "{}",
            cluster
                .kubectl_within(STEP_TIMEOUT + Duration::from_secs(5), &words)
                .await?
        );
    }
    wait_for("the end of the volume", STEP_TIMEOUT, async || {
        ensure_none(cluster, driver).await
    })
    .await?;
    let until_gone = started.elapsed();
    print!(
        "{}",
        cluster.kubectl(&["delete", "namespace", NAMESPACE, &limit]).await?
    );
    Ok(Life {
        began,
        ended: Timestamp::now(),
        until_written,
        until_gone,
        volume,
    })
}

/// What Kubernetes said last about the claim and the pod.
async fn last_event(cluster: &Cluster) -> String {
    let column = "jsonpath={.items[-1:].reason}: {.items[-1:].message}";
    let words = [
        "get",
        "events",
        "-n",
        NAMESPACE,
        "--sort-by=.metadata.creationTimestamp",
        "-o",
        column,
    ];
    match cluster.kubectl(&words).await {
        Ok(event) => format!("the pod is not ready; last event: {event}"),
        Err(_) => "the pod is not ready, and nothing was said about it".to_owned(),
    }
}

/// No PersistentVolume, no VolumeAttachment, and in OpenStack no volume, attachment or loop device.
async fn ensure_none(cluster: &Cluster, driver: &Driver) -> Result<()> {
    let objects = cluster.get(&["pv,volumeattachments"]).await?;
    for object in objects["items"].as_array().context("a list without items")? {
        let ours = object["spec"]["csi"]["driver"] == driver.name() || object["spec"]["attacher"] == driver.name();
        ensure!(!ours, "{} {} is there", object["kind"], object["metadata"]["name"]);
    }
    let state = cluster.simulator()?.state().await?;
    for kind in ["volumes", "attachments", "loop_devices"] {
        let left = &state[kind];
        let none = left
            .as_array()
            .map(Vec::is_empty)
            .or_else(|| left.as_object().map(serde_json::Map::is_empty));
        ensure!(
            none.with_context(|| format!("the simulator's state has no {kind}"))?,
            "OpenStack has {kind}: {left}"
        );
    }
    Ok(())
}

/// Shows that nothing is left.
pub(crate) async fn ensure_gone(cluster: &Cluster, driver: &Driver) -> Result<()> {
    ensure_none(cluster, driver).await?;
    print!("{}", cluster.kubectl(&["get", "pvc,pv,volumeattachments", "-A"]).await?);
    println!(
        "PersistentVolumes: none\nVolumeAttachments: none\nVolumes, attachments and loop devices in OpenStack: none"
    );
    Ok(())
}

/// The lines of the table that tell of the volume.
pub(crate) fn story(record: &Record, life: &Life) -> Result<Vec<Row>> {
    let step = |name: &str, object: &str, method: &str| {
        Row::call(name, object, method, record).with_context(|| format!("the driver's logs tell of no {method}"))
    };
    let pod = "Pod demo/writer";
    Ok(vec![
        step("create the volume", "PersistentVolumeClaim demo/data", "CreateVolume")?,
        step("attach it to the server", "VolumeAttachment", "ControllerPublishVolume")?,
        step("make and mount the file system", pod, "NodeStageVolume")?,
        step("show it to the pod", pod, "NodePublishVolume")?,
        Row::step(
            "in all until the file is written",
            pod,
            life.until_written.as_secs_f64(),
        ),
        step("take it from the pod", pod, "NodeUnpublishVolume")?,
        step("unmount it", pod, "NodeUnstageVolume")?,
        step("detach it", "VolumeAttachment", "ControllerUnpublishVolume")?,
        step(
            "delete it",
            &format!("PersistentVolume {}", life.volume),
            "DeleteVolume",
        )?,
        Row::step(
            "in all until it is gone",
            "PersistentVolumeClaim demo/data",
            life.until_gone.as_secs_f64(),
        ),
    ])
}

/// Shows what OpenStack was asked during the life of the volume.
pub(crate) fn show_requests(record: &Record, life: &Life) {
    title("What OpenStack was asked");
    let during = |request: &&Request| life.began <= request.at && request.at <= life.ended;
    for request in record.requests.iter().filter(during) {
        println!(
            "{:.3}  {:<8}  {:<22}  {} {:<6} {}",
            request.at, request.service, request.operation, request.status, request.method, request.path
        );
    }
}
