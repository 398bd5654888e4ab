//! The product on a cluster of real parts whose two nodes are servers of a real OpenStack: `make e2e`.
//!
//! The scenarios share one cluster and one cloud and run in their order, each leaving both as it found them: nothing may be
//! left in Cinder, in Nova or on the nodes. Names given as arguments choose scenarios that contain them. With no names and
//! without `E2E_SCENARIOS=all`, which `make e2e` sets, those run that every change waits for; the others are named.

mod copies;
mod credentials;
mod faults;
mod services;
mod volumes;
mod zones;

use std::process::ExitCode;

use anyhow::Result;
use harness::Progress;
use suites::cluster::{World, growth, life, snapshots};
use suites::scenarios;
use suites::scenarios::{Ended, Scenarios};

/// Those that every change waits for.
const EVERY_CHANGE: [&str; 7] = [
    "life::a_claim_and_a_pod_get_a_volume_and_leave_nothing_behind",
    "life::a_raw_block_volume_reaches_its_pod",
    "growth::a_claim_grows_while_its_pod_runs",
    "volumes::ten_claims_at_once_are_ten_volumes",
    "snapshots::snapshots_can_be_taken_from_when_their_kinds_are_installed",
    "snapshots::a_snapshot_becomes_a_volume_with_the_data_of_its_moment",
    "services::nova_compute_comes_back",
];

fn main() -> ExitCode {
    let all = scenarios![
        life::a_claim_and_a_pod_get_a_volume_and_leave_nothing_behind,
        life::a_raw_block_volume_reaches_its_pod,
        growth::a_claim_grows_while_its_pod_runs,
        life::a_pod_starts_again_on_the_other_node_with_its_data,
        volumes::ten_claims_at_once_are_ten_volumes,
        volumes::a_volume_gets_the_attributes_of_its_class,
        zones::volumes_are_made_in_the_zones_of_their_pods,
        snapshots::snapshots_can_be_taken_from_when_their_kinds_are_installed,
        snapshots::a_snapshot_becomes_a_volume_with_the_data_of_its_moment,
        snapshots::a_clone_has_the_data_of_its_source,
        copies::a_backup_outlives_its_volume_and_becomes_another,
        copies::a_group_snapshot_is_of_one_moment,
        snapshots::snapshots_are_given_up_when_their_kinds_are_removed,
        faults::the_node_plugin_killed_while_a_pod_starts_and_runs_finishes_its_work,
        faults::the_controller_killed_among_many_claims_makes_each_volume_once,
        credentials::a_credential_is_replaced_and_the_old_one_revoked,
        credentials::keystone_behind_tls_is_trusted_by_its_own_authority,
        services::keystone_comes_back,
        services::cinder_api_comes_back,
        services::cinder_volume_comes_back,
        services::nova_api_comes_back,
        services::nova_compute_comes_back,
        services::rabbitmq_comes_back,
        services::the_database_comes_back,
    ];
    let whole = std::env::var("E2E_SCENARIOS").is_ok_and(|value| value == "all");
    if !whole {
        println!(
            "every change waits for {} of these scenarios; make e2e runs all",
            EVERY_CHANGE.len()
        );
    }
    scenarios::main_of_some(all, |name| whole || EVERY_CHANGE.contains(&name), run)
}

/// What a scenario took.
struct Row {
    ended: Ended,
    driver: usize,
    operator: usize,
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
        match world.cluster.collect_logs().await {
            Ok(place) => println!("logs: {}", place.display()),
            Err(error) => println!("not all logs could be collected: {error:#}"),
        }
    }
    let ended = world.stop().await;
    print(&rows);
    outcome.and(ended)
}

/// What driver and operator have asked OpenStack for so far.
fn calls(world: &World) -> Result<(usize, usize)> {
    let calls = world.openstack()?.calls();
    let operator = calls.iter().filter(|call| call.user_agent.contains("operator")).count();
    Ok((calls.len() - operator, operator))
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.ended.name.len()).max().unwrap_or_default();
    println!(
        "\n{:width$}  result  seconds  OpenStack calls: driver  operator",
        "scenario"
    );
    for row in rows {
        let result = if row.ended.passed { "ok" } else { "FAILED" };
        let seconds = row.ended.time.as_secs_f64();
        println!(
            "{:width$}  {result:6}  {seconds:7.1}  {:23}  {:8}",
            row.ended.name, row.driver, row.operator
        );
    }
    println!("Looks of others at the cloud, those of the scenarios themselves, are not counted.");
}
