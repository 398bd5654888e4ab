// SPDX-License-Identifier: Apache-2.0
//! Connects to the API server.
//!
//! The client is the one that kube builds, with another resolver: kube uses `getaddrinfo`, see [`SystemResolver`]. The address of
//! the API server is a name in a kubeconfig, and in clusters that set `KUBERNETES_SERVICE_HOST` to a name.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

use cinder_cloud::{ResolveError, SystemResolver};
use futures::future::BoxFuture;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer};

/// A client of the API server.
pub(crate) fn connect(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // kube is built without proxies and returns an error that names the proxy.
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new_with_resolver(NameService(SystemResolver::default()));
    connector.enforce_http(false);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let retry = config
        .default_retry
        .then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}

/// The resolver as hyper calls it.
#[derive(Debug, Clone)]
struct NameService(SystemResolver);

impl Service<Name> for NameService {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.0.clone();
        Box::pin(async move {
            let addresses = resolver.resolve(name.as_str()).await?;
            // The connector replaces the port.
            let addresses: Vec<SocketAddr> = addresses.into_iter().map(|address| (address, 0).into()).collect();
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{Json, Router, http::HeaderMap, routing::get};
    use secrecy::SecretString;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn client_resolves_server_and_authenticates() {
        let version = get(|headers: HeaderMap| async move {
            let token = headers
                .get("authorization")
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            Json(json!({
                "major": "1", "minor": "36", "gitVersion": token, "gitCommit": "", "gitTreeState": "", "buildDate": "",
                "goVersion": "", "compiler": "", "platform": ""
            }))
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let served = axum::serve(listener, Router::new().route("/version", version));
        tokio::spawn(async move { served.await });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::new(format!("http://localhost:{port}").parse().expect("a URL"));
        config.auth_info.token = Some(SecretString::from("word".to_owned()));
        let client = connect(config).expect("a client");
        assert_eq!(
            client.apiserver_version().await.expect("answered").git_version,
            "Bearer word"
        );
    }

    #[tokio::test]
    async fn unknown_server_is_named_in_the_error() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::new("https://kubernetes.invalid:6443".parse().expect("a URL"));
        config.connect_timeout = Some(Duration::from_secs(10));
        let error = connect(config)
            .expect("a client")
            .apiserver_version()
            .await
            .expect_err("unknown");
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(&error.to_string());
            cause = error.source();
        }
        assert!(text.contains("cannot resolve host kubernetes.invalid"), "{text}");
    }

    #[tokio::test]
    async fn proxy_is_refused_by_name() {
        let mut config = Config::new("https://kubernetes.invalid:6443".parse().expect("a URL"));
        config.proxy_url = Some("http://proxy.example.org:3128".parse().expect("a URL"));
        let error = connect(config).err().expect("refused").to_string();
        assert!(error.contains("proxy.example.org"), "{error}");
    }
}
