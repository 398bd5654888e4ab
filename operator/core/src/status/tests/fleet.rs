// SPDX-License-Identifier: Apache-2.0
//! Conditions of a driver on 5,000 nodes, with spec.node.update.maxUnavailable of 500.

use cinder_csi_crds::FailedNode;

use super::*;

const NODES: usize = 5_000;
const LIMIT: usize = 500;

/// Numbers of nodes without the driver, by cause.
#[derive(Default)]
struct Fleet {
    /// Without registration for longer than the deadline.
    unregistered: usize,
    /// Registered, and without a ready pod for longer than the deadline.
    down: usize,
    /// Excluded by the DaemonSet, with attached volumes.
    excluded: usize,
    /// Without registration, within the deadline.
    starting: usize,
    /// Neither Ready nor registered.
    not_ready: usize,
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{prefix}{number:04}")).collect()
}

fn mk_fleet(fleet: &Fleet) -> Report {
    let failed = [names("unregistered", fleet.unregistered), names("down", fleet.down)].concat();
    let failed = failed.into_iter().map(|node| FailedNode {
        node,
        pod: None,
        reason: "CrashLoopBackOff".to_owned(),
    });
    let failed: Vec<FailedNode> = failed.collect();
    let absent = failed.len() + fleet.starting;
    let ready = NODES - fleet.not_ready;
    let excluded = names("excluded", fleet.excluded);
    but(mk_healthy(), |report| {
        report.outcome.nodes = NodesView {
            desired: NODES,
            registered: ready - fleet.unregistered - fleet.starting,
            unregistered: [
                names("starting", fleet.starting),
                names("unregistered", fleet.unregistered),
            ]
            .concat(),
            not_ready: names("broken", fleet.not_ready),
            unserved: excluded.into_iter().map(|node| (node, vec!["pv".to_owned()])).collect(),
            ..NodesView::default()
        };
        report.outcome.node_rollout = Some(NodeRollout {
            desired: ready,
            updated: ready - absent,
            serving: ready - absent,
            failed,
            limit: LIMIT,
            ..NodeRollout::default()
        });
    })
}

/// Returns `Status/Reason` and message of a condition. The driver has served before.
fn judged(report: &Report, type_: ConditionType) -> (String, String) {
    let previous = status(None, &mk_healthy(), at(1));
    let status = status(Some(&previous), report, at(2));
    let condition = status.condition(type_).expect("the condition");
    let verdict = format!("{}/{}", condition.status, condition.reason);
    (verdict, condition.message.clone())
}

#[rstest]
#[case::none(Fleet::default(), "True/AsExpected", "False/AsExpected", "True/AsExpected")]
#[case::one_unregistered(Fleet { unregistered: 1, ..Fleet::default() }, "True/AsExpected", "True/NodePodsFailing", "True/AsExpected")]
#[case::one_down(Fleet { down: 1, ..Fleet::default() }, "True/AsExpected", "True/NodePodsFailing", "True/AsExpected")]
#[case::one_excluded(Fleet { excluded: 1, ..Fleet::default() }, "True/AsExpected", "True/NodesWithoutDriver", "True/AsExpected")]
#[case::one_not_ready(Fleet { not_ready: 1, ..Fleet::default() }, "True/AsExpected", "False/AsExpected", "True/AsExpected")]
#[case::many_not_ready(Fleet { not_ready: 1_000, ..Fleet::default() }, "True/AsExpected", "False/AsExpected", "True/AsExpected")]
#[case::many_start(Fleet { starting: 1_000, ..Fleet::default() }, "True/AsExpected", "False/AsExpected", "True/AsExpected")]
#[case::limit(Fleet { unregistered: LIMIT, starting: 9, ..Fleet::default() }, "True/AsExpected", "True/NodePodsFailing", "True/AsExpected")]
#[case::one_more_unregistered(Fleet { unregistered: LIMIT + 1, ..Fleet::default() }, "False/NodesUnregistered", "True/NodePodsFailing", "False/Degraded")]
#[case::one_more_down(Fleet { down: LIMIT + 1, ..Fleet::default() }, "False/NodePodsDown", "True/NodePodsFailing", "False/Degraded")]
#[case::one_more_excluded(Fleet { excluded: LIMIT + 1, ..Fleet::default() }, "False/NodesWithoutDriver", "True/NodesWithoutDriver", "False/Degraded")]
#[case::one_more_in_all(Fleet { unregistered: 100, down: 301, excluded: 100, ..Fleet::default() }, "False/NodePodsDown", "True/NodesWithoutDriver", "False/Degraded")]
fn conditions_follow_number_of_absent_nodes(
    #[case] fleet: Fleet,
    #[case] available: &str,
    #[case] degraded: &str,
    #[case] upgradeable: &str,
) {
    let report = mk_fleet(&fleet);
    let verdict = |type_| judged(&report, type_).0;
    assert_eq!(verdict(ConditionType::Available), available);
    assert_eq!(verdict(ConditionType::Degraded), degraded);
    assert_eq!(verdict(ConditionType::Upgradeable), upgradeable);
}

#[test]
fn single_node_is_named_with_extent() {
    let report = mk_fleet(&Fleet {
        down: 1,
        ..Fleet::default()
    });
    let (_, message) = judged(&report, ConditionType::Degraded);
    assert!(message.contains("on 1 of 5000 nodes: down0001 "), "{message}");
    let (_, message) = judged(&report, ConditionType::Available);
    assert!(message.contains("1 of 5000 nodes are without the driver"), "{message}");
}

