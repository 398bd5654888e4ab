// SPDX-License-Identifier: Apache-2.0
//! The users' pods, claims and their volumes.

use anyhow::{Context as _, Result};
use harness::{Node, wait_for};
use serde_json::{Value, json};

use super::objects::mounted_pod;
use super::{PATIENCE, USERS, World, claim, claim_of_class, pod};
use crate::expect::{expect_equal, expect_field};

impl World {
    /// Creates a claim, and a pod that continuously appends to a file on its volume, optionally on this node.
    pub async fn start_pod(&self, name: &str, node: Option<&str>) -> Result<()> {
        self.start_pod_of(name, node, &claim(name, "Filesystem")).await
    }

    /// Like [`World::start_pod`], and waits until the pod is Ready.
    pub async fn run_pod(&self, name: &str, node: Option<&str>) -> Result<()> {
        self.start_pod(name, node).await?;
        self.ready(name).await
    }

    /// Like [`World::start_pod`], with another StorageClass.
    pub async fn start_pod_of_class(&self, name: &str, class: &str) -> Result<()> {
        self.start_pod_of(name, None, &claim_of_class(name, class)).await
    }

    /// Like [`World::run_pod`], with another StorageClass.
    pub async fn run_pod_of_class(&self, name: &str, class: &str) -> Result<()> {
        self.start_pod_of_class(name, class).await?;
        self.ready(name).await
    }

    /// Like [`World::start_pod_of_class`], on this node.
    pub async fn start_pod_on(&self, name: &str, node: &str, class: &str) -> Result<()> {
        self.start_pod_of(name, Some(node), &claim_of_class(name, class)).await
    }

    /// Like [`World::start_pod`], with this claim.
    pub async fn start_pod_of(&self, name: &str, node: Option<&str>, claim: &Value) -> Result<()> {
        self.apply(claim).await?;
        let script = "trap 'exit 0' TERM; while :; do date >> /data/log && sync; sleep 1 & wait $!; done";
        self.apply(&mounted_pod(name, script, node)).await
    }

