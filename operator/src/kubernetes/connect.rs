// SPDX-License-Identifier: Apache-2.0
//! Connects to the API server.
//!
//! The client is the one that kube builds, with a different resolver: kube uses `getaddrinfo`, see [`SystemResolver`].
//! The address of the API server is a host name in a kubeconfig, and in clusters that set `KUBERNETES_SERVICE_HOST` to
//! a host name. Each response must be complete within a limit, because kube waits without one.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body as AnswerBody, Bytes, HttpBody, to_bytes};
use cinder_cloud::{ResolveError, SystemResolver};
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer, service_fn};

/// Maximum time until a response is complete. The API server ends its own work on a request after a minute.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// Maximum size of a response in bytes: a page of 500 objects of half a mebibyte.
const LARGEST_ANSWER: usize = 256 << 20;

/// Creates a client of the API server, whose responses are bounded in time and size.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    connect_within(config, ANSWER_LIMIT)
}

fn connect_within(config: Config, limit: Duration) -> Result<Client, kube::Error> {
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
        .service(service_fn(move |request: Request<Body>| {
            let is_stream = is_stream(request.uri());
            read_answer(client.request(request), is_stream, limit)
        }));
    Ok(Client::new(service, config.default_namespace))
}

/// Whether the response to a request continues until the client or the server ends it. A watch has its own timeout.
fn is_stream(uri: &Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| ["watch=true", "follow=true"].contains(&parameter))
}

/// Reads a complete response, or the head of a stream.
async fn read_answer<B, E>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    is_stream: bool,
    limit: Duration,
) -> Result<Response<AnswerBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let read = async {
        let (head, body) = answer.await.map_err(Into::into)?.into_parts();
        let body = AnswerBody::new(body);
        let body = if is_stream {
            body
        } else {
            to_bytes(body, LARGEST_ANSWER).await?.into()
        };
        Ok(Response::from_parts(head, body))
    };
    let elapsed = |_| BoxError::from(format!("the API server did not complete its answer within {limit:?}"));
    tokio::time::timeout(limit, read).await.map_err(elapsed)?
}

/// Adapts the resolver to the interface of hyper.
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
    use axum::{Json, Router, http::HeaderMap, routing::get};
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::Node;
    use kube::api::{ListParams, WatchParams};
    use secrecy::SecretString;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::GuardedApi;

    /// Serves on its own port, and returns a client with this limit.
    async fn mk_client(router: Router, limit: Duration) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut config = Config::new(format!("http://localhost:{port}").parse().expect("a URL"));
        config.auth_info.token = Some(SecretString::from("word".to_owned()));
        connect_within(config, limit).expect("a client")
    }

    #[tokio::test]
    async fn list_fails_when_its_body_stalls() {
        let limit = Duration::from_millis(200);
        let stalled = get(|| async {
            let begin = futures::stream::iter([Ok::<_, std::convert::Infallible>(r#"{"items":["#)]);
            AnswerBody::from_stream(begin.chain(futures::stream::pending()))
        });
        let client = mk_client(Router::new().route("/api/v1/nodes", stalled), limit).await;
        let nodes = GuardedApi::<Node>::all(client);
        let listed = tokio::time::timeout(limit * 50, nodes.list(&ListParams::default())).await;
        let error = listed.expect("ended").expect_err("incomplete");
        assert!(
            crate::kubernetes::answer(&error).contains("did not complete"),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn watch_outlives_the_limit() {
        let limit = Duration::from_secs(1);
        let late = get(move || async move {
            let bookmark = json!({
                "type": "BOOKMARK",
                "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "7"}},
            });
            AnswerBody::from_stream(futures::stream::once(async move {
                tokio::time::sleep(limit * 3 / 2).await;
                Ok::<_, std::convert::Infallible>(format!("{bookmark}\n"))
            }))
        });
        let client = mk_client(Router::new().route("/api/v1/nodes", late), limit).await;
        let nodes = GuardedApi::<Node>::all(client).into_inner();
        let mut events = nodes
            .watch(&WatchParams::default(), "0")
            .await
            .expect("a watch")
            .boxed();
        let event = events.next().await.expect("an event").expect("decoded");
        assert!(matches!(event, kube::api::WatchEvent::Bookmark(_)), "{event:?}");
    }

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
        let client = mk_client(Router::new().route("/version", version), ANSWER_LIMIT).await;
        assert_eq!(
            client.apiserver_version().await.expect("answered").git_version,
            "Bearer word"
        );
    }

    #[tokio::test]
    async fn unknown_server_is_named_in_the_error() {
        drop(rustls::crypto::ring::default_provider().install_default());
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
    async fn proxy_is_rejected_by_name() {
        let mut config = Config::new("https://kubernetes.invalid:6443".parse().expect("a URL"));
        config.proxy_url = Some("http://proxy.example.org:3128".parse().expect("a URL"));
        let error = connect(config).err().expect("refused").to_string();
        assert!(error.contains("proxy.example.org"), "{error}");
    }
}
