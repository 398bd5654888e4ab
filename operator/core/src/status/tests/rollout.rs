// SPDX-License-Identifier: Apache-2.0
//! Versions, rollouts, pauses, drift and removals in the status.

use cinder_csi_crds::{DeletionPolicy, DriverState, FailedNode, RolloutState};

use super::*;
use crate::decide::Drift;
use crate::rollout::Hold;

/// Returns status, reason and message of one condition.
fn told(report: &Report, type_: ConditionType) -> (String, String) {
    let status = status(None, report, at(1));
    let condition = status.condition(type_).expect("the condition");
    (
        format!("{}/{}", condition.status, condition.reason),
        condition.message.clone(),
    )
}

fn held(hold: Hold) -> Report {
    but(mk_healthy(), |report| {
        report.decision.gate = Gate {
            hold: Some(hold),
            ..mk_gate("0.1.0", "0.2.0")
        };
    })
}

fn stopped(outdated: usize) -> Report {
    let failed = FailedNode {
        node: "n1".to_owned(),
        pod: Some("cinder-csi-node-x".to_owned()),
        reason: "container driver is ImagePullBackOff: no such image".to_owned(),
    };
    but(mk_healthy(), |report| {
        report.outcome.node_rollout = Some(NodeRollout {
            desired: 3,
            updated: 2 - outdated,
            serving: 2,
            outdated,
            failed: vec![failed],
            lost: 1,
            limit: 1,
            ..NodeRollout::default()
        });
    })
}

#[rstest]
#[case::nothing_to_do(mk_healthy(), None, "False/AsExpected")]
#[case::approval(
    held(Hold::Approval),
    Some(RolloutState::WaitingForApproval),
    "True/WaitingForApproval"
)]
#[case::back(held(Hold::Downgrade), Some(RolloutState::DowngradeRefused), "False/Blocked")]
#[case::skip(held(Hold::Skip), Some(RolloutState::SkipRefused), "False/Blocked")]
#[case::nodes(but(mk_healthy(), |report| { report.outcome.node_rollout = Some(mk_nodes(3, 1)); }), Some(RolloutState::Rolling), "True/RollingOut")]
#[case::by_hand(
    but(mk_healthy(), |report| { report.outcome.node_rollout = Some(mk_nodes(3, 1)); report.decision.leaves_pods = true; }), Some(RolloutState::OnDelete), "True/RollingOut")]
#[case::stopped(stopped(1), Some(RolloutState::Stopped), "False/Blocked")]
#[case::paused(
    but(mk_healthy(), |report| { report.facts.object.state = ManagementState::Paused; report.decision.gate = mk_gate("0.1.0", "0.2.0"); }),
    Some(RolloutState::Paused), "False/Paused")]
#[case::dry_run(but(mk_healthy(), |report| { report.facts.object.state = ManagementState::DryRun; }), None, "False/Paused")]
fn rollout_reports_its_progress(
    #[case] report: Report,
    #[case] state: Option<RolloutState>,
    #[case] progressing: &str,
) {
    assert_eq!(status(None, &report, at(1)).rollout.map(|rollout| rollout.state), state);
    assert_eq!(told(&report, ConditionType::Progressing).0, progressing);
}

#[test]
fn waiting_update_names_versions_and_remedy() {
    let (_, message) = told(&held(Hold::Approval), ConditionType::Progressing);
    assert!(
        message.contains("from version 0.1.0 to 0.2.0") && message.contains("approvedVersion is 0.2.0"),
        "{message}"
    );
    let next = status(None, &held(Hold::Approval), at(1));
    let rollout = next.rollout.expect("a rollout");
    assert_eq!(
        (
            rollout.component.as_str(),
            rollout.from_version.as_deref(),
            rollout.to_version.as_str()
        ),
        ("controller", Some("0.1.0"), "0.2.0")
    );
    assert_eq!(next.target_version.as_deref(), Some("0.2.0"));
    let (verdict, message) = told(&held(Hold::Downgrade), ConditionType::Degraded);
    assert!(
        verdict == "True/DowngradeRefused" && message.contains("allowDowngrade"),
        "{verdict} {message}"
    );
}

