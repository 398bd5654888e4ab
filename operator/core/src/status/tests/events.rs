// SPDX-License-Identifier: Apache-2.0
//! Events of changed conditions.

use cinder_csi_crds::MonitoringMode;
use rstest::rstest;

use super::*;
use crate::decide::Drift;

#[rstest]
#[case::controller_down(|report: &mut Report| report.outcome.controller = Some(mk_workload(2, 2, 0)), Event::Unavailable, Event::Available)]
#[case::stalled(|report: &mut Report| report.outcome.controller.as_mut().expect("one").stalled = Some("quota".to_owned()),
    Event::Degraded, Event::Recovered)]
#[case::cloud_unreachable(|report: &mut Report| report.facts.clouds[0].refusal = Some(Refused::new(Refusal::CloudUnreachable, "no answer".to_owned())),
    Event::CredentialsNotChecked, Event::CredentialsAccepted)]
#[case::credentials_end(|report: &mut Report| report.facts.clouds[0].state.credential = Some(("csi".to_owned(), Some(at(0)))),
    Event::CredentialsExpiring, Event::CredentialsAccepted)]
#[case::credentials_refused(|report: &mut Report| {
    report.facts.clouds = vec![refused()];
    report.outcome.clouds_without_credentials = mk_name();
}, Event::CredentialsRejected, Event::CredentialsAccepted)]
#[case::insecure(|report: &mut Report| report.facts.clouds[0].insecurities = vec![cinder_cloud::Insecurity::AnyCertificate], Event::InsecureConfiguration, Event::CredentialsAccepted)]
#[case::drift(|report: &mut Report| report.decision.drift = Drift { unresolvable: one("DaemonSet x"), ..Drift::default() }, Event::UpgradeableFalse, Event::UpgradeableTrue)]
#[case::no_prometheus(|report: &mut Report| report.facts.monitoring = MonitoringView { mode: MonitoringMode::Enabled, served: false },
    Event::Degraded, Event::Recovered)]
fn changed_condition_sends_event_and_recovery_event(
    #[case] change: fn(&mut Report),
    #[case] bad: Event,
    #[case] good: Event,
) {
    let well = CinderCSIDriverStatus {
        version: Some("0.1.0".to_owned()),
        ..status(None, &mk_healthy(), at(1))
    };
    let mut report = mk_healthy();
    change(&mut report);
    let ill = status(Some(&well), &report, at(2));
    let sent = |before, now| -> Vec<Event> { notices(Some(before), now).iter().map(|one| one.event).collect() };
    assert!(sent(&well, &ill).contains(&bad), "{:?}", notices(Some(&well), &ill));
    assert!(sent(&ill, &well).contains(&good), "{:?}", notices(Some(&ill), &well));
}

#[test]
fn pause_sends_an_event() {
    let well = status(None, &mk_healthy(), at(1));
    let paused = but(mk_healthy(), |report| {
        report.facts.object.state = ManagementState::Paused;
    });
    let sent: Vec<Event> = notices(Some(&well), &status(Some(&well), &paused, at(2)))
        .iter()
        .map(|one| one.event)
        .collect();
    assert_eq!(sent, [Event::Paused]);
}

fn one(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

#[test]
fn driver_without_objects_is_installing() {
    let report = but(Report::default(), |report| {
        report.facts.clouds = vec![mk_cloud()];
    });
    assert_eq!(verdicts(&report)[1], "Progressing=True/Installing");
}

#[rstest]
#[case::stalled(|report: &mut Report| report.outcome.controller.as_mut().expect("one").stalled = Some("quota exceeded".to_owned()),
    Degraded::ControllerStalled, "quota exceeded")]
fn faulty_controller_degrades_the_driver(
    #[case] change: fn(&mut Report),
    #[case] reason: Degraded,
    #[case] words: &str,
) {
    let mut report = mk_healthy();
    change(&mut report);
    let (found, message) = degraded(&report.values(), &issues::of(&report.values(), |_| false));
    assert_eq!(found, reason);
    assert!(message.contains(words), "{message}");
}

#[test]
fn only_changes_send_events() {
    let healthy = status(None, &mk_healthy(), at(1));
    let broken = status(
        Some(&healthy),
        &but(mk_healthy(), |report| {
            report.facts.clouds = vec![refused()];
        }),
        at(2),
    );
    let sent = notices(Some(&healthy), &broken);
    let words = |notices: &[Notice]| -> Vec<_> {
        notices
            .iter()
            .map(|n| (n.event.row().severity, n.event.row().reason))
            .collect()
    };
    assert_eq!(
        words(&sent),
        [
            (Severity::Warning, "Degraded"),
            (Severity::Warning, "UpgradeableFalse"),
            (Severity::Warning, "CredentialsRejected")
        ]
    );
    assert!(sent[0].note.contains("CredentialsRejected"), "{}", sent[0].note);
    assert_eq!(notices(Some(&broken), &broken), []);
    let mended = notices(Some(&broken), &healthy);
    assert_eq!(
        words(&mended),
        [
            (Severity::Normal, "Recovered"),
            (Severity::Normal, "UpgradeableTrue"),
            (Severity::Normal, "CredentialsAccepted")
        ]
    );
}

#[test]
fn clean_installation_sends_no_warning() {
    let steps = [
        but(Report::default(), |report| {
            report.facts.clouds = vec![mk_cloud()];
        }),
        but(mk_healthy(), |report| {
            report.outcome.controller = Some(mk_workload(2, 2, 0));
            report.outcome.node_rollout = Some(NodeRollout {
                serving: 0,
                outdated: 0,
                ..mk_nodes(3, 0)
            });
            report.outcome.nodes = NodesView {
                desired: 3,
                unregistered: vec!["n1".to_owned(), "n2".to_owned(), "n3".to_owned()],
                ..NodesView::default()
            };
        }),
        but(mk_healthy(), |report| {
            report.outcome.node_rollout = Some(mk_nodes(3, 2));
            report.outcome.nodes = NodesView {
                desired: 3,
                registered: 2,
                unregistered: vec!["n3".to_owned()],
                ..NodesView::default()
            };
        }),
        mk_healthy(),
    ];
    let mut previous = None;
    for (second, report) in (1..).zip(&steps) {
        let next = status(previous.as_ref(), report, at(second));
        let sent = notices(previous.as_ref(), &next);
        assert!(
            sent.iter()
                .all(|notice| notice.event.row().severity == Severity::Normal),
            "{sent:?}"
        );
        previous = Some(next);
    }
    let down = but(mk_healthy(), |report| {
        report.outcome.controller = Some(mk_workload(2, 2, 0));
    });
    let next = status(previous.as_ref(), &down, at(9));
    let sent = notices(previous.as_ref(), &next);
    assert_eq!(sent[0].event, Event::Unavailable);
}
