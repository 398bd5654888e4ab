// SPDX-License-Identifier: Apache-2.0
//! A driver in another namespace than the operator.

use anyhow::{Context as _, Result, ensure};
use harness::{wait_for, workspace_root};
use serde_json::{Value, json};
use suites::expect::{expect_field, expect_parts};

use crate::api::PATIENCE;
use crate::world::{DAEMON_SET, DEPLOYMENT, OBJECT, World};

/// Reason without the role of the namespace.
const FORBIDDEN: &str = "OperandNamespaceForbidden";
/// Namespace in config/rbac/operand-namespace.
const ELSEWHERE: &str = "cinder-csi-drivers";

fn elsewhere(path: &str) -> String {
    path.replace("/namespaces/cinder-csi/", &format!("/namespaces/{ELSEWHERE}/"))
}

pub(crate) async fn driver_namespace_requires_operator_role(world: &World) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
    world.api.create_object(&namespace).await?;
    let arguments = ["--operand-namespaces", ELSEWHERE];
    let operator = world.start_operator("elsewhere", &arguments).await?;
    let spec = json!({
        "operandNamespace": ELSEWHERE,
        "controller": {"replicas": 2},
        "overrides": [{"target": {"kind": "Deployment", "name": "cinder-csi-controller"}, "type": "json", "patch": OVERRIDE}],
    });
    world.ask_for_driver(spec).await?;
    wait_for("the missing right", PATIENCE, async || {
        let message = world.reason("Degraded", "True", FORBIDDEN).await?;
        expect_parts(&message, &["cannot list resource", ELSEWHERE])
    })
    .await?;

    let role = workspace_root().join("config/rbac/operand-namespace");
    world.kustomize(&role).await?;
    world.credentials(ELSEWHERE, "cloud.conf").await?;
    let deployment = wait_for("the driver in its namespace", PATIENCE, async || {
        let deployment = world.api.get(&elsewhere(DEPLOYMENT)).await?;
        world.api.get(&elsewhere(DAEMON_SET)).await?;
        Ok(deployment)
    })
    .await?;
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.expect_missing(path).await?;
    }
    what_the_spec_says_is_in(&deployment)?;

    // The operator notices changes in that namespace.
    let path = elsewhere(DEPLOYMENT);
    world.api.merge(&path, &json!({"spec": {"replicas": 0}})).await?;
    world.api.wait_for_field(&path, "/spec/replicas", 2).await?;
    without_the_role_nothing_is_called_gone(world).await?;
    world.kustomize(&role).await?;
    operator.stop().await
}

async fn without_the_role_nothing_is_called_gone(world: &World) -> Result<()> {
    let before = world.api.get(OBJECT).await?["status"].clone();
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{ELSEWHERE}/rolebindings");
    world.api.delete(&format!("{bindings}/cinder-csi-operator")).await?;
    let after = wait_for("the word that nobody looks", PATIENCE, async || {
        // The API server may still use the cached role, and nothing else triggers a reconcile.
        let object = world.api.get(OBJECT).await?;
        let touched = json!({"metadata": {"annotations": {"touched": object["metadata"]["resourceVersion"]}}});
        world.api.merge(OBJECT, &touched).await?;
        world.reason("Available", "Unknown", "NotReconciled").await?;
        Ok(world.api.get(OBJECT).await?["status"].take())
    })
    .await?;
    world.reason("Degraded", "True", FORBIDDEN).await?;
    for field in ["controller", "nodes", "clouds"] {
        ensure!(!before[field].is_null(), "{before}");
        expect_field(&after, &format!("/{field}"), before[field].clone())?;
    }
    Ok(())
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