#[test]
fn skipped_version_is_named() {
    let report = but(held(Hold::Skip), |report| {
        report.decision.gate = Gate {
            hold: Some(Hold::Skip),
            ..mk_gate("0.1.0", "0.4.0")
        };
    });
    let (verdict, message) = told(&report, ConditionType::Degraded);
    assert_eq!(verdict, "True/SkipRefused");
    assert!(
        message.contains("driver 0.1.0") && message.contains("install version 0.2 "),
        "{message}"
    );
}

#[test]
fn nodes_wait_for_the_controller_update() {
    let report = but(mk_healthy(), |report| {
        report.outcome.controller = Some(mk_workload(2, 1, 2));
        report.decision.gate = Gate {
            controller: Some(mk_release("0.2.0")),
            is_node_waiting: true,
            ..mk_gate("0.1.0", "0.2.0")
        };
    });
    let (verdict, message) = told(&report, ConditionType::Progressing);
    assert_eq!(verdict, "True/RollingOut");
    assert!(
        message.contains("controller: 1 of 2 pods updated") && message.contains("node pods: they follow"),
        "{message}"
    );
    assert_eq!(told(&report, ConditionType::Upgradeable).0, "False/RolloutInProgress");
}

#[test]
fn stopped_rollout_names_node_pod_and_remedy() {
    let (verdict, message) = told(&stopped(1), ConditionType::Degraded);
    assert_eq!(verdict, "True/RolloutStopped");
    for part in [
        "n1",
        "cinder-csi-node-x",
        "no such image",
        "1 node with an old pod",
        "delete the pod",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(told(&stopped(0), ConditionType::Degraded).0, "True/NodePodsFailing");
    assert_eq!(told(&stopped(1), ConditionType::Upgradeable).0, "False/Degraded");
}

#[test]
fn single_failure_is_reported_while_rollout_continues() {
    let mut report = stopped(1);
    if let Some(nodes) = &mut report.outcome.node_rollout {
        nodes.limit = 2;
    }
    assert_eq!(told(&report, ConditionType::Degraded).0, "True/NodePodsFailing");
    assert_eq!(told(&report, ConditionType::Progressing).0, "True/RollingOut");
    assert_eq!(told(&report, ConditionType::Available).0, "True/AsExpected");
    let state = status(None, &report, at(1)).rollout.map(|rollout| rollout.state);
    assert_eq!(state, Some(RolloutState::Rolling));
}

#[test]
fn too_many_failing_pods_result_in_unavailable_driver() {
    let mut report = stopped(0);
    if let Some(nodes) = &mut report.outcome.node_rollout {
        let more = FailedNode {
            node: "n2".to_owned(),
            ..nodes.failed[0].clone()
        };
        nodes.failed.push(more);
    }
    let (verdict, message) = told(&report, ConditionType::Available);
    assert_eq!(verdict, "False/NodePodsDown");
    assert!(
        message.contains("2 of 3 nodes") && message.contains("n1, n2"),
        "{message}"
    );
}

#[test]
fn components_count_desired_updated_and_ready_pods() {
    let report = but(mk_healthy(), |report| {
        report.outcome.controller = Some(mk_workload(2, 1, 2));
        report.outcome.node_rollout = Some(NodeRollout {
            serving: 2,
            ..mk_nodes(3, 1)
        });
    });
    let components = status(None, &report, at(1)).components;
    let counts = |index: usize| {
        let component = &components[index];
        (
            component.name.as_str(),
            component.desired,
            component.updated,
            component.ready,
        )
    };
    assert_eq!((counts(0), counts(1)), (("controller", 2, 1, 2), ("node", 3, 1, 2)));
}

#[rstest]
#[case(ManagementState::Managed, "False/AsExpected", "everything")]
#[case(ManagementState::Paused, "False/Paused", "is Paused")]
#[case(ManagementState::DryRun, "False/Paused", "is DryRun")]
#[case(ManagementState::Unmanaged, "False/Paused", "is Unmanaged")]
fn progressing_reports_a_pause(#[case] state: ManagementState, #[case] expected: &str, #[case] words: &str) {
    let report = but(mk_healthy(), |report| {
        report.facts.object.state = state;
    });
    let (progressing, message) = told(&report, ConditionType::Progressing);
    assert!(
        progressing == expected && message.contains(words),
        "{progressing} {message}"
    );
    assert_eq!(told(&report, ConditionType::Upgradeable).0, "True/AsExpected");
}

#[test]
fn old_kubernetes_prevents_upgrade() {
    let report = but(mk_healthy(), |report| {
        report.decision.problems = vec![Problem {
            reason: Degraded::UnsupportedKubernetes,
            message: "too old".to_owned(),
        }];
    });
    assert_eq!(told(&report, ConditionType::Upgradeable).0, "False/Degraded");
}

fn drifted(drift: Drift) -> Report {
    but(mk_healthy(), |report| {
        report.decision.drift = drift;
    })
}

fn one(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

#[test]
fn conflicting_fields_prevent_upgrade() {
    let report = drifted(Drift {
        unresolvable: one("Deployment x (spec.replicas)"),
        ..Drift::default()
    });
    let (verdict, message) = told(&report, ConditionType::Upgradeable);
    assert!(
        verdict == "False/FieldConflict" && message.contains("spec.replicas"),
        "{verdict} {message}"
    );
}

#[rstest]
#[case::changed(Drift { changed: one("Deployment x (spec.replicas)"), ..Drift::default() })]
#[case::deleted(Drift { deleted: one("Deployment x"), ..Drift::default() })]
fn pause_names_drift(#[case] drift: Drift) {
    let repaired = drifted(drift.clone());
    assert_eq!(told(&repaired, ConditionType::Progressing).0, "False/AsExpected");
    let paused = but(drifted(drift), |report| {
        report.facts.object.state = ManagementState::Paused;
    });
    let (_, message) = told(&paused, ConditionType::Progressing);
    assert!(message.contains("Deployment x"), "{message}");
}

fn removing(removal: Removal) -> Report {
    but(mk_healthy(), |report| {
        report.decision.removal = Some(removal);
    })
}

#[rstest]
#[case::nobody_asked(mk_healthy(), "False/AsExpected")]
#[case::volumes(removing(Removal::Blocked(Blockers { volumes: one("pv1"), ..Blockers::default() })), "True/VolumesInUse")]
#[case::attachments(removing(Removal::Blocked(Blockers { attachments: one("va1"), ..Blockers::default() })), "True/VolumesInUse")]
#[case::claims(removing(Removal::Blocked(Blockers { claims: one("ns/c1"), ..Blockers::default() })), "True/VolumesInUse")]
#[case::groups(removing(Removal::Blocked(Blockers { group_snapshots: one("g1"), ..Blockers::default() })), "True/SnapshotsExist")]
#[case::snapshots(removing(Removal::Blocked(Blockers { snapshots: one("s1"), ..Blockers::default() })), "True/SnapshotsExist")]
#[case::held(removing(Removal::Held), "True/Held")]
#[case::under_way(removing(Removal::UnderWay("x".to_owned())), "False/AsExpected")]
#[case::finished(removing(Removal::Finished), "False/AsExpected")]
#[case::released(removing(Removal::Released), "False/AsExpected")]
fn removal_blockers_have_separate_condition(#[case] report: Report, #[case] expected: &str) {
    assert_eq!(told(&report, ConditionType::DeletionBlocked).0, expected);
}

#[rstest]
#[case::kept(mk_healthy(), DriverState::Managed)]
#[case::paused(but(mk_healthy(), |report| { report.facts.object.state = ManagementState::Paused; }), DriverState::Paused)]
#[case::deleted(but(removing(Removal::UnderWay("x".to_owned())), |report| { report.facts.object.is_deleted = true; }), DriverState::Deleting)]
#[case::deleted_and_done(but(removing(Removal::Finished), |report| { report.facts.object.is_deleted = true; }), DriverState::Deleting)]
#[case::deleted_and_blocked(but(removing(Removal::Blocked(Blockers::default())), |report| { report.facts.object.is_deleted = true; }), DriverState::DeletionBlocked)]
#[case::deleted_and_held(but(removing(Removal::Held), |report| { report.facts.object.is_deleted = true; }), DriverState::DeletionBlocked)]
#[case::removed(but(removing(Removal::UnderWay("x".to_owned())), |report| { report.facts.object.state = ManagementState::Removed; }), DriverState::Removing)]
#[case::removed_and_done(but(removing(Removal::Finished), |report| { report.facts.object.state = ManagementState::Removed; }), DriverState::Removed)]
fn removal_is_visible_in_state(#[case] report: Report, #[case] expected: DriverState) {
    assert_eq!(status(None, &report, at(1)).state, Some(expected));
}

#[test]
fn unevaluated_deletion_is_visible_in_state() {
    let problem = Problem {
        reason: Degraded::ReconcileFailed,
        message: "cannot list persistentvolumes".to_owned(),
    };
    let deleted = but(mk_healthy(), |report| {
        report.facts.object.is_deleted = true;
    });
    let before = status(None, &mk_healthy(), at(1));
    let state = |previous: &CinderCSIDriverStatus| failed(Some(previous), &deleted.facts.object, &problem, at(2)).state;
    assert_eq!(state(&before), Some(DriverState::Deleting));
    let blocked = CinderCSIDriverStatus {
        state: Some(DriverState::DeletionBlocked),
        ..before
    };
    assert_eq!(state(&blocked), Some(DriverState::DeletionBlocked));
}

#[test]
fn deleted_object_has_no_configuration_advice() {
    let before = status(None, &mk_healthy(), at(1));
    let report = but(removing(Removal::Finished), |report| {
        report.facts.object.is_deleted = true;
        report.outcome.controller = None;
        report.outcome.daemon_set = None;
    });
    let next = status(Some(&before), &report, at(2));
    let told = next.condition(ConditionType::Available).expect("the condition");
    assert!(!told.message.contains("managementState"), "{}", told.message);
    let sent = notices(Some(&before), &next);
    assert!(
        !sent.iter().any(|notice| notice.event == Event::Unavailable),
        "{sent:?}"
    );
}

#[test]
fn forced_removal_explains_acknowledgement() {
    let report = but(
        removing(Removal::Blocked(Blockers {
            volumes: one("pv1"),
            ..Blockers::default()
        })),
        |report| {
            report.facts.object.deletion_policy = DeletionPolicy::Force;
        },
    );
    let (_, message) = told(&report, ConditionType::DeletionBlocked);
    assert!(message.contains("csi.openstack.org/force-delete"), "{message}");
}

#[test]
fn failing_patch_prevents_upgrade() {
    use crate::resolve::{
        resolve,
        tests::{mk_driver, mk_environment},
    };
    let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &mk_environment()).expect("resolved");
    let overridden = crate::manifests::Overridden {
        failed: one("Deployment x: no such path"),
        ..crate::manifests::Overridden::default()
    };
    let report = but(mk_healthy(), |report| {
        report.decision.pods = Some(crate::decide::PodsView::of(&resolved, &mk_environment(), overridden));
    });
    let (verdict, message) = told(&report, ConditionType::Upgradeable);
    assert!(
        verdict == "Unknown/OverrideFailed" && message.contains("no such path"),
        "{verdict} {message}"
    );
}
