//! The Helm chart installs what the kustomization installs, and takes a CustomResourceDefinition with it to a new version.

mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use serde_json::{Value, json};
use suites::programs;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn chart() -> PathBuf {
    workspace_root().join("config/chart")
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    String::from_utf8(output.stdout).context("the output is no text")
}

fn objects(text: &str) -> Result<Objects> {
    let mut objects = Objects::new();
    for document in text.split("\n---") {
        let object: Value = serde_yaml::from_str(document).with_context(|| format!("is no YAML: {document}"))?;
        if object.is_null() {
            continue;
        }
        let part = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let key = (part("/kind"), part("/metadata/namespace"), part("/metadata/name"));
        ensure!(objects.insert(key.clone(), object).is_none(), "{key:?} is there twice");
    }
    Ok(objects)
}

/// What the chart makes in a namespace.
fn templated(namespace: &str, settings: &[&str]) -> Result<Objects> {
    let mut helm = Command::new(programs::helm()?);
    helm.args(["template", "release", "--namespace", namespace])
        .arg(chart());
    for setting in settings {
        helm.args(["--set", setting]);
    }
    objects(&run(&mut helm)?)
}

fn kustomized(folder: &str) -> Result<Objects> {
    let mut kubectl = Command::new(programs::kubectl()?);
    objects(&run(kubectl.arg("kustomize").arg(workspace_root().join(folder)))?)
}

#[test]
fn helm_lint_has_nothing_to_say_against_the_chart() -> Result<()> {
    let said = run(Command::new(programs::helm()?).args(["lint", "--strict"]).arg(chart()))?;
    ensure!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
    Ok(())
}

#[test]
fn chart_and_kustomization_make_the_same_objects() -> Result<()> {
    let mut wanted = kustomized("config/default")?;
    // Helm makes the namespace itself, and says in its notes how it is labelled.
    let namespace = wanted.remove(&("Namespace".into(), String::new(), "cinder-csi".into()));
    ensure!(namespace.is_some(), "the kustomization makes no namespace");
    let mut made = templated("cinder-csi", &[])?;
    let crd = (
        "CustomResourceDefinition".into(),
        String::new(),
        "cindercsidrivers.csi.openstack.org".into(),
    );
    // Helm would delete it with the release, and every driver with it.
    let annotations = made.get_mut(&crd).context("the chart has no CRD")?["metadata"]["annotations"]
        .as_object_mut()
        .context("the chart's CRD has no annotations")?;
    ensure!(
        annotations.remove("helm.sh/resource-policy") == Some(json!("keep")),
        "{annotations:?}"
    );

    ensure!(
        made.keys().eq(wanted.keys()),
        "{:?} and {:?}",
        made.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (key, object) in &wanted {
        ensure!(made.get(key) == Some(object), "{key:?}: {} and {object}", made[key]);
    }
    Ok(())
}

#[test]
fn what_the_values_say_reaches_the_operator_and_its_namespace_every_object() -> Result<()> {
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
        ensure!(
            namespace.is_empty() || namespace == "elsewhere",
            "{kind} {namespace}/{name}"
        );
        ensure!(
            !object.to_string().contains("\"namespace\":\"cinder-csi\""),
            "{kind} {name} names the other namespace: {object}"
        );
    }
    let deployment = &made[&("Deployment".into(), "elsewhere".into(), "cinder-csi-operator".into())];
    let pod = &deployment["spec"]["template"]["spec"];
    let operator = &pod["containers"][0];
    ensure!(deployment["spec"]["replicas"] == 1, "{deployment}");
    ensure!(operator["image"] == "mirror.example.org/operator:v9", "{operator}");
    ensure!(pod["imagePullSecrets"] == json!([{"name": "mirror"}]), "{pod}");
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
fn rights_beyond_the_usual_come_with_their_values_and_are_those_of_the_kustomizations() -> Result<()> {
    let usual = templated("cinder-csi", &[])?;
    for (setting, folder, objects) in [
        ("rights.startupTaint=true", "startup-taint", 2),
        ("rights.healthMonitor=true", "health-monitor", 2),
        // A role in the namespace of the other installation, and one for the pods with its in-line volumes.
        ("rights.adoption=kube-system", "adoption", 4),
    ] {
        let mut made = templated("cinder-csi", &[setting])?;
        made.retain(|key, _| !usual.contains_key(key));
        let mut wanted = kustomized(&format!("config/rbac/{folder}"))?;
        for object in wanted.values_mut() {
            object["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "cinder-csi"});
        }
        ensure!(
            made.len() == objects && made == wanted,
            "{setting}: {made:?} and {wanted:?}"
        );
    }
    let elsewhere = templated("elsewhere", &["rights.adoption=drivers", "rights.startupTaint=true"])?;
    let bound = &elsewhere[&(
        "RoleBinding".into(),
        "drivers".into(),
        "cinder-csi-operator-adoption".into(),
    )];
    ensure!(bound["subjects"][0]["namespace"] == "elsewhere", "{bound}");
    Ok(())
}

#[test]
fn in_other_namespaces_for_drivers_the_operator_gets_its_role_and_is_told_of_them() -> Result<()> {
    let settings = ["operandNamespaces[0]=cinder-csi-drivers", "operandNamespaces[1]=more"];
    let made = templated("cinder-csi", &settings)?;
    let wanted = kustomized("config/rbac/operand-namespace")?;
    ensure!(wanted.len() == 2, "{:?}", wanted.keys().collect::<Vec<_>>());
    for ((kind, namespace, name), object) in wanted {
        ensure!(namespace == "cinder-csi-drivers", "{kind} {namespace}/{name}");
        let of_chart = |namespace: &str| made.get(&(kind.clone(), namespace.to_owned(), name.clone()));
        let found = of_chart(&namespace).with_context(|| format!("the chart has no {kind} {name} there"))?;
        for part in ["rules", "roleRef", "subjects"] {
            ensure!(
                found[part] == object[part],
                "{kind}: {} and {}",
                found[part],
                object[part]
            );
        }
        if kind == "RoleBinding" {
            ensure!(object["subjects"][0]["namespace"] == "cinder-csi", "{object}");
        }
        ensure!(of_chart("more").is_some() && of_chart("cinder-csi").is_some(), "{kind}");
    }
    let deployment = &made[&("Deployment".into(), "cinder-csi".into(), "cinder-csi-operator".into())];
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    ensure!(
        args == &json!(["run", "--operand-namespaces=cinder-csi-drivers,more"]),
        "{args}"
    );
    Ok(())
}

#[test]
fn a_value_that_nobody_knows_is_refused_by_name() -> Result<()> {
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
        ensure!(error.contains(word), "{error}");
    }
    Ok(())
}
