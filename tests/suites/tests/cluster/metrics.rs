// SPDX-License-Identifier: Apache-2.0
//! The operator's metrics, as Prometheus reads them: over TLS, with the token of a service account.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::leaders::leader;
use crate::world::{NAMESPACE, World};

/// The service account that reads; its binding to the ClusterRole is made with it.
const READER: &str = "metrics-reader";
/// A service account without any right.
const STRANGER: &str = "default";

/// The metrics page of the operator that leads.
pub(crate) async fn page(world: &World) -> Result<String> {
    page_of(world, &leader(world).await?).await
}

/// The metrics page of the operator in a pod.
pub(crate) async fn page_of(world: &World, pod: &str) -> Result<String> {
    make_reader(world).await?;
    read(world, pod, READER).await
}

/// A token with which the metrics of the operator can be read.
pub(crate) async fn token(world: &World) -> Result<String> {
    make_reader(world).await?;
    token_of(world, READER).await
}

async fn make_reader(world: &World) -> Result<()> {
    let reader = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": NAMESPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cinder-csi-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
        },
    ]});
    world.cluster.apply(&reader.to_string()).await.map(drop)
}

async fn token_of(world: &World, account: &str) -> Result<String> {
    let token = world
        .cluster
        .kubectl(&["create", "token", account, "-n", NAMESPACE])
        .await?;
    Ok(token.trim().to_owned())
}

/// Reads with the token of a service account.
async fn read(world: &World, pod: &str, account: &str) -> Result<String> {
    let pod = world.cluster.get(&["pod", pod, "-n", NAMESPACE]).await?;
    let address = pod["status"]["podIP"].as_str().context("the pod has no address")?;
    let token = token_of(world, account).await?;
    // kubectl as the client: the token is in a file and never among arguments.
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "metrics",
        "contexts": [{"name": "metrics", "context": {"cluster": "metrics", "user": "reader"}}],
        "clusters": [{"name": "metrics", "cluster": {
            "server": format!("https://{address}:8443"),
            "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "reader", "user": {"token": token}}],
    });
    let file = tempfile::NamedTempFile::new().context("cannot make a file")?;
    std::fs::write(file.path(), config.to_string()).context("cannot write a file")?;
    let kubectl = world.cluster.tools().path("kubectl")?.display().to_string();
    world
        .cluster
        .command_in_network(&kubectl)?
        .env("KUBECONFIG", file.path())
        .args(["get", "--raw", "/metrics"])
        .output()
        .await
}

pub(crate) async fn only_those_who_may_read_the_metrics(world: &World) -> Result<()> {
    ensure!(
        page(world).await?.contains("cinder_csi_operator_leader 1"),
        "the leader does not say that it leads"
    );

    let refused = read(world, &leader(world).await?, STRANGER).await;

    let error = format!("{:#}", refused.err().context("a stranger read the metrics")?);
    // kubectl says it in its own words.
    ensure!(
        error.to_lowercase().contains("forbidden") || error.contains("may not get"),
        "{error}"
    );
    Ok(())
}
