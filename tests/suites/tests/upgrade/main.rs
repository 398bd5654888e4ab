// SPDX-License-Identifier: Apache-2.0
//! Tests updates from an earlier commit to the current one, on two nodes with a pod each that writes continuously to
//! its volume.
//!
//! Checks that no write is lost and no pod restarts. The controller must be updated before the first node pod, and node
//! pods one after the other. The version in the status must change only at the end. Measures how long a node is missing
//! in its CSINode while its pod is replaced.

mod watch;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use harness::{Product, Profile, Progress};
use suites::cluster::writers::Writers;
use suites::cluster::{CLASS, World, longest_gap};
use suites::scenarios;
use suites::scenarios::Scenarios;

use watch::Watches;

/// Maximum time for which the driver may be missing in a CSINode while a pod is replaced: never.
const LONGEST_GAP: Duration = Duration::ZERO;

/// The products of the update, and a cluster without a product.
struct Update {
    previous: Product,
    present: Product,
    world: World,
}

fn main() -> ExitCode {
    let all = scenarios![update_loses_no_write_and_is_ordered];
    scenarios::main(all, run)
}

async fn run(scenarios: &mut Scenarios<Update>) -> Result<()> {
    let progress = Progress::loud();
    let previous = Product::previous(&progress).await?;
    let present = Product::build(Profile::from_environment()?, &progress).await?;
    // Two versions with the same number would share their images.
    ensure!(
        previous.version != present.version,
        "both versions are {}",
        present.version
    );
    let world = World::start_nodes(2, progress).await?;
    let update = Update {
        previous,
        present,
        world,
    };
    scenarios
        .run(&update, async |ended| {
            if !ended.passed {
                println!("{}", update.world.describe().await);
                update.world.print_logs().await;
            }
            Ok(())
        })
        .await?;
    update.world.stop().await
}

async fn update_loses_no_write_and_is_ordered(update: &Update) -> Result<()> {
    let Update {
        previous,
        present,
        world,
    } = update;
    world.install_version(previous).await?;
    let writers = Writers::start(world, CLASS).await?;
    let watches = Watches::start(world).await?;

    let cluster = &world.cluster;
    cluster.progress().say(format!("updating to {}", present.version));
    let begun = Instant::now();
    cluster.load_images(present).await?;
    cluster.install_manifests_of(&present.source).await?;
    world.reach_version(present).await?;
    println!("    updated in {:.0} s", begun.elapsed().as_secs_f64());

    let seen = watches.stop()?;
    seen.controller_first(previous, present)?;
    seen.one_node_after_the_other()?;
    seen.version_last(previous, present)?;
    let gap = longest_gap(&seen.registrations)?;
    println!(
        "    longest gap in a node's CSINode: {gap:?} ({} changes of CSINodes seen)",
        seen.registrations.len()
    );
    ensure!(gap <= LONGEST_GAP, "a node was missing from its CSINode for {gap:?}");
    let written = writers.check(world).await?;
    println!("    no write lost of {written}");
    // The new version detaches and deletes volumes of the old one.
    world.delete_all().await
}
