// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::{AdoptionStep, ManagementState};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    cluster::{Blockers, Key, NodesView, kind},
    decide::{CloudView, MonitoringView, Workload},
    migration::Migration,
    notice::Notice,
    plan::{FailedWrite, Obstacle},
    reasons::{Event, Refusal, Refused, Severity},
    releases::TemplateInputs,
    rollout::{Gate, NodeRollout, Release, WORKLOADS},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn mk_workload(desired: i32, updated: i32, available: i32) -> Workload {
    Workload {
        name: "ns/x".to_owned(),
        desired,
        updated,
        available,
        outdated: 0,
        is_current: true,
        image: None,
        version: Some("0.1.0".to_owned()),
        stalled: None,
        lacking: Vec::new(),
    }
}

#[test]
fn controller_without_driver_container_is_unavailable() {
    let names = ["extra", "csi-provisioner"].map(|name| json!({"name": name}));
    let live = json!({"metadata": {"namespace": "ns", "name": "x"}, "spec": {"template": {"spec": {"containers": names}}},
        "status": {"availableReplicas": 1}});
    let controller = Workload::of_deployment(&live);
    assert_eq!(controller.lacking, ["cinder-csi-driver", "csi-attacher"]);
    let report = but(mk_healthy(), |report| {
        report.outcome.controller = Some(controller);
    });
    let status = status(None, &report, at(1));
    let available = status.condition(ConditionType::Available).expect("a condition");
    assert_eq!(
        (available.status.as_str(), available.reason.as_str()),
        ("False", "ContainersMissing")
    );
    assert!(
        available.message.contains("cinder-csi-driver, csi-attacher"),
        "{}",
        available.message
    );
}

fn mk_cloud() -> CloudView {
    CloudView {
        name: "default".to_owned(),
        authenticated: true,
        refusal: None,
        ..CloudView::default()
    }
}

fn mk_nodes(desired: usize, updated: usize) -> NodeRollout {
    NodeRollout {
        desired,
        updated,
        serving: desired,
        outdated: desired - updated,
        ..NodeRollout::default()
    }
}

fn mk_gate(installed: &str, target: &str) -> Gate {
    let due = WORKLOADS.into_iter().filter(|_| installed != target);
    Gate {
        controller: Some(mk_release(installed)),
        node: Some(mk_release(installed)),
        target: mk_release(target),
        due: due.collect(),
        ..Gate::default()
    }
}

fn mk_release(version: &str) -> Release {
    Release {
        version: version.to_owned(),
        inputs: Some(TemplateInputs::default()),
    }
}

/// The values of one reconcile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) facts: Facts,
    pub(crate) decision: Decision,
    pub(crate) outcome: Outcome,
}

impl Report {
    pub(crate) fn values(&self) -> super::Report<'_> {
        super::Report {
            facts: &self.facts,
            decision: &self.decision,
            outcome: &self.outcome,
        }
    }
}

pub(crate) fn status(
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report,
    now: Timestamp,
) -> CinderCSIDriverStatus {
    super::status(previous, &report.facts, &report.decision, &report.outcome, now)
}

/// Returns a report with a change.
pub(crate) fn but(mut report: Report, change: impl FnOnce(&mut Report)) -> Report {
    change(&mut report);
    report
}

/// Creates the report of a working driver on three nodes.
fn mk_healthy() -> Report {
    but(Report::default(), |report| {
        report.facts.object.generation = Some(4);
        report.facts.clouds = vec![mk_cloud()];
        report.outcome.controller = Some(mk_workload(2, 2, 2));
        report.outcome.daemon_set = Some(mk_workload(3, 3, 3));
        report.outcome.node_rollout = Some(mk_nodes(3, 3));
        report.decision.gate = mk_gate("0.1.0", "0.1.0");
        report.outcome.nodes = NodesView {
            desired: 3,
            registered: 3,
            ..NodesView::default()
        };
    })
}

/// The name of the cloud.
fn mk_name() -> std::collections::BTreeSet<String> {
    [mk_cloud().name].into()
}

fn refused() -> CloudView {
    let refusal = Refused::new(Refusal::CredentialsRejected, "Keystone says HTTP 401".to_owned());
    CloudView {
        authenticated: false,
        refusal: Some(refusal),
        ..mk_cloud()
    }
}

/// Returns `Type=Status/Reason` of the three main conditions.
fn verdicts(report: &Report) -> Vec<String> {
    let status = status(None, report, at(1));
    status
        .conditions
        .iter()
        .skip(3)
        .take(3)
        .map(|c| format!("{}={}/{}", c.type_, c.status, c.reason))
        .collect()
}

fn message(report: &Report, type_: ConditionType) -> String {
    status(None, report, at(1))
        .condition(type_)
        .map(|condition| condition.message.clone())
        .unwrap_or_default()
}

