// SPDX-License-Identifier: Apache-2.0

use std::{
    collections::VecDeque,
    sync::{Arc, LazyLock},
};

use cinder_cloud::{EndpointProblem, Failure};
use cinder_csi_crds::CinderCSIDriverSpec;
use cinder_csi_crds::Cloud as CloudSpec;
use cinder_operator_core::{cluster::Blockers, reasons::Degraded, record::RecordedPlace};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use openstack_sim::{ServerSpec, Sim, SimConfig, TlsIdentity};
use rstest::rstest;

use super::source::{Certificates, parted};
use super::*;

mod refusals;

const MINUTE: Duration = Duration::from_mins(1);

/// Returns prepared results of checks, and records the requests.
#[derive(Debug, Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Result<Tried, TrialError>>>>,
    requests: Arc<Mutex<Vec<Questions>>>,
    /// The existing volumes, and the number of their lists.
    existing: Arc<Mutex<(Vec<&'static str>, usize)>>,
}

fn mk_tried(project: &str, region: &str, knows_volumes: Option<bool>) -> Tried {
    Tried {
        place: mk_place(project, region),
        knows_volumes,
        state: CloudState::default(),
    }
}

fn mk_place(project: &str, region: &str) -> Place {
    Place {
        project: project.to_owned(),
        region: Some(region.to_owned()),
    }
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Result<(), CloudError>>) -> Self {
        let tried = |()| mk_tried("p", "one", None);
        let answers = answers.into_iter();
        Self::of(answers.map(|answer| answer.map(tried).map_err(TrialError::Login)))
    }

    fn of(answers: impl IntoIterator<Item = Result<Tried, TrialError>>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            ..Self::default()
        }
    }

    fn logins(&self) -> usize {
        self.requests.lock().len()
    }
}

