use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;

use super::*;
use crate::{
    clouds::{CloudFacts, CloudState, QuotaFact, ServiceFact, Trouble},
    resolve::Problem,
};

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
        hash: Some("0123456789ab".to_owned()),
        auth_method: Some("ApplicationCredential"),
        state: CloudState {
            is_known: true,
            facts: CloudFacts {
                services: BTreeMap::from([
                    ("identity".to_owned(), ServiceFact::default()),
                    ("compute".to_owned(), ServiceFact::default()),
                ]),
                compute_zones: vec!["a".to_owned(), "b".to_owned()],
                volume_zones: vec!["a".to_owned()],
                ..CloudFacts::default()
            },
            ..CloudState::default()
        },
        ..CloudView::default()
    }
}

fn mk(change: impl FnOnce(&mut CloudView)) -> Seen {
    let mut cloud = mk_cloud();
    change(&mut cloud);
    Seen {
        clouds: vec![cloud],
        has_topology: true,
        ..Seen::default()
    }
}

fn refuse(cloud: &mut CloudView, reason: &'static str) {
    cloud.authenticated = false;
    cloud.refusal = Some(Problem {
        reason,
        message: "the sentence".to_owned(),
    });
}

fn end(cloud: &mut CloudView, days: i64) {
    cloud.state.credential = Some(("csi".to_owned(), Some(in_days(days))));
}

#[rstest]
#[case::good(|_: &mut CloudView| {}, "True", "Valid", "log in")]
#[case::far_end(|cloud: &mut CloudView| end(cloud, 15), "True", "Valid", "log in")]
#[case::end_in_sight(|cloud: &mut CloudView| end(cloud, 13), "True", "Expiring", "application credential csi")]
#[case::end_is_near(|cloud: &mut CloudView| end(cloud, 2), "False", "Expiring", "2026-06-03")]
#[case::ended(|cloud: &mut CloudView| end(cloud, -1), "False", "Expired", "make a new one")]
#[case::token(|cloud: &mut CloudView| { cloud.auth_method = Some("Token"); cloud.state.token_ends = Some(in_days(0)); }, "False", "Expired", "token")]
#[case::renewable_token(|cloud: &mut CloudView| cloud.state.token_ends = Some(in_days(0)), "True", "Valid", "log in")]
#[case::client_certificate(|cloud: &mut CloudView| cloud.client_cert_ends = vec![in_days(2)], "False", "Expiring", "client certificate")]
#[case::authority(|cloud: &mut CloudView| cloud.ca_ends = vec![in_days(-9), in_days(5)], "True", "Expiring", "CA bundle")]
#[case::authority_of_the_proxy(|cloud: &mut CloudView| { cloud.ca_ends = vec![in_days(99)]; cloud.proxy_ca_ends = vec![in_days(-9)]; }, "False", "Expired", "the proxy's CA bundle")]
#[case::rejected(|cloud: &mut CloudView| refuse(cloud, "CredentialsRejected"), "False", "Unauthorized", "the sentence")]
#[case::rejected_after_its_end(|cloud: &mut CloudView| { refuse(cloud, "CredentialsRejected"); end(cloud, -1); }, "False", "Expired", "application credential")]
#[case::a_bad_change(|cloud: &mut CloudView| { refuse(cloud, "CredentialsRejected"); cloud.is_changed = true; }, "False", "Unauthorized", "goes on with the credentials that were accepted last")]
#[case::forbidden(|cloud: &mut CloudView| refuse(cloud, "CredentialsForbidden"), "False", "Forbidden", "the sentence")]
#[case::no_secret(|cloud: &mut CloudView| refuse(cloud, "SecretMissing"), "False", "SecretMissing", "the sentence")]
#[case::no_key(|cloud: &mut CloudView| refuse(cloud, "SecretKeyMissing"), "False", "SecretMissing", "the sentence")]
#[case::unreadable(|cloud: &mut CloudView| refuse(cloud, "SecretUnreadable"), "False", "SecretUnreadable", "the sentence")]
#[case::malformed(|cloud: &mut CloudView| refuse(cloud, "CABundleMalformed"), "False", "SecretMalformed", "the sentence")]
#[case::cloud_away(|cloud: &mut CloudView| refuse(cloud, "CloudUnreachable"), "True", "Valid", "log in")]
#[case::cloud_away_for_a_change(|cloud: &mut CloudView| { refuse(cloud, "CloudUnreachable"); cloud.is_changed = true; }, "False", "NotChecked", "BackendReachable")]
fn credentials_are_judged(
    #[case] change: fn(&mut CloudView),
    #[case] status: &str,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let verdict = credentials_valid(&mk(change), now());
    assert_eq!((verdict.0, verdict.1.as_str()), (status, reason), "{}", verdict.2);
    assert!(verdict.2.contains(words), "{}", verdict.2);
}