#[test]
fn working_driver_is_only_available() {
    let status = status(None, &mk_healthy(), at(1));
    assert_eq!(
        verdicts(&mk_healthy()),
        [
            "Available=True/AsExpected",
            "Progressing=False/AsExpected",
            "Degraded=False/AsExpected"
        ]
    );
    assert_eq!(status.version.as_deref(), Some("0.1.0"));
    assert_eq!(status.deletion, None);
}

#[rstest]
#[case::controller_down(but(mk_healthy(), |report| { report.outcome.controller = Some(mk_workload(2, 2, 0)); }),
    "Available=False/ControllerDown", "Progressing=True/RollingOut")]
#[case::a_pod_is_ready_but_the_kubelet_does_not_know_the_driver(
    but(mk_healthy(), |report| { report.outcome.nodes = NodesView { desired: 3, registered: 1, unregistered: vec!["n2".to_owned(), "n3".to_owned()], ..NodesView::default() }; }),
    "Available=False/NodesUnregistered", "Progressing=True/RollingOut")]
#[case::a_node_that_is_down_harms_nobody_else(
    but(mk_healthy(), |report| { report.outcome.nodes = NodesView { desired: 3, registered: 2, not_ready: vec!["n3".to_owned()], ..NodesView::default() }; report.outcome.daemon_set = Some(mk_workload(3, 3, 3)); }),
    "Available=True/AsExpected", "Progressing=False/AsExpected")]
#[case::no_node_matches(but(mk_healthy(), |report| { report.outcome.nodes = NodesView::default(); }),
    "Available=False/NoNodes", "Progressing=False/AsExpected")]
#[case::all_nodes_are_down(
    but(mk_healthy(), |report| { report.outcome.nodes = NodesView { desired: 1, not_ready: vec!["n1".to_owned()], ..NodesView::default() }; }),
    "Available=False/NodesNotReady", "Progressing=False/AsExpected")]
#[case::an_update_of_the_controller_runs(but(mk_healthy(), |report| { report.outcome.controller = Some(mk_workload(2, 1, 2)); }),
    "Available=True/AsExpected", "Progressing=True/RollingOut")]
fn available_depends_on_ready_pods(#[case] report: Report, #[case] available: &str, #[case] progressing: &str) {
    assert_eq!(verdicts(&report)[..2], [available, progressing]);
    assert_eq!(verdicts(&report)[2], "Degraded=False/AsExpected");
}

#[test]
fn node_of_another_server_degrades() {
    let report = but(mk_healthy(), |report| {
        report.outcome.nodes.misidentified = vec!["n1 (registered as a, and its providerID names b)".to_owned()];
    });
    assert_eq!(verdicts(&report)[2], "Degraded=True/NodeIdentityMismatch");
    let status = status(None, &report, at(1));
    let message = &status.condition(ConditionType::Degraded).expect("a condition").message;
    assert!(message.contains("n1 (registered as a"), "{message}");
}

#[test]
fn texts_of_other_clients_are_printable() {
    let report = but(mk_healthy(), |report| {
        report.outcome.nodes.misidentified = vec!["n1\u{1b}[2J\u{202e}".to_owned()];
        report.outcome.nodes.unregistered = vec!["x\u{9b}".to_owned()];
    });
    let status = status(None, &report, at(1));
    let text = serde_json::to_value(&status).expect("JSON").to_string();
    assert!(text.chars().all(csi_sources::is_printable), "{text}");
    assert!(
        text.contains(r"n1\\u{1b}[2J\\u{202e}") && text.contains(r"x\\u{9b}"),
        "{text}"
    );
}

fn joining(registered: usize, joining: &[&str]) -> Report {
    but(mk_healthy(), |report| {
        report.outcome.nodes = NodesView {
            desired: registered + joining.len(),
            registered,
            unregistered: joining.iter().map(|&node| node.to_owned()).collect(),
            ..NodesView::default()
        };
        report.outcome.node_rollout = Some(NodeRollout {
            desired: registered + joining.len(),
            updated: registered,
            serving: registered,
            ..NodeRollout::default()
        });
    })
}

#[test]
fn joining_node_causes_no_warning() {
    let healthy = status(None, &mk_healthy(), at(1));
    let joined = status(Some(&healthy), &joining(3, &["n9"]), at(2));
    let verdict = |type_| {
        joined
            .condition(type_)
            .map(|one| (one.status.as_str(), one.reason.as_str()))
    };
    assert_eq!(verdict(ConditionType::Available), Some(("True", "AsExpected")));
    assert_eq!(verdict(ConditionType::Progressing), Some(("True", "RollingOut")));
    assert_eq!(verdict(ConditionType::Upgradeable), Some(("True", "AsExpected")));
    assert_eq!(joined.nodes.as_ref().map(|nodes| nodes.unregistered.len()), Some(1));
    for (from, to) in [(&healthy, &joined), (&joined, &healthy)] {
        let sent = notices(Some(from), to);
        assert!(
            sent.iter()
                .all(|notice| notice.event.row().severity == Severity::Normal),
            "{sent:?}"
        );
        assert!(sent.len() <= 1, "{sent:?}");
    }
}

