// SPDX-License-Identifier: Apache-2.0
//! Tests of the admission policies on a real API server: rejections, admissions, and the switch.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use harness::{wait_for, workspace_root};
use reqwest::Method;
use serde_json::{Value, json};
use suites::api::Refusal;
use suites::chart;
use suites::expect::expect_parts;
use suites::lab::in_lab;

use super::server::{CRD, DRIVER, Installation, OBJECTS, PATIENCE, object};

const NAMESPACES: &str = "/api/v1/namespaces";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const USUAL: &str = "cinder.csi.openstack.org";

fn manifests() -> PathBuf {
    workspace_root().join("config/default")
}

impl Installation {
    async fn install_with_kubectl(&self) -> Result<()> {
        wait_for("the installation", PATIENCE, async || {
            let apply = self.server.kubectl().args(["apply", "--server-side", "-k"]);
            apply.arg(manifests()).output().await.map(drop)
        })
        .await
    }

    /// Creates the driver whose objects are in namespace `drivers`.
    async fn create_driver(&self) -> Result<()> {
        for name in ["drivers", "unrelated"] {
            let namespace = json!({"metadata": {"name": name}});
            self.api.create(NAMESPACES, &namespace).await?;
        }
        wait_for("the kind", PATIENCE, async || {
            self.api.create(OBJECTS, &object(USUAL, &json!({}))).await
        })
        .await?;
        let status = json!({"status": {"operandNamespace": "drivers"}});
        self.api.merge(&format!("{DRIVER}/status"), &status).await.map(drop)
    }

    async fn dry_run(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Result<Value, Refusal>> {
        let body = body.map(|body| ("application/json", body));
        self.api.request(method, &format!("{path}?dryRun=All"), body).await
    }

    /// Waits until the API server has loaded policies and parameters.
    async fn rejects_deletion(&self, path: &str, message: &str) -> Result<()> {
        wait_for(&format!("the rejection of {path}"), PATIENCE, async || {
            let answer = self.dry_run(Method::DELETE, path, None).await?;
            let refusal = answer.err().context("the deletion is admitted")?;
            let is_expected = refusal.status == 403 && refusal.message.ends_with(message);
            ensure!(is_expected, "{refusal:?}");
            Ok(())
        })
        .await
    }

    async fn admits_deletion(&self, path: &str) -> Result<()> {
        wait_for(&format!("the admission of {path}"), PATIENCE, async || {
            let answer = self.dry_run(Method::DELETE, path, None).await?;
            answer.map(drop).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))
        })
        .await
    }

    async fn exists(&self, path: &str) -> Result<()> {
        let object = self.api.get(path).await?;
        ensure!(object["metadata"]["deletionTimestamp"].is_null(), "{object}");
        Ok(())
    }

    /// Returns the API server's rejection of a driver with these overrides; empty if it accepts them.
    async fn answer_to(&self, overrides: &Value) -> Result<String> {
        let mut driver = object(USUAL, &json!({}));
        driver["spec"]["overrides"] = overrides.clone();
        let answer = self.dry_run(Method::POST, OBJECTS, Some(&driver)).await?;
        Ok(answer.err().map(|refusal| refusal.message).unwrap_or_default())
    }
}

fn deletion_message(kind: &str, name: &str, reason: &str, noun: &str) -> String {
    format!(
        "cannot delete {kind} {name}: CinderCSIDriver {USUAL} exists{reason}; delete CinderCSIDriver {USUAL}, wait until it has \
         disappeared, then delete the {noun}"
    )
}

#[test]
fn deletion_of_installation_waits_for_driver() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        it.install_with_kubectl().await?;
        it.admits_deletion(CRD).await?;
        it.create_driver().await?;
        let [own, drivers] = ["cinder-csi", "drivers"].map(|name| format!("{NAMESPACES}/{name}"));
        let own_message = deletion_message(
            "Namespace",
            "cinder-csi",
            ", and the operator that maintains it runs in this namespace",
            "namespace",
        );
        let crd_message = deletion_message(
            "CustomResourceDefinition",
            "cindercsidrivers.csi.openstack.org",
            " and would be deleted with it",
            "definition",
        );
        it.rejects_deletion(&own, &own_message).await?;
        it.rejects_deletion(CRD, &crd_message).await?;
        let reason = ", and its driver runs in this namespace";
        let message = deletion_message("Namespace", "drivers", reason, "namespace");
        it.rejects_deletion(&drivers, &message).await?;
        it.admits_deletion(&format!("{NAMESPACES}/unrelated")).await?;

        let delete = async || {
            let kubectl = it.server.kubectl().args(["delete", "--wait=false", "-k"]);
            kubectl.arg(manifests()).output().await
        };
        let refused = delete().await.err().context("kubectl deleted everything")?;
        let text = format!("{refused:#}");
        expect_parts(&text, &[&own_message, &crd_message])?;
        for path in [own.as_str(), CRD, DRIVER] {
            it.exists(path).await?;
        }

        it.install_with_kubectl().await?;
        it.rejects_deletion(&own, &own_message).await?;
        it.api.delete(DRIVER).await?;
        it.admits_deletion(&own).await?;
        delete().await?;
        let namespace = it.api.find(&own).await?;
        let is_deleted = namespace.is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null());
        ensure!(is_deleted, "the namespace remains");
        Ok(())
    });
}

