// SPDX-License-Identifier: Apache-2.0
//! The operator's metrics as scraped by Prometheus: over TLS, with the token of a service account.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use suites::expect::expect_parts;

use crate::leaders::leader;
use crate::world::{NAMESPACE, World};

/// Service account of the reader, with a binding to the ClusterRole.
const READER: &str = "metrics-reader";
/// A service account without permissions.
const STRANGER: &str = "default";

/// Returns the metrics of the leading operator.
pub(crate) async fn page(world: &World) -> Result<String> {
    page_of(world, &leader(world).await?).await
}

/// Returns the metrics of the operator in a pod.
pub(crate) async fn page_of(world: &World, pod: &str) -> Result<String> {
    make_reader(world).await?;
    read(world, pod, READER).await
}

/// Returns a token that permits reading the operator's metrics.
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
    world.apply(&reader).await
}

async fn token_of(world: &World, account: &str) -> Result<String> {
    let words = ["create", "token", account, "-n", NAMESPACE];
    let token = world.kubectl(&words).await?;
    Ok(token.trim().to_owned())
}

/// Reads the metrics with the token of a service account.
async fn read(world: &World, pod: &str, account: &str) -> Result<String> {
    let pod = world.get(&["pod", pod, "-n", NAMESPACE]).await?;
    let address = pod["status"]["podIP"].as_str().context("the pod has no address")?;
    let token = token_of(world, account).await?;
    // kubectl is the client: the token is in a file and never in arguments.
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
    let kubectl = world.cluster.command_in_network(&kubectl)?;
    let get = kubectl.args(["get", "--raw", "/metrics"]);
    get.env("KUBECONFIG", file.path()).output().await
}

pub(crate) async fn metrics_require_permission(world: &World) -> Result<()> {
    expect_parts(&page(world).await?, &["cinder_csi_operator_leader 1"])?;

    let refused = read(world, &leader(world).await?, STRANGER).await;

    let error = format!("{:#}", refused.err().context("a stranger read the metrics")?);
    // The message comes from kubectl.
    ensure!(
        error.to_lowercase().contains("forbidden") || error.contains("may not get"),
        "{error}"
    );
    Ok(())
}
