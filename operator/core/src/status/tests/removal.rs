// SPDX-License-Identifier: Apache-2.0
//! Status of a removal.

use super::*;

#[test]
fn blocked_removal_names_and_counts_volumes() {
    let volumes: Vec<String> = (10..25).map(|number| format!("pv{number}")).collect();
    let report = but(mk_healthy(), |report| {
        report.decision.removal = Some(Removal::Blocked(Blockers {
            volumes,
            attachments: vec!["va1".to_owned()],
            ..Blockers::default()
        }));
    });
    let status = status(None, &report, at(1));
    assert_eq!(verdicts(&report)[1], "Progressing=True/DeletionBlocked");
    let text = message(&report, ConditionType::Progressing);
    assert!(
        text.contains("15 PersistentVolume") && text.contains("pv10") && text.contains("va1"),
        "{text}"
    );
    let blockers = status.deletion.expect("what it waits for").blockers;
    assert_eq!(
        blockers
            .iter()
            .map(|b| (b.kind.as_str(), b.count, b.names.len()))
            .collect::<Vec<_>>(),
        [("PersistentVolume", 15, 10), ("VolumeAttachment", 1, 1)]
    );
}

#[test]
fn removal_in_progress_is_not_a_failure() {
    let removal = Some(Removal::UnderWay("the node pods to end".to_owned()));
    let report = but(mk_healthy(), |report| {
        report.decision.removal = removal;
        report.outcome.controller = None;
    });
    assert_eq!(
        verdicts(&report),
        [
            "Available=False/Removing",
            "Progressing=True/Removing",
            "Degraded=False/AsExpected"
        ]
    );
    assert_eq!(status(None, &report, at(1)).deletion, None);
}

#[test]
fn released_driver_is_not_removed() {
    let report = but(mk_healthy(), |report| {
        report.decision.removal = Some(Removal::Released);
        report.outcome.controller = None;
        report.outcome.daemon_set = None;
    });
    assert_eq!(
        verdicts(&report),
        [
            "Available=Unknown/Orphaned",
            "Progressing=False/AsExpected",
            "Degraded=False/AsExpected"
        ]
    );
    let told = message(&report, ConditionType::Available);
    assert!(
        told.contains("goes on running") && told.contains("spec.adoption.mode Adopt"),
        "{told}"
    );
    let status = status(None, &report, at(1));
    assert_eq!((status.version, status.nodes), (None, None), "nobody looks at it");
}

#[test]
fn completed_removal_clears_the_status() {
    let report = but(mk_healthy(), |report| {
        report.decision.removal = Some(Removal::Finished);
        report.outcome.controller = None;
        report.outcome.daemon_set = None;
    });
    assert_eq!(
        verdicts(&report),
        [
            "Available=False/Removed",
            "Progressing=False/AsExpected",
            "Degraded=False/AsExpected"
        ]
    );
    let status = status(None, &report, at(1));
    assert_eq!(
        (status.version, status.controller, status.nodes, status.deletion),
        (None, None, None, None)
    );
}