#[test]
fn second_driver_must_not_conflict_with_first() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        it.install_with_kubectl().await?;
        it.create_driver().await?;
        it.rejects_deletion(CRD, "").await?;
        let ports = "change CinderCSIDriver cinder.csi.openstack.org, or choose another spec.node.httpPort or \
                     spec.node.nodeSelector for a second driver";
        let names = "the objects of CinderCSIDriver cinder.csi.openstack.org have names that begin with cinder-csi too; change \
                     CinderCSIDriver cinder.csi.openstack.org, or choose another spec.instanceName for a second driver";
        for (name, spec, message) in [
            ("the default port", json!({}), ports),
            ("an overlap", json!({"node": {"httpPort": 9896}}), ports),
            (
                "sidecars",
                json!({"node": {"httpPort": 9894, "registration": "Sidecar"}}),
                ports,
            ),
            ("a free port", json!({"node": {"httpPort": 9895}}), ""),
            ("the network of pods", json!({"node": {"hostNetwork": false}}), ""),
            ("the next port", json!({"node": {"httpPort": 9899}}), ""),
            ("a selector", json!({"node": {"nodeSelector": {"disk": "b"}}}), ports),
            (
                "the same names",
                json!({"instanceName": "cinder-csi", "node": {"httpPort": 9890}}),
                names,
            ),
            (
                "other names",
                json!({"instanceName": "fast", "node": {"httpPort": 9890}}),
                "",
            ),
        ] {
            let mut second = object("second.csi.example.org", &json!({}));
            for (field, value) in spec.as_object().into_iter().flatten() {
                second["spec"][field] = value.clone();
            }
            let answer = it.dry_run(Method::POST, OBJECTS, Some(&second)).await?;
            let text = answer.err().map(|refusal| refusal.message).unwrap_or_default();
            let is_expected = text.is_empty() == message.is_empty() && text.ends_with(message);
            ensure!(is_expected, "{name}: {text}");
        }
        Ok(())
    });
}

const DAEMON_SET: &str = "DaemonSet";

/// Kind of the target, type, patch, and a part of the rejection's message.
const PATCHES: [(&str, &str, &str, &str); 22] = [
    (DAEMON_SET, "merge", "spec: {minReadySeconds: 5}", ""),
    (DAEMON_SET, "merge", "# why\n---\nspec:\n  minReadySeconds: 5\n", ""),
    (
        DAEMON_SET,
        "merge",
        "- a",
        "the merge patch of DaemonSet x is a list; write an object",
    ),
    (DAEMON_SET, "merge", "# why\n[]", "is a list"),
    (
        DAEMON_SET,
        "json",
        "spec: {}",
        "the JSON patch of DaemonSet x is not a list of operations",
    ),
    (DAEMON_SET, "json", "# why\n- {op: test, path: /spec/a, value: 1}", ""),
    (
        "Deployment",
        "merge",
        "spec: {template: {spec: {hostAliases: [{ip: 192.0.2.10, hostnames: [keystone.example.org}]}}}",
        "is not valid YAML, because an opening or closing bracket is missing; add the bracket",
    ),
    (
        "Deployment",
        "merge",
        "{\"spec\": {\"paused\": false}",
        "bracket is missing",
    ),
    (
        "Deployment",
        "merge",
        "spec: {a: \"[\", b: '{', c: it's, d: \"\\\"[\"} # [",
        "",
    ),
    (
        "Deployment",
        "json",
        "- op: add\n  path: /data/a\n  value: |\n    if [[ x\n",
        "",
    ),
    (
        "ConfigMap",
        "merge",
        "data: {a: \"un [ closed\", b: [}",
        "bracket is missing",
    ),
    ("ConfigMap", "merge", "data:\n  a: say \"[\n", ""),
    (
        "Deployment",
        "merge",
        "spec: {template: {spec: {containers: []}}}",
        "removes container cinder-csi-driver",
    ),
    (
        "Deployment",
        "merge",
        "spec:\n  template:\n    spec:\n      containers:\n      - name: more\n        image: x\n",
        "removes container cinder-csi-driver; to add a container, set type to json",
    ),
    ("Deployment", "merge", "spec:\n  template: null\n", "removes container"),
    (
        "Deployment",
        "merge",
        "spec: {template: {spec: {initContainers: [{name: a}]}}}",
        "",
    ),
    (
        "Deployment",
        "json",
        "[{\"op\": \"remove\", \"path\": \"/spec/template/spec/containers/0\"}]",
        "removes container",
    ),
    (
        "Deployment",
        "json",
        "- path: /spec/template/spec/containers\n  op: remove\n",
        "removes container",
    ),
    (
        "Deployment",
        "json",
        "- {op: replace, path: /spec/template/spec/containers, value: [{name: more}]}",
        "removes container",
    ),
    (
        "Deployment",
        "json",
        "- {op: remove, path: /spec/template/spec/containers/0/args/3}",
        "",
    ),
    (
        "Deployment",
        "json",
        "- {op: add, path: /spec/template/spec/containers/-, value: {name: more}}",
        "",
    ),
    ("ConfigMap", "merge", "data: {containers: [a]}", ""),
];

