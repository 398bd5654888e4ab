// SPDX-License-Identifier: Apache-2.0
//! Checks that the Helm chart installs the same objects as the kustomization, and that it updates the
//! CustomResourceDefinition.

mod admission;
mod server;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use serde_json::{Value, json};
use suites::chart::{self, documents, said};
use suites::expect::{expect_equal, expect_field, expect_parts};
use suites::programs;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

/// Collects objects. Fails on duplicates.
fn objects(listed: Vec<Value>) -> Result<Objects> {
    let mut objects = Objects::new();
    for object in listed {
        let part = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let key = key(part("/kind"), part("/metadata/namespace"), part("/metadata/name"));
        ensure!(objects.insert(key.clone(), object).is_none(), "{key:?} is there twice");
    }
    Ok(objects)
}

fn key(kind: &str, namespace: &str, name: &str) -> (String, String, String) {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

/// Returns the operator's Deployment.
fn deployment<'a>(objects: &'a Objects, namespace: &str) -> &'a Value {
    &objects[&key("Deployment", namespace, "cinder-csi-operator")]
}

/// Renders the chart for a namespace, without the pod of `helm test`.
fn templated(namespace: &str, settings: &[&str]) -> Result<Objects> {
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = std::iter::once("--skip-tests").chain(settings).collect();
    objects(chart::template(namespace, &arguments)?)
}

fn kustomized(folder: &str) -> Result<Objects> {
    let mut kubectl = Command::new(programs::kubectl()?);
    let text = said(kubectl.arg("kustomize").arg(workspace_root().join(folder)))?;
    objects(documents(&text)?)
}

#[test]
fn helm_lint_accepts_chart() -> Result<()> {
    let lint = said(chart::helm()?.args(["lint", "--strict"]).arg(chart::directory()))?;
    expect_parts(&lint, &["1 chart(s) linted, 0 chart(s) failed"])
}

#[test]
fn chart_renders_same_objects_as_kustomization() -> Result<()> {
    let mut expected = kustomized("config/default")?;
    // Helm creates the namespace itself; the chart's notes explain its labels.
    let namespace = expected.remove(&key("Namespace", "", "cinder-csi"));
    ensure!(namespace.is_some(), "the kustomization makes no namespace");
    let mut made = templated("cinder-csi", &[])?;
    let crd = key("CustomResourceDefinition", "", "cindercsidrivers.csi.openstack.org");
    // Without the annotation, Helm would delete it with the release, and every driver with it.
    let crd = made.get_mut(&crd).context("the chart has no CRD")?;
    let annotations = crd["metadata"]["annotations"].as_object_mut();
    let annotations = annotations.context("the chart's CRD has no annotations")?;
    let policy = annotations.remove("helm.sh/resource-policy");
    expect_equal("policy of the CRD", &policy, &Some(json!("keep")))?;

    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    expect_equal("objects of the chart", &keys(&made), &keys(&expected))?;
    for (key, object) in &expected {
        ensure!(made.get(key) == Some(object), "{key:?}: {} and {object}", made[key]);
    }
    Ok(())
}

