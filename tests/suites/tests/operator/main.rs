//! The operator against a real API server, under exactly the roles that are shipped. There are no nodes and no controllers:
//! the tests write what those would write.
//!
//! The scenarios share one API server and run in their order, each with an operator of its own. Names given as arguments
//! choose scenarios that contain them: `cargo test -p suites --test operator -- drift`.

mod drift;
mod leaders;
mod rest;
mod rollout;
mod rules;
mod states;
mod takeover;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use suites::api;
use suites::lab::in_lab;

use world::World;

// The table is part of the crate whose rules it tries.
#[path = "../../../../crds/src/tests/cases.rs"]
mod cases;

type Scenario = for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>;

/// Names the scenarios after their functions.
macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)), (|world| $module::$name(world).boxed_local()) as Scenario)),*]
    };
}

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let scenarios = scenarios![
        rules::the_api_server_accepts_and_refuses_what_the_table_says,
        rest::at_rest_nothing_is_written_but_the_lease,
        drift::every_owned_field_of_every_operand_is_put_right,
        drift::what_others_write_stays,
        leaders::of_two_operators_one_works_and_hands_over_when_it_is_asked_to_end,
        leaders::the_successor_of_a_killed_leader_finishes_what_it_had_begun,
        rollout::node_pods_are_replaced_one_after_the_other,
        rollout::a_rollout_whose_pods_do_not_come_up_stops_and_says_so,
        rollout::an_update_waits_for_approval_and_leads_back_only_when_allowed,
        states::a_pause_leaves_drift_and_a_dry_run_tells_what_would_be_done,
        states::the_command_diff_tells_changes_by_its_exit_status,
        states::a_removal_waits_for_volumes_unless_they_are_retained_and_ignored,
        states::orphans_go_on_running_without_their_marks,
        states::force_takes_its_acknowledgement_on_this_very_object,
        takeover::the_go_driver_is_replaced_part_by_part_and_never_are_there_two_leaders,
    ];
    let scenarios: Vec<_> = scenarios
        .into_iter()
        .filter(|(name, _)| chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str())))
        .collect();
    // A failure is told by a panic with all its reasons.
    let outcome = std::panic::catch_unwind(|| {
        in_lab(move |lab| async move {
            let mut failed = 0;
            let world = World::start(&lab).await?;
            for (name, scenario) in &scenarios {
                let begun = Instant::now();
                let result = scenario(&world).await;
                let seconds = begun.elapsed().as_secs_f64();
                match result {
                    Ok(()) => println!("test {name} ... ok ({seconds:.1} s)"),
                    Err(error) => {
                        println!("test {name} ... FAILED ({seconds:.1} s)\n    {error:#}");
                        println!("{}", world.describe().await);
                        failed += 1;
                    }
                }
                world.clear().await?;
            }
            println!("\n{} passed, {failed} failed", scenarios.len() - failed);
            ensure!(failed == 0 && !scenarios.is_empty(), "{failed} scenarios failed");
            Ok(())
        });
    });
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
