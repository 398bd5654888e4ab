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
        rules::api_server_enforces_validation_rules,
        rest::idle_operator_writes_only_leases,
        rest::repeated_chart_apply_causes_no_write,
        drift::repairs_every_owned_field,
        drift::fields_of_other_clients_are_retained,
        drift::recreated_class_retains_foreign_metadata,
        drift::copy_of_default_class_is_retained,
        leaders::stopped_leader_hands_over_to_standby,
        leaders::replica_without_list_permission_does_not_lead,
        leaders::successor_completes_work_of_killed_leader,
        rollout::replaces_node_pods_sequentially,
        rollout::failed_rollout_stops_and_is_reported,
        rollout::update_needs_approval_and_downgrade_permission,
        rollout::update_continues_after_its_approval_is_removed,
        rollout::foreign_crd_version_is_reported,
        odd_objects::undecodable_objects_do_not_block_operator,
        states::pause_ignores_drift_and_dry_run_reports_it,
        states::removal_waits_for_volumes_unless_ignored,
        states::orphans_run_without_labels,
        states::forced_deletion_needs_acknowledgement_of_object,
        namespaces::driver_namespace_requires_operator_role,
        takeover::migration_never_has_two_leaders,
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