#[test]
fn rejects_overrides_that_cannot_apply() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        it.install_with_kubectl().await?;
        let overrides = |kind: &str, how: &str, patch: &str| json!([{"target": {"kind": kind, "name": "x"}, "type": how, "patch": patch}]);
        let list = overrides(DAEMON_SET, "merge", "[]");
        wait_for("the policy", PATIENCE, async || {
            expect_parts(&it.answer_to(&list).await?, &["is a list"])
        })
        .await?;
        let mut wrong = Vec::new();
        for (kind, how, patch, message) in PATCHES {
            let text = it.answer_to(&overrides(kind, how, patch)).await?;
            if text.is_empty() != message.is_empty() || !text.contains(message) {
                wrong.push(format!("{patch}: {text}"));
            }
        }
        for documented in documented_overrides()? {
            let text = it.answer_to(&documented).await?;
            if !text.is_empty() {
                wrong.push(format!("{documented}: {text}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    });
}

/// Returns the examples in docs/overrides.md.
fn documented_overrides() -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(workspace_root().join("docs/overrides.md"))?;
    let mut examples = Vec::new();
    for block in text.split("```yaml\n").skip(1) {
        let (yaml, _) = block.split_once("\n```").context("a block has no end")?;
        let mut value: Value = serde_yaml::from_str(yaml)?;
        if value["overrides"].is_array() {
            examples.push(value["overrides"].take());
        }
    }
    ensure!(examples.len() > 10, "{}", examples.len());
    Ok(examples)
}

#[test]
fn policies_of_the_chart_have_a_switch() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        let chart = chart::directory();
        let options = ["--create-namespace", "--set=admissionPolicies.enabled=false"];
        it.helm("install", Some(&chart), &options).await?;
        it.create_driver().await?;
        let none = it.api.labelled("app.kubernetes.io/part-of=cinder-csi").await?;
        ensure!(!none.iter().any(|object| object.path.starts_with(POLICIES)), "{none:?}");
        let own = format!("{NAMESPACES}/cinder-csi");
        it.admits_deletion(&own).await?;
        it.admits_deletion(CRD).await?;
        let broken = json!([{"target": {"kind": "ConfigMap", "name": "x"}, "patch": "[]"}]);
        it.api.merge(DRIVER, &json!({"spec": {"overrides": broken}})).await?;

        let options = ["--set=fullnameOverride=storage"];
        it.helm("upgrade", Some(&chart), &options).await?;
        it.rejects_deletion(&own, "then delete the namespace").await?;
        it.rejects_deletion(CRD, "then delete the definition").await?;
        // A stored violation must not prevent other changes.
        it.api.merge(DRIVER, &json!({"spec": {"logLevel": "Debug"}})).await?;
        it.api.merge(DRIVER, &json!({"spec": {"overrides": null}})).await?;
        let refused = it.api.merge(DRIVER, &json!({"spec": {"overrides": broken}})).await;
        let text = format!("{:#}", refused.err().context("the override is accepted")?);
        expect_parts(&text, &["is a list"])?;

        it.helm("uninstall", None, &[]).await?;
        it.exists(DRIVER).await?;
        it.admits_deletion(CRD).await?;
        it.api.delete(DRIVER).await?;
        it.api.delete(CRD).await?;
        it.admits_deletion(&own).await
    });
}
