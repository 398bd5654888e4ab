use std::{collections::VecDeque, sync::Arc};

use cinder_cloud::Failure;
use cinder_csi_crds::CinderCSIDriverSpec;
use cinder_csi_crds::Cloud as CloudSpec;
use csi_sources::Sources;
use openstack_sim::{ServerSpec, Sim, SimConfig, TlsIdentity};
use rstest::rstest;

use super::source::{Certificates, parted, problem};
use super::*;

const MINUTE: Duration = Duration::from_mins(1);

/// Answers logins from a list and counts them.
#[derive(Debug, Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Result<(), CloudError>>>>,
    logins: Arc<Mutex<usize>>,
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Result<(), CloudError>>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            logins: Arc::default(),
        }
    }

    fn logins(&self) -> usize {
        *self.logins.lock().expect("no poison")
    }
}

impl Keystone for Scripted {
    fn login(&self, _: CloudConfig) -> BoxFuture<'_, Result<(), CloudError>> {
        *self.logins.lock().expect("no poison") += 1;
        let answer = self.answers.lock().expect("no poison").pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn failure(status: Option<u16>, fault: &str, request_id: &str) -> Failure {
    Failure {
        operation: "token_create",
        object: String::new(),
        status,
        fault: fault.to_owned(),
        request_id: Some(request_id.to_owned()),
        elapsed: Duration::from_millis(7),
    }
}

fn unauthorized(request_id: &str) -> CloudError {
    CloudError::Auth(failure(
        Some(401),
        "The request you have made requires authentication.",
        request_id,
    ))
}

fn mk_source() -> Source {
    Source::new("ns", &CloudSpec::from_secret("openstack-credentials"))
}

fn mk_yaml(password: &str) -> String {
    format!(
        "clouds:\n  openstack:\n    auth:\n      auth_url: https://keystone.example.org/v3\n      username: csi\n      \
         password: {password}\n      user_domain_name: Default\n      project_name: p\n      project_domain_name: Default\n    \
         region_name: one\n"
    )
}

fn mk_candidate(password: &str) -> Result<Candidate, Problem> {
    mk_source().understand(&mk_yaml(password), Certificates::default())
}

fn mk_checker(keystone: &Scripted) -> Checker {
    Checker::new(Box::new(keystone.clone()), &Sources::system())
}

async fn check(checker: &Checker, password: &str, last_good: Option<&DriverCredentials>) -> Verdict {
    checker
        .check(
            "d",
            &mk_source(),
            mk_candidate(password),
            last_good.cloned(),
            5 * MINUTE,
        )
        .await
}

#[tokio::test(start_paused = true)]
async fn good_credentials_are_used_and_not_tried_again_before_the_interval() {
    let keystone = Scripted::new([Ok(()), Ok(())]);
    let checker = mk_checker(&keystone);
    let verdict = check(&checker, "good", None).await;
    assert!(verdict.authenticated && verdict.in_use.is_some() && verdict.refusal.is_none());
    assert_eq!(verdict.look_again, 5 * MINUTE);
    tokio::time::advance(4 * MINUTE).await;
    assert_eq!(check(&checker, "good", None).await.look_again, MINUTE);
    assert_eq!(keystone.logins(), 1);
    tokio::time::advance(MINUTE).await;
    check(&checker, "good", None).await;
    assert_eq!(keystone.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_leave_the_last_good_ones_in_use_and_say_where_they_are() {
    let keystone = Scripted::new([Ok(()), Err(unauthorized("req-1"))]);
    let checker = mk_checker(&keystone);
    let good = check(&checker, "good", None).await.in_use.expect("accepted");
    let verdict = check(&checker, "bad", Some(&good)).await;
    assert!(!verdict.authenticated);
    assert_eq!(verdict.in_use.expect("the last good ones").hash(), good.hash());
    let refusal = verdict.refusal.expect("a reason");
    assert_eq!(refusal.reason, "CredentialsRejected");
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
async fn a_failure_is_tried_again_with_growing_pauses_and_one_sentence() {
    let again = (1..=3).map(|n| Err(unauthorized(&format!("req-{n}"))));
    let keystone = Scripted::new(again);
    let checker = mk_checker(&keystone);
    let mut sentences = Vec::new();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let verdict = check(&checker, "bad", None).await;
        sentences.push(verdict.refusal.expect("a reason").message);
        pauses.push(verdict.look_again.as_secs());
        assert_eq!(
            check(&checker, "bad", None).await.look_again,
            verdict.look_again,
            "asked in between: no login"
        );
        tokio::time::advance(verdict.look_again).await;
    }
    assert_eq!(pauses, [10, 20, 40]);
    assert_eq!(keystone.logins(), 3);
    sentences.dedup();
    assert_eq!(sentences.len(), 1, "{sentences:?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_secret_is_tried_at_once() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let checker = mk_checker(&keystone);
    assert!(!check(&checker, "bad", None).await.authenticated);
    assert!(check(&checker, "mended", None).await.authenticated);
}

#[tokio::test(start_paused = true)]
async fn another_way_to_the_cloud_is_tried_at_once() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let checker = mk_checker(&keystone);
    assert!(!check(&checker, "same", None).await.authenticated);
    let mut source = mk_source();
    source.proxies.https = Some("http://proxy.example.org:3128".to_owned());
    let candidate = source.understand(&mk_yaml("same"), Certificates::default());
    let verdict = checker.check("d", &source, candidate, None, 5 * MINUTE).await;
    assert!(verdict.authenticated);
}

#[tokio::test(start_paused = true)]
async fn a_keystone_that_hangs_is_given_up() {
    let verdict = check(&mk_checker(&Scripted::default()), "any", None).await;
    assert_eq!(verdict.refusal.expect("a reason").reason, "CloudUnreachable");
}

#[tokio::test]
async fn what_cannot_be_read_is_not_tried_and_harms_nothing() {
    let (keystone, missing) = (
        Scripted::default(),
        problem("SecretMissing", "it is not there".to_owned()),
    );
    let good = mk_candidate("good").expect("readable").credentials;
    let verdict = mk_checker(&keystone)
        .check("d", &mk_source(), Err(missing), Some(good.clone()), 5 * MINUTE)
        .await;
    assert_eq!(keystone.logins(), 0);
    assert_eq!(verdict.in_use.expect("the last good ones").hash(), good.hash());
}

#[rstest]
#[case::nobody_tells_when_it_can_be_read("SecretUnreadable", FIRST_PAUSE)]
#[case::a_watch_tells_when_it_comes("SecretMissing", 5 * MINUTE)]
#[tokio::test]
async fn what_could_not_be_read_is_read_again_soon(#[case] reason: &'static str, #[case] pause: Duration) {
    let candidate = Err(problem(reason, "a sentence".to_owned()));
    let verdict = mk_checker(&Scripted::default())
        .check("d", &mk_source(), candidate, None, 5 * MINUTE)
        .await;
    assert_eq!(verdict.look_again, pause);
}

#[rstest]
#[case::an_unknown_cloud(
    "clouds:\n  other:\n    auth: {auth_url: http://x}\n",
    "UnknownCloud",
    "spec.clouds[].cloudName"
)]
#[case::no_yaml(
    ": : :\n\t-",
    "SecretMalformed",
    "key clouds.yaml of Secret ns/openstack-credentials"
)]
fn what_cannot_be_understood_is_named_with_the_place_to_mend(
    #[case] text: &str,
    #[case] reason: &str,
    #[case] part: &str,
) {
    let problem = mk_source()
        .understand(text, Certificates::default())
        .expect_err("not usable");
    assert_eq!(problem.reason, reason, "{}", problem.message);
    assert!(problem.message.contains(part), "{}", problem.message);
}