#[test]
fn values_reach_operator_and_namespace_every_object() -> Result<()> {
    let settings = [
        "image.repository=mirror.example.org/operator",
        "image.tag=v9",
        "images.driver=mirror.example.org/driver:v9",
        "images.livenessProbe=mirror.example.org/probe:v9",
        "imagePullSecrets[0]=mirror",
        "extraArgs[0]=--log-level=debug",
        "replicas=1",
    ];
    let made = templated("elsewhere", &settings)?;

    for ((kind, namespace, name), object) in &made {
        let is_there = namespace.is_empty() || namespace == "elsewhere";
        ensure!(is_there, "{kind} {namespace}/{name}");
        let has_other = object.to_string().contains("\"namespace\":\"cinder-csi\"");
        ensure!(!has_other, "{kind} {name} names the other namespace: {object}");
    }
    let deployment = deployment(&made, "elsewhere");
    let pod = &deployment["spec"]["template"]["spec"];
    let operator = &pod["containers"][0];
    expect_field(deployment, "/spec/replicas", 1)?;
    expect_field(operator, "/image", "mirror.example.org/operator:v9")?;
    expect_field(pod, "/imagePullSecrets", json!([{"name": "mirror"}]))?;
    let args = operator["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&json!("--log-level=debug")), "{args:?}");
    let env = operator["env"].as_array().context("no environment")?;
    for (name, value) in [
        ("RELATED_IMAGE_DRIVER", "mirror.example.org/driver:v9"),
        ("RELATED_IMAGE_LIVENESS_PROBE", "mirror.example.org/probe:v9"),
    ] {
        ensure!(env.contains(&json!({"name": name, "value": value})), "{env:?}");
    }
    Ok(())
}

#[test]
fn optional_roles_match_kustomizations() -> Result<()> {
    let usual = templated("cinder-csi", &[])?;
    for (setting, folder, objects) in [
        ("rights.startupTaint=true", "startup-taint", 2),
        ("rbac.aggregateEdit=true", "aggregate-edit", 1),
        // A role in the namespace of the other installation, and one for the pods with in-line volumes.
        ("rights.adoption=kube-system", "adoption", 4),
    ] {
        let mut made = templated("cinder-csi", &[setting])?;
        made.retain(|key, _| !usual.contains_key(key));
        let mut expected = kustomized(&format!("config/rbac/{folder}"))?;
        for object in expected.values_mut() {
            object["metadata"]["labels"]["app.kubernetes.io/part-of"] = json!("cinder-csi");
        }
        expect_equal("number of objects", &made.len(), &objects)?;
        expect_equal(setting, &made, &expected)?;
    }
    let elsewhere = templated("elsewhere", &["rights.adoption=drivers", "rights.startupTaint=true"])?;
    let bound = &elsewhere[&key("RoleBinding", "drivers", "cinder-csi-operator-adoption")];
    expect_field(bound, "/subjects/0/namespace", "elsewhere")
}

#[test]
fn monitoring_and_network_policy_match_kustomizations() -> Result<()> {
    let usual = templated("cinder-csi", &[])?;
    let settings = [
        "networkPolicy.enabled=true",
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
    ];
    let mut made = templated("cinder-csi", &settings)?;
    made.retain(|key, _| !usual.contains_key(key));

    let dashboard = key("ConfigMap", "cinder-csi", "cinder-csi-operator-dashboard");
    let dashboard = made.remove(&dashboard).context("there is no dashboard")?;
    let shown = dashboard["data"]["cinder-csi.json"].as_str().context("it is empty")?;
    let file = workspace_root().join("config/monitoring/dashboard.json");
    ensure!(std::fs::read_to_string(file)? == shown, "it is another one: {shown}");
    expect_field(&dashboard, "/metadata/labels/grafana_dashboard", "1")?;
    let mut expected = kustomized("config/monitoring")?;
    expected.append(&mut kustomized("config/network-policy")?);
    expect_equal("number of objects", &made.len(), &3)?;
    expect_equal("objects", &made, &expected)
}

/// Includes a chart in which some rules are disabled.
#[test]
fn prometheus_accepts_rules() -> Result<()> {
    let settings = [
        "monitoring.prometheusRule.enabled=true",
        "monitoring.prometheusRule.disabled[0]=CinderCSIOperatorDown",
    ];
    let of = |settings: &[&str]| -> Result<Value> {
        let mut made = templated("cinder-csi", settings)?;
        let key = key("PrometheusRule", "cinder-csi", "cinder-csi-operator");
        Ok(made.remove(&key).context("there is no rule")?["spec"].take())
    };
    let (mut all, some) = (of(&settings[..1])?, of(&settings)?);
    let promtool = said(&mut Command::new(workspace_root().join("tests/tools/promtool")))?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    for (name, rules) in [("all.json", &all), ("some.json", &some)] {
        let file = directory.path().join(name);
        std::fs::write(&file, rules.to_string()).context("cannot write the rules")?;
        let mut promtool = Command::new(promtool.trim());
        said(promtool.args(["check", "rules", "--lint-fatal"]).arg(&file))?;
    }
    let rules = all["groups"][0]["rules"].as_array_mut().context("there are no rules")?;
    let before = rules.len();
    rules.retain(|rule| rule["alert"] != "CinderCSIOperatorDown");
    ensure!(rules.len() + 1 == before && all == some, "{all} and {some}");
    Ok(())
}

#[test]
fn name_override_applies_to_objects_and_references() -> Result<()> {
    let settings = ["rights.startupTaint=true", "operandNamespaces[0]=more"];
    let usual = templated("cinder-csi", &settings)?;
    let mut made = templated("cinder-csi", &[&settings[..], &["fullnameOverride=storage"]].concat())?;

    for ((kind, namespace, name), mut object) in usual {
        let renamed = |value: &mut Value| {
            let text = value.as_str();
            *value = json!(text.map(|name| name.replacen("cinder-csi-operator", "storage", 1)));
        };
        renamed(&mut object["metadata"]["name"]);
        if kind == "ValidatingAdmissionPolicyBinding" {
            renamed(&mut object["spec"]["policyName"]);
        } else if kind.ends_with("Binding") {
            renamed(&mut object["roleRef"]["name"]);
            renamed(&mut object["subjects"][0]["name"]);
        }
        if kind == "Deployment" {
            renamed(&mut object["spec"]["template"]["spec"]["serviceAccountName"]);
        }
        let now = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_ours = name != "cinder-csi-metrics-reader" && kind != "CustomResourceDefinition";
        ensure!((now == name) != is_ours, "{kind} {name}: {now}");
        let renamed = made.remove(&(kind.clone(), namespace, now));
        expect_equal(&format!("{kind} {name}"), &renamed, &Some(object))?;
    }
    ensure!(made.is_empty(), "further objects: {made:?}");
    Ok(())
}

/// Symbolic links lead out of the chart; a package contains their targets.
#[test]
fn packaged_chart_renders_same_objects() -> Result<()> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let mut package = chart::helm()?;
    package.args(["package", "--version=9.8.7", "--destination"]);
    said(package.arg(directory.path()).arg(chart::directory()))?;

    let render = |of: &Path| -> Result<String> {
        let mut helm = chart::helm()?;
        let settings = ["--set=driver.create=true", "--set=monitoring.dashboard.enabled=true"];
        said(helm.args(["template", "release"]).args(settings).arg(of))
    };
    let packed = render(&directory.path().join("cinder-csi-operator-9.8.7.tgz"))?;
    expect_parts(&packed, &["kind: CinderCSIDriver"])?;
    let is_equal = packed == render(&chart::directory())?;
    ensure!(is_equal, "the package has other objects");
    Ok(())
}