#[test]
fn many_nodes_are_counted_and_first_named() {
    let report = mk_fleet(&Fleet {
        unregistered: 200,
        down: 301,
        ..Fleet::default()
    });
    let (_, message) = judged(&report, ConditionType::Degraded);
    assert!(
        message.contains("on 501 of 5000 nodes") && message.contains("; and 491 more. "),
        "{message}"
    );
    let (_, message) = judged(&report, ConditionType::Available);
    for part in [
        "200 of 5000 nodes",
        "301 of 5000 nodes",
        "and 190 more",
        "allows 500 nodes",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[rstest]
#[case::only_node(1, 1)]
#[case::all_although_percentage_allows_them(3, 3)]
fn driver_without_served_node_is_unavailable(#[case] desired: usize, #[case] limit: usize) {
    let failed = names("down", desired).into_iter().map(|node| FailedNode {
        node,
        pod: None,
        reason: "CrashLoopBackOff".to_owned(),
    });
    let report = but(mk_healthy(), |report| {
        report.outcome.nodes = NodesView {
            desired,
            registered: desired,
            ..NodesView::default()
        };
        report.outcome.node_rollout = Some(NodeRollout {
            desired,
            failed: failed.collect(),
            limit,
            ..NodeRollout::default()
        });
    });
    assert_eq!(judged(&report, ConditionType::Available).0, "False/NodePodsDown");
    assert_eq!(judged(&report, ConditionType::Upgradeable).0, "False/Degraded");
}

#[rstest]
#[case::limit(LIMIT, "True")]
#[case::one_more(LIMIT + 1, "False")]
fn installation_counts_starting_nodes(#[case] starting: usize, #[case] expected: &str) {
    let fleet = Fleet {
        starting,
        ..Fleet::default()
    };
    let status = status(None, &mk_fleet(&fleet), at(1));
    let available = status.condition(ConditionType::Available).expect("the condition");
    assert_eq!(available.status, expected, "{}", available.message);
}

#[test]
fn operator_restart_retains_absent_nodes() {
    let starting = mk_fleet(&Fleet {
        starting: LIMIT + 1,
        ..Fleet::default()
    });
    // One node of the installation has never had the driver, so the status has no version.
    let previous = CinderCSIDriverStatus {
        version: None,
        ..status(None, &mk_healthy(), at(1))
    };
    let status = status(Some(&previous), &starting, at(2));
    let available = status.condition(ConditionType::Available).expect("the condition");
    assert_eq!(available.status, "True", "{}", available.message);
}

#[test]
fn driver_starting_on_new_cluster_is_not_upgradeable() {
    let report = joining(0, &["n1", "n2"]);
    assert_eq!(judged(&report, ConditionType::Upgradeable).0, "False/RolloutInProgress");
}

#[rstest]
#[case::one_pod_of_controller_fails(mk_workload(2, 2, 1), 0, "True/AsExpected")]
#[case::node_pod_restarts(mk_workload(2, 2, 2), 1, "True/AsExpected")]
#[case::many_pods_start(mk_workload(2, 2, 2), LIMIT + 1, "False/RolloutInProgress")]
#[case::only_pod_of_controller_starts(mk_workload(1, 1, 0), 0, "False/RolloutInProgress")]
fn failing_pod_is_not_a_rollout(#[case] controller: Workload, #[case] coming: usize, #[case] expected: &str) {
    let report = but(mk_fleet(&Fleet::default()), |report| {
        report.outcome.controller = Some(controller);
        if let Some(nodes) = &mut report.outcome.node_rollout {
            nodes.coming = coming;
            nodes.updated -= coming;
        }
    });
    assert_eq!(judged(&report, ConditionType::Upgradeable).0, expected);
}

#[rstest]
#[case::one_unregistered(Fleet { unregistered: 1, ..Fleet::default() }, true)]
#[case::one_down(Fleet { down: 1, ..Fleet::default() }, true)]
#[case::limit(Fleet { unregistered: 250, down: 250, ..Fleet::default() }, true)]
#[case::one_more(Fleet { down: LIMIT + 1, ..Fleet::default() }, false)]
fn single_nodes_leave_driver_ready(#[case] fleet: Fleet, #[case] is_ready: bool) {
    let report = mk_fleet(&fleet);
    let (ready, message) = judged(&report, ConditionType::Ready);
    assert_eq!(ready == "True/AsExpected", is_ready, "{ready}");
    assert!(message.contains("0001"), "a node is named: {message}");
    assert!(judged(&report, ConditionType::Degraded).0.starts_with("True/"));
    let expected = |healthy: &str| {
        let verdict = |type_| judged(&report, type_).0 == healthy;
        (verdict(ConditionType::Progressing), verdict(ConditionType::Reconciling))
    };
    assert_eq!(expected("False/AsExpected"), (is_ready, is_ready));
    let status = status(None, &report, at(1));
    assert_eq!(status.rollout.is_none(), is_ready);
    assert_eq!(status.version.is_some(), is_ready);
}

#[test]
fn other_problem_precedes_single_node() {
    let report = but(
        mk_fleet(&Fleet {
            down: 1,
            ..Fleet::default()
        }),
        |report| {
            report.decision.problems.push(Problem {
                reason: Degraded::InvalidSpec,
                message: "an invalid field".to_owned(),
            });
        },
    );
    assert_eq!(judged(&report, ConditionType::Degraded).0, "True/InvalidSpec");
    assert_eq!(judged(&report, ConditionType::Ready).0, "False/Degraded");
}