#[test]
fn a_region_of_the_spec_goes_before_that_of_the_secret() {
    let spec = CloudSpec {
        region: Some("two".to_owned()),
        ..CloudSpec::from_secret("s")
    };
    let candidate = Source::new("ns", &spec)
        .understand(&mk_yaml("x"), Certificates::default())
        .expect("readable");
    assert_eq!(candidate.config.region.as_deref(), Some("two"));
    assert_ne!(
        candidate.credentials.hash(),
        mk_candidate("x").expect("readable").credentials.hash()
    );
}

#[test]
fn what_the_spec_says_of_cinder_and_of_proxies_goes_before_the_secret() {
    let mut driver = CinderCSIDriverSpec::new(vec![CloudSpec::from_secret("s")]);
    driver.block_storage.ignore_volume_az = Some(true);
    driver.block_storage.node_volume_attach_limit = Some(20);
    driver.proxy = Some(cinder_csi_crds::Proxy {
        https_proxy: Some("http://proxy.example.org:3128".to_owned()),
        no_proxy: vec!["a.example.org".to_owned(), "10.0.0.0/8".to_owned()],
        ..cinder_csi_crds::Proxy::default()
    });
    let read = |source: &Source| {
        source
            .understand(&mk_yaml("x"), Certificates::default())
            .expect("readable")
            .config
    };

    let (usual, chosen) = (read(&mk_source()), read(&mk_source().with_options_of(&driver)));

    assert!(usual.block_storage.rescan_on_resize && !usual.block_storage.ignore_volume_az);
    assert!(chosen.block_storage.ignore_volume_az);
    assert_eq!(chosen.block_storage.node_volume_attach_limit, Some(20));
    assert_eq!(usual.proxies, cinder_cloud::config::Proxies::default());
    assert_eq!(chosen.proxies.https.as_deref(), Some("http://proxy.example.org:3128"));
    assert_eq!(chosen.proxies.direct, "a.example.org,10.0.0.0/8");
}