#[test]
fn driver_namespaces_get_role_and_operator_flag() -> Result<()> {
    let settings = ["operandNamespaces[0]=cinder-csi-drivers", "operandNamespaces[1]=more"];
    let made = templated("cinder-csi", &settings)?;
    let expected = kustomized("config/rbac/operand-namespace")?;
    ensure!(expected.len() == 2, "{:?}", expected.keys().collect::<Vec<_>>());
    for ((kind, namespace, name), object) in expected {
        ensure!(namespace == "cinder-csi-drivers", "{kind} {namespace}/{name}");
        let of_chart = |namespace: &str| made.get(&(kind.clone(), namespace.to_owned(), name.clone()));
        let rendered = of_chart(&namespace).with_context(|| format!("the chart has no {kind} {name} there"))?;
        for part in ["rules", "roleRef", "subjects"] {
            expect_equal(&format!("{part} of {kind}"), &rendered[part], &object[part])?;
        }
        if kind == "RoleBinding" {
            ensure!(object["subjects"][0]["namespace"] == "cinder-csi", "{object}");
        }
        ensure!(of_chart("more").is_some() && of_chart("cinder-csi").is_some(), "{kind}");
    }
    let args = json!(["run", "--operand-namespaces=cinder-csi-drivers,more"]);
    let pointer = "/spec/template/spec/containers/0/args";
    expect_field(deployment(&made, "cinder-csi"), pointer, args)
}

/// Helm treats these files as opaque text.
#[test]
fn chart_metadata_matches_its_objects() -> Result<()> {
    let yaml = |path: &Path| -> Result<Value> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_yaml::from_str(&text).with_context(|| format!("is no YAML: {}", path.display()))
    };
    let about = yaml(&chart::directory().join("Chart.yaml"))?;
    let note = |name: &str| -> Result<Value> {
        let text = about["annotations"][format!("artifacthub.io/{name}")].as_str();
        serde_yaml::from_str(text.with_context(|| format!("no annotation {name}"))?).context("is no YAML")
    };
    let made = templated("cinder-csi", &[])?;
    let deployment = deployment(&made, "cinder-csi");
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    let driver = format!("ghcr.io/cinder-csi/cinder-csi-driver:v{}", env!("CARGO_PKG_VERSION"));
    let images = json!([
        {"name": "cinder-csi-operator", "image": image}, {"name": "cinder-csi-driver", "image": driver},
    ]);
    expect_equal("images", &note("images")?, &images)?;

    let kinds = note("crds")?;
    let kind = &kinds[0];
    let mut objects = made.values();
    let definition = objects.find(|object| object["kind"] == "CustomResourceDefinition");
    let definition = definition.context("there is no definition")?;
    expect_field(kind, "/name", definition["metadata"]["name"].clone())?;
    expect_field(kind, "/kind", definition["spec"]["names"]["kind"].clone())?;
    expect_field(kind, "/version", definition["spec"]["versions"][0]["name"].clone())?;
    let sample = yaml(&workspace_root().join("config/samples/cindercsidriver.yaml"))?;
    expect_equal("examples", &note("crdsExamples")?, &json!([sample]))
}

#[test]
fn unknown_value_is_refused_by_name() -> Result<()> {
    for setting in [
        "replcias=2",
        "image.tga=v9",
        "replicas=0",
        "extraArgs[0]=log",
        "operandNamespaces[0]=Drivers",
    ] {
        let refused = templated("cinder-csi", &[setting]);
        let error = format!("{:#}", refused.err().with_context(|| format!("{setting} was taken"))?);
        let word = setting.split(['=', '[', '.']).next().unwrap_or_default();
        expect_parts(&error, &[word])?;
    }
    Ok(())
}
