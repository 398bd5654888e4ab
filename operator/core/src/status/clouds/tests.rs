// SPDX-License-Identifier: Apache-2.0

use cinder_cloud::Insecurity;
use rstest::rstest;

use super::*;
use crate::reasons::{Refusal, Refused};
use crate::status::tests::{Report, but, status};

const NOW: &str = "2026-06-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn in_days(days: i64) -> Timestamp {
    now() + k8s_openapi::jiff::SignedDuration::from_hours(24 * days)
}

fn mk_cloud() -> CloudView {
    CloudView {
        name: "default".to_owned(),
        authenticated: true,
        auth_method: Some("ApplicationCredential"),
        ..CloudView::default()
    }
}

fn mk(change: impl FnOnce(&mut CloudView)) -> Report {
    let mut cloud = mk_cloud();
    change(&mut cloud);
    but(Report::default(), |report| {
        report.facts.clouds = vec![cloud];
        report.decision.has_topology = true;
    })
}

fn judge(report: &Report) -> Verdict<CredentialsValid> {
    credentials_valid(&report.facts, &report.outcome, now())
}

fn refuse(cloud: &mut CloudView, reason: Refusal) {
    cloud.authenticated = false;
    cloud.refusal = Some(Refused::new(reason, "the sentence".to_owned()));
}

fn end(cloud: &mut CloudView, days: i64) {
    cloud.state.credential = Some(("csi".to_owned(), Some(in_days(days))));
}

#[rstest]
#[case::good(|_: &mut CloudView| {}, "True", "AsExpected", "login with")]
#[case::far_end(|cloud: &mut CloudView| end(cloud, 15), "True", "AsExpected", "login with")]
#[case::end_in_sight(|cloud: &mut CloudView| end(cloud, 13), "True", "Expiring", "application credential csi")]
#[case::end_is_near(|cloud: &mut CloudView| end(cloud, 2), "False", "Expiring", "2026-06-03")]
#[case::ended(|cloud: &mut CloudView| end(cloud, -1), "False", "Expired", "make a new one")]
#[case::token(|cloud: &mut CloudView| { cloud.auth_method = Some("Token"); cloud.state.token_ends = Some(in_days(0)); }, "False", "Expired", "token")]
#[case::renewable_token(|cloud: &mut CloudView| cloud.state.token_ends = Some(in_days(0)), "True", "AsExpected", "login with")]
#[case::client_certificate(|cloud: &mut CloudView| cloud.client_cert_ends = vec![in_days(2)], "False", "Expiring", "client certificate")]
#[case::authority(|cloud: &mut CloudView| cloud.ca_ends = vec![in_days(-9), in_days(5)], "True", "Expiring", "CA bundle")]
#[case::authority_of_the_proxy(|cloud: &mut CloudView| { cloud.ca_ends = vec![in_days(99)]; cloud.proxy_ca_ends = vec![in_days(-9)]; }, "False", "Expired", "the proxy's CA bundle")]
#[case::rejected(|cloud: &mut CloudView| refuse(cloud, Refusal::CredentialsRejected), "False", "Unauthorized", "the sentence")]
#[case::rejected_after_its_end(|cloud: &mut CloudView| { refuse(cloud, Refusal::CredentialsRejected); end(cloud, -1); }, "False", "Expired", "application credential")]
#[case::a_bad_change(|cloud: &mut CloudView| { refuse(cloud, Refusal::CredentialsRejected); cloud.is_changed = true; }, "False", "Unauthorized", "keeps the credentials that were accepted last")]
#[case::forbidden(|cloud: &mut CloudView| refuse(cloud, Refusal::CredentialsForbidden), "False", "Forbidden", "the sentence")]
#[case::no_secret(|cloud: &mut CloudView| refuse(cloud, Refusal::SecretMissing), "False", "SecretMissing", "the sentence")]
#[case::unreadable(|cloud: &mut CloudView| refuse(cloud, Refusal::SecretUnreadable), "False", "SecretUnreadable", "the sentence")]
#[case::malformed(|cloud: &mut CloudView| refuse(cloud, Refusal::SecretMalformed), "False", "SecretMalformed", "the sentence")]
#[case::cloud_unreachable(|cloud: &mut CloudView| refuse(cloud, Refusal::CloudUnreachable), "Unknown", "NotChecked", "the sentence")]
#[case::cloud_unreachable_after_a_change(|cloud: &mut CloudView| { refuse(cloud, Refusal::CloudUnreachable); cloud.is_changed = true; }, "Unknown", "NotChecked", "keeps the credentials")]
fn credentials_are_judged(
    #[case] change: fn(&mut CloudView),
    #[case] status: &str,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let (found, message) = judge(&mk(change));
    assert_eq!((found.row().status, found.as_str()), (status, reason), "{message}");
    assert!(message.contains(words), "{message}");
}