    /// Creates a claim, and a pod with a raw block volume at `/dev/volume`; waits until the pod is Ready.
    pub async fn run_block_pod(&self, name: &str) -> Result<()> {
        self.apply(&claim(name, "Block")).await?;
        let mut pod = pod(name, "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done", None);
        pod["spec"]["containers"][0]["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/volume"}]);
        self.apply(&pod).await?;
        self.ready(name).await
    }

    /// Creates a claim with a data source, and a pod; waits until the pod is Ready.
    pub async fn start_pod_from(&self, name: &str, source: &Value) -> Result<()> {
        let mut claim = claim(name, "Filesystem");
        claim["spec"]["dataSource"] = source.clone();
        self.start_pod_of(name, None, &claim).await?;
        self.ready(name).await
    }

    /// Waits until a pod is Ready.
    pub async fn ready(&self, pod: &str) -> Result<()> {
        wait_for(&format!("pod {pod}"), PATIENCE, async || {
            if is_ready(&self.get_of_users("pod", pod).await?) {
                return Ok(());
            }
            anyhow::bail!("{}", self.last_events().await)
        })
        .await
    }

    /// Runs a shell command in a pod.
    pub async fn sh(&self, pod: &str, command: &str) -> Result<String> {
        let words = ["exec", "-n", USERS, pod, "--", "sh", "-c", command];
        self.kubectl(&words).await
    }

    /// Writes a line to `/data/witness` in a pod.
    pub async fn write_witness(&self, pod: &str, text: &str) -> Result<()> {
        let command = format!("echo '{text}' > /data/witness && sync");
        self.sh(pod, &command).await.map(drop)
    }

    /// Fails unless `/data/witness` in a pod contains this line.
    pub async fn expect_witness(&self, pod: &str, text: &str) -> Result<()> {
        let witness = self.sh(pod, "cat /data/witness").await?;
        expect_equal(&format!("/data/witness of {pod}"), witness.trim(), text)
    }

    /// Returns the number of lines that a pod has written.
    pub async fn written_lines(&self, pod: &str) -> Result<u64> {
        let count = self.sh(pod, "wc -l < /data/log").await?;
        count.trim().parse().with_context(|| format!("wc printed {count}"))
    }

    /// Returns the size of the file system in KiB in a pod.
    pub async fn file_system_size(&self, pod: &str) -> Result<u64> {
        let size = self.sh(pod, "df -k /data | tail -n 1").await?;
        let size = size.split_whitespace().nth(1).context("df printed no size")?;
        size.parse().with_context(|| format!("df printed {size}"))
    }

    /// Fails if the container of a pod has restarted.
    pub async fn expect_no_restart(&self, pod: &str) -> Result<()> {
        let pod = self.get_of_users("pod", pod).await?;
        expect_field(&pod, "/status/containerStatuses/0/restartCount", 0)
    }

    /// Returns the node of a pod.
    pub async fn node_of(&self, pod: &str) -> Result<&Node> {
        let pod = self.get_of_users("pod", pod).await?;
        self.cluster.node(pod["spec"]["nodeName"].as_str().unwrap_or_default())
    }

    /// Returns the PersistentVolume of a claim. Fails if the claim is not bound.
    pub async fn volume(&self, claim: &str) -> Result<Value> {
        let object = self.get_of_users("pvc", claim).await?;
        let name = object["spec"]["volumeName"].as_str();
        let name = name.with_context(|| format!("claim {claim} is not bound"))?;
        self.get(&["pv", name]).await
    }

    /// Returns the name of the PersistentVolume of a claim. Fails if the claim is not bound.
    pub async fn volume_name(&self, claim: &str) -> Result<String> {
        let name = self.volume(claim).await?["metadata"]["name"].take();
        Ok(name.as_str().context("a volume without a name")?.to_owned())
    }

    /// Requests another size of a claim.
    pub async fn expand_claim(&self, claim: &str, gib: u64) -> Result<()> {
        let change = json!({"spec": {"resources": {"requests": {"storage": format!("{gib}Gi")}}}});
        self.patch(&["pvc", claim, "-n", USERS], &change).await
    }

    /// Changes the VolumeAttributesClass of a claim, and waits until its volume has the attributes.
    pub async fn change_attributes(&self, claim: &str, class: &str) -> Result<()> {
        let claim = ["pvc", claim, "-n", USERS];
        let change = json!({"spec": {"volumeAttributesClassName": class}});
        self.patch(&claim, &change).await?;
        let pointer = "/status/currentVolumeAttributesClassName";
        self.wait_for_field(&claim, pointer, class).await.map(drop)
    }

    /// Deletes one of the users' objects and waits for its removal.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.remove(&[kind, name, "-n", USERS, "--ignore-not-found"]).await
    }

    /// Deletes a pod and waits for its removal.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        self.delete("pod", name).await
    }

    /// Deletes a claim and waits for its removal; its volume may still exist.
    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        self.delete("pvc", name).await
    }

    /// Deletes a pod and its claim, and waits for their removal.
    pub async fn delete_pod_and_claim(&self, name: &str) -> Result<()> {
        self.delete_pod(name).await?;
        self.delete_claim(name).await
    }

    /// Deletes a pod and its claim, and waits until the volume is deleted in Kubernetes and in the cloud.
    pub async fn delete_pod_and_volume(&self, name: &str) -> Result<()> {
        self.delete_pod_and_claim(name).await?;
        self.nothing_left().await
    }

    /// Deletes all pods and claims, and waits until the volumes are deleted in Kubernetes and in the cloud.
    pub async fn delete_all(&self) -> Result<()> {
        for kind in ["pods", "pvc"] {
            self.remove(&[kind, "--all", "-n", USERS]).await?;
        }
        self.nothing_left().await
    }

    async fn last_events(&self) -> String {
        let (columns, order) = ("custom-columns=R:.reason,M:.message", "--sort-by=.lastTimestamp");
        let words = ["get", "events", "-n", USERS, "-o", columns, order, "--no-headers"];
        match self.kubectl(&words).await {
            Ok(events) => events.lines().rev().take(4).collect::<Vec<_>>().join(" | "),
            Err(error) => format!("{error:#}"),
        }
    }
}

/// Whether a pod is Ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["type"] == "Ready")
        .any(|condition| condition["status"] == "True")
}
