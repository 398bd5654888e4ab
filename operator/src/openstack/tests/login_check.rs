// SPDX-License-Identifier: Apache-2.0
//! Logins, their pauses and their failures.

use rstest::rstest;

use super::*;

#[tokio::test(start_paused = true)]
async fn valid_credentials_are_cached_for_interval() {
    let keystone = Scripted::new([Ok(()), Ok(())]);
    let login_check = mk_login_check(&keystone);
    let decision = check(&login_check, "good", None).await;
    assert!(decision.authenticated && decision.in_use.is_some() && decision.refusal.is_none());
    assert_eq!(decision.next_check, 5 * MINUTE);
    tokio::time::advance(4 * MINUTE).await;
    assert_eq!(check(&login_check, "good", None).await.next_check, MINUTE);
    assert_eq!(keystone.logins(), 1);
    tokio::time::advance(MINUTE).await;
    check(&login_check, "good", None).await;
    assert_eq!(keystone.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn ignored_keys_are_reported() {
    let login_check = mk_login_check(&Scripted::new([Ok(()), Err(unauthorized("req-1"))]));
    let text = mk_yaml("good").replace("auth:", "colour: red\n    auth:");
    let mut decisions = Vec::new();
    for password in ["good", "bad"] {
        let candidate = mk_source().parse_candidate(&text.replace("good", password), Certificates::default());
        let installed = mk_installed(None, RecordedPlace::Never);
        let (source, project_change) = (mk_source(), mk_project_change(&FREE));
        let check = login_check.check("d", &source, candidate, installed, &project_change, 5 * MINUTE);
        decisions.push(check.await);
    }
    assert!(
        decisions[0].warnings[0].contains(".colour is not known"),
        "{:?}",
        decisions[0].warnings
    );
    let refusal = decisions[1].refusal.clone().expect("a refusal");
    assert!(
        refusal.message.contains("; not used: clouds.yaml: clouds."),
        "{}",
        refusal.message
    );
}

#[tokio::test(start_paused = true)]
async fn alternating_contents_cause_few_logins() {
    let keystone = Scripted::new((0..20).map(|number| match number % 2 {
        0 => Err(unauthorized("req-1")),
        _ => Ok(()),
    }));
    let login_check = mk_login_check(&keystone);
    for second in 0..20 {
        let password = if second % 2 == 0 { "bad" } else { "good" };
        let decision = check(&login_check, password, None).await;
        if second == 1 {
            assert!(
                decision.authenticated,
                "the first content after a refused one is tried at once"
            );
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(keystone.logins(), 3);
    let decision = check(&login_check, "good", None).await;
    let refusal = decision.refusal.expect("a refusal");
    assert_eq!(refusal.reason, Refusal::LoginFailed);
    assert!(refusal.message.contains("after 2 contents"), "{}", refusal.message);
    tokio::time::advance(decision.next_check).await;
    assert!(check(&login_check, "good", None).await.authenticated);
}

#[tokio::test(start_paused = true)]
async fn rejected_credentials_do_not_replace_valid_ones() {
    let keystone = Scripted::new([Ok(()), Err(unauthorized("req-1"))]);
    let login_check = mk_login_check(&keystone);
    let good = check(&login_check, "good", None).await.in_use.expect("accepted");
    let decision = check(&login_check, "bad", Some(&good)).await;
    assert!(!decision.authenticated);
    assert_eq!(decision.in_use.expect("the last good ones").hash(), good.hash());
    let refusal = decision.refusal.expect("a reason");
    assert_eq!(refusal.reason, Refusal::CredentialsRejected);
    for part in [
        "key clouds.yaml of Secret ns/openstack-credentials",
        "https://keystone.example.org/v3",
        "HTTP 401",
    ] {
        assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
    }
    assert!(
        !refusal.message.contains("bad") && !refusal.message.contains("req-1"),
        "{}",
        refusal.message
    );
}

#[tokio::test(start_paused = true)]
async fn failure_is_retried_with_growing_pauses() {
    let again = (1..=3).map(|n| Err(unauthorized(&format!("req-{n}"))));
    let keystone = Scripted::new(again);
    let login_check = mk_login_check(&keystone);
    let mut sentences = Vec::new();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let decision = check(&login_check, "bad", None).await;
        sentences.push(decision.refusal.expect("a reason").message);
        pauses.push(decision.next_check.as_secs());
        assert_eq!(
            check(&login_check, "bad", None).await.next_check,
            decision.next_check,
            "asked in between: no login"
        );
        tokio::time::advance(decision.next_check).await;
    }
    assert_eq!(pauses, [10, 20, 40]);
    assert_eq!(keystone.logins(), 3);
    sentences.dedup();
    assert_eq!(sentences.len(), 1, "{sentences:?}");
}

#[tokio::test(start_paused = true)]
async fn changed_secret_is_checked_immediately() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let login_check = mk_login_check(&keystone);
    assert!(!check(&login_check, "bad", None).await.authenticated);
    assert!(check(&login_check, "mended", None).await.authenticated);
}

#[tokio::test(start_paused = true)]
async fn changed_proxy_is_checked_immediately() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let login_check = mk_login_check(&keystone);
    assert!(!check(&login_check, "same", None).await.authenticated);
    let mut source = mk_source();
    source.proxies.https = Some("http://proxy.example.org:3128".to_owned());
    let candidate = source.parse_candidate(&mk_yaml("same"), Certificates::default());
    let decision = login_check
        .check(
            "d",
            &source,
            candidate,
            InstalledCloud::default(),
            &mk_project_change(&FREE),
            5 * MINUTE,
        )
        .await;
    assert!(decision.authenticated);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_keystone_causes_timeout() {
    let decision = check(&mk_login_check(&Scripted::default()), "any", None).await;
    assert_eq!(decision.refusal.expect("a reason").reason, Refusal::CloudUnreachable);
}

#[tokio::test]
async fn unreadable_secret_does_not_replace_credentials() {
    let (keystone, missing) = (
        Scripted::default(),
        Refused::new(Refusal::SecretMissing, "it is not there".to_owned()),
    );
    let good = mk_candidate("good").expect("readable").credentials;
    let decision = mk_login_check(&keystone)
        .check(
            "d",
            &mk_source(),
            Err(missing),
            mk_installed(Some(good.clone()), RecordedPlace::Never),
            &mk_project_change(&FREE),
            5 * MINUTE,
        )
        .await;
    assert_eq!(keystone.logins(), 0);
    assert_eq!(decision.in_use.expect("the last good ones").hash(), good.hash());
}

#[rstest]
#[case::nobody_tells_when_it_can_be_read(Refusal::SecretUnreadable, FIRST_PAUSE)]
#[case::a_watch_tells_when_it_comes(Refusal::SecretMissing, 5 * MINUTE)]
#[tokio::test]
async fn unreadable_secret_is_read_again_soon(#[case] reason: Refusal, #[case] pause: Duration) {
    let candidate = Err(Refused::new(reason, "a sentence".to_owned()));
    let decision = mk_login_check(&Scripted::default())
        .check(
            "d",
            &mk_source(),
            candidate,
            InstalledCloud::default(),
            &mk_project_change(&FREE),
            5 * MINUTE,
        )
        .await;
    assert_eq!(decision.next_check, pause);
}

#[rstest]
#[case::no_endpoint(
    CloudError::NoEndpoint { service: "block-storage", interface: "public", region: Some("Mars".to_owned()), known: String::new(), problem: EndpointProblem::Place },
    Refusal::EndpointMissing,
    "region_name"
)]
#[case::http_behind_https(
    CloudError::InsecureEndpoint { service: "block-storage" },
    Refusal::EndpointMissing,
    "allow_http_endpoints"
)]
#[case::old_endpoint(
    CloudError::NoEndpoint { service: "compute", interface: "public", region: None, known: "compute/public/R http://c/v1.1".to_owned(), problem: EndpointProblem::Version },
    Refusal::EndpointMissing,
    "with API version v2.1 (or v2); the catalogue has: compute/public/R http://c/v1.1; region and interface are right"
)]
#[case::no_role(
    CloudError::Forbidden(failure(Some(403), "Policy doesn't allow it.", "r")),
    Refusal::CredentialsForbidden,
    "role"
)]
#[case::down(
    CloudError::Server(failure(Some(503), "Down.", "r")),
    Refusal::CloudUnreachable,
    "503"
)]
#[tokio::test(start_paused = true)]
async fn rejects_credentials_without_access_to_services(
    #[case] error: CloudError,
    #[case] reason: Refusal,
    #[case] word: &str,
) {
    let keystone = Scripted::of([Err(TrialError::Service(CloudService::BlockStorage, error))]);
    let own = mk_candidate("own").expect("credentials").credentials;
    let decision = check(&mk_login_check(&keystone), "other", Some(&own)).await;
    let refusal = decision.refusal.expect("refused");
    assert_eq!(refusal.reason, reason);
    assert!(
        refusal.message.contains(word) && refusal.message.contains("log"),
        "{}",
        refusal.message
    );
    assert_eq!(decision.in_use.expect("its own").hash(), own.hash());
}

#[tokio::test(start_paused = true)]
async fn revoked_application_credential_is_rejected() {
    let fault = format!("Could not find Application Credential: {}.", "c1d2".repeat(25_000));
    let keystone = Scripted::new([Err(CloudError::Auth(failure(Some(404), &fault, "r")))]);
    let refusal = check(&mk_login_check(&keystone), "gone", None)
        .await
        .refusal
        .expect("refused");
    assert_eq!(refusal.reason, Refusal::CredentialsRejected);
    assert!(refusal.message.contains("HTTP 404: Could not find") && refusal.message.len() < 1_000);
}
