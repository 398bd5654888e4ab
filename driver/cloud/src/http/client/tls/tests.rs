// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm, date_time_ymd,
};
use rstest::rstest;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use super::*;
use crate::error::TlsProblem;

const NAME: &str = "keystone.test";
const ADDRESS: &str = "192.0.2.7";
/// 2030-01-01.
const NOW: Duration = Duration::from_hours(525_960);
const BEFORE: Duration = Duration::from_hours(475_960);
const AFTER: Duration = Duration::from_hours(625_960);

/// Output of `openssl req -x509 -newkey … -days 36500 -subj /CN=keystone.test -addext
/// subjectAltName=DNS:keystone.test,IP:192.0.2.7`, because ring generates no such keys.
const RSA_2048: &str = include_str!("fixtures/rsa_ca.pem");
/// The same with `-addext basicConstraints=critical,CA:FALSE -addext keyUsage=digitalSignature,keyEncipherment`.
const RSA_SERVER: &str = include_str!("fixtures/rsa_server.pem");
const P521: &str = include_str!("fixtures/p521.pem");
/// An authority with a P-521 key, and a certificate with a P-256 key that it signed.
const P521_AUTHORITY: &str = include_str!("fixtures/p521_ca.pem");
const SIGNED_WITH_P521: &str = include_str!("fixtures/p521_leaf.pem");

fn params(is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::new(vec![NAME.to_owned(), ADDRESS.to_owned()]).expect("names");
    params.is_ca = is_ca;
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2036, 1, 1);
    params
}

fn ca() -> IsCa {
    IsCa::Ca(BasicConstraints::Unconstrained)
}

