// SPDX-License-Identifier: Apache-2.0
//! A driver in another namespace than the operator.

use anyhow::{Context as _, Result, ensure};
use harness::{wait_for, workspace_root};
use serde_json::{Value, json};

use crate::world::{DAEMON_SET, DEPLOYMENT, OBJECT, PATIENCE, World};

/// Namespace in config/rbac/operand-namespace.
const ELSEWHERE: &str = "cinder-csi-drivers";

fn elsewhere(path: &str) -> String {
    path.replace("/namespaces/cinder-csi/", &format!("/namespaces/{ELSEWHERE}/"))
}

pub(crate) async fn driver_namespace_requires_operator_role(world: &World) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
    world.api.create("/api/v1/namespaces", &namespace).await?;
    let operator = world
        .start_operator("elsewhere", &["--operand-namespaces", ELSEWHERE])
        .await?;
    let spec = json!({
        "operandNamespace": ELSEWHERE,
        "controller": {"replicas": 2},
        "overrides": [{"target": {"kind": "Deployment", "name": "cinder-csi-controller"}, "type": "json", "patch": OVERRIDE}],
    });
    world.ask_for_driver(spec).await?;
    wait_for("the missing right", PATIENCE, async || {
        let (reason, message) = world.condition("Degraded", "True").await?;
        ensure!(reason == "OperandNamespaceForbidden", "{reason}: {message}");
        ensure!(
            message.contains("cannot list resource") && message.contains(ELSEWHERE),
            "{message}"
        );
        Ok(())
    })
    .await?;

    world
        .kustomize(&workspace_root().join("config/rbac/operand-namespace"))
        .await?;
    world.credentials(ELSEWHERE, "cloud.conf").await?;
    let deployment = wait_for("the driver in its namespace", PATIENCE, async || {
        let deployment = world.api.get(&elsewhere(DEPLOYMENT)).await?;
        world.api.get(&elsewhere(DAEMON_SET)).await?;
        Ok(deployment)
    })
    .await?;
    for path in [DEPLOYMENT, DAEMON_SET] {
        ensure!(world.api.find(path).await?.is_none(), "{path} is there too");
    }
    what_the_spec_says_is_in(&deployment)?;

    // The operator notices changes in that namespace.
    let path = elsewhere(DEPLOYMENT);
    world.api.merge(&path, &json!({"spec": {"replicas": 0}})).await?;
    wait_for("the replicas", PATIENCE, async || {
        let deployment = world.api.get(&path).await?;
        ensure!(
            deployment["spec"]["replicas"] == 2,
            "{}",
            deployment["spec"]["replicas"]
        );
        Ok(())
    })
    .await?;
    without_the_role_nothing_is_called_gone(world).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn without_the_role_nothing_is_called_gone(world: &World) -> Result<()> {
    let before = world.api.get(OBJECT).await?["status"].clone();
    world
        .api
        .delete(&format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ELSEWHERE}/rolebindings/cinder-csi-operator"
        ))
        .await?;
    let after = wait_for("the word that nobody looks", PATIENCE, async || {
        // The API server may still use the cached role, and nothing else triggers a reconcile.
        let object = world.api.get(OBJECT).await?;
        let touched = json!({"metadata": {"annotations": {"touched": object["metadata"]["resourceVersion"]}}});
        world.api.merge(OBJECT, &touched).await?;
        let (reason, message) = world.condition("Available", "Unknown").await?;
        ensure!(reason == "NotReconciled", "{reason}: {message}");
        Ok(world.api.get(OBJECT).await?["status"].clone())
    })
    .await?;
    let (reason, message) = world.condition("Degraded", "True").await?;
    ensure!(reason == "OperandNamespaceForbidden", "{reason}: {message}");
    for field in ["controller", "nodes", "clouds"] {
        ensure!(!before[field].is_null(), "{before}");
        ensure!(after[field] == before[field], "{field}: {}", after[field]);
    }
    world
        .kustomize(&workspace_root().join("config/rbac/operand-namespace"))
        .await
}

/// Flags and files of the driver without a field in the spec.
const OVERRIDE: &str = r"
- {op: add, path: /spec/template/spec/containers/0/args/-, value: --attach-timeout=90s}
- {op: add, path: /spec/template/spec/containers/0/args/-, value: --tls-min-version=VersionTLS13}
- {op: add, path: /spec/template/spec/containers/0/args/-, value: --tls-cipher-suites=TLS_AES_256_GCM_SHA384}
- {op: add, path: /spec/template/spec/volumes/-, value: {name: files, configMap: {name: files, optional: true}}}
- {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: files, mountPath: /opt/files, readOnly: true}}
- op: add
  path: /spec/template/spec/volumes/-
  value: {name: token, projected: {sources: [{serviceAccountToken: {audience: vault, path: token}}]}}
- {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: token, mountPath: /opt/token, readOnly: true}}
";

fn what_the_spec_says_is_in(deployment: &Value) -> Result<()> {
    let driver = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = driver["args"].as_array().context("no arguments")?;
    for flag in [
        "--secure-metrics=true",
        "--attach-timeout=90s",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_256_GCM_SHA384",
    ] {
        ensure!(args.contains(&json!(flag)), "no {flag} in {args:?}");
    }
    let mounts = driver["volumeMounts"].as_array().context("no mounts")?;
    for (name, path) in [("files", "/opt/files"), ("token", "/opt/token")] {
        ensure!(
            mounts.contains(&json!({"name": name, "mountPath": path, "readOnly": true})),
            "{mounts:?}"
        );
    }
    Ok(())
}
