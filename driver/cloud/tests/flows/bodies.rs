// SPDX-License-Identifier: Apache-2.0
//! Responses that are larger than any valid response of OpenStack.

use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The head of a gzip file.
const GZIP_HEAD: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";

/// 64 KiB of spaces, compressed. Any number of these parts may follow each other.
fn compressed_spaces() -> Vec<u8> {
    let mut part = b"\xec\xc1\x81\x00\x00\x00\x00\x80\x20\x95\xfd\x29\x17\xa9\x0a".to_vec();
    part.resize(part.len() + 63, 0);
    part.extend_from_slice(b"\x6a\x00\x00\x00\xff\xff");
    part
}

/// Answers one request with this head and an endless sequence of `part`. The task returns the request once its client
/// has closed the connection.
async fn serve_endless_body(head: &'static str, begin: &'static [u8], part: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.expect("a request");
        request.truncate(length);
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(begin).await.expect("sent");
        while stream.write_all(&part).await.is_ok() {}
        String::from_utf8_lossy(&request).to_lowercase()
    });
    (address, served)
}

async fn login(address: &str) -> CloudError {
    // Each test process installs it once. A second installation changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let conf = format!("[Global]\nauth-url={address}\nuser-id=u\npassword=p\ntenant-id=t\n");
    let options = CloudOptions {
        request_timeout: Duration::from_secs(20),
        ..CloudOptions::default()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    cloud.login().await.expect_err("no login")
}

#[tokio::test]
async fn rejects_endless_bodies_with_operation() {
    let gzip = "HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\n\r\n";
    for (head, begin, part) in [
        ("HTTP/1.1 201 Created\r\n\r\n", &b""[..], vec![b' '; 1 << 16]),
        (gzip, GZIP_HEAD, compressed_spaces()),
    ] {
        let (address, served) = serve_endless_body(head, begin, part).await;
        let error = login(&address).await;
        assert!(matches!(error, CloudError::ResponseTooLarge(_)), "{error:?}");
        let text = error.to_string();
        for expected in ["token_create", "4194304 bytes", "check that the endpoint"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        let request = served.await.expect("the connection was closed");
        assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
    }
}

#[tokio::test]
async fn failure_with_endless_page_retains_status() {
    let (address, _served) = serve_endless_body("HTTP/1.1 401 Unauthorized\r\n\r\n", b"", b"<p>no</p>".to_vec()).await;
    let error = login(&address).await;
    assert!(matches!(error, CloudError::Auth(_)), "{error:?}");
    assert!(error.to_string().len() < 2_000);
}