#[rstest]
#[case::while_the_driver_is_installed(None, 2, &["n8", "n9"])]
#[case::where_it_is_registered_nowhere(Some(status(None, &mk_healthy(), at(1))), 0, &["n9"])]
fn joining_node_counts_immediately(
    #[case] previous: Option<CinderCSIDriverStatus>,
    #[case] registered: usize,
    #[case] nodes: &[&str],
) {
    let joined = status(previous.as_ref(), &joining(registered, nodes), at(2));
    let reason = joined.condition(ConditionType::Available).map(|one| one.reason.clone());
    assert_eq!(reason.as_deref(), Some("NodesUnregistered"));
}

#[test]
fn refused_credentials_degrade_running_driver() {
    let report = but(mk_healthy(), |report| {
        report.facts.clouds = vec![refused()];
    });
    assert_eq!(
        verdicts(&report),
        [
            "Available=True/AsExpected",
            "Progressing=False/AsExpected",
            "Degraded=True/CredentialsRejected"
        ]
    );
    let message = message(&report, ConditionType::Degraded);
    assert!(
        message.contains("HTTP 401") && message.contains("keeps the credentials"),
        "{message}"
    );
}

#[test]
fn missing_credentials_explain_unavailability() {
    let report = but(mk_healthy(), |report| {
        report.facts.clouds = vec![refused()];
        report.outcome.clouds_without_credentials = mk_name();
        report.outcome.controller = None;
    });
    assert_eq!(
        verdicts(&report),
        [
            "Available=False/ControllerMissing",
            "Progressing=False/Blocked",
            "Degraded=True/CredentialsRejected"
        ]
    );
    for type_ in [ConditionType::Available, ConditionType::Degraded] {
        assert!(
            message(&report, type_).contains("HTTP 401"),
            "{type_}: {}",
            message(&report, type_)
        );
    }
}

#[rstest]
#[case::under_way(AdoptionStep::StoppingController, "True", "Migrating")]
#[case::last_nodes(AdoptionStep::ReplacingNodes, "True", "Migrating")]
#[case::done(AdoptionStep::Done, "False", "AsExpected")]
fn migration_reports_progress_and_remaining_objects(
    #[case] step: AdoptionStep,
    #[case] status: &str,
    #[case] reason: &str,
) {
    let report = but(mk_healthy(), |report| {
        report.decision.migration = Some(Migration {
            step,
            acts: Vec::new(),
            waits_for: "the pods of the other controller to end".to_owned(),
            failure: None,
            stages: None,
            leftovers: vec!["ClusterRole csi-attacher-role".to_owned()],
        });
    });
    assert_eq!(verdicts(&report)[1], format!("Progressing={status}/{reason}"));
    if status == "True" {
        let told = message(&report, ConditionType::Progressing);
        assert!(told.contains("the pods of the other controller to end"), "{told}");
    }
    let adoption = self::status(None, &report, at(0)).adoption.expect("told");
    assert_eq!((adoption.step, adoption.leftovers.len()), (Some(step), 1));
}

#[test]
fn equal_observations_result_in_equal_status() {
    let first = status(None, &mk_healthy(), at(1));
    assert_eq!(status(Some(&first), &mk_healthy(), at(1_000)), first);
}

#[test]
fn transition_time_changes_only_with_status() {
    let first = status(None, &mk_healthy(), at(1));
    let updating = but(mk_healthy(), |report| {
        report.outcome.controller = Some(mk_workload(2, 1, 2));
    });
    let second = status(Some(&first), &updating, at(2));
    let third = status(
        Some(&second),
        &but(mk_healthy(), |report| {
            report.outcome.controller = Some(mk_workload(2, 2, 1));
        }),
        at(3),
    );
    let time = |status: &CinderCSIDriverStatus, type_| status.condition(type_).map(|c| c.last_transition_time.0);
    assert_eq!(time(&second, ConditionType::Progressing), Some(at(2)));
    assert_eq!(time(&third, ConditionType::Progressing), Some(at(2)));
    assert_eq!(time(&third, ConditionType::Available), Some(at(1)));
}

