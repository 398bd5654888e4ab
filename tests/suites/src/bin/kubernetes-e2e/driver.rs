// SPDX-License-Identifier: Apache-2.0
//! The drivers under test, each in its own cluster.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use harness::{Cluster, Progress, wait_for, workspace_root};
use suites::cluster::{PATIENCE, World, snapshots};
use suites::go_manifests as go;

use crate::cloud::{CloudKind, CloudNames, three_nodes};
use crate::text;

/// Volume limit of a node, which one spec reaches. Must equal the limit in `ours/driver.yaml`.
const LIMIT: u8 = 24;

/// A driver under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// Our driver, installed by the operator.
    Ours,
    /// The Go driver, installed from its own manifests.
    Go,
}

impl Driver {
    pub(crate) const ALL: [Self; 2] = [Self::Ours, Self::Go];

    /// Returns the folder of its descriptions, which is also its key in the list of expectations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Go => "go",
        }
    }

    /// Returns its title for readers.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Ours => "our driver",
            Self::Go => "the Go driver",
        }
    }

    /// Returns the path of one of its files.
    pub(crate) fn file(self, name: &str) -> PathBuf {
        workspace_root().join(format!("tests/suites/external-storage/{}/{name}.yaml", self.name()))
    }

    /// Starts a cluster. Our driver's operator is then already installed.
    pub(crate) async fn cluster(self, cloud: CloudKind) -> Result<World> {
        let world = match cloud {
            CloudKind::Simulator => World::bare(Cluster::start(three_nodes()).await?),
            CloudKind::Real => World::bare_in_both_zones(Progress::loud()).await?,
        };
        match self {
            Self::Ours => world.with_product().await,
            Self::Go => Ok(world),
        }
    }

    /// Installs the driver and all objects that its descriptions refer to, and waits until they are ready.
    pub(crate) async fn prepare(self, world: &World, cloud: CloudKind) -> Result<()> {
        let offer = CloudNames::from_world(world, cloud)?;
        let progress = world.cluster.progress();
        progress.say(format!("asking for {} with all its classes", self.title()));
        match self {
            Self::Ours => ours(world, &offer).await,
            Self::Go => the_go_driver(world, &offer).await,
        }
    }

    async fn apply(self, world: &World, name: &str, offer: &CloudNames) -> Result<()> {
        let path = self.file(name);
        let manifest = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        world.cluster.apply(&offer.fill(&manifest)).await.map(drop)
    }
}

async fn ours(world: &World, offer: &CloudNames) -> Result<()> {
    let cluster = &world.cluster;
    let kinds = text(cluster.tools().path("snapshot-crds")?)?;
    cluster.kubectl(&["apply", "-f", kinds]).await?;
    snapshots::install_controller(cluster).await?;
    Driver::Ours.apply(world, "driver", offer).await?;
    world.healthy().await?;
    wait_for("the classes", PATIENCE, async || {
        for name in [
            "storageclass/ordinary",
            "volumegroupsnapshotclass/together",
            "volumeattributesclass/archive",
        ] {
            cluster.kubectl(&["get", name]).await?;
        }
        Ok(())
    })
    .await
}

async fn the_go_driver(world: &World, offer: &CloudNames) -> Result<()> {
    let cluster = &world.cluster;
    let login = go::cloud_conf(world)?;
    ensure!(
        !login.contains("[BlockStorage]"),
        "the login brings a section that is written here"
    );
    let conf = format!("{login}\n[BlockStorage]\nnode-volume-attach-limit = {LIMIT}\n");
    go::install(cluster, &conf).await?;
    Driver::Go.apply(world, "classes", offer).await
}
