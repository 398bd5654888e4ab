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

use anyhow::{Context as _, Result};
use harness::{CloudConfig, Cluster, ClusterConfig, Progress, SimulatorConfig};
use suites::cluster::{self as world, World, growth, life, snapshots};
use suites::scenarios;
use suites::scenarios::Scenarios;

fn main() -> ExitCode {
    let all = scenarios![
        life::a_claim_and_a_pod_get_a_volume_and_leave_nothing_behind,
        life::a_pod_starts_again_on_the_other_node_with_its_data,
        life::a_raw_block_volume_reaches_its_pod,
        growth::a_claim_grows_while_its_pod_runs,
        classes::the_default_class_is_ours_while_nobody_has_another_one,
        classes::recreated_class_keeps_annotations_of_other_clients,
        classes::a_volume_changes_its_attributes_and_their_class_waits_until_nobody_has_them,
        snapshots::snapshots_can_be_taken_from_when_their_kinds_are_installed,
        snapshots::a_snapshot_becomes_a_volume_with_the_data_of_its_moment,
        snapshots::a_clone_has_the_data_of_its_source,
        upkeep::a_removal_waits_for_a_snapshot_and_says_which,
        guide::every_example_of_the_documentation_works_as_it_stands_there,
        snapshots::forced_deletion_of_snapshot_kinds_is_reported,
        bad_input::an_unknown_cloud_is_named_and_disturbs_nothing,
        bad_input::a_missing_secret_is_named_and_disturbs_nothing,
        bad_input::a_secret_that_does_not_log_in_is_refused_and_disturbs_nothing,
        bad_input::a_malformed_cloud_conf_is_refused_with_its_line_and_disturbs_nothing,
        bad_input::a_storage_class_of_somebody_else_is_left_alone_and_named,
        clouds::changed_credentials_are_taken_over_without_a_restart_and_without_a_failed_call,
        clouds::a_volume_that_stays_because_the_cloud_refuses_the_credentials_is_explained,
        upkeep::what_somebody_changes_or_deletes_is_repaired,
        upkeep::files_of_the_administrators_are_in_the_drivers_container,
        upkeep::at_rest_the_operator_writes_nothing,
        upkeep::an_unmanaged_driver_is_left_alone_until_it_is_managed_again,
        kills::the_controller_killed_during_a_create_makes_no_second_volume,
        kills::the_controller_killed_during_an_attach_finishes_it,
        kills::the_node_plugin_killed_under_a_running_pod_stays_registered,
        registration::the_sidecars_register_the_driver_and_hand_it_back,
        operator_kills::killed_before_its_first_write_of_a_repair_the_operator_makes_it_whole,
        operator_kills::killed_between_its_writes_the_operator_makes_no_second_deployment,
        operator_kills::killed_before_its_last_write_of_a_repair_the_operator_makes_it_whole,
        operator_kills::killed_before_it_tells_what_it_did_the_operator_tells_it_afterwards,
        leaders::another_replica_goes_on_when_the_leader_is_deleted_or_killed,
        upkeep::both_programs_tell_what_they_do_in_metrics,
        metrics::only_those_who_may_read_the_metrics,
        dashboard::every_expression_of_the_dashboard_returns_data,
        plugin::kubectl_shows_a_driver_on_one_screen_and_to_programs,
        plugin::the_pod_of_helm_test_shows_the_driver,
        diagnose::diagnose_prints_events_and_overdue_operations,
        plugin::a_support_bundle_has_what_helps_and_no_secret,
        servers::volumes_leave_a_server_that_is_gone_and_it_is_named,
        regions::one_class_makes_volumes_in_the_cloud_of_the_pods_node_and_another_where_its_secret_says,
        orphan::an_orphan_goes_on_until_another_object_adopts_it,
        upkeep::removal_waits_for_the_volume_and_says_which,
        upkeep::removed_takes_the_driver_away_and_keeps_the_object,
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
    let cluster = Cluster::start(config).await?;
    let logs = cluster.logs()?.to_owned();
    dashboard::install_kinds(&cluster).await?;
    let world = World::install(cluster)
        .await
        .with_context(|| format!("the product is not installed; logs: {}", logs.display()))?;
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
        match world.cluster.collect_logs().await {
            Ok(place) => println!("logs: {}", place.display()),
            Err(error) => println!("not all logs could be collected: {error:#}"),
        }
    }
    world.cluster.stop().await.context("something of the cluster is left")
}