#[test]
fn the_authorities_of_the_proxy_are_trusted_beside_those_of_the_cloud() {
    let bundle = |ca: Option<&str>, proxy_ca: Option<&str>| {
        let certificates = Certificates {
            ca: ca.map(str::to_owned),
            proxy_ca: proxy_ca.map(str::to_owned),
            client: None,
        };
        let candidate = mk_source().understand(&mk_yaml("x"), certificates).expect("readable");
        (candidate.config.tls.ca_pem, candidate.credentials.hash().to_owned())
    };
    let (both, hash) = bundle(Some("cloud"), Some("proxy"));
    assert_eq!(parted(&both.expect("both")), ("cloud\n", "proxy"));
    assert_eq!(parted(&bundle(None, Some("proxy")).0.expect("one")), ("", "proxy"));
    assert_eq!(bundle(Some("cloud"), None).0.as_deref(), Some("cloud"));
    assert_eq!(bundle(None, None).0, None);
    assert_ne!(
        bundle(Some("cloud"), Some("another")).1,
        hash,
        "others are new credentials, which the driver takes over"
    );
}

#[tokio::test]
async fn what_a_proxy_that_looks_into_tls_shows_is_trusted_by_operator_and_driver() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (shown, other) = (made(), made());
    // Instead of the cloud's own certificate a client sees the proxy's.
    let sim = Sim::start(SimConfig {
        tls: Some(TlsIdentity {
            certificate_pem: shown.cert.pem(),
            key_pem: shown.signing_key.serialize_pem(),
        }),
        servers: vec![ServerSpec::new("11111111-1111-4111-8111-111111111111")],
        ..SimConfig::default()
    });
    let sim = sim.await.expect("the simulator starts");
    let mut spec = CloudSpec::from_secret("s");
    spec.credentials_secret_ref.key = "cloud.conf".to_owned();
    let read = |proxy_ca| {
        let certificates = Certificates {
            ca: Some(other.cert.pem()),
            proxy_ca,
            client: None,
        };
        let source = Source::new("ns", &spec);
        source
            .understand(&sim.access().cloud_conf(), certificates)
            .expect("readable")
    };
    let keystone = RealKeystone {
        options: CloudOptions {
            request_timeout: Duration::from_secs(2),
            ..CloudOptions::default()
        },
    };

    let refused = keystone.login(read(None).config).await.expect_err("unknown");
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let candidate = read(Some(shown.cert.pem()));
    keystone.login(candidate.config).await.expect("the operator trusts it");
    let of_driver = candidate.credentials.config().expect("as the driver reads it");
    keystone.login(of_driver).await.expect("the driver trusts it");
}

#[test]
fn authorities_of_the_proxy_do_not_stand_for_a_file_that_the_credentials_name() {
    let text = mk_yaml("x").replace("    region_name", "    cacert: /etc/ca.pem\n    region_name");
    let certificates = Certificates {
        proxy_ca: Some("proxy".to_owned()),
        ..Certificates::default()
    };
    let refusal = mk_source().understand(&text, certificates).expect_err("no such file");
    assert_eq!(refusal.reason, "CABundleMissing");
}

#[tokio::test(start_paused = true)]
async fn the_hash_of_a_password_is_another_in_every_cluster_and_stays_when_the_operator_starts_anew() {
    let keystone = Scripted::new([Ok(()), Ok(()), Ok(())]);
    let first = check(&mk_checker(&keystone), "good", None)
        .await
        .in_use
        .expect("accepted");
    let restarted = check(&mk_checker(&keystone), "good", Some(&first)).await;
    assert_eq!(restarted.in_use.expect("accepted").hash(), first.hash());
    let elsewhere = check(&mk_checker(&keystone), "good", None).await;
    assert_ne!(elsewhere.in_use.expect("accepted").hash(), first.hash());
}