#[test]
fn insecure_cloud_is_named_with_its_parts() {
    let judged = |change: fn(&mut CloudView)| judge(&mk(change));
    assert_eq!(judged(|_| {}).0, CredentialsValid::AsExpected);
    let (reason, message) =
        judged(|cloud| cloud.insecurities = vec![Insecurity::AnyCertificate, Insecurity::HttpKeystone]);
    assert_eq!(reason, CredentialsValid::TLSVerificationOff);
    assert!(
        message.contains("any certificate is accepted, and auth-url has http"),
        "{message}"
    );
}

#[test]
fn ignored_keys_are_named_despite_login() {
    let change = |cloud: &mut CloudView| cloud.warnings = vec!["clouds.yaml: clouds.c.colour is not known".to_owned()];
    let (reason, message) = judge(&mk(change));
    assert_eq!(reason, CredentialsValid::AsExpected);
    assert!(
        message.ends_with("works; not used: clouds.yaml: clouds.c.colour is not known"),
        "{message}"
    );
}

fn after(report: &Report, minutes: i64) -> CinderCSIDriverStatus {
    let then = now() - k8s_openapi::jiff::SignedDuration::from_mins(minutes);
    status(None, report, then)
}

#[test]
fn only_lasting_cloud_outage_degrades_driver() {
    let report = mk(|cloud| refuse(cloud, Refusal::CloudUnreachable));
    let told = |minutes| {
        let next = status(Some(&after(&report, minutes)), &report, now());
        let status = |type_| next.condition(type_).expect("a condition").status.clone();
        (status(ConditionType::CredentialsValid), status(ConditionType::Degraded))
    };
    assert_eq!(told(1), ("Unknown".to_owned(), "False".to_owned()));
    assert_eq!(told(2), ("Unknown".to_owned(), "True".to_owned()));
}

#[test]
fn outage_counts_next_to_refused_cloud() {
    let mut report = mk(|cloud| refuse(cloud, Refusal::CredentialsRejected));
    let mut down = mk_cloud();
    refuse(&mut down, Refusal::CloudUnreachable);
    report.facts.clouds.push(down);
    let cloud = &report.facts.clouds[1];
    assert!(is_young(Some(&after(&report, 1)), cloud, &report.outcome, now()));
    assert!(!is_young(Some(&after(&report, 2)), cloud, &report.outcome, now()));
}

#[test]
fn long_refused_driver_is_unavailable() {
    let report = mk(|cloud| refuse(cloud, Refusal::CredentialsRejected));
    assert!(cut_off(Some(&after(&report, 14)), &report.facts, &report.outcome, now()).is_none());
    let (reason, _) = cut_off(Some(&after(&report, 15)), &report.facts, &report.outcome, now()).expect("cut off");
    assert_eq!(reason, Available::AuthFailed);
    let changed = mk(|cloud| {
        refuse(cloud, Refusal::CredentialsRejected);
        cloud.is_changed = true;
    });
    assert!(
        cut_off(Some(&after(&changed, 60)), &changed.facts, &changed.outcome, now()).is_none(),
        "its own credentials still work"
    );
    let down = mk(|cloud| refuse(cloud, Refusal::CloudUnreachable));
    assert_eq!(
        cut_off(Some(&after(&down, 15)), &down.facts, &down.outcome, now())
            .expect("cut off")
            .0,
        Available::BackendDown
    );
}

#[test]
fn outage_retains_zones_and_expiry() {
    let report = mk(|cloud| {
        end(cloud, 9);
        cloud.state.facts.volume_zones = vec!["a".to_owned()];
    });
    let before = after(&report, 3);
    let silent = mk(|cloud| refuse(cloud, Refusal::CloudUnreachable));
    let now = status(Some(&before), &silent, now());
    assert_eq!(now.clouds[0].volume_zones, ["a"]);
    assert_eq!(
        now.clouds[0].credential_expires_at,
        before.clouds[0].credential_expires_at
    );
}