#[rstest]
#[case("Timeout", "it timed out")]
#[case("DNS", "dns error: failed to lookup")]
#[case("TLSVerificationFailed", "invalid peer certificate: UnknownIssuer")]
#[case("CAExpired", "invalid peer certificate: Expired")]
#[case("ServiceUnavailable", "connection refused")]
fn a_keystone_that_does_not_answer_is_told_by_what_broke(#[case] reason: &str, #[case] fault: &'static str) {
    let verdict = backend_reachable(&mk(|cloud| {
        cloud.refusal = Some(Problem {
            reason: "CloudUnreachable",
            message: format!("Keystone does not answer: {fault}"),
        });
    }));
    assert_eq!((verdict.0, verdict.1.as_str()), ("False", reason));
}

#[rstest]
#[case(trouble::THROTTLED, "False", "Throttled")]
#[case(trouble::UNAVAILABLE, "False", "ServiceUnavailable")]
#[case(trouble::NO_ENDPOINT, "False", "EndpointMissing")]
#[case(trouble::UNAUTHORIZED, "True", "AsExpected")]
fn a_service_in_trouble_is_named(#[case] trouble: &'static str, #[case] status: &str, #[case] reason: &str) {
    let seen = mk(|cloud| {
        cloud.state.troubles = vec![Trouble {
            service: "compute",
            reason: trouble,
            message: "words".to_owned(),
        }];
    });
    let verdict = backend_reachable(&seen);
    assert_eq!((verdict.0, verdict.1.as_str()), (status, reason), "{}", verdict.2);
    let services = statuses(None, &seen, now()).remove(0).services;
    let told: Vec<_> = services.iter().map(|one| (one.name.as_str(), one.reachable)).collect();
    assert_eq!(told, [("compute", false), ("identity", true)]);
}

#[rstest]
#[case::fits(&["a"], |_: &mut CloudView| {}, "True", "AsExpected")]
#[case::cinder_lacks_it(&["a", "b"], |_: &mut CloudView| {}, "False", "ZoneMismatch")]
#[case::mapped(&["b"], |cloud: &mut CloudView| { cloud.zone_map.insert("b".to_owned(), "a".to_owned()); }, "True", "AsExpected")]
#[case::nova_lost_it(&["c"], |_: &mut CloudView| {}, "False", "ZoneRemoved")]
#[case::ignored(&["c"], |cloud: &mut CloudView| cloud.ignores_zones = true, "True", "AsExpected")]
#[case::not_known_yet(&["c"], |cloud: &mut CloudView| cloud.state.facts = CloudFacts::default(), "True", "AsExpected")]
fn zones_are_judged(
    #[case] zones: &[&str],
    #[case] change: fn(&mut CloudView),
    #[case] status: &str,
    #[case] reason: &str,
) {
    let mut seen = mk(change);
    seen.node_zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    let verdict = topology_consistent(&seen);
    assert_eq!((verdict.0, verdict.1.as_str()), (status, reason), "{}", verdict.2);
    seen.has_topology = false;
    assert_eq!(topology_consistent(&seen).0, "True");
}

