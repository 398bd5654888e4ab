// SPDX-License-Identifier: Apache-2.0
//! The HTTP client of the product.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::{Client, RequestBuilder};
use secrecy::ExposeSecret;

use super::{Connect, HttpClient, SendError};
use crate::config::{ClientCertificate, ClientPem, CloudConfig, Tls};
use crate::error::CloudError;
use crate::http::body::{BodyError, read_body};
use crate::http::options::CloudOptions;
use crate::resolver::SystemResolver;
use crate::timing::TIMING;

/// Connections kept open per host; many waits run at once, and TLS handshakes are dear.
const IDLE_CONNECTIONS: usize = 16;

/// HTTP by reqwest: TLS with the configured authority and client certificate, proxies, time limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reqwest;

impl Connect for Reqwest {
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(client(config, options)?))
    }
}

impl HttpClient for Client {
    fn send(
        &self,
        request: http::Request<Bytes>,
        limit: usize,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, SendError>> {
        let (head, body) = request.into_parts();
        let mut request = self.request(head.method, head.uri.to_string()).headers(head.headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        Box::pin(exchange(request, limit))
    }
}

async fn exchange(request: RequestBuilder, limit: usize) -> Result<http::Response<Bytes>, SendError> {
    let response = request.send().await.map_err(send_error)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = match read_body(response, limit).await {
        Ok(body) => body,
        // The status of a failure is worth more than the rest of its page.
        Err(BodyError::TooLarge { start, .. }) if !status.is_success() => start,
        Err(BodyError::TooLarge { limit, .. }) => return Err(SendError::TooLarge { limit }),
        Err(BodyError::Broken(error)) => return Err(send_error(error)),
    };
    let mut whole = http::Response::new(Bytes::from(body));
    (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
    Ok(whole)
}

fn send_error(error: reqwest::Error) -> SendError {
    SendError::NoAnswer {
        sent: !error.is_connect() && !error.is_builder(),
        // Without the address: it may hold a password.
        reason: chain(&error.without_url()),
    }
}

/// A client with the configured CA and time limits.
fn client(config: &CloudConfig, options: &CloudOptions) -> Result<Client, CloudError> {
    let mut builder = Client::builder()
        .timeout(options.request_timeout)
        .connect_timeout(TIMING.connect_timeout.min(options.request_timeout))
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        // Names of proxies too.
        .dns_resolver(Arc::new(SystemResolver::default()))
        // A redirect would carry the token to wherever it points.
        .redirect(reqwest::redirect::Policy::none());
    if let Some(reason) = unread(&config.tls) {
        return Err(CloudError::Setup(reason));
    }
    if let Some(pem) = &config.tls.ca_pem {
        let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
            .map_err(|error| CloudError::Setup(format!("the CA is no PEM: {}", chain(&error))))?;
        if certificates.is_empty() {
            return Err(CloudError::Setup(
                "the CA holds no certificate (BEGIN CERTIFICATE)".to_owned(),
            ));
        }
        builder = certificates
            .into_iter()
            .fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    if let Some(client) = &config.tls.client_pem {
        builder = builder.identity(identity(client, config.tls.client.as_ref())?);
    }
    let direct = reqwest::NoProxy::from_string(&config.proxies.direct);
    let http = config
        .proxies
        .http
        .iter()
        .map(|url| ("http", reqwest::Proxy::http(url)));
    let https = config
        .proxies
        .https
        .iter()
        .map(|url| ("https", reqwest::Proxy::https(url)));
    for (scheme, proxy) in http.chain(https) {
        // Without the address: it may hold a password.
        let proxy = proxy.map_err(|error| {
            let why = chain(&error.without_url());
            CloudError::Setup(format!("the address of the proxy for {scheme} endpoints: {why}"))
        })?;
        builder = builder.proxy(proxy.no_proxy(direct.clone()));
    }
    if config.tls.insecure {
        builder = builder.danger_accept_invalid_certs(true);
    }
    builder
        .build()
        .map_err(|error| CloudError::Setup(format!("HTTP client: {}", chain(&error))))
}

/// Why the files of the configuration are not known.
fn unread(tls: &Tls) -> Option<String> {
    let is_missing = tls.ca_pem.is_none() && tls.ca_file.is_some() || tls.client_pem.is_none() && tls.client.is_some();
    let missing = || is_missing.then(|| "the files of ca-file, cert-file and key-file were not read".to_owned());
    tls.unreadable.clone().or_else(missing)
}

/// The client certificate of mutual TLS, with the files that it came from.
fn identity(client: &ClientPem, files: Option<&ClientCertificate>) -> Result<reqwest::Identity, CloudError> {
    let pem = format!("{}\n{}", client.certificate, client.key.expose_secret());
    // The error's own text may quote the key.
    reqwest::Identity::from_pem(pem.as_bytes()).map_err(|_| {
        CloudError::Setup(match files {
            Some(files) => format!(
                "cert-file {} and key-file {} are not a certificate and its key in PEM",
                files.cert_file.display(),
                files.key_file.display()
            ),
            None => "the client certificate and its key are not PEM that belongs together".to_owned(),
        })
    })
}

/// The whole chain of causes of an error in one line: reqwest's own text stops before the interesting part.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_goes_to_the_proxy_that_was_chosen_and_not_where_it_is_to_go_directly() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = proxy.local_addr().expect("bound");
        let mut config = CloudConfig::from_cloud_conf(
            "[Global]\nauth-url=http://k\napplication-credential-id=i\napplication-credential-secret=s\n",
        )
        .expect("good");
        config.proxies.http = Some(format!("http://{address}"));
        config.proxies.direct = "direct.invalid".to_owned();
        let client = client(&config, &CloudOptions::default()).expect("a client");

        let answer = tokio::spawn(client.get("http://keystone.invalid/v3").send());
        let (mut connection, _) = proxy.accept().await.expect("the request");
        let mut head = [0; 64];
        let read = connection.read(&mut head).await.expect("read");
        connection
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .expect("answered");

        assert!(head[..read].starts_with(b"GET http://keystone.invalid/v3"), "{head:?}");
        assert_eq!(answer.await.expect("no panic").expect("an answer").status(), 204);
        assert!(
            client.get("http://direct.invalid/").send().await.is_err(),
            "there is no such host"
        );
    }

    #[test]
    fn a_proxy_with_a_bad_address_is_named_and_its_password_is_not_told() {
        let mut config = CloudConfig::from_cloud_conf(
            "[Global]\nauth-url=http://k\napplication-credential-id=i\napplication-credential-secret=s\n",
        )
        .expect("good");
        config.proxies.https = Some("http://user:hunter2@[proxy".to_owned());
        let error = client(&config, &CloudOptions::default()).expect_err("no address");
        let text = format!("{error} {error:?}");
        assert!(text.contains("the proxy for https endpoints"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_ca_without_a_certificate_is_refused() {
        let mut config = CloudConfig::from_cloud_conf(
            "[Global]\nauth-url=https://k\napplication-credential-id=i\napplication-credential-secret=s\n",
        )
        .expect("good");
        config.tls.ca_pem = Some("not a certificate".to_owned());
        let error = client(&config, &CloudOptions::default())
            .expect_err("refused")
            .to_string();
        assert!(error.contains("BEGIN CERTIFICATE"), "{error}");
    }
}
