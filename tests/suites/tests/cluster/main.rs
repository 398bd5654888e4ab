// SPDX-License-Identifier: Apache-2.0
//! Tests the product on a cluster of real components with two nodes: the lifecycle of a volume, its move to another
//! node, bad input, killed processes, and removal.
//!
//! The scenarios share one cluster, run in order, and restore it. Arguments select scenarios by a part of their names:
//! `cargo test -p suites --test cluster -- kill`.

mod bad_input;
mod classes;
mod clouds;
mod dashboard;
mod diagnose;
mod gate;
mod guide;
mod kills;
mod leaders;
mod metrics;
mod operator_kills;
mod orphan;
mod plugin;
mod regions;
mod registration;
mod servers;
mod upkeep;

use std::process::ExitCode;

use anyhow::Result;
use harness::{CloudConfig, ClusterConfig, Progress, SimulatorConfig};
use suites::cluster::{self as world, World, growth, life, snapshots};
use suites::scenarios;
use suites::scenarios::Scenarios;

fn main() -> ExitCode {
    let all = scenarios![
        life::pod_gets_volume_and_cleans_up,
        life::pod_moves_to_other_node_with_data,
        life::pod_gets_raw_block_volume,
        growth::claim_expands_while_pod_runs,
        classes::default_class_yields_to_other_default,
        classes::recreated_class_keeps_annotations_of_other_clients,
        classes::volume_changes_attributes_class,
        snapshots::snapshots_work_after_kinds_are_installed,
        snapshots::restored_volume_has_data_of_snapshot,
        snapshots::clone_has_data_of_source,
        upkeep::removal_waits_for_snapshot,
        guide::pages_apply_in_their_order,
        snapshots::forced_deletion_of_snapshot_kinds_is_reported,
        bad_input::unknown_cloud_is_reported,
        bad_input::missing_secret_is_reported,
        bad_input::refuses_secret_with_invalid_credentials,
        bad_input::refuses_malformed_cloud_conf,
        bad_input::foreign_storage_class_is_unchanged_and_reported,
        clouds::changed_credentials_are_used_without_restart,
        clouds::blocked_deletion_reports_refused_credentials,
        upkeep::repairs_changed_and_deleted_operands,
        upkeep::driver_container_has_administrator_files,
        upkeep::idle_operator_writes_nothing,
        upkeep::unmanaged_driver_is_unchanged,
        kills::controller_killed_during_create_leaks_no_volume,
        kills::controller_killed_during_attach_finishes_it,
        kills::killed_node_plugin_stays_registered,
        registration::sidecars_register_and_release_driver,
        operator_kills::operator_killed_before_first_write_completes_repair,
        operator_kills::operator_killed_between_writes_creates_one_deployment,
        operator_kills::operator_killed_before_last_write_completes_repair,
        operator_kills::operator_killed_before_status_reports_it_later,
        leaders::replica_continues_after_leader_ends,
        upkeep::metrics_report_work_of_both_programs,
        metrics::metrics_require_permission,
        dashboard::dashboard_expressions_return_data,
        plugin::kubectl_reports_driver_as_text_and_json,
        plugin::helm_test_pod_reports_driver,
        diagnose::diagnose_prints_events_and_overdue_operations,
        plugin::support_bundle_contains_no_secret,
        servers::volumes_detach_from_deleted_server,
        regions::storage_classes_select_cloud_by_node_or_secret,
        orphan::orphan_runs_until_adoption,
        upkeep::removal_waits_for_volume,
        upkeep::removed_state_deletes_operands_only,
        // Nothing of the product remains after it.
        guide::uninstall_page_removes_everything,
    ];
    scenarios::main(all, run)
}

async fn run(scenarios: &mut Scenarios<World>) -> Result<()> {
    // The first type is the default; the third one is for devices on several nodes.
    let types = ["fast", "slow", "shared,multiattach", "luks,encrypted=2"];
    let config = ClusterConfig {
        cloud: CloudConfig::Simulator(SimulatorConfig {
            args: types.map(|kind| format!("--volume-type={kind}")).into(),
        }),
        progress: Progress::loud(),
        ..ClusterConfig::with_nodes(2)
    };
    let world = World::start(config).await?;
    dashboard::install_kinds(&world).await?;
    let world = world.with_product().await?;
    scenarios
        .run(&world, async |ended| {
            if !ended.passed {
                println!("{}", world.describe().await);
                world.recover().await;
            }
            Ok(())
        })
        .await?;
    if scenarios.failed() > 0 {
        world.print_logs().await;
    }
    world.stop().await
}
