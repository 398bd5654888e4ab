// SPDX-License-Identifier: Apache-2.0
//! The configuration of the driver from the Secret and the spec.

use rstest::rstest;

use super::*;

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
    let candidate = CredentialSource::new("ns", &spec)
        .parse_candidate(&mk_yaml("x"), Certificates::default())
        .expect("readable");
    assert_eq!(candidate.config.region.as_deref(), Some("two"));
    assert_ne!(
        candidate.credentials.hash(),
        mk_candidate("x").expect("readable").credentials.hash()
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
    let read = |source: &CredentialSource| {
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
