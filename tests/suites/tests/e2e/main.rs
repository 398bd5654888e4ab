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
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use harness::Progress;
use suites::cluster::{World, growth, life, snapshots};

type Run = for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>;

/// Whether every change waits for a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// `make e2e`.
    Whole,
}

struct Scenario {
    name: &'static str,
    when: When,
    run: Run,
}

/// Names the scenarios after their functions.
macro_rules! scenarios {
    ($($when:ident $module:ident :: $name:ident),* $(,)?) => {
        vec![$(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            when: When::$when,
            run: |world| $module::$name(world).boxed_local(),
        }),*]
    };
}

fn all() -> Vec<Scenario> {
    scenarios![
        Always life::a_claim_and_a_pod_get_a_volume_and_leave_nothing_behind,
        Always life::a_raw_block_volume_reaches_its_pod,
        Always growth::a_claim_grows_while_its_pod_runs,
        Whole life::a_pod_starts_again_on_the_other_node_with_its_data,
        Always volumes::ten_claims_at_once_are_ten_volumes,
        Whole volumes::a_volume_gets_the_attributes_of_its_class,
        Whole zones::volumes_are_made_in_the_zones_of_their_pods,
        Always snapshots::snapshots_can_be_taken_from_when_their_kinds_are_installed,
        Always snapshots::a_snapshot_becomes_a_volume_with_the_data_of_its_moment,
        Whole snapshots::a_clone_has_the_data_of_its_source,
        Whole copies::a_backup_outlives_its_volume_and_becomes_another,
        Whole copies::a_group_snapshot_is_of_one_moment,
        Whole snapshots::snapshots_are_given_up_when_their_kinds_are_removed,
        Whole faults::the_node_plugin_killed_while_a_pod_starts_and_runs_finishes_its_work,
        Whole faults::the_controller_killed_among_many_claims_makes_each_volume_once,
        Whole credentials::a_credential_is_replaced_and_the_old_one_revoked,
        Whole credentials::keystone_behind_tls_is_trusted_by_its_own_authority,
        Whole services::keystone_comes_back,
        Whole services::cinder_api_comes_back,
        Whole services::cinder_volume_comes_back,
        Whole services::nova_api_comes_back,
        Always services::nova_compute_comes_back,
        Whole services::rabbitmq_comes_back,
        Whole services::the_database_comes_back,
    ]
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let whole = std::env::var("E2E_SCENARIOS").is_ok_and(|value| value == "all");
    let (chosen, others): (Vec<_>, Vec<_>) = all().into_iter().partition(|scenario| {
        let is_named = words.iter().any(|word| scenario.name.contains(word.as_str()));
        is_named || words.is_empty() && (whole || scenario.when == When::Always)
    });
    for scenario in &others {
        let why = if words.is_empty() {
            "it is not among the scenarios that every change waits for; make e2e runs all"
        } else {
            "it was not named"
        };
        println!("not run: {}: {why}", scenario.name);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime
        .context("cannot make a runtime")
        .and_then(|runtime| runtime.block_on(run(&chosen)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\n{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a scenario took.
struct Row {
    name: &'static str,
    passed: bool,
    time: Duration,
    driver: usize,
    operator: usize,
}

async fn run(scenarios: &[Scenario]) -> Result<()> {
    ensure!(!scenarios.is_empty(), "no scenario has such a name");
    let world = World::on_real_services(Progress::loud()).await?;
    let mut rows = Vec::new();
    for Scenario { name, run, .. } in scenarios {
        let (begun, before) = (Instant::now(), calls(&world)?);
        let outcome = run(&world).await;
        let (time, after) = (begun.elapsed(), calls(&world)?);
        rows.push(Row {
            name,
            passed: outcome.is_ok(),
            time,
            driver: after.0 - before.0,
            operator: after.1 - before.1,
        });
        match outcome {
            Ok(()) => println!("test {name} ... ok ({:.1} s)", time.as_secs_f64()),
            Err(error) => {
                println!("test {name} ... FAILED ({:.1} s)\n    {error:#}", time.as_secs_f64());
                println!("{}", world.describe().await);
                world.recover().await;
            }
        }
    }
    let failed: Vec<_> = rows.iter().filter(|row| !row.passed).map(|row| row.name).collect();
    if !failed.is_empty() {
        match world.cluster.collect_logs().await {
            Ok(place) => println!("logs: {}", place.display()),
            Err(error) => println!("not all logs could be collected: {error:#}"),
        }
    }
    let ended = world.stop().await;
    print(&rows);
    ended?;
    if !failed.is_empty() {
        bail!(
            "{} passed, {} failed: {}",
            rows.len() - failed.len(),
            failed.len(),
            failed.join(", ")
        );
    }
    println!("\n{} passed, 0 failed", rows.len());
    Ok(())
}

/// What driver and operator have asked OpenStack for so far.
fn calls(world: &World) -> Result<(usize, usize)> {
    let calls = world.openstack()?.calls();
    let operator = calls.iter().filter(|call| call.user_agent.contains("operator")).count();
    Ok((calls.len() - operator, operator))
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    println!(
        "\n{:width$}  result  seconds  OpenStack calls: driver  operator",
        "scenario"
    );
    for row in rows {
        let result = if row.passed { "ok" } else { "FAILED" };
        let seconds = row.time.as_secs_f64();
        println!(
            "{:width$}  {result:6}  {seconds:7.1}  {:23}  {:8}",
            row.name, row.driver, row.operator
        );
    }
    println!("Looks of others at the cloud, those of the scenarios themselves, are not counted.");
}
