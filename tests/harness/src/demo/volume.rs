// SPDX-License-Identifier: Apache-2.0
//! The volume of the demo: creates and deletes its claim and pod.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{Cluster, wait_for};
use jiff::Timestamp;

use super::driver::{Driver, sample};
use super::record::{Record, Request};
use super::table::Row;
use super::title;

const STEP_TIMEOUT: Duration = Duration::from_mins(2);

/// The claim and the pod from `config/samples`.
#[derive(Debug)]
struct Sample {
    file: String,
    claim: String,
    pod: String,
    directory: String,
}

impl Sample {
    async fn read(cluster: &Cluster) -> Result<Self> {
        let file = sample("pod.yaml")?;
        let text = cluster
            .kubectl(&["apply", "--dry-run=client", "-o", "json", "-f", &file])
            .await?;
        let objects: serde_json::Value =
            serde_json::from_str(&text).context("kubectl printed something that is not JSON")?;
        let objects = objects["items"]
            .as_array()
            .context("the sample has one object; a claim and a pod are expected")?;
        let find = |kind: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind)
                .with_context(|| format!("{file} has no {kind}"))
        };
        let name = |object: &serde_json::Value| {
            object["metadata"]["name"]
                .as_str()
                .map(str::to_owned)
                .context("an object without a name")
        };
        let pod = find("Pod")?;
        let directory = pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"].as_str();
        Ok(Self {
            claim: name(find("PersistentVolumeClaim")?)?,
            pod: name(pod)?,
            directory: directory.context("the sample's pod mounts nothing")?.to_owned(),
            file,
        })
    }

    async fn in_pod(&self, cluster: &Cluster, command: &str) -> Result<String> {
        cluster.kubectl(&["exec", &self.pod, "--", "sh", "-c", command]).await
    }
}

/// Times of creation and removal of the volume, and the times that users waited.
#[derive(Debug)]
pub(crate) struct Life {
    began: Timestamp,
    ended: Timestamp,
    until_written: Duration,
    until_gone: Duration,
    claim: String,
    pod: String,
}

/// Creates claim and pod, prints the file, deletes both, and waits until the volume is deleted.
pub(crate) async fn run_lifecycle(cluster: &Cluster, driver: &Driver) -> Result<Life> {
    title("A user creates a claim and a pod: kubectl apply -f config/samples/pod.yaml");
    let sample = Sample::read(cluster).await?;
    let began = Timestamp::now();
    let started = Instant::now();
    print!("{}", cluster.kubectl(&["apply", "-f", &sample.file]).await?);
    let show = format!("grep -r '' {}", sample.directory);
    let file = wait_for("the file on the volume", STEP_TIMEOUT, async || {
        let written = sample.in_pod(cluster, &show).await;
        match written {
            Ok(file) => Ok(file),
            Err(error) => Err(error.context(last_event(cluster, &sample.pod).await)),
        }
    })
    .await?;
    let until_written = started.elapsed();
    println!();
    for words in [
        ["get", "pvc,pods", "-o", "wide"],
        ["get", "pv,volumeattachments", "-o", "wide"],
    ] {
        println!("{}", cluster.kubectl(&words).await?);
    }
    title("The file on the mounted volume");
    println!("$ {show}\n{file}");
    for command in [
        format!("df -h {}", sample.directory),
        format!("grep ' {} ' /proc/mounts", sample.directory),
    ] {
        println!("$ {command}\n{}", sample.in_pod(cluster, &command).await?);
    }
    title("What OpenStack has");
    let state = cluster.simulator()?.state().await?;
    for kind in STATE {
        println!("{kind}: {:#}", state[kind]);
    }

    title("The user deletes both: kubectl delete -f config/samples/pod.yaml");
    let started = Instant::now();
    let limit = format!("--timeout={}s", STEP_TIMEOUT.as_secs());
    let words = ["delete", "-f", &sample.file, &limit];
    print!(
        "{}",
        cluster
            .kubectl_within(STEP_TIMEOUT + Duration::from_secs(5), &words)
            .await?
    );
    wait_for("the end of the volume", STEP_TIMEOUT, async || {
        ensure_none(cluster, driver).await
    })
    .await?;
    Ok(Life {
        began,
        ended: Timestamp::now(),
        until_written,
        until_gone: started.elapsed(),
        claim: sample.claim,
        pod: sample.pod,
    })
}

/// Parts of the simulator's state in which a volume appears.
const STATE: [&str; 3] = ["volumes", "attachments", "loop_devices"];

/// Returns the last event of the claim or the pod.
async fn last_event(cluster: &Cluster, pod: &str) -> String {
    let column = "jsonpath={.items[-1:].reason}: {.items[-1:].message}";
    let words = ["get", "events", "--sort-by=.metadata.creationTimestamp", "-o", column];
    match cluster.kubectl(&words).await {
        Ok(event) => format!("{pod} has written nothing; last event: {event}"),
        Err(_) => format!("{pod} has written nothing, and there are no events"),
    }
}

/// Checks that there is no PersistentVolume and VolumeAttachment, and no volume, attachment or loop device in
/// OpenStack.
async fn ensure_none(cluster: &Cluster, driver: &Driver) -> Result<()> {
    let objects = cluster.get(&["pv,volumeattachments"]).await?;
    for object in objects["items"].as_array().context("a list without items")? {
        let ours = object["spec"]["csi"]["driver"] == driver.name() || object["spec"]["attacher"] == driver.name();
        ensure!(!ours, "{} {} is there", object["kind"], object["metadata"]["name"]);
    }
    let state = cluster.simulator()?.state().await?;
    for kind in STATE {
        let remaining = &state[kind];
        let none = remaining
            .as_array()
            .map(Vec::is_empty)
            .or_else(|| remaining.as_object().map(serde_json::Map::is_empty));
        ensure!(
            none.with_context(|| format!("the simulator's state has no {kind}"))?,
            "OpenStack has {kind}: {remaining}"
        );
    }
    Ok(())
}

/// Checks and prints that nothing remains.
pub(crate) async fn ensure_gone(cluster: &Cluster, driver: &Driver) -> Result<()> {
    ensure_none(cluster, driver).await?;
    print!("{}", cluster.kubectl(&["get", "pvc,pv,volumeattachments", "-A"]).await?);
    println!(
        "PersistentVolumes: none\nVolumeAttachments: none\nVolumes, attachments and loop devices in OpenStack: none"
    );
    Ok(())
}

/// Returns the rows of the table about the volume.
pub(crate) fn story(record: &Record, life: &Life) -> Result<Vec<Row>> {
    let step = |name: &str, object: &str, method: &str| {
        Row::call(name, object, method, record).with_context(|| format!("the driver's logs tell of no {method}"))
    };
    let (pod, claim) = (
        format!("Pod {}", life.pod),
        format!("PersistentVolumeClaim {}", life.claim),
    );
    let (pod, claim) = (pod.as_str(), claim.as_str());
    Ok(vec![
        step("create the volume", claim, "CreateVolume")?,
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
        step("delete it", "PersistentVolume", "DeleteVolume")?,
        Row::step("in all until it is gone", claim, life.until_gone.as_secs_f64()),
    ])
}

/// Prints the requests to OpenStack during the lifecycle of the volume.
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
