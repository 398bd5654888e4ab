// SPDX-License-Identifier: Apache-2.0
//! The HTTP servers of a process: one for probes (`/healthz`, `/readyz`), one for metrics (`/metrics`).

mod connections;
mod reason_log;
mod serve;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::endpoint::TcpAddress;
use crate::metrics::Metrics;
use crate::timing::TIMING;
pub use reason_log::ReasonLog;
pub use serve::PeerAddress;

/// Limit of the time between two requests of a client.
pub const IDLE_LIMIT: Duration = TIMING.idle_timeout;

type Note = Arc<dyn Fn() -> Option<String> + Send + Sync>;
type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The checks behind `/healthz` and `/readyz`. The default checks always pass.
#[must_use = "it serves nothing before its router is bound"]
pub struct HealthChecks {
    liveness: Check,
    readiness: Check,
    note: Note,
    check_timeout: Duration,
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthChecks")
            .field("check_timeout", &self.check_timeout)
            .finish_non_exhaustive()
    }
}

impl Default for HealthChecks {
    fn default() -> Self {
        Self {
            liveness: Arc::new(|| Box::pin(async { Ok(()) })),
            readiness: Arc::new(|| Box::pin(async { Ok(()) })),
            note: Arc::new(|| None),
            check_timeout: TIMING.check_timeout,
        }
    }
}

impl HealthChecks {
    /// Sets the check of `/healthz`. The client receives the reason in `Err`.
    pub fn liveness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.liveness = Arc::new(move || Box::pin(check()));
        self
    }

    /// Sets the check of `/readyz`. The client receives the reason in `Err`.
    pub fn readiness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.readiness = Arc::new(move || Box::pin(check()));
        self
    }

    /// Sets a text that `/readyz` adds to a passing check: a problem that affects no call yet.
    pub fn readiness_note(mut self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.note = Arc::new(note);
        self
    }

    /// Sets the duration after which a check counts as failed.
    pub fn check_timeout(mut self, timeout: Duration) -> Self {
        self.check_timeout = timeout;
        self
    }

    /// Returns a router for the two paths.
    pub fn router(self) -> Router {
        let limit = self.check_timeout;
        let (liveness, readiness, note) = (self.liveness, self.readiness, self.note);
        let failures = || Arc::new(ReasonLog::default());
        let (of_liveness, of_readiness) = (failures(), failures());
        Router::new()
            .route(
                "/healthz",
                get(move || run_check("liveness", liveness(), limit, || None, Arc::clone(&of_liveness))),
            )
            .route(
                "/readyz",
                get(move || {
                    run_check(
                        "readiness",
                        readiness(),
                        limit,
                        move || note(),
                        Arc::clone(&of_readiness),
                    )
                }),
            )
    }
}

/// Returns a router for the path `/metrics`.
pub fn metrics_router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(move || async move { write_metrics(&metrics) }))
}

/// A server that listens. Connections queue up until [`HttpServer::serve`].
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    local_addr: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
}

impl HttpServer {
    /// Listens on an address, over TLS if a configuration is provided.
    pub async fn bind(address: &TcpAddress, router: Router, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let listener = address.bind().await?;
        Ok(Self {
            local_addr: listener.local_addr()?,
            listener,
            tls,
            router,
        })
    }

    /// Returns the address with the port that the kernel chose for port 0.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until `shutdown` is cancelled. Open connections then have two seconds to end. The number of connections
    /// and the time of each client are bounded.
    pub async fn serve(self, shutdown: CancellationToken) -> io::Result<()> {
        let service = serve::Service {
            router: self.router,
            tls: self.tls.map(TlsAcceptor::from),
        };
        serve::serve(self.listener, service, shutdown).await;
        Ok(())
    }
}

/// Encodes the metrics as a response.
pub fn write_metrics(metrics: &Metrics) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, Metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            warn!(%error, "cannot write the metrics");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
        }
    }
}

