// SPDX-License-Identifier: Apache-2.0

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_kit::metrics::BuildInfo;
use futures::FutureExt;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::*;

/// Accepts `good`, rejects `stranger`, and cannot review `asleep`.
#[derive(Debug, Default)]
struct Doorkeeper(AtomicUsize);

impl Access for Doorkeeper {
    fn judge<'a>(&'a self, _: IpAddr, token: &'a str) -> BoxFuture<'a, Result<AccessDecision, String>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let decision = match token {
            "good" => Ok(AccessDecision::Allowed),
            "stranger" => Ok(AccessDecision::Forbidden),
            "asleep" => Err("no answer".to_owned()),
            _ => Ok(AccessDecision::Unknown),
        };
        std::future::ready(decision).boxed()
    }
}

struct Running {
    url: String,
    client: reqwest::Client,
    shutdown: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

async fn run(certificate: Certificate) -> Running {
    let build = BuildInfo {
        program: "tester",
        version: "1.2.3",
        revision: "",
    };
    let metrics = Metrics::new(build).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = bind(&address, certificate, metrics, Arc::new(Doorkeeper::default()))
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    Running {
        url: format!("https://{}/metrics", server.local_addr()),
        client: reqwest::Client::builder()
            .danger_accept_invalid_certs(true)
            .build()
            .unwrap(),
        shutdown: shutdown.clone(),
        task: tokio::spawn(server.serve(shutdown)),
    }
}

fn provider() {
    // Another test may have installed it before.
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[rstest]
#[case::allowed(Some("Bearer good"), 200, "tester_build_info")]
#[case::other_case(Some("bearer good"), 200, "tester_build_info")]
#[case::no_token(None, 401, "bearer token")]
#[case::other_scheme(Some("Basic Z29vZA=="), 401, "bearer token")]
#[case::nobody(Some("Bearer forged"), 401, "does not know")]
#[case::not_allowed(Some("Bearer stranger"), 403, "cinder-csi-metrics-reader")]
#[case::nobody_to_ask(Some("Bearer asleep"), 503, "try again")]
#[tokio::test]
async fn metrics_require_authorization(#[case] header: Option<&str>, #[case] status: u16, #[case] says: &str) {
    provider();
    let running = run(Certificate::self_signed("localhost").unwrap()).await;
    let mut request = running.client.get(&running.url);
    if let Some(header) = header {
        request = request.header("Authorization", header);
    }

    let answer = request.send().await.unwrap();

    let (code, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    assert!(code == status && text.contains(says), "{code} {text}");
    running.shutdown.cancel();
    running.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn incomplete_handshake_does_not_block_others() {
    provider();
    let running = run(Certificate::self_signed("localhost").unwrap()).await;
    let silent =
        tokio::net::TcpStream::connect(running.url.trim_start_matches("https://").trim_end_matches("/metrics"))
            .await
            .unwrap();

    let answer = running
        .client
        .get(&running.url)
        .header("Authorization", "Bearer good")
        .send()
        .await
        .unwrap();

    assert_eq!(answer.status().as_u16(), 200);
    drop(silent);
}

#[tokio::test]
async fn configured_certificate_is_served() {
    provider();
    let generated = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    std::fs::write(&certificate, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    let running = run(Certificate::from_files(&certificate, &key).unwrap()).await;
    let trusting = reqwest::Client::builder()
        .add_root_certificate(reqwest::Certificate::from_pem(generated.cert.pem().as_bytes()).unwrap())
        .build()
        .unwrap();
    let url = running.url.replace("127.0.0.1", "localhost");

    let answer = trusting
        .get(url)
        .header("Authorization", "Bearer good")
        .send()
        .await
        .unwrap();

    assert_eq!(answer.status().as_u16(), 200);
}

#[test]
fn error_names_file_without_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tls.crt");
    std::fs::write(&path, "no certificate").unwrap();

    let error = Certificate::from_files(&path, &path).unwrap_err().to_string();

    assert!(error.contains("tls.crt"), "{error}");
}

/// A connection that has received one response and then sends nothing, so that its handshake is complete.
async fn mk_silent(directory: &std::path::Path) -> (Running, tokio_rustls::client::TlsStream<tokio::net::TcpStream>) {
    provider();
    let generated = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    std::fs::write(&certificate, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    let running = run(Certificate::from_files(&certificate, &key).unwrap()).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(generated.cert.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = running.url.trim_start_matches("https://").trim_end_matches("/metrics");
    let plain = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into().unwrap(), plain).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\nGET /met")
        .await
        .unwrap();
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).contains("401"));
    (running, stream)
}

#[tokio::test]
async fn incomplete_request_closes_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (_running, mut stream) = mk_silent(directory.path()).await;
    tokio::time::pause();
    let end = tokio::time::timeout(2 * csi_kit::admin::IDLE_LIMIT, stream.read_to_end(&mut Vec::new())).await;
    assert!(end.is_ok(), "the connection is still there");
}
