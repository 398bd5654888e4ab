// SPDX-License-Identifier: Apache-2.0
//! Pods that write to their volumes all the time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{BUSYBOX_IMAGE, Cluster, wait_for};
use serde_json::json;

use super::USERS;

/// How long anything may take that the cluster has to do.
const PATIENCE: Duration = Duration::from_mins(3);
/// Writes one number after the other, each on the disk before the next; ends at the first error.
const SCRIPT: &str = "set -e; trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); echo $n >> /data/log; sync /data/log; sleep 0.1 & wait $!; done";

/// One pod per node.
#[derive(Debug)]
pub struct Writers {
    names: Vec<String>,
}

impl Writers {
    /// Starts them, with volumes of a StorageClass, and waits until each has written something.
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

    /// Names of the pods and their claims.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many numbers a pod has written; an error when one is missing or out of place.
    async fn written(&self, cluster: &Cluster, name: &str) -> Result<u64> {
        let check = "awk '$1 != NR {print \"line\", NR, \"is\", $1; exit 1} END {print NR}' /data/log";
        let words = ["exec", "-n", USERS, name, "--", "sh", "-c", check];
        let told = cluster.kubectl(&words).await?;
        told.trim().parse().with_context(|| format!("{name}: {told}"))
    }

    /// Fails when a number is missing, a pod does not write any more, or one has restarted; returns how many were written.
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

    /// Removes pods and claims and waits until Kubernetes and the cloud have forgotten the volumes.
    pub async fn remove(&self, cluster: &Cluster) -> Result<()> {
        let words = ["delete", "pods,pvc", "--all", "-n", USERS, "--timeout=120s"];
        cluster.kubectl_within(PATIENCE, &words).await?;
        wait_for("the end of the volumes", PATIENCE, async || {
            let left = cluster.kubectl(&["get", "pv,volumeattachments", "-o", "name"]).await?;
            ensure!(left.trim().is_empty(), "left: {left}");
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