#[rstest]
#[case(79, "True", "AsExpected", "Sufficient")]
#[case(80, "False", "NearLimit", "NearLimit")]
#[case(95, "False", "Exhausted", "Exhausted")]
#[case(100, "False", "Exhausted", "Exhausted")]
fn quotas_are_judged_and_what_is_used_is_not_in_the_status(
    #[case] used: u64,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] state: &str,
) {
    let seen = mk(|cloud| {
        cloud.state.facts.quota = vec![QuotaFact {
            resource: "gigabytes".to_owned(),
            volume_type: Some("fast".to_owned()),
            used,
            limit: 100,
        }];
    });
    let verdict = quota_sufficient(&seen);
    assert_eq!((verdict.0, verdict.1.as_str()), (status, reason), "{}", verdict.2);
    let quota = statuses(None, &seen, now()).remove(0).quota.remove(0);
    assert_eq!((quota.state.as_str(), quota.limit), (state, 100));
}

#[test]
fn a_cloud_that_need_not_prove_who_it_is_is_insecure() {
    assert_eq!(insecure_configuration(&mk(|_| {})).0, "False");
    let verdict = insecure_configuration(&mk(|cloud| cloud.is_insecure = true));
    assert_eq!((verdict.0, verdict.1.as_str()), ("True", "TLSVerificationOff"));
}

fn after(seen: &Seen, minutes: i64) -> CinderCSIDriverStatus {
    let then = now() - k8s_openapi::jiff::SignedDuration::from_mins(minutes);
    super::super::status(None, seen, then)
}

#[test]
fn trouble_of_a_cloud_is_told_at_once_and_degrades_the_driver_only_when_it_lasts() {
    let seen = mk(|cloud| refuse(cloud, "CloudUnreachable"));
    let told = |minutes| {
        let next = super::super::status(Some(&after(&seen, minutes)), &seen, now());
        let status = |type_| find(&next, type_).expect("a condition").status.clone();
        (status(ConditionType::BackendReachable), status(ConditionType::Degraded))
    };
    assert_eq!(told(1), ("False".to_owned(), "False".to_owned()));
    assert_eq!(told(2), ("False".to_owned(), "True".to_owned()));
}

#[rstest]
#[case::missing(trouble::NO_ENDPOINT, true)]
#[case::down(trouble::UNAVAILABLE, true)]
#[case::slow(trouble::TIMEOUT, true)]
#[case::busy(trouble::THROTTLED, false)]
fn a_service_that_fails_behind_a_good_login_counts_as_the_cloud_does(
    #[case] reason: &'static str,
    #[case] counts: bool,
) {
    let seen = mk(|cloud| {
        cloud.state.troubles = vec![Trouble {
            service: "block-storage",
            reason,
            message: "no public endpoint in region Mars".to_owned(),
        }];
    });
    let degraded = |minutes| {
        let next = super::super::status(Some(&after(&seen, minutes)), &seen, now());
        let condition = find(&next, ConditionType::Degraded).expect("a condition");
        (condition.status == "True", condition.reason.clone())
    };
    assert!(!degraded(1).0);
    let wanted = if counts { "BackendDown" } else { "AsExpected" };
    assert_eq!(degraded(2), (counts, wanted.to_owned()));
    assert!(cut_off(Some(&after(&seen, 14)), &seen, now()).is_none());
    let unavailable = cut_off(Some(&after(&seen, 15)), &seen, now());
    assert_eq!(
        unavailable.map(|verdict| verdict.1).as_deref(),
        counts.then_some("BackendDown")
    );
}

#[test]
fn a_driver_that_is_locked_out_for_long_is_not_available() {
    let seen = mk(|cloud| refuse(cloud, "CredentialsRejected"));
    assert!(cut_off(Some(&after(&seen, 14)), &seen, now()).is_none());
    let verdict = cut_off(Some(&after(&seen, 15)), &seen, now()).expect("cut off");
    assert_eq!(verdict.1, "AuthFailed");
    let changed = mk(|cloud| {
        refuse(cloud, "CredentialsRejected");
        cloud.is_changed = true;
    });
    assert!(
        cut_off(Some(&after(&changed, 60)), &changed, now()).is_none(),
        "its own credentials still work"
    );
    let down = mk(|cloud| refuse(cloud, "CloudUnreachable"));
    assert_eq!(
        cut_off(Some(&after(&down, 15)), &down, now()).expect("cut off").1,
        "BackendDown"
    );
}

