// SPDX-License-Identifier: Apache-2.0
//! The authorities of the cloud and of the proxy.

use openstack_sim::{ServerSpec, Sim, SimConfig, TlsIdentity};

use super::*;

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
        let source = CredentialSource::new("ns", &spec);
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
        .check_login(read(None).config, LoginQueries::default())
        .await
        .expect_err("unknown");
    let TrialError::Login(refused) = refused else {
        panic!("{refused:?}")
    };
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let candidate = read(Some(shown.cert.pem()));
    keystone
        .check_login(candidate.config, LoginQueries::default())
        .await
        .expect("the operator trusts it");
    let of_driver = candidate.credentials.config().expect("as the driver reads it");
    keystone
        .check_login(of_driver, LoginQueries::default())
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
