// SPDX-License-Identifier: Apache-2.0
//! Starts every sidecar of every row of the operator's table with exactly the operator's arguments. A program that
//! accepts its arguments fails because there is no cluster. It fails earlier if a flag, value or feature gate is
//! unknown.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, Tools, sidecar_programs, workspace_root};
use serde_json::{Value, json};
use suites::programs;

/// The error of a program that has accepted its arguments and has no API server.
const ACCEPTED: &str = "unable to load in-cluster configuration";
/// Optional APIs of a cluster, in the format of `render`.
const APIS: [&str; 4] = [
    "",
    "snapshots",
    "snapshots,group-snapshots",
    "snapshots,group-snapshots,volume-attributes-classes",
];
const SIDECARS: [&str; 4] = ["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"];
const START_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn every_sidecar_accepts_its_arguments() {
    accept_all().await.unwrap();
}

async fn accept_all() -> Result<()> {
    let tools = Tools::modules(&["csi", "resizer"]).await?;
    let mut started = BTreeSet::new();
    for minor in 30..=37 {
        let known = sidecar_programs(&tools, minor)?;
        for apis in APIS {
            for container in containers(minor, apis).await? {
                let image = container["image"].as_str().context("a container without an image")?;
                let Some(program) = known.get(image) else { continue };
                let words = arguments(&container["args"])?;
                if started.insert((image.to_owned(), words.clone())) {
                    accept(program, &words).await.with_context(|| image.to_owned())?;
                }
            }
        }
        let names: BTreeSet<_> = started.iter().map(|(image, _)| image.as_str()).collect();
        for name in known
            .keys()
            .filter(|name| SIDECARS.iter().any(|sidecar| name.contains(sidecar)))
        {
            ensure!(
                names.contains(name.as_str()),
                "{name} of Kubernetes 1.{minor} was not started"
            );
        }
    }
    println!("{} starts", started.len());
    Ok(())
}

#[tokio::test]
async fn snapshot_controller_accepts_configured_arguments() {
    let tools = Tools::modules(&["csi"]).await.unwrap();
    let file = workspace_root().join("config/snapshot-controller/deployment.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let args = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "args:")
        .skip(1)
        .take_while(|line| line.starts_with('#') || line.starts_with("- --"));
    let words: Vec<_> = args
        .filter_map(|line| line.strip_prefix("- ").map(str::to_owned))
        .collect();
    assert!(words.len() > 2, "{words:?}");
    accept(tools.path("snapshot-controller").unwrap(), &words)
        .await
        .unwrap();
}

#[tokio::test]
async fn unknown_feature_gate_is_rejected() {
    let tools = Tools::modules(&["csi"]).await.unwrap();
    let words = ["--feature-gates=NoSuchGate=true".to_owned()];
    let error = accept(tools.path("csi-attacher").unwrap(), &words).await.unwrap_err();
    assert!(error.to_string().contains("NoSuchGate"), "{error}");
}

/// Starts a program and checks that it fails because there is no cluster.
async fn accept(program: &Path, words: &[String]) -> Result<()> {
    let answer = Command::new(program)
        .args(words)
        .without_env(["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"])
        .timeout(START_TIMEOUT)
        .answer()
        .await?;
    let output = format!("{}{}", answer.stdout, answer.stderr);
    let head: String = output.chars().take(1000).collect();
    ensure!(
        !answer.status.success() && output.contains(ACCEPTED),
        "{} {}: {head}",
        program.display(),
        words.join(" ")
    );
    Ok(())
}

/// Returns the controller's containers as rendered by the operator.
async fn containers(minor: u32, apis: &str) -> Result<Vec<Value>> {
    let driver = json!({
        "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": "cinder.csi.openstack.org"},
        "spec": {"clouds": [{"credentialsSecretRef": {"name": "openstack-credentials"}}], "csiDriver": {"storageCapacity": true}},
    });
    let version = format!("--kubernetes-version=1.{minor}");
    let mut render = Command::new(programs::operator()?).args(["render", "-", &version]);
    if !apis.is_empty() {
        render = render.args(["--apis", apis]);
    }
    let text = render.stdin(driver.to_string()).output().await?;
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        let object: Value = serde_yaml::from_str(document).context("the operator rendered no YAML")?;
        if object["kind"] == "Deployment" {
            let containers = object["spec"]["template"]["spec"]["containers"].as_array();
            return containers.cloned().context("a Deployment without containers");
        }
    }
    anyhow::bail!("the operator rendered no Deployment")
}

fn arguments(args: &Value) -> Result<Vec<String>> {
    let args = args.as_array().context("a container without arguments")?;
    let words = args.iter().map(|word| word.as_str().map(str::to_owned));
    words.collect::<Option<_>>().context("an argument is not text")
}