#[test]
fn a_change_of_credentials_is_told_when_it_is_given_and_when_it_is_in_use() {
    let with = |hash: &str, loaded| {
        let seen = mk(|cloud| {
            cloud.hash = Some(hash.to_owned());
            cloud.loaded = loaded;
        });
        after(&seen, 0)
    };
    let told = |old: &CinderCSIDriverStatus, new: &CinderCSIDriverStatus| -> Vec<&'static str> {
        rotations(Some(old), new)
            .into_iter()
            .map(|(reason, _)| reason)
            .collect()
    };
    let (one, given, used) = (
        with("one", Some(true)),
        with("two", Some(false)),
        with("two", Some(true)),
    );
    assert_eq!(told(&one, &given), ["SecretRotated"]);
    assert_eq!(told(&given, &used), ["CredentialsLoaded"]);
    assert!(told(&used, &used).is_empty() && rotations(None, &used).is_empty());
}

fn told(status: &CinderCSIDriverStatus, types: &[ConditionType]) -> Vec<(String, String, String)> {
    let conditions = types.iter().filter_map(|type_| find(status, *type_));
    conditions
        .map(|one| (one.status.clone(), one.reason.clone(), one.message.clone()))
        .collect()
}

#[test]
fn an_operator_that_starts_anew_does_not_call_well_what_it_has_not_looked_at() {
    use ConditionType::{BackendReachable, CredentialsValid, QuotaSufficient, TopologyConsistent};
    const TYPES: [ConditionType; 4] = [BackendReachable, CredentialsValid, QuotaSufficient, TopologyConsistent];
    let mut seen = mk(|cloud| {
        end(cloud, 1);
        cloud.state.troubles = vec![Trouble {
            service: "compute",
            reason: trouble::TIMEOUT,
            message: "no answer".to_owned(),
        }];
        cloud.state.facts.quota = vec![QuotaFact {
            resource: "volumes".to_owned(),
            used: 10,
            limit: 10,
            ..QuotaFact::default()
        }];
    });
    seen.node_zones = BTreeSet::from(["lost".to_owned()]);
    let before = after(&seen, 3);
    assert!(
        told(&before, &TYPES).iter().all(|(status, ..)| status == "False"),
        "{before:?}"
    );
    let anew = Seen {
        clouds: vec![CloudView {
            state: CloudState::default(),
            ..seen.clouds[0].clone()
        }],
        ..seen.clone()
    };
    let then = super::super::status(Some(&before), &anew, now());
    assert_eq!(then, before);
    let other = Seen {
        clouds: vec![CloudView {
            hash: Some("another".to_owned()),
            ..anew.clouds[0].clone()
        }],
        ..anew
    };
    let other = super::super::status(Some(&before), &other, now());
    assert_eq!(told(&other, &[CredentialsValid])[0].1, "Valid");
    assert!(other.clouds[0].credential_expires_at.is_none());
    let well = super::super::status(Some(&before), &mk(|_| {}), now());
    assert!(
        told(&well, &TYPES).iter().all(|(status, ..)| status == "True"),
        "{well:?}"
    );
}

#[test]
fn operations_that_nobody_was_asked_about_yet_are_told_as_they_were_before() {
    let stuck = crate::diagnosis::Stuck {
        operation: crate::diagnosis::Operation::Attach,
        since: now(),
        object: ("VolumeAttachment", "va".to_owned()),
        claim: None,
        volume_id: None,
        node: None,
        cinder_status: None,
        finding: crate::diagnosis::Finding {
            reason: "NodeGone",
            class: crate::diagnosis::Class::NodeGone,
            hint: "the node is gone".to_owned(),
        },
    };
    let before = after(
        &Seen {
            stuck: vec![stuck],
            ..mk(|_| {})
        },
        3,
    );
    let anew = Seen {
        stuck_unexplained: true,
        ..mk(|_| {})
    };
    assert_eq!(super::super::status(Some(&before), &anew, now()), before);
    let well = super::super::status(Some(&before), &mk(|_| {}), now());
    assert_eq!(told(&well, &[ConditionType::VolumesHealthy])[0].0, "True");
    assert_eq!(well.volumes, None);
}
