//! `harness`: a cluster for a demo, or to play with.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use harness::{Cluster, ClusterConfig, clean_up_all};

#[derive(Debug, Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Starts a cluster and leaves it running.
    Up {
        /// How many nodes.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
        nodes: u8,
        /// Without the OpenStack simulator.
        #[arg(long)]
        no_simulator: bool,
    },
    /// Removes every cluster that was left running.
    Down,
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Verb::Up { nodes, no_simulator } => up(nodes, no_simulator).await,
        Verb::Down => {
            let removed = clean_up_all()?;
            eprintln!("{removed} removed");
            Ok(())
        }
    }
}

async fn up(nodes: u8, no_simulator: bool) -> Result<()> {
    let mut config = ClusterConfig::with_nodes(nodes);
    if no_simulator {
        config.simulator = None;
    }
    let cluster = Cluster::start(config).await?;
    let pid = cluster.first_node()?.pid();
    let kubeconfig = cluster.kubeconfig()?;
    let kubectl = cluster.tools().path("kubectl")?.to_owned();
    let logs = cluster.logs()?.to_owned();
    cluster.keep().context("the cluster could not be kept")?;
    println!(
        "export KUBECONFIG={}\nalias in-cluster='nsenter --target {pid} --net --'\nin-cluster {} get nodes\nlogs: {}",
        kubeconfig.display(),
        kubectl.display(),
        logs.display()
    );
    let _ = Duration::ZERO;
    Ok(())
}
