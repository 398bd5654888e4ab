// SPDX-License-Identifier: Apache-2.0
//! The HTTP client of the driver, based on reqwest.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::{Client, RequestBuilder};

use super::tls::client_config;
use super::{HttpClient, SendError};
use crate::config::CloudConfig;
use crate::error::{CloudError, TlsProblem};
use crate::http::body::{BodyError, read_body};
use crate::http::options::{CloudOptions, Connect};
use crate::resolver::SystemResolver;
use crate::timing::TIMING;

/// The number of idle connections per host. Many waits run at once, and TLS handshakes are expensive.
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
        // The status of a failure matters more than the rest of its page.
        Err(BodyError::TooLarge { start, .. }) if !status.is_success() => start,
        Err(BodyError::TooLarge { limit, .. }) => return Err(SendError::TooLarge { limit }),
        Err(BodyError::Broken(error)) => return Err(send_error(error)),
    };
    let mut whole = http::Response::new(Bytes::from(body));
    (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
    Ok(whole)
}

fn send_error(error: reqwest::Error) -> SendError {
    let sent = !error.is_connect() && !error.is_builder();
    let problem = TlsProblem::find(&error);
    // The URL may contain a password.
    let reason = chain(&error.without_url());
    match problem {
        Some(problem) => SendError::Tls { problem, sent, reason },
        None => SendError::NoAnswer { sent, reason },
    }
}

/// Creates a client with the configured CA and time limits.
fn client(config: &CloudConfig, options: &CloudOptions) -> Result<Client, CloudError> {
    let mut builder = Client::builder()
        .timeout(options.request_timeout)
        .connect_timeout(TIMING.connect_timeout.min(options.request_timeout))
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        // Also resolves the names of proxies.
        .dns_resolver(Arc::new(SystemResolver::default()))
        // A redirect would send the token to any host that it names.
        .redirect(reqwest::redirect::Policy::none())
        .use_preconfigured_tls(client_config(&config.tls)?);
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
        // The URL may contain a password.
        let proxy = proxy.map_err(|error| {
            let why = chain(&error.without_url());
            CloudError::Setup(format!("the address of the proxy for {scheme} endpoints: {why}"))
        })?;
        builder = builder.proxy(proxy.no_proxy(direct.clone()));
    }
    builder
        .build()
        .map_err(|error| CloudError::Setup(format!("HTTP client: {}", chain(&error))))
}

/// Formats an error with all its causes in one line, because reqwest's own text omits the root cause.
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
    async fn requests_use_proxy_except_direct_hosts() {
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
    fn invalid_proxy_is_named_without_password() {
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
    fn rejects_ca_without_certificate() {
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
