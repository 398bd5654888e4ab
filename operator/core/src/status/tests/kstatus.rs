// SPDX-License-Identifier: Apache-2.0
//! The table of statuses that `tests/suites/tests/kstatus.rs` passes to the library of Helm and Flux.

use super::*;

/// The table. `UPDATE_REFERENCE=1` writes it after a change of the conditions.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/suites/expected/kstatus.json");

fn with_problem(reason: Degraded) -> Report {
    but(mk_healthy(), |report| {
        report.decision.problems = vec![Problem {
            reason,
            message: "spec.topology.additional has an invalid key".to_owned(),
        }];
    })
}

/// Creates the report of an invalid Secret at the first installation: the nodes start, and the controller does not
/// exist.
fn mk_wrong_secret() -> Report {
    but(mk_healthy(), |report| {
        report.facts.clouds = vec![refused()];
        report.outcome.clouds_without_credentials = mk_name();
        report.outcome.controller = None;
        report.outcome.daemon_set = Some(mk_workload(3, 3, 0));
        report.outcome.nodes = NodesView {
            desired: 3,
            ..NodesView::default()
        };
    })
}

fn removing(removal: Removal) -> Report {
    but(mk_healthy(), |report| report.decision.removal = Some(removal))
}

fn reported(report: &Report) -> CinderCSIDriverStatus {
    status(None, report, at(1))
}

fn failed_reconcile() -> CinderCSIDriverStatus {
    let (previous, report) = (reported(&mk_healthy()), mk_healthy());
    let problem = Problem {
        reason: Degraded::ReconcileFailed,
        message: "the list of nodes failed".to_owned(),
    };
    failed(Some(&previous), &report.facts.object, &problem, at(2))
}

/// Returns each case with its expected status, the generation of the object, and the object's status.
fn cases() -> Vec<(&'static str, &'static str, i64, Value)> {
    let of = |report: Report| json!(reported(&report));
    let rolling = but(mk_healthy(), |report| {
        report.outcome.node_rollout = Some(mk_nodes(3, 1));
    });
    let waiting = but(mk_healthy(), |report| {
        report.decision.gate = Gate {
            hold: Some(crate::rollout::Hold::Approval),
            ..mk_gate("0.1.0", "0.2.0")
        };
    });
    let paused = but(mk_healthy(), |report| {
        report.facts.object.state = ManagementState::Paused;
    });
    let stopped_node = but(mk_healthy(), |report| {
        report.outcome.node_rollout = Some(NodeRollout {
            desired: 3,
            updated: 2,
            serving: 2,
            failed: vec![cinder_csi_crds::FailedNode {
                node: "n1".to_owned(),
                pod: None,
                reason: "CrashLoopBackOff".to_owned(),
            }],
            limit: 1,
            ..NodeRollout::default()
        });
    });
    let down = but(mk_healthy(), |report| {
        report.outcome.controller = Some(mk_workload(2, 2, 0));
    });
    let (unreadable, _) = unreadable(&of(mk_healthy()), Some(5), "unknown variant", false, at(2));
    let blocked = removing(Removal::Blocked(Blockers {
        volumes: vec!["pv-1".to_owned()],
        ..Blockers::default()
    }));
    vec![
        (
            "no operator has seen the object",
            "InProgress",
            1,
            json!({"observedGeneration": -1}),
        ),
        ("generation not observed", "InProgress", 5, of(mk_healthy())),
        (
            "installing",
            "InProgress",
            4,
            of(but(Report::default(), |report| {
                report.facts.object.generation = Some(4);
            })),
        ),
        ("rolling out", "InProgress", 4, of(rolling)),
        ("controller down", "InProgress", 4, of(down)),
        (
            "reconcile failed and is retried",
            "InProgress",
            4,
            json!(failed_reconcile()),
        ),
        (
            "write failed and is retried",
            "InProgress",
            4,
            of(with_problem(Degraded::ApplyFailed)),
        ),
        (
            "removing",
            "InProgress",
            4,
            of(removing(Removal::UnderWay("pods".to_owned()))),
        ),
        ("wrong Secret at installation", "Failed", 4, of(mk_wrong_secret())),
        (
            "wrong Secret later",
            "Failed",
            4,
            of(but(mk_healthy(), |report| report.facts.clouds = vec![refused()])),
        ),
        ("invalid spec", "Failed", 4, of(with_problem(Degraded::InvalidSpec))),
        ("unreadable spec", "Failed", 5, unreadable),
        ("removal blocked", "Failed", 4, of(blocked)),
        ("ready", "Current", 4, of(mk_healthy())),
        ("one node of three without the driver", "Current", 4, of(stopped_node)),
        ("paused", "Current", 4, of(paused)),
        ("update waits for approval", "Current", 4, of(waiting)),
        (
            "being deleted",
            "Terminating",
            4,
            of(removing(Removal::UnderWay("pods".to_owned()))),
        ),
    ]
}

#[test]
fn table_for_kstatus_is_current() {
    let rows: Vec<Value> = cases()
        .into_iter()
        .map(|(case, expected, generation, status)| {
            let mut metadata = json!({"name": "cinder.csi.openstack.org", "generation": generation});
            if expected == "Terminating" {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            json!({"case": case, "expected": expected, "object": {
                "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": metadata,
                "status": {"observedGeneration": status["observedGeneration"], "conditions": status["conditions"]},
            }})
        })
        .collect();
    let text = format!("{}\n", serde_json::to_string_pretty(&rows).expect("JSON"));
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(TABLE, &text).expect("the table is written");
    }
    let written = std::fs::read_to_string(TABLE).expect("the table");
    assert!(
        written == text,
        "run UPDATE_REFERENCE=1 cargo test -p cinder-operator-core --lib kstatus"
    );
}
