// SPDX-License-Identifier: Apache-2.0
//! `harness up`, `harness images` and `harness previous`

use anyhow::Result;
use clap::Args;
use harness::{CloudConfig, Cluster, ClusterConfig, Product, Profile, Progress};

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: u8,
    /// Do not start the simulated OpenStack
    #[arg(long)]
    no_simulator: bool,
    /// Also build the product and install config/default
    #[arg(long)]
    product: bool,
    /// Stay in the foreground, and remove the cluster when interrupted
    #[arg(long)]
    foreground: bool,
}

pub(crate) async fn run(arguments: UpArgs) -> Result<()> {
    let mut config = ClusterConfig::with_nodes(arguments.nodes);
    if arguments.no_simulator {
        config.cloud = CloudConfig::None;
    }
    let cluster = Cluster::start(config).await?;
    if arguments.product {
        cluster.install_product().await?;
    }
    println!("{}", cluster.how_to_reach()?);
    if arguments.foreground {
        std::future::pending::<()>().await;
    }
    cluster.detach_run()?;
    Ok(())
}

pub(crate) async fn images() -> Result<()> {
    let product = Product::build(Profile::from_environment()?, &Progress::loud()).await?;
    for archive in product.pack_images().await? {
        println!("{}", archive.display());
    }
    Ok(())
}

pub(crate) async fn previous() -> Result<()> {
    let product = Product::previous(&Progress::loud()).await?;
    println!("{}\n{}", product.driver.display(), product.operator.display());
    Ok(())
}
