// SPDX-License-Identifier: Apache-2.0
//! Tests the product on a cluster of real components whose two nodes are servers of a real OpenStack: `make e2e`.
//!
//! The scenarios share one cluster and one cloud, run in order, and restore both: nothing may remain in Cinder, in Nova
//! or on the nodes. Arguments select scenarios by a part of their names. Without arguments, only the scenarios for
//! every change run, unless `E2E_SCENARIOS=all` is set, as in `make e2e`; the skipped ones are listed.

mod beside;
mod copies;
mod credentials;
mod faults;
mod services;
mod volumes;
mod zones;

use std::process::ExitCode;

use anyhow::Result;
use beside::GoDriverResult;
use harness::Progress;
use suites::cluster::{World, growth, life, snapshots};
use suites::scenarios;
use suites::scenarios::{ScenarioResult, Scenarios};

/// Scenarios for every change.
const EVERY_CHANGE: [&str; 7] = [
    "life::pod_gets_volume_and_cleans_up",
    "life::pod_gets_raw_block_volume",
    "growth::claim_expands_while_pod_runs",
    "volumes::ten_concurrent_claims_get_ten_volumes",
    "snapshots::snapshots_work_after_kinds_are_installed",
    "snapshots::restored_volume_has_data_of_snapshot",
    "services::recovers_from_nova_compute_outage",
];

fn main() -> ExitCode {
    let all = scenarios![
        life::pod_gets_volume_and_cleans_up,
        life::pod_gets_raw_block_volume,
        growth::claim_expands_while_pod_runs,
        life::pod_moves_to_other_node_with_data,
        volumes::ten_concurrent_claims_get_ten_volumes,
        volumes::volume_gets_attributes_of_class,
        zones::volumes_are_created_in_zones_of_pods,
        snapshots::snapshots_work_after_kinds_are_installed,
        snapshots::restored_volume_has_data_of_snapshot,
        snapshots::clone_has_data_of_source,
        copies::backup_outlives_volume_and_is_restored,
        copies::group_snapshot_is_consistent,
        snapshots::forced_deletion_of_snapshot_kinds_is_reported,
        faults::killed_node_plugin_finishes_pod_start,
        faults::killed_controller_creates_each_volume_once,
        credentials::replaced_credential_survives_revocation_of_old_one,
        credentials::keystone_with_private_ca_is_trusted,
        services::recovers_from_keystone_outage,
        services::recovers_from_cinder_api_outage,
        services::recovers_from_cinder_volume_outage,
        services::recovers_from_nova_api_outage,
        services::recovers_from_nova_compute_outage,
        services::recovers_from_rabbitmq_outage,
        services::recovers_from_database_outage,
    ];
    let whole = is_whole();
    if !whole {
        println!(
            "every change waits for {} of these scenarios; make e2e runs all",
            EVERY_CHANGE.len()
        );
    }
    scenarios::main_of_some(all, |name| whole || EVERY_CHANGE.contains(&name), run)
}

/// Whether all scenarios are requested.
fn is_whole() -> bool {
    std::env::var("E2E_SCENARIOS").is_ok_and(|value| value == "all")
}

/// Result of a scenario: requests of our driver and operator, and the result of the Go driver.
struct Row {
    ended: ScenarioResult,
    driver: usize,
    operator: usize,
    theirs: Option<GoDriverResult>,
}

async fn run(scenarios: &mut Scenarios<World>) -> Result<()> {
    let world = World::on_real_services(Progress::loud()).await?;
    let mut rows = Vec::new();
    let mut before = calls(&world)?;
    let outcome = scenarios
        .run(&world, async |ended| {
            let after = calls(&world)?;
            rows.push(Row {
                ended,
                driver: after.0 - before.0,
                operator: after.1 - before.1,
                theirs: None,
            });
            if !ended.passed {
                println!("{}", world.describe().await);
                world.recover().await;
            }
            before = calls(&world)?;
            Ok(())
        })
        .await;
    if scenarios.failed() > 0 {
        world.print_logs().await;
    }
    let beside = if is_whole() {
        run_go_driver(&world, &mut rows).await
    } else {
        Ok(())
    };
    let ended = world.stop().await;
    print(&rows);
    outcome.and(beside).and(ended)
}

/// Runs the passed scenarios with the Go driver, if it supports them.
async fn run_go_driver(world: &World, rows: &mut [Row]) -> Result<()> {
    let passed = rows.iter().filter(|row| row.ended.passed);
    let names: Vec<_> = passed.map(|row| row.ended.name).collect();
    let mut theirs = beside::run(world, &names).await?;
    for row in rows {
        row.theirs = theirs.remove(row.ended.name);
    }
    Ok(())
}

/// Returns the number of requests of driver and operator to OpenStack so far.
fn calls(world: &World) -> Result<(usize, usize)> {
    let calls = world.openstack()?.calls();
    let operator = calls.iter().filter(|call| call.user_agent.contains("operator")).count();
    Ok((calls.len() - operator, operator))
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.ended.name.len()).max().unwrap_or_default();
    println!(
        "\n{:width$}  result  seconds  OpenStack calls: driver  operator  Go driver: seconds  calls",
        "scenario"
    );
    for row in rows {
        let result = if row.ended.passed { "ok" } else { "FAILED" };
        let seconds = row.ended.time.as_secs_f64();
        let (time, calls) = row
            .theirs
            .as_ref()
            .map_or_else(|| ("-".to_owned(), "-".to_owned()), GoDriverResult::columns);
        println!(
            "{:width$}  {result:6}  {seconds:7.1}  {:23}  {:8}  {time:>18}  {calls:>5}",
            row.ended.name, row.driver, row.operator
        );
    }
    println!("Looks of others at the cloud, those of the scenarios themselves, are not counted.");
    println!(
        "The Go driver has our place at the end, on the same cluster and cloud, in the scenarios that need none of our operator."
    );
}
