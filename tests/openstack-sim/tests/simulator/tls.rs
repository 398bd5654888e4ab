//! The same over TLS.

use openstack_sim::{Sim, SimConfig, SimError, TlsIdentity};
use rcgen::generate_simple_self_signed;

fn identity() -> TlsIdentity {
    let made = generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    TlsIdentity {
        certificate_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    }
}

#[tokio::test]
async fn who_trusts_the_certificate_is_answered_and_who_does_not_gives_up() {
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
async fn a_key_that_is_none_is_named() {
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
