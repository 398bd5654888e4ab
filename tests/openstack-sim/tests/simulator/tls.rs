// SPDX-License-Identifier: Apache-2.0
//! Tests of TLS.

use openstack_sim::{Sim, SimConfig, SimError, TlsIdentity};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, generate_simple_self_signed};

fn identity() -> TlsIdentity {
    let made = generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    TlsIdentity {
        certificate_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    }
}

#[tokio::test]
async fn only_clients_that_trust_certificate_connect() {
    let tls = identity();
    let trusted = reqwest::Certificate::from_pem(tls.certificate_pem.as_bytes()).unwrap();
    let sim = Sim::start(SimConfig {
        tls: Some(tls),
        ..SimConfig::default()
    })
    .await
    .unwrap();
    assert!(sim.auth_url().starts_with("https://127.0.0.1:"));
    let client = reqwest::Client::builder()
        .no_proxy()
        .add_root_certificate(trusted)
        .build()
        .unwrap();
    let answer = client.get(sim.auth_url()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(text.contains(sim.base_url()), "links are https too: {text}");
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(stranger.get(sim.auth_url()).send().await.is_err());
}

#[tokio::test]
async fn rejects_and_names_invalid_key() {
    let tls = TlsIdentity {
        key_pem: "nonsense".to_owned(),
        ..identity()
    };
    let refused = Sim::start(SimConfig {
        tls: Some(tls),
        ..SimConfig::default()
    })
    .await;
    assert!(
        matches!(&refused, Err(SimError::Listen(error)) if error.to_string().starts_with("the TLS key is not PEM"))
    );
}

#[tokio::test]
async fn refuses_clients_without_certificate() {
    let (authority_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec!["csi".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&client_key, &issuer).unwrap();
    let tls = identity();
    let trusted = reqwest::Certificate::from_pem(tls.certificate_pem.as_bytes()).unwrap();
    let sim = Sim::start(SimConfig {
        tls: Some(tls),
        client_ca_pem: Some(ca_pem),
        ..SimConfig::default()
    })
    .await
    .unwrap();
    let builder = || {
        reqwest::Client::builder()
            .no_proxy()
            .add_root_certificate(trusted.clone())
    };
    let own = format!("{}{}", certificate.pem(), client_key.serialize_pem());
    let own = reqwest::Identity::from_pem(own.as_bytes()).unwrap();
    let known = builder().identity(own).build().unwrap();
    assert_eq!(known.get(sim.auth_url()).send().await.unwrap().status(), 200);
    let stranger = builder().build().unwrap();
    assert!(stranger.get(sim.auth_url()).send().await.is_err());
}