impl Keystone for Scripted {
    fn existing(
        &self,
        _: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>> {
        let mut existing = self.existing.lock();
        existing.1 += 1;
        let found = existing.0.iter().filter(|volume| volumes.contains(**volume));
        let found = found.map(|volume| VolumeId::new(*volume)).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn try_out(&self, _: CloudConfig, questions: Questions) -> BoxFuture<'_, Result<Tried, TrialError>> {
        self.requests.lock().push(questions);
        let answer = self.answers.lock().pop_front();
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

fn mk_candidate(password: &str) -> Result<Candidate, Refused> {
    mk_source().parse_candidate(&mk_yaml(password), Certificates::default())
}

fn mk_checker(keystone: &Scripted) -> Checker {
    Checker::new(Box::new(keystone.clone()))
}

async fn check(checker: &Checker, password: &str, last_good: Option<&DriverCredentials>) -> Verdict {
    checker
        .check(
            "d",
            &mk_source(),
            mk_candidate(password),
            mk_installed(last_good.cloned(), RecordedPlace::Never),
            &mk_stakes(&FREE),
            5 * MINUTE,
        )
        .await
}

#[tokio::test(start_paused = true)]
async fn valid_credentials_are_cached_for_interval() {
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
async fn ignored_keys_are_reported() {
    let checker = mk_checker(&Scripted::new([Ok(()), Err(unauthorized("req-1"))]));
    let text = mk_yaml("good").replace("auth:", "colour: red\n    auth:");
    let mut verdicts = Vec::new();
    for password in ["good", "bad"] {
        let candidate = mk_source().parse_candidate(&text.replace("good", password), Certificates::default());
        let installed = mk_installed(None, RecordedPlace::Never);
        let (source, stakes) = (mk_source(), mk_stakes(&FREE));
        let check = checker.check("d", &source, candidate, installed, &stakes, 5 * MINUTE);
        verdicts.push(check.await);
    }
    assert!(
        verdicts[0].warnings[0].contains(".colour is not known"),
        "{:?}",
        verdicts[0].warnings
    );
    let refusal = verdicts[1].refusal.clone().expect("a refusal");
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
    let checker = mk_checker(&keystone);
    for second in 0..20 {
        let password = if second % 2 == 0 { "bad" } else { "good" };
        let verdict = check(&checker, password, None).await;
        if second == 1 {
            assert!(
                verdict.authenticated,
                "the first content after a refused one is tried at once"
            );
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(keystone.logins(), 3);
    let verdict = check(&checker, "good", None).await;
    let refusal = verdict.refusal.expect("a refusal");
    assert_eq!(refusal.reason, Refusal::LoginFailed);
    assert!(refusal.message.contains("after 2 contents"), "{}", refusal.message);
    tokio::time::advance(verdict.look_again).await;
    assert!(check(&checker, "good", None).await.authenticated);
}

#[tokio::test(start_paused = true)]
async fn rejected_credentials_do_not_replace_valid_ones() {
    let keystone = Scripted::new([Ok(()), Err(unauthorized("req-1"))]);
    let checker = mk_checker(&keystone);
    let good = check(&checker, "good", None).await.in_use.expect("accepted");
    let verdict = check(&checker, "bad", Some(&good)).await;
    assert!(!verdict.authenticated);
    assert_eq!(verdict.in_use.expect("the last good ones").hash(), good.hash());
    let refusal = verdict.refusal.expect("a reason");
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
async fn changed_secret_is_checked_immediately() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let checker = mk_checker(&keystone);
    assert!(!check(&checker, "bad", None).await.authenticated);
    assert!(check(&checker, "mended", None).await.authenticated);
}

#[tokio::test(start_paused = true)]
async fn changed_proxy_is_checked_immediately() {
    let keystone = Scripted::new([Err(unauthorized("req-1")), Ok(())]);
    let checker = mk_checker(&keystone);
    assert!(!check(&checker, "same", None).await.authenticated);
    let mut source = mk_source();
    source.proxies.https = Some("http://proxy.example.org:3128".to_owned());
    let candidate = source.parse_candidate(&mk_yaml("same"), Certificates::default());
    let verdict = checker
        .check(
            "d",
            &source,
            candidate,
            InstalledCloud::default(),
            &mk_stakes(&FREE),
            5 * MINUTE,
        )
        .await;
    assert!(verdict.authenticated);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_keystone_causes_timeout() {
    let verdict = check(&mk_checker(&Scripted::default()), "any", None).await;
    assert_eq!(verdict.refusal.expect("a reason").reason, Refusal::CloudUnreachable);
}

#[tokio::test]
async fn unreadable_secret_does_not_replace_credentials() {
    let (keystone, missing) = (
        Scripted::default(),
        Refused::new(Refusal::SecretMissing, "it is not there".to_owned()),
    );
    let good = mk_candidate("good").expect("readable").credentials;
    let verdict = mk_checker(&keystone)
        .check(
            "d",
            &mk_source(),
            Err(missing),
            mk_installed(Some(good.clone()), RecordedPlace::Never),
            &mk_stakes(&FREE),
            5 * MINUTE,
        )
        .await;
    assert_eq!(keystone.logins(), 0);
    assert_eq!(verdict.in_use.expect("the last good ones").hash(), good.hash());
}

#[rstest]
#[case::nobody_tells_when_it_can_be_read(Refusal::SecretUnreadable, FIRST_PAUSE)]
#[case::a_watch_tells_when_it_comes(Refusal::SecretMissing, 5 * MINUTE)]
#[tokio::test]
async fn unreadable_secret_is_read_again_soon(#[case] reason: Refusal, #[case] pause: Duration) {
    let candidate = Err(Refused::new(reason, "a sentence".to_owned()));
    let verdict = mk_checker(&Scripted::default())
        .check(
            "d",
            &mk_source(),
            candidate,
            InstalledCloud::default(),
            &mk_stakes(&FREE),
            5 * MINUTE,
        )
        .await;
    assert_eq!(verdict.look_again, pause);
}

#[rstest]
#[case::an_unknown_cloud(
    "clouds:\n  other:\n    auth: {auth_url: http://x}\n",
    Refusal::UnknownCloud,
    "spec.clouds[].cloudName"
)]
#[case::no_yaml(
    ": : :\n\t-",
    Refusal::SecretMalformed,
    "key clouds.yaml of Secret ns/openstack-credentials"
)]
fn malformed_credentials_are_reported_with_their_key(#[case] text: &str, #[case] reason: Refusal, #[case] part: &str) {
    let problem = mk_source()
        .parse_candidate(text, Certificates::default())
        .expect_err("not usable");
    assert_eq!(problem.reason, reason, "{}", problem.message);
    assert!(problem.message.contains(part), "{}", problem.message);
}

#[test]
fn region_of_spec_overrides_secret() {
    let spec = CloudSpec {
        region: Some("two".to_owned()),
        ..CloudSpec::from_secret("s")
    };
    let candidate = Source::new("ns", &spec)
        .parse_candidate(&mk_yaml("x"), Certificates::default())
        .expect("readable");
    assert_eq!(candidate.config.region.as_deref(), Some("two"));
    assert_ne!(
        candidate.credentials.hash(),
        mk_candidate("x").expect("readable").credentials.hash()
    );
}

/// Credentials without a region.
fn mk_regionless(password: &str) -> Result<Candidate, Refused> {
    let text = mk_yaml(password).replace("    region_name: one\n", "");
    mk_source().parse_candidate(&text, Certificates::default())
}

async fn check_regionless(checker: &Checker, password: &str, last_good: Option<&DriverCredentials>) -> Verdict {
    let candidate = mk_regionless(password);
    let recorded = last_good.and_then(DriverCredentials::place).cloned();
    let installed = mk_installed(
        last_good.cloned(),
        recorded.map_or(RecordedPlace::Never, RecordedPlace::Known),
    );
    // A first installation has no volumes to lose.
    let usage = if last_good.is_some() { &USED } else { &FREE };
    checker
        .check("d", &mk_source(), candidate, installed, &mk_stakes(usage), 5 * MINUTE)
        .await
}

fn region_of(credentials: &DriverCredentials) -> Option<String> {
    credentials.config().expect("readable").region
}

#[tokio::test(start_paused = true)]
async fn accepted_region_is_written_into_driver_configuration() {
    let keystone = Scripted::of([Ok(mk_tried("p", "one", None)), Ok(mk_tried("p", "one", None))]);
    let checker = mk_checker(&keystone);
    let used = check_regionless(&checker, "a", None).await.in_use.expect("accepted");
    assert_eq!(region_of(&used).as_deref(), Some("one"));
    // The same Secret is checked again, also after a restart of the operator.
    for checker in [checker, mk_checker(&keystone)] {
        let verdict = check_regionless(&checker, "a", Some(&used)).await;
        assert!(!verdict.is_changed && verdict.refusal.is_none());
        assert_eq!(verdict.in_use.expect("the same").hash(), used.hash());
    }
    assert_eq!(keystone.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn region_is_added_to_credentials_written_without_it() {
    let keystone = Scripted::of([Ok(mk_tried("p", "one", None))]);
    let checker = mk_checker(&keystone);
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
    let used = check_regionless(&checker, "a", Some(&old))
        .await
        .in_use
        .expect("accepted");
    assert_eq!(region_of(&used).as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn rotated_credentials_default_to_recorded_region() {
    let keystone = Scripted::of([Ok(mk_tried("p", "one", None)), Ok(mk_tried("p", "one", None))]);
    let checker = mk_checker(&keystone);
    let used = check_regionless(&checker, "a", None).await.in_use.expect("accepted");
    let rotated = check_regionless(&checker, "b", Some(&used))
        .await
        .in_use
        .expect("accepted");
    assert_eq!(region_of(&rotated).as_deref(), Some("one"));
    let defaults: Vec<_> = keystone
        .requests
        .lock()
        .iter()
        .map(|questions| questions.default_region.clone())
        .collect();
    assert_eq!(defaults, [None, Some("one".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn rejects_rotated_credentials_of_other_region() {
    let keystone = Scripted::of([Ok(mk_tried("p", "one", None)), Ok(mk_tried("p", "two", None))]);
    let checker = mk_checker(&keystone);
    let used = check_regionless(&checker, "a", None).await.in_use.expect("accepted");
    let verdict = check_regionless(&checker, "b", Some(&used)).await;
    assert_eq!(verdict.refusal.expect("refused").reason, Refusal::ProjectChanged);
    assert_eq!(verdict.in_use.expect("the last good ones").hash(), used.hash());
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
    let source = Source::new("ns", &spec);
    let conf = sim.access().cloud_conf().replace("region = \"RegionOne\"\n", "");
    let try_out = async |default_region: Option<&str>| {
        let candidate = source
            .parse_candidate(&conf, Certificates::default())
            .expect("readable");
        let questions = Questions {
            services: true,
            default_region: default_region.map(str::to_owned),
            ..Questions::default()
        };
        let keystone = RealKeystone {
            options: CloudOptions::default(),
        };
        keystone.try_out(candidate.config, questions).await
    };
    let refusal = source.refused("http://keystone", &try_out(None).await.expect_err("ambiguous"));
    assert_eq!(refusal.reason, Refusal::RegionAmbiguous);
    for part in ["RegionOne, RegionZero", "region_name", "spec.clouds[].region"] {
        assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
    }
    let tried = try_out(Some("RegionOne")).await.expect("the recorded region");
    assert_eq!(tried.place.region.as_deref(), Some("RegionOne"));
    let missing = try_out(Some("RegionNine")).await.expect_err("no such region");
    assert_eq!(
        source.refused("http://keystone", &missing).reason,
        Refusal::EndpointMissing
    );
}

#[test]
fn options_of_spec_override_secret() {
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
            .parse_candidate(&mk_yaml("x"), Certificates::default())
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
fn bundle_contains_authorities_of_cloud_and_proxy() {
    let bundle = |ca: Option<&str>, proxy_ca: Option<&str>| {
        let certificates = Certificates {
            ca: ca.map(str::to_owned),
            proxy_ca: proxy_ca.map(str::to_owned),
            client: None,
        };
        let candidate = mk_source()
            .parse_candidate(&mk_yaml("x"), certificates)
            .expect("readable");
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
async fn certificate_of_intercepting_proxy_is_trusted() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mk_certificate = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (shown, other) = (mk_certificate(), mk_certificate());
    // A client receives the proxy's certificate in place of the cloud's own.
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
            .parse_candidate(&sim.access().cloud_conf(), certificates)
            .expect("readable")
    };
    let keystone = RealKeystone {
        options: CloudOptions {
            request_timeout: Duration::from_secs(2),
            ..CloudOptions::default()
        },
    };

    let refused = keystone
        .try_out(read(None).config, Questions::default())
        .await
        .expect_err("unknown");
    let TrialError::Login(refused) = refused else {
        panic!("{refused:?}")
    };
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let candidate = read(Some(shown.cert.pem()));
    keystone
        .try_out(candidate.config, Questions::default())
        .await
        .expect("the operator trusts it");
    let of_driver = candidate.credentials.config().expect("as the driver reads it");
    keystone
        .try_out(of_driver, Questions::default())
        .await
        .expect("the driver trusts it");
}

#[test]
fn proxy_authorities_do_not_replace_missing_ca_file() {
    let text = mk_yaml("x").replace("    region_name", "    cacert: /etc/ca.pem\n    region_name");
    let certificates = Certificates {
        proxy_ca: Some("proxy".to_owned()),
        ..Certificates::default()
    };
    let refusal = mk_source()
        .parse_candidate(&text, certificates)
        .expect_err("no such file");
    assert_eq!(refusal.reason, Refusal::CABundleMissing);
}

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";

/// Returns the same usage each time.
struct Fixed(LazyLock<Usage>);

impl UsageQuery for Fixed {
    fn usage(&self) -> BoxFuture<'_, &Usage> {
        Box::pin(std::future::ready(&*self.0))
    }
}

/// Nothing needs the driver.
static FREE: Fixed = Fixed(LazyLock::new(Usage::default));

/// A driver with a volume.
static USED: Fixed = Fixed(LazyLock::new(|| Usage {
    blockers: Blockers {
        volumes: vec!["pv1".to_owned()],
        ..Blockers::default()
    },
    volumes: Arc::new(BTreeSet::from([VOLUME.to_owned()])),
    failure: None,
}));

/// A driver with a snapshot.
static SNAPSHOT: Fixed = Fixed(LazyLock::new(|| Usage {
    blockers: Blockers {
        snapshots: vec!["s1".to_owned()],
        ..Blockers::default()
    },
    ..Usage::default()
}));

/// A driver whose usage is unknown.
static UNKNOWN: Fixed = Fixed(LazyLock::new(|| Usage {
    failure: Some("cannot list volumesnapshotcontents".to_owned()),
    ..Usage::default()
}));

fn mk_stakes(query: &Fixed) -> Stakes<'_> {
    Stakes {
        query,
        uid: "the-uid".to_owned(),
        may_move: false,
        places: Vec::new(),
    }
}

fn mk_installed(credentials: Option<DriverCredentials>, place: RecordedPlace) -> InstalledCloud {
    InstalledCloud { credentials, place }
}

fn mk_recorded(place: Option<Place>) -> RecordedPlace {
    place.map_or_else(|| RecordedPlace::Unknown("it is lost".to_owned()), RecordedPlace::Known)
}

/// Checks credentials for the project of `tried`, while the driver's own belong to `recorded`.
async fn judged(recorded: Option<Place>, tried: Tried, stakes: &Stakes<'_>) -> (Verdict, Vec<Questions>) {
    let keystone = Scripted::of([Ok(tried.clone()), Ok(tried)]);
    let own = mk_candidate("own").expect("credentials").credentials;
    let own = recorded.clone().map_or(own.clone(), |place| own.at(place));
    let installed = mk_installed(Some(own), mk_recorded(recorded));
    let verdict = mk_checker(&keystone)
        .check("d", &mk_source(), mk_candidate("other"), installed, stakes, 5 * MINUTE)
        .await;
    let requests = keystone.requests.lock().clone();
    (verdict, requests)
}

#[rstest]
#[case::the_same(Some(mk_place("p", "one")), mk_tried("p", "one", None), None)]
#[case::another_project(
    Some(mk_place("p", "one")),
    mk_tried("q", "one", None),
    Some(Refusal::ProjectChanged)
)]
#[case::another_region(
    Some(mk_place("p", "one")),
    mk_tried("p", "two", None),
    Some(Refusal::ProjectChanged)
)]
#[case::never_recorded_and_a_volume_is_there(None, mk_tried("q", "one", Some(true)), None)]
#[case::never_recorded_and_no_volume_is_there(None, mk_tried("q", "one", Some(false)), Some(Refusal::ProjectChanged))]
#[case::never_recorded_and_lookup_without_answer(None, mk_tried("q", "one", None), Some(Refusal::ProjectChanged))]
#[tokio::test(start_paused = true)]
async fn rejects_credentials_of_other_project_with_volumes(
    #[case] recorded: Option<Place>,
    #[case] tried: Tried,
    #[case] refused: Option<Refusal>,
) {
    let (verdict, _) = judged(recorded.clone(), tried.clone(), &mk_stakes(&USED)).await;
    assert_eq!(verdict.refusal.as_ref().map(|refusal| refusal.reason), refused);
    let used = verdict.in_use.expect("something is always in use");
    let is_own = used
        .config()
        .is_some_and(|config| config.to_cloud_conf(None).contains("own"));
    assert_eq!(is_own, refused.is_some());
    if let Some(refusal) = verdict.refusal {
        let text = refusal.message;
        assert!(
            text.contains(MOVE_PROJECT) && text.contains("the-uid") && text.contains(&tried.place.project),
            "{text}"
        );
    }

    let confirmed = Stakes {
        may_move: true,
        ..mk_stakes(&USED)
    };
    for stakes in [mk_stakes(&FREE), confirmed] {
        let (verdict, _) = judged(recorded.clone(), tried.clone(), &stakes).await;
        let used = verdict.in_use.expect("accepted");
        assert_eq!((verdict.refusal, used.place()), (None, Some(&tried.place)));
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_are_requested_only_without_recorded_project() {
    let same = || mk_tried("p", "one", None);
    let (_, requests) = judged(Some(mk_place("p", "one")), same(), &mk_stakes(&USED)).await;
    assert_eq!(
        requests,
        [Questions {
            services: true,
            ..Questions::default()
        }]
    );
    let (_, requests) = judged(None, same(), &mk_stakes(&USED)).await;
    assert_eq!(
        requests[1..],
        [Questions {
            services: false,
            volumes: vec![VolumeId::new(VOLUME)],
            ..Questions::default()
        }]
    );
}

#[rstest]
#[case::another_project_beside_snapshot(Some("p"), &SNAPSHOT, false)]
#[case::another_project_beside_unknown_usage(Some("p"), &UNKNOWN, false)]
#[case::lost_record_beside_snapshot(None, &SNAPSHOT, false)]
#[case::lost_record_beside_unknown_usage(None, &UNKNOWN, false)]
#[case::lost_record_of_unused_driver(None, &FREE, true)]
#[tokio::test(start_paused = true)]
async fn unknown_usage_or_project_is_rejected(
    #[case] recorded: Option<&str>,
    #[case] usage: &Fixed,
    #[case] is_accepted: bool,
) {
    let recorded = recorded.map(|project| mk_place(project, "one"));
    let tried = mk_tried("q", "one", Some(true));
    let (verdict, requests) = judged(recorded, tried, &mk_stakes(usage)).await;
    assert_eq!(verdict.refusal.is_none(), is_accepted, "{:?}", verdict.refusal);
    assert_eq!(requests.len(), 1, "there is no volume to look up");
}

#[tokio::test(start_paused = true)]
async fn unknown_region_is_confirmed_by_volumes() {
    let recorded = Place {
        project: "p".to_owned(),
        region: None,
    };
    for (knows, is_accepted) in [(true, true), (false, false)] {
        let tried = mk_tried("p", "one", Some(knows));
        let (verdict, _) = judged(Some(recorded.clone()), tried, &mk_stakes(&USED)).await;
        assert_eq!(verdict.refusal.is_none(), is_accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn cached_trial_does_not_admit_after_lost_record() {
    let other = mk_tried("q", "one", None);
    let keystone = Scripted::of([Ok(other.clone()), Ok(mk_tried("q", "one", Some(false)))]);
    let checker = mk_checker(&keystone);
    let stakes = mk_stakes(&USED);
    for place in [Some(mk_place("p", "one")), None, None] {
        let installed = mk_installed(None, mk_recorded(place));
        let verdict = checker
            .check("d", &mk_source(), mk_candidate("other"), installed, &stakes, 5 * MINUTE)
            .await;
        assert_eq!(
            verdict.refusal.map(|refusal| refusal.reason),
            Some(Refusal::ProjectChanged)
        );
    }
    assert_eq!(keystone.logins(), 2, "the lookup that found nothing is used again");
}

#[tokio::test(start_paused = true)]
async fn all_volumes_are_listed_after_failed_lookups() {
    let usage = Fixed(LazyLock::new(|| Usage {
        volumes: Arc::new((0..10).map(|number| format!("volume-{number}")).collect()),
        ..USED.0.clone()
    }));
    for (existing, is_accepted) in [("volume-9", true), ("another", false)] {
        let none = mk_tried("q", "one", Some(false));
        let keystone = Scripted::of([Ok(none.clone()), Ok(none)]);
        keystone.existing.lock().0 = vec![existing];
        let installed = mk_installed(None, mk_recorded(None));
        let verdict = mk_checker(&keystone)
            .check(
                "d",
                &mk_source(),
                mk_candidate("other"),
                installed,
                &mk_stakes(&usage),
                5 * MINUTE,
            )
            .await;
        assert_eq!(verdict.refusal.is_none(), is_accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn present_credentials_are_checked_and_recorded() {
    let keystone = Scripted::of([Ok(mk_tried("p", "renamed", None))]);
    let own = mk_candidate("own").expect("credentials").credentials;
    let checker = mk_checker(&keystone);
    let own = own.at(mk_place("p", "one"));
    let verdict = checker
        .check(
            "d",
            &mk_source(),
            mk_candidate("own"),
            mk_installed(Some(own), mk_recorded(Some(mk_place("p", "one")))),
            &mk_stakes(&USED),
            5 * MINUTE,
        )
        .await;
    assert_eq!(
        verdict.refusal, None,
        "a region that got another name does not lock the driver out"
    );
    assert_eq!(verdict.in_use.expect("its own").place(), Some(&mk_place("p", "one")));
    assert_eq!(
        *keystone.requests.lock(),
        [Questions {
            services: true,
            ..Questions::default()
        }]
    );
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
    let verdict = check(&mk_checker(&keystone), "other", Some(&own)).await;
    let refusal = verdict.refusal.expect("refused");
    assert_eq!(refusal.reason, reason);
    assert!(
        refusal.message.contains(word) && refusal.message.contains("log"),
        "{}",
        refusal.message
    );
    assert_eq!(verdict.in_use.expect("its own").hash(), own.hash());
}

#[tokio::test(start_paused = true)]
async fn revoked_application_credential_is_rejected() {
    let fault = format!("Could not find Application Credential: {}.", "c1d2".repeat(25_000));
    let keystone = Scripted::new([Err(CloudError::Auth(failure(Some(404), &fault, "r")))]);
    let refusal = check(&mk_checker(&keystone), "gone", None)
        .await
        .refusal
        .expect("refused");
    assert_eq!(refusal.reason, Refusal::CredentialsRejected);
    assert!(refusal.message.contains("HTTP 404: Could not find") && refusal.message.len() < 1_000);
}

#[rstest]
#[case::has_a_volume(&[VOLUME], Some(Degraded::CloudInUse))]
#[case::has_none(&[], None)]
#[case::has_those_of_others(&["another"], None)]
#[tokio::test(start_paused = true)]
async fn cloud_with_volumes_is_retained(#[case] existing: &[&'static str], #[case] reason: Option<Degraded>) {
    let keystone = Scripted::default();
    keystone.existing.lock().0 = existing.to_vec();
    let checker = mk_checker(&keystone);
    let accepted = mk_candidate("own").expect("credentials").credentials;
    let stakes = mk_stakes(&USED);
    for _ in 0..3 {
        let refusal = checker.must_stay("d", "west", &accepted, &USED.0, &stakes).await;
        assert_eq!(refusal.as_ref().map(|refusal| refusal.reason), reason);
        if let Some(refusal) = refusal {
            let text = refusal.message;
            assert!(
                text.contains("west") && text.contains(VOLUME) && text.contains(MOVE_PROJECT),
                "{text}"
            );
        }
    }
    assert_eq!(keystone.existing.lock().1, 1, "the list is long");
    tokio::time::advance(LOOKUP_LIFETIME).await;
    checker.must_stay("d", "west", &accepted, &USED.0, &stakes).await;
    assert_eq!(keystone.existing.lock().1, 2);
}

#[test]
fn node_region_overrides_catalogue_region() {
    let mut source = mk_source();
    source.spec.node_region = Some("west".to_owned());

    let config = source
        .parse_candidate(&mk_yaml("p"), Certificates::default())
        .expect("good")
        .config;

    assert_eq!(config.topology.segments["topology.kubernetes.io/region"], "west");
    assert_eq!(config.region.as_deref(), Some("one"));
    assert!(
        config
            .to_named_sections("w", None)
            .contains("topology.kubernetes.io/region=west")
    );
}
