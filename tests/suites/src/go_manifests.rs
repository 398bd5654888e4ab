//! The Go driver's own manifests and chart: they come with its Go module.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, workspace_root};
use serde_json::{Value, json};

/// Where the manifests put it.
pub const NAMESPACE: &str = "kube-system";
/// The Deployment of its controller.
pub const CONTROLLER: &str = "csi-cinder-controllerplugin";
/// The DaemonSet of its node plugins.
pub const NODE: &str = "csi-cinder-nodeplugin";
/// What the manifests give as `--cluster`.
pub const CLUSTER_ID: &str = "kubernetes";
const MODULE: &str = "k8s.io/cloud-provider-openstack";

/// The manifests as they were published, but for the credentials of a cloud and for images that cannot be pulled here.
#[derive(Debug)]
pub struct Manifests {
    objects: Vec<Value>,
}

impl Manifests {
    /// Reads them; their Secret gets this `cloud.conf`.
    pub async fn read(cloud_conf: &str) -> Result<Self> {
        let directory = module().await?.join("manifests/cinder-csi-plugin");
        let mut objects = Vec::new();
        let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            for document in serde_yaml::Deserializer::from_str(&text) {
                let value: Value = serde::Deserialize::deserialize(document)
                    .with_context(|| format!("{} is not YAML", file.display()))?;
                if value.is_object() {
                    objects.push(value);
                }
            }
        }
        ensure!(
            objects.len() > 10,
            "{} has {} objects",
            directory.display(),
            objects.len()
        );
        for object in &mut objects {
            fit(object, cloud_conf);
        }
        Ok(Self { objects })
    }

    /// The objects.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The images that they name.
    pub fn images(&self) -> BTreeSet<&str> {
        let pods = self
            .objects
            .iter()
            .filter_map(|object| object.pointer("/spec/template/spec/containers")?.as_array());
        pods.flatten()
            .filter_map(|container| container["image"].as_str())
            .collect()
    }
}

fn fit(object: &mut Value, cloud_conf: &str) {
    if object["kind"] == "Secret" {
        // The published one has the credentials of nobody.
        object["stringData"] = json!({"cloud.conf": cloud_conf});
        object["data"] = Value::Null;
    }
    let containers = object.pointer_mut("/spec/template/spec/containers");
    for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
        // There is no registry here.
        if container["imagePullPolicy"] == "Always" {
            container["imagePullPolicy"] = json!("IfNotPresent");
        }
    }
}

/// The directory of the chart, as it was published.
pub async fn chart() -> Result<PathBuf> {
    Ok(module().await?.join("charts/cinder-csi-plugin"))
}

/// The directory of the Go driver's module.
async fn module() -> Result<PathBuf> {
    let directory = Command::new("go")
        .args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", MODULE])
        .directory(workspace_root().join("tests/tools/csi"))
        .output()
        .await
        .with_context(|| format!("cannot find the module {MODULE}"))?;
    Ok(PathBuf::from(directory.trim()))
}
