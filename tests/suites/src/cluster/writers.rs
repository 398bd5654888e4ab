// SPDX-License-Identifier: Apache-2.0
//! Pods that write to their volumes continuously.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{BUSYBOX_IMAGE, Cluster, wait_for};
use serde_json::json;

use super::USERS;

/// Limit of every wait.
const PATIENCE: Duration = Duration::from_mins(3);
/// Writes consecutive numbers and syncs after each; ends at the first error.
const SCRIPT: &str = "set -e; trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); echo $n >> /data/log; sync /data/log; sleep 0.1 & wait $!; done";

/// One writing pod per node.
#[derive(Debug)]
pub struct Writers {
    names: Vec<String>,
}

impl Writers {
    /// Starts the pods with volumes of a StorageClass, and waits for the first write of each.
    pub async fn start(cluster: &Cluster, class: &str) -> Result<Self> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}});
        cluster.apply(&namespace.to_string()).await?;
        let mut names = Vec::new();
        for node in cluster.nodes() {
            let name = format!("writer-{}", node.name());
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": USERS},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": "1Gi"}}}});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": USERS},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node.name()}, "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{"name": "writer", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", SCRIPT], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}});
            cluster.apply(&claim.to_string()).await?;
            cluster.apply(&pod.to_string()).await?;
            names.push(name);
        }
        let writers = Self { names };
        wait_for("the writers", PATIENCE, async || {
            for name in &writers.names {
                ensure!(writers.written(cluster, name).await? > 0, "{name} has written nothing");
            }
            Ok(())
        })
        .await?;
        Ok(writers)
    }

    /// Returns the names of the pods and their claims.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of written numbers of a pod. Fails if one is missing or out of order.
    async fn written(&self, cluster: &Cluster, name: &str) -> Result<u64> {
        let check = "awk '$1 != NR {print \"line\", NR, \"is\", $1; exit 1} END {print NR}' /data/log";
        let words = ["exec", "-n", USERS, name, "--", "sh", "-c", check];
        let output = cluster.kubectl(&words).await?;
        output.trim().parse().with_context(|| format!("{name}: {output}"))
    }

    /// Fails if a number is missing, or a pod has stopped to write or has restarted. Returns the total of written
    /// numbers.
    pub async fn check(&self, cluster: &Cluster) -> Result<u64> {
        let mut all = 0;
        for name in &self.names {
            let before = self.written(cluster, name).await?;
            wait_for(&format!("{name} to go on"), Duration::from_secs(20), async || {
                let now = self.written(cluster, name).await?;
                ensure!(now > before, "it has written {now}");
                Ok(())
            })
            .await?;
            let pod = cluster.get(&["pod", name, "-n", USERS]).await?;
            let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
            ensure!(
                pod["status"]["phase"] == "Running" && *restarts == 0,
                "{name} restarted: {}",
                pod["status"]
            );
            all += before;
        }
        Ok(all)
    }

    /// Deletes pods and claims, and waits until the volumes are deleted in Kubernetes and in the cloud.
    pub async fn remove(&self, cluster: &Cluster) -> Result<()> {
        let words = ["delete", "pods,pvc", "--all", "-n", USERS, "--timeout=120s"];
        cluster.kubectl_within(PATIENCE, &words).await?;
        wait_for("the end of the volumes", PATIENCE, async || {
            let remaining = cluster.kubectl(&["get", "pv,volumeattachments", "-o", "name"]).await?;
            ensure!(remaining.trim().is_empty(), "left: {remaining}");
            let state = cluster.simulator()?.state().await?;
            ensure!(
                state["volumes"].as_array().is_some_and(Vec::is_empty),
                "the cloud has {}",
                state["volumes"]
            );
            Ok(())
        })
        .await
    }
}
