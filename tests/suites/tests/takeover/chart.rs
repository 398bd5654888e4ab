// SPDX-License-Identifier: Apache-2.0
//! The Go driver from its own Helm chart.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness::Cluster;
use serde_json::json;
use suites::cluster::{PATIENCE, World};
use suites::go_manifests as go;
use suites::programs;

/// Name of the release.
const NAME: &str = "cinder-csi";
const CONTROLLER: &str = "openstack-cinder-csi-controllerplugin";
const NODE: &str = "openstack-cinder-csi-nodeplugin";

/// The release of the chart in a cluster, installed or not.
pub(crate) struct Release<'a> {
    cluster: &'a Cluster,
    helm: PathBuf,
    chart: PathBuf,
}

impl<'a> Release<'a> {
    pub(crate) async fn prepare(cluster: &'a Cluster) -> Result<Self> {
        Ok(Self {
            cluster,
            helm: programs::helm()?,
            chart: go::chart().await?,
        })
    }

    /// Installs the chart. Its values only configure the credentials.
    pub(crate) async fn install(world: &'a World) -> Result<Self> {
        let cluster = &world.cluster;
        let release = Self::prepare(cluster).await?;
        let values = json!({
            "secret": {"enabled": true, "create": true, "name": "cloud-config", "data": {"cloud.conf": go::cloud_conf(world)?}},
            // Without the directory of the machine's CA certificates, which is a default.
            "csi": {"plugin": {
                "volumes": [],
                "volumeMounts": [{"name": "cloud-config", "mountPath": "/etc/config", "readOnly": true}],
            }},
        });
        let file = cluster.directory()?.join("values.json");
        std::fs::write(&file, values.to_string()).context("cannot write the values of the chart")?;
        let (chart, file) = (text(&release.chart)?, text(&file)?);
        let words = ["install", NAME, chart, "--values", file];
        release.run(&words).await?;
        Ok(release)
    }

    /// Upgrades the release to another image of the driver, with all other values unchanged.
    pub(crate) async fn take_image(&self, repository: &str, tag: &str) -> Result<()> {
        let repository = format!("--set-string=csi.plugin.image.repository={repository}");
        let tag = format!("--set-string=csi.plugin.image.tag={tag}");
        let words = ["upgrade", NAME, text(&self.chart)?, "--reuse-values", &repository, &tag];
        self.run(&words).await
    }

    /// Rolls back to the previous revision.
    pub(crate) async fn roll_back(&self) -> Result<()> {
        self.run(&["rollback", NAME]).await
    }

    pub(crate) async fn uninstall(&self) -> Result<()> {
        let options = ["--ignore-not-found", "--cascade=foreground", "--wait"];
        self.run(&[&["uninstall", NAME][..], &options].concat()).await
    }

    pub(crate) async fn serves(&self) -> Result<()> {
        go::serves_as(self.cluster, CONTROLLER, NODE).await
    }

    async fn run(&self, words: &[&str]) -> Result<()> {
        let mut helm = self
            .cluster
            .command_in_network(text(&self.helm)?)?
            .args(words)
            .args(["--namespace", go::NAMESPACE])
            .timeout(PATIENCE);
        let home = self.cluster.directory()?.join("helm");
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm = helm.env(variable, home.join(variable));
        }
        helm.output().await.map(drop)
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
