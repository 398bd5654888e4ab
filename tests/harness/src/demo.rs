// SPDX-License-Identifier: Apache-2.0
//! `harness demo` shows the lifecycle of a volume, from the installation of the operator to its removal. Everything
//! except the cloud is real.

mod driver;
mod record;
mod table;
mod volume;

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use harness::{CloudConfig, Cluster, ClusterConfig, Product, Profile, Progress, SimulatorConfig};

use driver::Driver;
use record::Record;
use table::Row;

/// Latencies of real services on an idle machine.
const LATENCIES: &str = "create=800ms,attach=1100ms,detach=600ms,delete=300ms";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: u8,
    /// Keep the cluster with the installed driver, and print how to reach it
    #[arg(long)]
    keep: bool,
}

/// Runs the demo and removes the cluster. With `keep`, the cluster also survives a failure.
pub(crate) async fn run(arguments: DemoArgs) -> Result<()> {
    let progress = Progress::loud();
    let product = Product::build(Profile::from_environment()?, &progress).await?;
    let mut config = ClusterConfig::with_nodes(arguments.nodes);
    config.progress = progress;
    config.cloud = CloudConfig::Simulator(SimulatorConfig {
        args: vec!["--latency".to_owned(), LATENCIES.to_owned()],
    });
    let cluster = Cluster::start(config).await?;
    let logs = cluster.logs()?.to_owned();
    let shown = show(&cluster, &product, arguments.keep).await;
    if shown.is_err()
        && let Err(error) = cluster.collect_logs().await
    {
        cluster
            .progress()
            .say(format!("not all logs could be collected: {error:#}"));
    }
    let ended = if arguments.keep {
        println!("\nThe cluster stays. To reach it:\n\n{}", cluster.how_to_reach()?);
        cluster.detach_run().map(drop)
    } else {
        cluster.progress().say("removing the cluster");
        cluster.stop().await
    };
    let rows = shown.with_context(|| format!("the demo failed; logs: {}", logs.display()))?;
    ended?;
    if !arguments.keep {
        println!("\nNo process, mount, loop device, network or cgroup of the demo is left.");
    }
    println!("\nThe life of one volume:\n\n{}", table::draw(&rows));
    Ok(())
}

/// Prints a headline.
fn title(text: &str) {
    println!("\n\u{2500}\u{2500} {text}\n");
}

async fn show(cluster: &Cluster, product: &Product, keep: bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    title("The operator is installed: kubectl apply -k config/default");
    cluster.load_images(product).await?;
    let started = Instant::now();
    cluster.install_manifests().await?;
    rows.push(Row::step(
        "install the operator",
        "Deployment",
        started.elapsed().as_secs_f64(),
    ));
    print!(
        "{}",
        cluster
            .kubectl(&["get", "pods", "-n", driver::NAMESPACE, "-o", "wide"])
            .await?
    );

    title("An administrator asks for a driver: kubectl apply -f config/samples/cindercsidriver.yaml");
    let started = Instant::now();
    let driver = Driver::ask_for(cluster).await?;
    driver.give_credentials(cluster).await?;
    driver.wait_until_available(cluster).await?;
    rows.push(Row::step(
        "make the driver",
        "CinderCSIDriver",
        started.elapsed().as_secs_f64(),
    ));
    title("What the operator made of it");
    driver.show_operands(cluster).await?;

    let life = volume::run_lifecycle(cluster, &driver).await?;
    let record = Record::read(cluster, driver::NAMESPACE, driver::CONTAINER).await?;
    rows.extend(volume::story(&record, &life)?);
    volume::show_requests(&record, &life);

    title("Nothing of the volume is left");
    volume::ensure_gone(cluster, &driver).await?;
    if !keep {
        title("The driver and the operator go");
        let started = Instant::now();
        driver.remove(cluster).await?;
        rows.push(Row::step(
            "remove the driver",
            "CinderCSIDriver",
            started.elapsed().as_secs_f64(),
        ));
        cluster.remove_manifests().await?;
    }
    Ok(rows)
}