#[test]
fn version_changes_after_complete_rollout() {
    let old = status(None, &mk_healthy(), at(1));
    let newer = || Workload {
        version: Some("0.2.0".to_owned()),
        ..mk_workload(3, 3, 3)
    };
    let version = |controller, daemon_set, nodes| {
        let report = but(mk_healthy(), |report| {
            report.outcome.controller = Some(controller);
            report.outcome.daemon_set = Some(daemon_set);
            report.outcome.node_rollout = nodes;
        });
        status(Some(&old), &report, at(2)).version
    };
    assert_eq!(
        version(newer(), newer(), Some(mk_nodes(3, 2))).as_deref(),
        Some("0.1.0")
    );
    assert_eq!(version(newer(), newer(), None).as_deref(), Some("0.1.0"));
    let controller_lags = version(mk_workload(3, 3, 3), newer(), Some(mk_nodes(3, 3)));
    assert_eq!(controller_lags.as_deref(), Some("0.1.0"));
    assert_eq!(
        version(newer(), newer(), Some(mk_nodes(3, 3))).as_deref(),
        Some("0.2.0")
    );
}

#[test]
fn registration_without_ready_pods_is_unavailable() {
    let report = but(mk_healthy(), |report| {
        report.outcome.daemon_set = Some(mk_workload(3, 3, 0));
    });
    assert_eq!(verdicts(&report)[0], "Available=False/NodePodsDown");
}

#[test]
fn failed_write_blocks_progress() {
    let report = but(mk_healthy(), |report| {
        report.outcome.failures = vec![FailedWrite {
            key: Key::new(kind::DEPLOYMENT, None, "x"),
            message: "quota".to_owned(),
        }];
    });
    assert_eq!(verdicts(&report)[1], "Progressing=False/Blocked");
}

#[test]
fn unobserved_status_counts_as_none() {
    let default = cinder_csi_crds::crd()
        .spec
        .versions
        .remove(0)
        .schema
        .and_then(|schema| {
            let mut properties = schema.open_api_v3_schema?.properties?;
            properties.remove("status")?.default
        });
    let mut unobserved: CinderCSIDriverStatus = serde_json::from_value(default.unwrap().0).unwrap();
    let conditions = unobserved.conditions.iter();
    let conditions: Vec<&str> = conditions.map(|condition| condition.status.as_str()).collect();
    assert_eq!(conditions, ["Unknown"; 3]);
    unobserved.operand_namespace = Some("recorded".to_owned());

    let next = status(Some(&unobserved), &mk_healthy(), at(1));

    let first = status(None, &mk_healthy(), at(1));
    assert_eq!(next.conditions, first.conditions);
    assert_eq!(notices(Some(&unobserved), &next), notices(None, &first));
    assert_eq!(next.operand_namespace.as_deref(), Some("recorded"));
}

#[test]
fn update_is_in_progress_after_its_write() {
    let mut live = json!({
        "metadata": {"namespace": "ns", "name": "x", "generation": 2, "labels": {"app.kubernetes.io/version": "0.1.0"}},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    });
    let unseen = Workload {
        is_current: false,
        ..mk_workload(2, 0, 2)
    };
    assert_eq!(Workload::of_deployment(&live), unseen);
    assert!(!unseen.is_rolled_out());
    live["status"]["observedGeneration"] = json!(2);
    assert_eq!(Workload::of_deployment(&live), mk_workload(2, 2, 2));
    live["status"]["conditions"] = json!([{"type": "Progressing", "status": "False", "message": "no quota"}]);
    assert_eq!(Workload::of_deployment(&live).stalled.as_deref(), Some("no quota"));
}

#[test]
fn unobserved_daemon_set_is_not_rolled_out() {
    let made = json!({"metadata": {"namespace": "ns", "name": "x", "generation": 1}, "status": {}});
    assert!(!Workload::of_daemon_set(&made).is_rolled_out());
    let status = json!({"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 3});
    let changed = json!({"metadata": {"namespace": "ns", "name": "x", "generation": 2}, "status": status});
    let workload = Workload::of_daemon_set(&changed);
    assert!(!workload.is_rolled_out() && workload.available == 3, "{workload:?}");
}

#[test]
fn update_continues_while_old_pod_runs() {
    let live = json!({
        "metadata": {"namespace": "ns", "name": "x", "generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1},
    });
    let updating = but(mk_healthy(), |report| {
        report.outcome.controller = Some(Workload::of_deployment(&live));
    });
    assert_eq!(verdicts(&updating)[1], "Progressing=True/RollingOut");
    let status = status(None, &updating, at(1));
    let message = &status
        .condition(ConditionType::Progressing)
        .expect("the condition")
        .message;
    assert!(message.contains("1 of an older version left"), "{message}");
}

pub(crate) mod events;
mod fleet;
mod kstatus;
mod problems;
mod removal;
mod rollout;
