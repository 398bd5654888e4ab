// SPDX-License-Identifier: Apache-2.0
//! Tests the operator against a real API server with exactly the shipped roles. There are no nodes and controllers: the
//! tests write their objects.
//!
//! The scenarios share one API server and run in order, each with its own operator. Arguments select scenarios by a
//! part of their names: `cargo test -p suites --test operator -- drift`.

mod drift;
mod leaders;
mod namespaces;
mod odd_objects;
mod rest;
mod rollout;
mod rules;
mod states;
mod takeover;
mod world;

use std::process::ExitCode;

use suites::lab::run_in_lab;
use suites::scenarios::main_without_runtime;
use suites::{api, scenarios};

use world::World;

// The table belongs to the crate with the rules.
#[path = "../../../../crds/src/tests/cases.rs"]
mod cases;

fn main() -> ExitCode {
    let all = scenarios![
        rules::the_api_server_accepts_and_refuses_what_the_table_says,
        rest::at_rest_nothing_is_written_but_the_lease,
        rest::a_chart_that_is_applied_again_and_again_brings_no_write,
        drift::every_owned_field_of_every_operand_is_put_right,
        drift::what_others_write_stays,
        drift::what_people_put_on_a_class_outlives_it,
        drift::a_copy_of_the_default_class_stays,
        leaders::of_two_operators_one_works_and_hands_over_when_it_is_asked_to_end,
        leaders::a_replica_that_cannot_list_does_not_lead,
        leaders::the_successor_of_a_killed_leader_finishes_what_it_had_begun,
        rollout::node_pods_are_replaced_one_after_the_other,
        rollout::a_rollout_whose_pods_do_not_come_up_stops_and_says_so,
        rollout::an_update_waits_for_approval_and_leads_back_only_when_allowed,
        rollout::update_continues_after_its_approval_is_removed,
        rollout::a_definition_of_another_release_is_reported_with_the_remedy,
        odd_objects::odd_objects_stop_neither_a_start_nor_repair,
        states::a_pause_leaves_drift_and_a_dry_run_tells_what_would_be_done,
        states::a_removal_waits_for_volumes_unless_they_are_retained_and_ignored,
        states::orphans_go_on_running_without_their_marks,
        states::force_takes_its_acknowledgement_on_this_very_object,
        namespaces::a_driver_in_another_namespace_is_made_there_once_the_operator_has_its_role,
        takeover::the_go_driver_is_replaced_part_by_part_and_never_are_there_two_leaders,
    ];
    main_without_runtime(all, |scenarios| {
        run_in_lab(async move |lab| {
            let world = World::start(&lab).await?;
            scenarios
                .run(&world, async |ended| {
                    if !ended.passed {
                        println!("{}", world.describe().await);
                    }
                    world.clear().await
                })
                .await?;
            if scenarios.failed() > 0 {
                lab.keep_logs();
            }
            Ok(())
        })
    })
}
