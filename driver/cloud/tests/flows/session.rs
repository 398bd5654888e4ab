//! Login, tokens, repeats, TLS.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, VolumeId};
use openstack_sim::{Effect, Fault, ServerSpec, Sim, SimConfig, TlsIdentity, When};

use crate::support::{NOTHING, new, stage, stage_with};

fn edited(stage: &crate::support::Stage, from: &str, to: &str) -> Cloud {
    let conf = stage.sim.access().cloud_conf().replace(from, to);
    Cloud::new(
        CloudConfig::from_cloud_conf(&conf).expect("good"),
        CloudOptions::default(),
    )
    .expect("a cloud")
}

#[tokio::test]
async fn a_login_by_password_tells_project_and_services() {
    let stage = stage().await;
    let login = stage.cloud.login().await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    assert!(
        login.services.iter().any(|service| service == "compute"),
        "{:?}",
        login.services
    );
}

#[tokio::test]
async fn a_login_by_application_credential_works_by_id_and_by_name() {
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
        let config = CloudConfig::from_cloud_conf(&conf).expect("good");
        let cloud = Cloud::new(config, CloudOptions::default()).expect("a cloud");
        assert_eq!(cloud.login().await.expect("logged in").project_name, "cluster", "{who}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_an_auth_error_without_the_secret() {
    let stage = stage().await;
    let cloud = edited(&stage, "secret-of-csi", "wrong-password");
    let error = cloud.login().await.expect_err("refused");
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wrong-password"), "{error:?}");
    assert!(error.request_id().is_some(), "{error:?}");
}

#[tokio::test]
async fn a_region_that_the_catalogue_lacks_is_named_with_what_there_is() {
    let stage = stage().await;
    let cloud = edited(&stage, "RegionOne", "RegionNine");
    let error = cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("no endpoint");
    assert!(matches!(error, CloudError::NoEndpoint { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("RegionNine") && text.contains("block-storage/public/RegionOne"),
        "{text}"
    );
}

#[tokio::test]
async fn block_storage_is_found_under_its_older_name() {
    let stage = stage_with(SimConfig {
        block_storage_type: "volumev3".to_owned(),
        ..SimConfig::default()
    })
    .await;
    assert_eq!(stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect("asked"), None);
}

#[tokio::test]
async fn many_callers_share_one_login() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    futures::future::join_all((0..20).map(|_| stage.cloud.volume(&id))).await;
    assert_eq!(stage.counter.tokens.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_refused_login_is_not_repeated_for_everybody_who_waited_for_it() {
    let stage = stage().await;
    let cloud = edited(&stage, "secret-of-csi", "wrong-password");
    let answers = futures::future::join_all((0..20).map(|_| cloud.login())).await;
    assert!(
        answers.iter().all(|answer| matches!(answer, Err(CloudError::Auth(_)))),
        "{answers:?}"
    );
    assert_eq!(stage.sim.count("issue_token"), 1);
}

#[tokio::test]
async fn a_revoked_token_is_renewed_once_for_all_callers() {
    let stage = stage().await;
    let id = VolumeId::new(NOTHING);
    stage.cloud.volume(&id).await.expect("asked");
    stage.sim.revoke_tokens();
    for answer in futures::future::join_all((0..20).map(|_| stage.cloud.volume(&id))).await {
        assert_eq!(answer.expect("asked again with a new token"), None);
    }
    assert_eq!(stage.counter.tokens.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_service_that_refuses_a_new_token_is_asked_no_third_time_and_access_rules_are_named() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("get_volume").effect(Effect::status(401)))
        .expect("rule");
    let error = stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("refused");
    let (told, request) = (
        error.to_string(),
        format!("GET volumes/{NOTHING} of service block-storage"),
    );
    assert!(told.contains("access rules") && told.contains(&request), "{told}");
    assert_eq!(stage.sim.count("get_volume"), 2);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
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

#[tokio::test]
async fn a_read_is_repeated_after_503_and_after_a_lost_connection() {
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

#[tokio::test]
async fn what_only_a_gateway_does_not_find_is_not_missing() {
    let stage = stage().await;
    let (volume, server) = (stage.create("pvc-1").await.id, crate::support::ONE.into());
    let options = cinder_cloud::AttachOptions::default();
    stage.cloud.attach(&volume, &server, options).await.expect("attached");
    for operation in ["get_volume", "detach_volume", "delete_volume"] {
        let page = Fault::on(operation).times(1).effect(Effect::html(404));
        stage.sim.fault(page).expect("rule");
    }
    let found = stage.cloud.volume(&volume).await.expect("asked again");
    assert!(found.is_some(), "it is there");
    stage.cloud.detach(&volume, Some(&server)).await.expect("asked again");
    stage.cloud.delete_volume(&volume).await.expect("asked again");
    assert!(stage.sim.state().volumes.is_empty(), "really deleted");
}

#[tokio::test]
async fn a_wish_to_come_back_later_is_heeded_even_for_a_creation() {
    let stage = stage().await;
    let busy = Effect::status(429).retry_after(1);
    stage
        .sim
        .fault(Fault::on("create_volume").times(1).effect(busy))
        .expect("rule");
    let started = std::time::Instant::now();
    stage.create("pvc-1").await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(stage.sim.state().volumes.len(), 1);
}

#[tokio::test]
async fn a_wish_that_is_too_long_is_an_error_with_the_wish() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("create_volume").effect(Effect::status(429).retry_after(600)))
        .expect("rule");
    let error = stage.cloud.create_volume(new("pvc-1")).await.expect_err("throttled");
    let CloudError::Throttled { retry_after, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(retry_after, Some(Duration::from_mins(10)));
}

#[tokio::test]
async fn nobody_listening_is_told_with_the_reason_and_that_nothing_was_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    drop(listener);
    let conf = format!("[Global]\nauth-url=http://{address}\nuser-id=u\npassword=p\ntenant-id=t\n");
    let options = CloudOptions {
        request_timeout: Duration::from_secs(1),
        ..CloudOptions::default()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    let error = cloud.login().await.expect_err("nobody is there");
    assert!(
        matches!(error, CloudError::Unreachable { sent: false, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().to_lowercase().contains("connection refused"),
        "{error}"
    );
}

#[tokio::test]
async fn an_id_that_is_no_uuid_never_reaches_openstack() {
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

#[tokio::test]
async fn tls_needs_the_ca_by_file_or_inline_or_the_insecure_switch() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let tls = TlsIdentity {
        certificate_pem: own.cert.pem(),
        key_pem: own.signing_key.serialize_pem(),
    };
    let servers = vec![ServerSpec::new(crate::support::ONE)];
    let sim = Sim::start(SimConfig {
        tls: Some(tls),
        servers,
        ..SimConfig::default()
    })
    .await
    .expect("the simulator starts");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("good");
    assert!(config.auth_url.starts_with("https://"), "{}", config.auth_url);
    let login = async |change: &dyn Fn(&mut CloudConfig)| {
        let mut config = config.clone();
        change(&mut config);
        let options = CloudOptions {
            request_timeout: Duration::from_secs(1),
            ..CloudOptions::default()
        };
        let cloud = Cloud::new(config, options).expect("a cloud");
        cloud.login().await.map(|_| ())
    };

    let error = login(&|_| {}).await.expect_err("an unknown issuer");
    assert!(
        matches!(error, CloudError::Unreachable { sent: false, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("certificate"), "{error}");

    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, own.cert.pem()).expect("written");
    login(&|config| config.tls.ca_file = Some(file.clone()))
        .await
        .expect("trusted by file");
    login(&|config| config.tls.ca_pem = Some(own.cert.pem()))
        .await
        .expect("trusted inline");
    login(&|config| config.tls.insecure = true).await.expect("not checked");
}

#[tokio::test]
async fn new_credentials_replace_the_old_ones_without_a_new_handle() {
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

#[tokio::test]
async fn credentials_that_do_not_log_in_leave_the_old_ones_in_use() {
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

#[tokio::test]
async fn another_region_is_another_cloud_and_needs_a_restart() {
    let stage = stage().await;
    stage.cloud.login().await.expect("logged in");
    let conf = stage.sim.access().cloud_conf().replace("RegionOne", "RegionTwo");
    let other = CloudConfig::from_cloud_conf(&conf).expect("well-formed");
    let error = stage.cloud.reload(other).await.expect_err("refused").to_string();
    assert!(error.contains("RegionTwo") && error.contains("restart"), "{error}");
}

#[tokio::test]
async fn credentials_of_a_request_are_refused_to_the_requester() {
    let stage = stage().await;
    let conf = stage
        .sim
        .access()
        .cloud_conf()
        .replace("secret-of-csi", "wrong-password");
    let options = CloudOptions {
        credentials_of_request: true,
        ..CloudOptions::default()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    for error in [
        cloud.login().await.expect_err("refused"),
        cloud.volume(&VolumeId::new(NOTHING)).await.expect_err("refused"),
    ] {
        assert!(matches!(error, CloudError::Unauthenticated(_)), "{error:?}");
    }
}

async fn login_of(conf: &str, change: impl FnOnce(&mut CloudConfig)) -> Result<cinder_cloud::Login, CloudError> {
    let mut config = CloudConfig::from_cloud_conf(conf).expect("good");
    change(&mut config);
    let options = CloudOptions {
        request_timeout: Duration::from_secs(1),
        ..CloudOptions::default()
    };
    Cloud::new(config, options).expect("a cloud").login().await
}

#[tokio::test]
async fn a_trustee_logs_in_by_a_trust_and_works_in_the_trustors_project() {
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
    let login = login_of(&trustee, |_| {}).await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    let others = [
        conf(&identity.user_id, &identity.password, trust),
        conf(&identity.admin_id, &identity.admin_password, "no-trust"),
    ];
    for conf in others {
        let error = login_of(&conf, |_| {}).await.expect_err("no trust");
        assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_token_that_somebody_else_fetched_is_exchanged_for_one_of_the_project() {
    let stage = stage().await;
    let access = stage.sim.access();
    let body = serde_json::json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {
        "name": access.username, "password": access.password, "domain": {"name": access.domain_name},
    }}}}});
    let url = format!("{}/auth/tokens", access.auth_url.trim_end_matches('/'));
    let answer = reqwest::Client::new()
        .post(url)
        .json(&body)
        .send()
        .await
        .expect("an answer");
    let token = answer.headers()["x-subject-token"].to_str().expect("text").to_owned();
    let conf = |token: &str| {
        format!(
            "[Global]\nauth-url={}\ntoken={token}\ntenant-name={}\ndomain-name={}\n",
            access.auth_url, access.project_name, access.domain_name
        )
    };
    let login = login_of(&conf(&token), |_| {}).await.expect("logged in");
    assert_eq!(login.project_name, "cluster");
    let error = login_of(&conf("gAAAA"), |_| {}).await.expect_err("no such token");
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
}

/// TLS in front of `sim`, for clients with this certificate only. Gives the address.
async fn behind_mutual_tls(sim: &Sim, server: &TlsIdentity, client_pem: &str) -> std::net::SocketAddr {
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(client_pem)).expect("a root");
    let clients = WebPkiClientVerifier::builder(roots.into()).build().expect("a verifier");
    let key = PrivateKeyDer::from_pem_slice(server.key_pem.as_bytes()).expect("a key");
    let config = ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate(&server.certificate_pem)], key)
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let behind = sim.base_url().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                // A client without the certificate gets no further.
                let Ok(mut outside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inside = tokio::net::TcpStream::connect(behind).await.expect("the simulator");
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_keystone_that_wants_a_client_certificate_gets_it() {
    let stage = stage().await;
    let own = |name: &str| {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        TlsIdentity {
            certificate_pem: own.cert.pem(),
            key_pem: own.signing_key.serialize_pem(),
        }
    };
    let (server, client) = (own("127.0.0.1"), own("csi"));
    let address = behind_mutual_tls(&stage.sim, &server, &client.certificate_pem).await;
    let access = stage.sim.access();
    let conf = access
        .cloud_conf()
        .replace(&access.base_url, &format!("https://{address}"));
    assert!(conf.contains("https://"), "{conf}");
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let (ca, cert, key) = (
        file("ca.pem", &server.certificate_pem),
        file("cert.pem", &client.certificate_pem),
        file("key.pem", &client.key_pem),
    );
    let known = format!("{conf}\n[Global]\nca-file={}\n", ca.display());
    let error = login_of(&known, |_| {}).await.expect_err("no certificate");
    assert!(matches!(error, CloudError::Unreachable { .. }), "{error:?}");
    let with = |key: &std::path::Path| format!("{known}cert-file={}\nkey-file={}\n", cert.display(), key.display());
    login_of(&with(&key), |_| {}).await.expect("logged in");

    let config = CloudConfig::from_cloud_conf(&with(&ca)).expect("well-formed");
    let error = Cloud::new(config, CloudOptions::default())
        .expect_err("no key in it")
        .to_string();
    assert!(
        error.contains("ca.pem") && error.contains("cert.pem") && !error.contains("BEGIN"),
        "{error}"
    );
}