fn self_signed(params: &CertificateParams, algorithm: &'static SignatureAlgorithm) -> String {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    params.self_signed(&key).expect("a certificate").pem()
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = params(ca());
    params.subject_alt_names.clear();
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn signed_by(authority: &CertifiedIssuer<'_, KeyPair>) -> String {
    let key = KeyPair::generate().expect("a key");
    let certificate = params(IsCa::NoCa).signed_by(&key, authority);
    certificate.expect("a certificate").pem()
}

fn tls(ca_pem: &str) -> Tls {
    Tls {
        ca_pem: Some(ca_pem.to_owned()),
        ..Tls::default()
    }
}

fn insecure() -> Tls {
    Tls {
        insecure: true,
        ..Tls::default()
    }
}

/// Verifies a server certificate, optionally with intermediate authorities, as a client with this configuration.
fn verify(tls: &Tls, chain: &str, name: &str, now: Duration) -> Result<(), TlsProblem> {
    let verifier = ServerVerifier::new(tls, &Arc::new(ring::default_provider())).expect("authorities");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let chain = chain.expect("certificates");
    let (server, intermediates) = chain.split_first().expect("a certificate");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let outcome = verifier.verify_server_cert(server, intermediates, &name, &[], UnixTime::since_unix_epoch(now));
    outcome
        .map(|_| ())
        .map_err(|error| TlsProblem::find(&error).expect("a problem of TLS"))
}

#[rstest]
#[case::p256(&PKCS_ECDSA_P256_SHA256)]
#[case::p384(&PKCS_ECDSA_P384_SHA384)]
#[case::ed25519(&PKCS_ED25519)]
fn accepts_configured_server_certificate(#[case] algorithm: &'static SignatureAlgorithm) {
    for is_ca in [ca(), IsCa::ExplicitNoCa, IsCa::NoCa] {
        let pem = self_signed(&params(is_ca), algorithm);
        for name in [NAME, ADDRESS] {
            assert_eq!(verify(&tls(&pem), &pem, name, NOW), Ok(()), "{name}");
        }
        assert_eq!(verify(&tls(&pem), &pem, "nova.test", NOW), Err(TlsProblem::WrongName));
        assert_eq!(verify(&tls(&pem), &pem, "192.0.2.8", NOW), Err(TlsProblem::WrongName));
        assert_eq!(verify(&tls(&pem), &pem, NAME, BEFORE), Err(TlsProblem::NotYetValid));
        assert_eq!(verify(&tls(&pem), &pem, NAME, AFTER), Err(TlsProblem::Expired));
    }
}

#[rstest]
#[case::authority(RSA_2048)]
#[case::server(RSA_SERVER)]
fn accepts_openssl_certificate_with_rsa_key(#[case] pem: &str) {
    assert_eq!(verify(&tls(pem), pem, NAME, NOW), Ok(()));
    assert_eq!(verify(&tls(pem), pem, ADDRESS, NOW), Ok(()));
}

#[test]
fn chain_requires_intermediate_authority() {
    let (root, other) = (authority(), authority());
    let key = KeyPair::generate().expect("a key");
    let intermediate = CertifiedIssuer::signed_by(params(ca()), key, &root).expect("an authority");
    let server = signed_by(&intermediate);
    let chain = format!("{server}{}", intermediate.pem());
    assert_eq!(verify(&tls(&root.pem()), &chain, NAME, NOW), Ok(()));
    for missing in [&server, &format!("{server}{}", other.pem())] {
        let problem = verify(&tls(&root.pem()), missing, NAME, NOW);
        assert_eq!(problem, Err(TlsProblem::UnknownIssuer));
    }
    // The usual remedy for a server that does not send its intermediate authority.
    assert_eq!(verify(&tls(&intermediate.pem()), &server, NAME, NOW), Ok(()));
    let both = format!("{}{}", root.pem(), intermediate.pem());
    assert_eq!(verify(&tls(&both), &server, NAME, NOW), Ok(()));
    assert_eq!(
        verify(&tls(&root.pem()), &chain, "nova.test", NOW),
        Err(TlsProblem::WrongName)
    );
}

/// The dates and the name of a server's own certificate are valid; its key only counts in the handshake.
#[test]
fn rejects_p521_authority_by_name() {
    let problem = verify(&tls(P521_AUTHORITY), SIGNED_WITH_P521, NAME, NOW).expect_err("refused");
    assert_eq!(problem, TlsProblem::UnsupportedKey);
    assert!(problem.to_string().contains("P-521 is not supported"), "{problem}");
    let verifier = ServerVerifier::new(&insecure(), &Arc::new(ring::default_provider())).expect("a verifier");
    let schemes = verifier.supported_verify_schemes();
    assert!(
        !schemes.contains(&SignatureScheme::ECDSA_NISTP521_SHA512),
        "{schemes:?}"
    );
    assert_ne!(verify(&tls(P521), SIGNED_WITH_P521, NAME, NOW), Ok(()));
}

#[test]
fn trusts_only_configured_authorities() {
    let (own, other) = (authority(), authority());
    let server = signed_by(&own);
    assert_eq!(verify(&tls(&own.pem()), &server, NAME, NOW), Ok(()));
    assert_eq!(
        verify(&tls(&other.pem()), &server, NAME, NOW),
        Err(TlsProblem::UnknownIssuer)
    );
    let both = format!("{}{}", other.pem(), own.pem());
    assert_eq!(verify(&tls(&both), &server, NAME, NOW), Ok(()));
}

#[test]
fn rejects_unconfigured_authority_as_server() {
    let (own, other) = (
        self_signed(&params(ca()), &PKCS_ECDSA_P256_SHA256),
        self_signed(&params(ca()), &PKCS_ECDSA_P256_SHA256),
    );
    assert_eq!(verify(&tls(&own), &other, NAME, NOW), Err(TlsProblem::UnknownIssuer));
    // Also when a trusted authority has signed it.
    let (root, key) = (authority(), KeyPair::generate().expect("a key"));
    let authority_below = params(ca()).signed_by(&key, &root).expect("a certificate").pem();
    assert_eq!(
        verify(&tls(&root.pem()), &authority_below, NAME, NOW),
        Err(TlsProblem::UnknownIssuer)
    );
}

/// A server with this certificate and this key, which may not match.
#[derive(Debug)]
struct Server(Arc<CertifiedKey>);

impl Server {
    fn new(certificate: &str, key: &KeyPair) -> Self {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let key = ring::sign::any_supported_type(&key).expect("supported");
        Self(Arc::new(CertifiedKey::new(vec![certificate], key)))
    }
}

impl ResolvesServerCert for Server {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Completes a handshake in memory, or returns the error of the client.
fn complete_handshake(tls: &Tls, server: Server) -> Result<(), Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(server));
    let mut server = ServerConnection::new(Arc::new(config)).expect("a server");
    let name = ServerName::try_from(NAME).expect("a name");
    let mut client = ClientConnection::new(Arc::new(client_config(tls).expect("a client")), name).expect("a client");
    while client.is_handshaking() {
        let mut sent = Vec::new();
        client.write_tls(&mut sent).expect("written");
        let mut received = sent.as_slice();
        while !received.is_empty() {
            server.read_tls(&mut received).expect("read");
            server.process_new_packets().expect("a client");
        }
        let mut sent = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut sent).expect("written");
        }
        let mut received = sent.as_slice();
        assert!(!received.is_empty(), "the server waits");
        while !received.is_empty() {
            client.read_tls(&mut received).expect("read");
            client.process_new_packets()?;
        }
    }
    Ok(())
}

#[test]
fn handshake_requires_key_of_certificate() {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("names");
    params.is_ca = ca();
    let (own, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let pem = params.self_signed(&own).expect("a certificate").pem();
    for tls in [tls(&pem), insecure()] {
        complete_handshake(&tls, Server::new(&pem, &own)).expect("its own key");
        let error = complete_handshake(&tls, Server::new(&pem, &other)).expect_err("another key");
        assert_eq!(error, Error::InvalidCertificate(CertificateError::BadSignature));
    }
}

#[test]
fn trusts_public_authorities_without_ca() {
    let count = |ca_pem: Option<&str>, also_public| {
        let tls = ca_pem.map(tls).unwrap_or_default();
        let configured = parse_authorities(&tls).expect("PEM");
        root_store(&configured, also_public).expect("authorities").len()
    };
    let own = authority().pem();
    let public = webpki_roots::TLS_SERVER_ROOTS.len();
    assert!(count(None, false) >= public);
    assert_eq!(count(Some(&own), false), 1);
    assert!(count(Some(&own), true) > public);
}
