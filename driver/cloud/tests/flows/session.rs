// SPDX-License-Identifier: Apache-2.0
//! Logins, tokens and retries.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, CloudService, VolumeId};
use openstack_sim::{Effect, Fault, SimConfig, When};

use crate::support::{NOTHING, Stage, new, stage, stage_with};

fn cloud_with_edited_conf(stage: &Stage, from: &str, to: &str) -> Cloud {
    let conf = stage.sim.access().cloud_conf().replace(from, to);
    stage.cloud_with_conf(&conf)
}

#[tokio::test(start_paused = true)]
async fn password_login_reports_project_and_services() {
    let stage = stage().await;
    let login = stage.cloud.login().await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    assert!(
        login.services.iter().any(|service| service == "compute"),
        "{:?}",
        login.services
    );
}

#[tokio::test(start_paused = true)]
async fn credential_login_works_by_id_and_name() {
    let stage = stage().await;
    let access = stage.sim.access();
    let by_id = format!("application-credential-id = {}", access.application_credential_id);
    let by_name = format!(
        "application-credential-name = {}\nusername = {}\nuser-domain-name = {}",
        access.application_credential_name, access.username, access.domain_name
    );
    for who in [by_id, by_name] {
        let conf = format!(
            "[Global]\nauth-url = {}\n{who}\napplication-credential-secret = {}\n",
            access.auth_url, access.application_credential_secret
        );
        let cloud = stage.cloud_with_conf(&conf);
        assert_eq!(cloud.login().await.expect("logged in").project_name, "cluster", "{who}");
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_error_hides_secret() {
    let stage = stage().await;
    let cloud = cloud_with_edited_conf(&stage, "secret-of-csi", "wrong-password");
    let error = cloud.login().await.expect_err("refused");
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wrong-password"), "{error:?}");
    assert!(error.request_id().is_some(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn unknown_credential_differs_from_gateway_404() {
    let stage = stage().await;
    let id = "c".repeat(100_000);
    let unknown = Effect::status(404).message(format!("Could not find Application Credential: {id}."));
    stage
        .sim
        .fault(Fault::on("issue_token").times(1).effect(unknown))
        .expect("a rule");
    let error = stage.cloud.login().await.expect_err("refused");
    assert!(
        matches!(&error, CloudError::Auth(failure) if failure.status == Some(404)),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("Could not find") && text.len() < 1000, "{text}");
    // All callers that requested a token before the failure get the same error.
    tokio::time::advance(Duration::from_millis(1)).await;

    stage
        .sim
        .fault(Fault::on("issue_token").times(1).effect(Effect::html(404)))
        .expect("a rule");
    let error = stage.cloud.login().await.expect_err("no Keystone");
    assert!(matches!(error, CloudError::Setup(_)), "{error:?}");
    assert!(error.to_string().contains("no Keystone v3"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn login_reports_region_and_list_permissions() {
    let stage = stage().await;
    for conf in ["RegionOne", ""] {
        let conf = stage.sim.access().cloud_conf().replace("RegionOne", conf);
        let login = login_of(&stage, &conf).await.expect("logged in");
        assert_eq!(login.region.as_deref(), Some("RegionOne"));
    }
    let list = async |service| stage.cloud.try_list(service).await;
    list(CloudService::BlockStorage).await.expect("may list");
    list(CloudService::Compute).await.expect("may list");
    for (service, operation) in [
        (CloudService::BlockStorage, "list_volumes_detail"),
        (CloudService::Compute, "list_servers_detail"),
    ] {
        stage
            .sim
            .fault(Fault::on(operation).times(1).effect(Effect::policy("x:get_all")))
            .expect("a rule");
        let error = list(service).await.expect_err("may not");
        assert!(matches!(error, CloudError::Forbidden(_)), "{error:?}");
    }
    let elsewhere = cloud_with_edited_conf(&stage, "RegionOne", "RegionNine");
    let error = elsewhere
        .try_list(CloudService::Compute)
        .await
        .expect_err("no endpoint");
    assert!(matches!(error, CloudError::NoEndpoint { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_region_is_named_with_alternatives() {
    let stage = stage().await;
    let cloud = cloud_with_edited_conf(&stage, "RegionOne", "RegionNine");
    let error = cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("no endpoint");
    assert!(matches!(error, CloudError::NoEndpoint { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("RegionNine") && text.contains("block-storage/public/RegionOne"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn finds_block_storage_by_older_name() {
    let stage = stage_with(SimConfig {
        block_storage_type: "volumev3".to_owned(),
        ..SimConfig::default()
    })
    .await;
    assert_eq!(stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect("asked"), None);
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_one_login() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    futures::future::join_all((0..20).map(|_| stage.cloud.volume(&id))).await;
    assert_eq!(stage.counter.tokens.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_share_rejected_login() {
    let stage = stage().await;
    let cloud = cloud_with_edited_conf(&stage, "secret-of-csi", "wrong-password");
    let answers = futures::future::join_all((0..20).map(|_| cloud.login())).await;
    assert!(
        answers.iter().all(|answer| matches!(answer, Err(CloudError::Auth(_)))),
        "{answers:?}"
    );
    assert_eq!(stage.sim.count("issue_token"), 1);
}

#[tokio::test(start_paused = true)]
async fn revoked_token_is_renewed_once() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    stage.cloud.volume(&id).await.expect("asked");
    stage.sim.revoke_tokens();
    for answer in futures::future::join_all((0..20).map(|_| stage.cloud.volume(&id))).await {
        assert_eq!(answer.expect("asked again with a new token"), None);
    }
    assert_eq!(stage.counter.tokens.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn rejected_new_token_hints_at_access_rules() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("get_volume").effect(Effect::status(401)))
        .expect("rule");
    let error = stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("refused");
    let (text, request) = (
        error.to_string(),
        format!("GET volumes/{NOTHING} of service block-storage"),
    );
    assert!(text.contains("access rules") && text.contains(&request), "{text}");
    assert_eq!(stage.sim.count("get_volume"), 2);
}

#[tokio::test(start_paused = true)]
async fn token_is_renewed_before_expiry() {
    let stage = stage_with(SimConfig {
        token_lifetime: Duration::from_secs(3),
        ..SimConfig::default()
    })
    .await;
    let id = VolumeId::new(NOTHING);
    stage.cloud.volume(&id).await.expect("asked");
    let renewed = tokio::time::timeout(Duration::from_secs(5), async {
        while stage.counter.tokens.load(Ordering::Relaxed) < 2 {
            stage.cloud.volume(&id).await.expect("asked");
        }
    });
    renewed.await.expect("renewed in time");
    assert!(
        stage.sim.log().iter().all(|entry| entry.status != 401),
        "a token was used to its end"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_are_retried_after_503_and_disconnection() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("get_volume").times(2).effect(Effect::status(503)))
        .expect("rule");
    stage
        .sim
        .fault(Fault::on("get_volume").times(1).effect(Effect::cut(When::Before)))
        .expect("rule");
    assert_eq!(
        stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect("in the end"),
        None
    );
    assert_eq!(stage.counter.requests.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn gateway_404_proves_no_deletion() {
    let stage = stage().await;
    let (volume, server) = (stage.create("pvc-1").await.id, crate::support::ONE.into());
    let options = cinder_cloud::AttachOptions::default();
    stage.cloud.attach(&volume, &server, options).await.expect("attached");
    for operation in ["get_volume", "detach_volume", "delete_volume"] {
        let page = Fault::on(operation).times(1).effect(Effect::html(404));
        stage.sim.fault(page).expect("rule");
    }
    let existing = stage.cloud.volume(&volume).await.expect("asked again");
    assert!(existing.is_some(), "it is there");
    stage.cloud.detach(&volume, Some(&server)).await.expect("asked again");
    stage.cloud.delete_volume(&volume).await.expect("asked again");
    assert!(stage.sim.state().volumes.is_empty(), "really deleted");
}

#[tokio::test(start_paused = true)]
async fn creation_respects_retry_after() {
    let stage = stage().await;
    let busy = Effect::status(429).retry_after(1);
    stage
        .sim
        .fault(Fault::on("create_volume").times(1).effect(busy))
        .expect("rule");
    let started = tokio::time::Instant::now();
    stage.create("pvc-1").await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn long_retry_after_is_reported() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("create_volume").effect(Effect::status(429).retry_after(600)))
        .expect("rule");
    let error = stage.cloud.create_volume(new("pvc-1")).await.expect_err("throttled");
    let CloudError::Throttled { retry_after, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        retry_after,
        Some(Duration::from_mins(5)),
        "no longer than the longest pause"
    );
    let end = |stage: &Stage| stage.counter.pauses.lock().get("block-storage").copied();
    assert_eq!(end(&stage), Some(stage.options.sources.now() + Duration::from_mins(5)));
    stage
        .cloud
        .reload((*stage.cloud.config()).clone())
        .await
        .expect("the same credentials");
    assert_eq!(end(&stage), Some(stage.options.sources.now()), "the pause has ended");
}

#[tokio::test(start_paused = true)]
async fn invalid_ids_never_reach_openstack() {
    let stage = stage().await;
    let strange = VolumeId::new("../servers");
    assert_eq!(stage.cloud.volume(&strange).await.expect("not asked"), None);
    stage.cloud.delete_volume(&strange).await.expect("nothing to delete");
    stage.cloud.detach(&strange, None).await.expect("nothing to detach");
    let error = stage
        .cloud
        .attach(
            &strange,
            &crate::support::ONE.into(),
            cinder_cloud::AttachOptions::default(),
        )
        .await;
    assert!(matches!(error, Err(CloudError::NotFound { .. })), "{error:?}");
    assert!(stage.sim.log().is_empty(), "{:?}", stage.operations());
}

#[tokio::test(start_paused = true)]
async fn reload_replaces_credentials_in_same_handle() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    stage.cloud.volume(&id).await.expect("asked");
    let access = stage.sim.access();
    let conf = format!(
        "[Global]\nauth-url = {}\napplication-credential-id = {}\napplication-credential-secret = {}\nregion = RegionOne\n",
        access.auth_url, access.application_credential_id, access.application_credential_secret
    );
    let new = CloudConfig::from_cloud_conf(&conf).expect("good");
    let clone = stage.cloud.clone();
    stage.cloud.reload(new).await.expect("they log in");
    let tokens = stage.counter.tokens.load(Ordering::Relaxed);
    stage.sim.revoke_tokens();
    clone.volume(&id).await.expect("asked with the new credentials");
    assert_eq!(stage.counter.tokens.load(Ordering::Relaxed), tokens + 1);
    assert!(matches!(
        clone.config().auth,
        cinder_cloud::Auth::ApplicationCredential { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn failed_reload_retains_old_credentials() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    stage.cloud.volume(&id).await.expect("asked");
    let conf = stage
        .sim
        .access()
        .cloud_conf()
        .replace("secret-of-csi", "wrong-password");
    let wrong = CloudConfig::from_cloud_conf(&conf).expect("well-formed");
    let error = stage.cloud.reload(wrong).await.expect_err("refused");
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    stage.sim.revoke_tokens();
    stage.cloud.volume(&id).await.expect("asked with the old credentials");
}

#[tokio::test(start_paused = true)]
async fn region_change_requires_restart() {
    let stage = stage().await;
    stage.cloud.login().await.expect("logged in");
    let conf = stage.sim.access().cloud_conf().replace("RegionOne", "RegionTwo");
    let other = CloudConfig::from_cloud_conf(&conf).expect("well-formed");
    let error = stage.cloud.reload(other).await.expect_err("refused").to_string();
    assert!(error.contains("RegionTwo") && error.contains("restart"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn rejected_request_credentials_are_unauthenticated() {
    let stage = stage().await;
    let conf = stage
        .sim
        .access()
        .cloud_conf()
        .replace("secret-of-csi", "wrong-password");
    let options = CloudOptions {
        credentials_of_request: true,
        ..stage.options()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    for error in [
        cloud.login().await.expect_err("refused"),
        cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("refused"),
    ] {
        assert!(matches!(error, CloudError::Unauthenticated(_)), "{error:?}");
    }
}

async fn login_of(stage: &Stage, conf: &str) -> Result<cinder_cloud::Login, CloudError> {
    stage.cloud_with_conf(conf).login().await
}

#[tokio::test(start_paused = true)]
async fn trust_login_uses_trustors_project() {
    let stage = stage().await;
    let auth_url = &stage.sim.access().auth_url;
    let conf = |user: &str, password: &str, trust: &str| {
        format!(
            "[Global]\nauth-url={auth_url}\ntrustee-id={user}\ntrustee-password={password}\ntrust-id={trust}\nregion=RegionOne\n"
        )
    };
    let identity = SimConfig::default().identity;
    let trust = "7e57000000004000800000000000007e";
    let trustee = conf(&identity.admin_id, &identity.admin_password, trust);
    let login = login_of(&stage, &trustee).await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    let others = [
        conf(&identity.user_id, &identity.password, trust),
        conf(&identity.admin_id, &identity.admin_password, "no-trust"),
    ];
    for conf in others {
        let error = login_of(&stage, &conf).await.expect_err("no trust");
        assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn supplied_token_is_exchanged_for_project_token() {
    let stage = stage().await;
    let access = stage.sim.access();
    let body = serde_json::json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {
        "name": access.username, "password": access.password, "domain": {"name": access.domain_name},
    }}}}});
    let url = format!("{}/auth/tokens", access.auth_url.trim_end_matches('/'));
    let answer = stage.post(&url, &[], &body).await;
    let token = answer.headers()["x-subject-token"].to_str().expect("text").to_owned();
    let conf = |token: &str| {
        format!(
            "[Global]\nauth-url={}\ntoken={token}\ntenant-name={}\ndomain-name={}\n",
            access.auth_url, access.project_name, access.domain_name
        )
    };
    let login = login_of(&stage, &conf(&token)).await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    let error = login_of(&stage, &conf("gAAAA")).await.expect_err("no such token");
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn rejects_http_endpoint_of_https_keystone() {
    let stage = stage().await;
    // The network of the test ignores the scheme.
    let conf = stage.sim.access().cloud_conf().replace("http://", "https://");
    let id = VolumeId::new(NOTHING);
    let error = stage.cloud_with_conf(&conf).volume(&id).await.expect_err("refused");
    assert!(matches!(error, CloudError::InsecureEndpoint { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("block-storage") && text.contains("allow-http-endpoints"),
        "{text}"
    );
    assert_eq!(stage.sim.count("get_volume"), 0);
    let allowed = stage.cloud_with_conf(&format!("{conf}\n[Global]\nallow-http-endpoints = true\n"));
    assert_eq!(allowed.volume(&id).await.expect("sent"), None);
}