async fn run_check(
    kind: &'static str,
    check: BoxFuture<'static, Result<(), String>>,
    limit: Duration,
    note: impl FnOnce() -> Option<String>,
    failures: Arc<ReasonLog>,
) -> Response {
    let reason = match timeout(limit, check).await {
        Ok(Ok(())) => {
            failures.clear();
            let note = note().map(|note| format!("{note}\n")).unwrap_or_default();
            return format!("ok\n{note}").into_response();
        }
        Ok(Err(reason)) => reason,
        Err(_elapsed) => format!("no answer within {limit:?}"),
    };
    if failures.is_news(&reason) {
        warn!(kind, reason, "check failed");
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::metrics::BuildInfo;
    use crate::tls::{Certificate, TlsOptions, TlsVersion};

    struct Running {
        url: String,
        shutdown: CancellationToken,
        task: JoinHandle<io::Result<()>>,
    }

    impl Running {
        async fn get(&self, path: &str) -> (u16, String) {
            let response = reqwest::get(format!("{}{path}", self.url)).await.expect("answers");
            (response.status().as_u16(), response.text().await.expect("has a body"))
        }
    }

    fn metrics() -> Router {
        let build = BuildInfo {
            program: "tester",
            version: "1.2.3",
            revision: "",
        };
        metrics_router(Metrics::new(build).expect("registers"))
    }

    async fn run(router: Router, tls: Option<Arc<ServerConfig>>) -> Running {
        let address = "127.0.0.1:0".parse().expect("is an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bound = HttpServer::bind(&address, router, tls).await.expect("binds");
        let url = format!("{scheme}://{}", bound.local_addr());
        let shutdown = CancellationToken::new();
        Running {
            url,
            shutdown: shutdown.clone(),
            task: tokio::spawn(bound.serve(shutdown)),
        }
    }

    async fn probe(checks: HealthChecks) -> Running {
        run(checks.router(), None).await
    }

    #[tokio::test]
    async fn metrics_and_checks_have_separate_servers() {
        let running = run(metrics(), None).await;
        let (status, text) = running.get("/metrics").await;
        assert!(status == 200 && text.contains("tester_build_info"), "{status} {text}");
        assert_eq!(running.get("/healthz").await.0, 404);
        let running = probe(HealthChecks::default()).await;
        assert_eq!(running.get("/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(running.get("/readyz").await, (200, "ok\n".to_owned()));
        assert_eq!(running.get("/metrics").await.0, 404);
    }

    #[tokio::test]
    async fn secure_metrics_are_served_over_tls_alone() {
        let certificate = Certificate::self_signed("tester").expect("made");
        let options = TlsOptions {
            min_version: TlsVersion::Tls13,
            cipher_suites: vec!["TLS_AES_256_GCM_SHA384".parse().expect("known")],
        };
        let config = options.server_config(certificate).expect("fits together");
        let running = run(metrics(), Some(config)).await;
        let url = format!("{}/metrics", running.url);
        reqwest::get(url.replace("https://", "http://"))
            .await
            .expect_err("plain HTTP");

        let trusting = |newest| {
            let client = reqwest::Client::builder().danger_accept_invalid_certs(true);
            client.max_tls_version(newest).build().expect("a client")
        };
        let new = trusting(reqwest::tls::Version::TLS_1_3);
        let answer = new.get(&url).send().await.expect("answers");
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("has a body");
        assert!(text.contains("tester_build_info"), "{text}");
        let old = trusting(reqwest::tls::Version::TLS_1_2);
        let error = old.get(&url).send().await.expect_err("too old");
        assert!(error.is_connect(), "{error:?}");
    }

    #[tokio::test]
    async fn failed_check_returns_reason() {
        let checks = HealthChecks::default()
            .liveness(|| async { Err("socket is gone".to_owned()) })
            .readiness(|| async { Err("no login yet".to_owned()) });
        let running = probe(checks).await;
        assert_eq!(running.get("/healthz").await, (503, "socket is gone\n".to_owned()));
        assert_eq!(running.get("/readyz").await, (503, "no login yet\n".to_owned()));
    }

    #[tokio::test]
    async fn only_passing_check_returns_note() {
        let note = || Some("the new password is wrong".to_owned());
        let running = probe(HealthChecks::default().readiness_note(note)).await;
        let expected = (200, "ok\nthe new password is wrong\n".to_owned());
        assert_eq!(running.get("/readyz").await, expected);
        let failing = HealthChecks::default()
            .readiness_note(note)
            .readiness(|| async { Err("no".to_owned()) });
        assert_eq!(probe(failing).await.get("/readyz").await, (503, "no\n".to_owned()));
    }

    #[tokio::test]
    async fn hung_check_fails() {
        let checks = HealthChecks::default()
            .liveness(std::future::pending)
            .check_timeout(Duration::from_millis(10));
        let (status, text) = probe(checks).await.get("/healthz").await;
        assert!(status == 503 && text.contains("10ms"), "{status} {text}");
    }

    #[tokio::test]
    async fn shutdown_ends_server_with_hung_request() {
        let hang = Router::new().route("/hang", get(std::future::pending::<&'static str>));
        let running = run(hang.merge(HealthChecks::default().router()), None).await;
        let url = format!("{}/hang", running.url);
        let hanging = tokio::spawn(reqwest::get(url));
        assert_eq!(running.get("/healthz").await.0, 200);
        running.shutdown.cancel();
        timeout(TIMING.drain_timeout * 5, running.task)
            .await
            .expect("ends in time")
            .expect("does not panic")
            .expect("no error");
        hanging.abort();
    }

    /// Opens connections that wait in all states: silent, during the handshake, and during a request.
    async fn occupy(address: &str) -> Vec<TcpStream> {
        const PARTS: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /metrics HT"];
        let mut all = Vec::new();
        for part in PARTS.into_iter().cycle().take(IDLE_CLIENTS) {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            // The server may already have closed the connection, which is sufficient for the test.
            drop(stream.write_all(part).await);
            all.push(stream);
        }
        all
    }

    /// Waits until the server has closed all but the last connections. A server without TLS closes a partial handshake
    /// at once. The open connections are therefore not exactly the last `MAX_CONNECTIONS` ones.
    async fn assert_bounded(clients: Vec<TcpStream>) {
        let last = clients.len() - 2 * connections::MAX_CONNECTIONS;
        for mut client in clients.into_iter().take(last) {
            // Ends with the connection, after the response to an invalid request.
            let mut rest = Vec::new();
            let closed = timeout(IDLE_LIMIT / 2, client.read_to_end(&mut rest));
            drop(closed.await.expect("closed before its time is over"));
        }
    }

    const IDLE_CLIENTS: usize = 1_000;

    #[tokio::test]
    async fn idle_clients_do_not_block_requests() {
        let files = rustix::process::getrlimit(Resource::Nofile);
        let files = Rlimit {
            current: files.maximum,
            ..files
        };
        rustix::process::setrlimit(Resource::Nofile, files).expect("more open files");
        let certificate = Certificate::self_signed("tester").expect("made");
        let tls = TlsOptions::default().server_config(certificate).expect("fits together");
        let scraper = reqwest::Client::builder()
            .danger_accept_invalid_certs(true)
            .build()
            .expect("a client");
        for (router, tls, page) in [
            (HealthChecks::default().router(), None, "/healthz"),
            (metrics(), None, "/metrics"),
            (metrics(), Some(tls), "/metrics"),
        ] {
            let running = run(router, tls).await;
            let address = running.url.rsplit('/').next().expect("an address");
            let clients = occupy(address).await;
            for _ in 0..3 {
                let url = format!("{}{page}", running.url);
                let response = scraper.get(url).send().await.expect("answers");
                assert_eq!(response.status(), 200);
            }
            assert_bounded(clients).await;
        }
    }
}
