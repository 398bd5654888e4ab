use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

/// Answers one request with this and gives back what was asked.
fn api(status: &str, body: &str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut part).expect("a request");
            request.extend_from_slice(&part[..read]);
        }
        stream.write_all(answer.as_bytes()).expect("answered");
        String::from_utf8(request).expect("text")
    });
    (address, served)
}

fn claims(address: &str, folder: &tempfile::TempDir) -> Claims {
    // A second installation in this process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    std::fs::write(folder.path().join("token"), "the-token\n").expect("a file");
    Claims {
        address: address.to_owned(),
        account: folder.path().to_owned(),
    }
}

#[tokio::test]
async fn annotations_are_read_with_the_token_of_the_service_account() {
    let folder = tempfile::tempdir().expect("a folder");
    let body = r#"{"metadata":{"name":"data","annotations":{
        "cinder.csi.openstack.org/affinity":"one, two,,","cinder.csi.openstack.org/anti-affinity":"three","else":"x"}}}"#;
    let (address, served) = api("200 OK", body);
    let hints = claims(&address, &folder).hints("shop", "data").await.expect("read");
    let request = served.join().expect("served").to_lowercase();
    assert!(
        request.starts_with("get /api/v1/namespaces/shop/persistentvolumeclaims/data "),
        "{request}"
    );
    assert!(request.contains("authorization: bearer the-token\r\n"), "{request}");
    let expected = Hints {
        beside: vec!["one".into(), "two".into()],
        away: vec!["three".into()],
    };
    assert_eq!(hints, expected);
}

#[tokio::test]
async fn a_claim_without_annotations_or_without_existence_gives_no_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    for (status, body) in [("200 OK", r#"{"metadata":{}}"#), ("404 Not Found", "{}")] {
        let (address, _served) = api(status, body);
        let hints = claims(&address, &folder).hints("shop", "data").await.expect("read");
        assert_eq!(hints, Hints::default(), "{status}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_claim_and_the_right_that_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, _served) = api("403 Forbidden", "{}");
    let error = claims(&address, &folder)
        .hints("shop", "data")
        .await
        .expect_err("refused");
    let text = error.to_string();
    assert!(
        text.contains("shop/data") && text.contains("get on persistentvolumeclaims"),
        "{text}"
    );
    let error = claims("https://127.0.0.1:1", &folder)
        .hints("shop", "data")
        .await
        .expect_err("no CA");
    assert!(error.to_string().contains("ca.crt"), "{error}");
}
