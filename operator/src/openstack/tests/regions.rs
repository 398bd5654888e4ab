// SPDX-License-Identifier: Apache-2.0
//! Credentials without a region.

use openstack_sim::{Sim, SimConfig};

use super::*;

/// Credentials without a region.
fn mk_regionless(password: &str) -> Result<Candidate, Refused> {
    let text = mk_yaml(password).replace("    region_name: one\n", "");
    mk_source().parse_candidate(&text, Certificates::default())
}

async fn check_regionless(
    login_check: &LoginCheck,
    password: &str,
    last_good: Option<&DriverCredentials>,
) -> CredentialDecision {
    let candidate = mk_regionless(password);
    let recorded = last_good.and_then(DriverCredentials::place).cloned();
    let installed = mk_installed(
        last_good.cloned(),
        recorded.map_or(RecordedPlace::Never, RecordedPlace::Known),
    );
    // A first installation has no volumes to lose.
    let usage = if last_good.is_some() { &USED } else { &FREE };
    login_check
        .check(
            "d",
            &mk_source(),
            candidate,
            installed,
            &mk_project_change(usage),
            5 * MINUTE,
        )
        .await
}

fn region_of(credentials: &DriverCredentials) -> Option<String> {
    credentials.config().expect("readable").region
}

#[tokio::test(start_paused = true)]
async fn accepted_region_is_written_into_driver_configuration() {
    let keystone = Scripted::of([Ok(mk_login("p", "one", None)), Ok(mk_login("p", "one", None))]);
    let login_check = mk_login_check(&keystone);
    let used = check_regionless(&login_check, "a", None)
        .await
        .in_use
        .expect("accepted");
    assert_eq!(region_of(&used).as_deref(), Some("one"));
    // The same Secret is checked again, also after a restart of the operator.
    for login_check in [login_check, mk_login_check(&keystone)] {
        let decision = check_regionless(&login_check, "a", Some(&used)).await;
        assert!(!decision.is_changed && decision.refusal.is_none());
        assert_eq!(decision.in_use.expect("the same").hash(), used.hash());
    }
    assert_eq!(keystone.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn region_is_added_to_credentials_written_without_it() {
    let keystone = Scripted::of([Ok(mk_login("p", "one", None))]);
    let login_check = mk_login_check(&keystone);
    // Only the record next to the configuration contains the region.
    let conf = mk_regionless("a").expect("readable").config.to_cloud_conf(None);
    let data = [
        ("cloud.conf", conf.as_str()),
        ("places", r#"{"": {"project": "p", "region": "one"}}"#),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    let secret = Secret {
        data: Some(data.into()),
        ..Secret::default()
    };
    let old = DriverCredentials::from_secret(&secret).expect("readable");
    assert_eq!((region_of(&old), old.place()), (None, Some(&mk_place("p", "one"))));
    let used = check_regionless(&login_check, "a", Some(&old))
        .await
        .in_use
        .expect("accepted");
    assert_eq!(region_of(&used).as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn rotated_credentials_default_to_recorded_region() {
    let keystone = Scripted::of([Ok(mk_login("p", "one", None)), Ok(mk_login("p", "one", None))]);
    let login_check = mk_login_check(&keystone);
    let used = check_regionless(&login_check, "a", None)
        .await
        .in_use
        .expect("accepted");
    let rotated = check_regionless(&login_check, "b", Some(&used))
        .await
        .in_use
        .expect("accepted");
    assert_eq!(region_of(&rotated).as_deref(), Some("one"));
    let defaults: Vec<_> = keystone
        .requests
        .lock()
        .iter()
        .map(|queries| queries.default_region.clone())
        .collect();
    assert_eq!(defaults, [None, Some("one".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn rejects_rotated_credentials_of_other_region() {
    let keystone = Scripted::of([Ok(mk_login("p", "one", None)), Ok(mk_login("p", "two", None))]);
    let login_check = mk_login_check(&keystone);
    let used = check_regionless(&login_check, "a", None)
        .await
        .in_use
        .expect("accepted");
    let decision = check_regionless(&login_check, "b", Some(&used)).await;
    assert_eq!(decision.refusal.expect("refused").reason, Refusal::ProjectChanged);
    assert_eq!(decision.in_use.expect("the last good ones").hash(), used.hash());
}

#[tokio::test]
async fn rejects_several_regions_without_a_recorded_one() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let sim = Sim::start(SimConfig {
        other_regions: vec!["RegionZero".to_owned()],
        ..SimConfig::default()
    });
    let sim = sim.await.expect("the simulator starts");
    let mut spec = CloudSpec::from_secret("s");
    spec.credentials_secret_ref.key = "cloud.conf".to_owned();
    let source = CredentialSource::new("ns", &spec);
    let conf = sim.access().cloud_conf().replace("region = \"RegionOne\"\n", "");
    let check_login = async |default_region: Option<&str>| {
        let candidate = source
            .parse_candidate(&conf, Certificates::default())
            .expect("readable");
        let queries = LoginQueries {
            services: true,
            default_region: default_region.map(str::to_owned),
            ..LoginQueries::default()
        };
        let keystone = RealKeystone {
            options: CloudOptions::default(),
        };
        keystone.check_login(candidate.config, queries).await
    };
    let refusal = source.refused("http://keystone", &check_login(None).await.expect_err("ambiguous"));
    assert_eq!(refusal.reason, Refusal::RegionAmbiguous);
    for part in ["RegionOne, RegionZero", "region_name", "spec.clouds[].region"] {
        assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
    }
    let tried = check_login(Some("RegionOne")).await.expect("the recorded region");
    assert_eq!(tried.place.region.as_deref(), Some("RegionOne"));
    let missing = check_login(Some("RegionNine")).await.expect_err("no such region");
    assert_eq!(
        source.refused("http://keystone", &missing).reason,
        Refusal::EndpointMissing
    );
}
