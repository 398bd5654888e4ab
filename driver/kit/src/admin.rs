// SPDX-License-Identifier: Apache-2.0
//! The HTTP server of a process for probes and Prometheus: `/metrics`, `/healthz`, `/readyz`, and what a program adds.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::connect_info::Connected;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::serve::IncomingStream;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::endpoint::TcpAddress;
use crate::metrics::Metrics;
use crate::timing::TIMING;
use crate::tls::{Plain, TlsListener};

type Note = Arc<dyn Fn() -> Option<String> + Send + Sync>;
type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// An admin server that does not listen yet.
#[must_use = "it does not listen before `bind`"]
pub struct AdminServer {
    metrics: Option<Metrics>,
    liveness: Check,
    readiness: Check,
    note: Note,
    check_timeout: Duration,
    extra: Router,
    secure_metrics: Option<Arc<ServerConfig>>,
}

impl fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminServer")
            .field("check_timeout", &self.check_timeout)
            .finish_non_exhaustive()
    }
}

impl AdminServer {
    /// Serves `metrics`; both checks pass until others are given.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics: Some(metrics),
            liveness: Arc::new(|| Box::pin(async { Ok(()) })),
            readiness: Arc::new(|| Box::pin(async { Ok(()) })),
            note: Arc::new(|| None),
            check_timeout: TIMING.check_timeout,
            extra: Router::new(),
            secure_metrics: None,
        }
    }

    /// What `/healthz` asks. `Err` holds the reason, which is shown to whoever asks.
    pub fn liveness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.liveness = Arc::new(move || Box::pin(check()));
        self
    }

    /// What `/readyz` asks. `Err` holds the reason, which is shown to whoever asks.
    pub fn readiness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.readiness = Arc::new(move || Box::pin(check()));
        self
    }

    /// What `/readyz` says besides while it passes: something to fix that stops no call yet.
    pub fn readiness_note(mut self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.note = Arc::new(note);
        self
    }

    /// How long a check may take before it counts as failed.
    pub fn check_timeout(mut self, timeout: Duration) -> Self {
        self.check_timeout = timeout;
        self
    }

    /// Serves no `/metrics`, for a program that serves them elsewhere.
    pub fn without_metrics(mut self) -> Self {
        self.metrics = None;
        self
    }

    /// Serves `/metrics` over TLS only, at the same port: the kubelet's probes go on in plain HTTP.
    pub fn secure_metrics(mut self, config: Arc<ServerConfig>) -> Self {
        self.secure_metrics = Some(config);
        self
    }

    /// Adds a page. `path` must not be one of the three that are there already.
    pub fn route(mut self, path: &str, handler: MethodRouter) -> Self {
        self.extra = self.extra.route(path, handler);
        self
    }

    /// Listens. From now on connections queue up; they are answered by [`BoundAdminServer::serve`].
    pub async fn bind(self, address: &TcpAddress) -> io::Result<BoundAdminServer> {
        let listener = address.bind().await?;
        Ok(BoundAdminServer {
            local_addr: listener.local_addr()?,
            listener,
            secure_metrics: self.secure_metrics.clone(),
            router: self.router(),
        })
    }

    fn router(self) -> Router {
        let metrics = self.metrics;
        let limit = self.check_timeout;
        let (liveness, readiness, note) = (self.liveness, self.readiness, self.note);
        let pages = match metrics {
            Some(metrics) if self.secure_metrics.is_some() => self.extra.route(
                "/metrics",
                get(move |ConnectInfo(way): ConnectInfo<Way>| async move {
                    if way.is_tls {
                        write_metrics(&metrics)
                    } else {
                        (StatusCode::FORBIDDEN, "the metrics are read over TLS: use https\n").into_response()
                    }
                }),
            ),
            Some(metrics) => self
                .extra
                .route("/metrics", get(move || async move { write_metrics(&metrics) })),
            None => self.extra,
        };
        pages
            .route(
                "/healthz",
                get(move || run_check("liveness", liveness(), limit, || None)),
            )
            .route(
                "/readyz",
                get(move || run_check("readiness", readiness(), limit, move || note())),
            )
    }
}

/// An admin server that listens.
#[derive(Debug)]
pub struct BoundAdminServer {
    listener: TcpListener,
    local_addr: SocketAddr,
    secure_metrics: Option<Arc<ServerConfig>>,
    router: Router,
}

/// How a request came.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_tls: bool,
}

impl Connected<IncomingStream<'_, TlsListener>> for Way {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self {
            is_tls: stream.io().is_tls(),
        }
    }
}

impl BoundAdminServer {
    /// Where it listens: tells the port where 0 was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Answers until `shutdown` is cancelled, then gives open connections two seconds to end.
    pub async fn serve(self, shutdown: CancellationToken) -> io::Result<()> {
        let stopped = shutdown.clone().cancelled_owned();
        match self.secure_metrics {
            None => {
                let serve = axum::serve(self.listener, self.router).with_graceful_shutdown(stopped);
                drained(serve.into_future(), shutdown).await
            }
            Some(config) => {
                let listener = TlsListener::new(self.listener, config, Plain::LetIn)?;
                let service = self.router.into_make_service_with_connect_info::<Way>();
                let serve = axum::serve(listener, service).with_graceful_shutdown(stopped);
                drained(serve.into_future(), shutdown).await
            }
        }
    }
}

/// Serves until `shutdown` is cancelled, and a little longer for what is under way.
async fn drained(serve: impl Future<Output = io::Result<()>>, shutdown: CancellationToken) -> io::Result<()> {
    tokio::pin!(serve);
    tokio::select! {
        served = &mut serve => served,
        () = shutdown.cancelled() => timeout(TIMING.drain_timeout, serve).await.unwrap_or_else(|_elapsed| {
            debug!("an admin connection did not end in time and is cut");
            Ok(())
        }),
    }
}

fn write_metrics(metrics: &Metrics) -> Response {
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
) -> Response {
    let reason = match timeout(limit, check).await {
        Ok(Ok(())) => {
            let note = note().map(|note| format!("{note}\n")).unwrap_or_default();
            return format!("ok\n{note}").into_response();
        }
        Ok(Err(reason)) => reason,
        Err(_elapsed) => format!("no answer within {limit:?}"),
    };
    warn!(kind, reason, "check failed");
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

#[cfg(test)]
mod tests {
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

    fn server() -> AdminServer {
        let build = BuildInfo {
            program: "tester",
            version: "1.2.3",
            revision: "",
        };
        AdminServer::new(Metrics::new(build).expect("registers"))
    }

    async fn run(server: AdminServer) -> Running {
        let address = "127.0.0.1:0".parse().expect("is an address");
        let bound = server.bind(&address).await.expect("binds");
        let url = format!("http://{}", bound.local_addr());
        let shutdown = CancellationToken::new();
        Running {
            url,
            shutdown: shutdown.clone(),
            task: tokio::spawn(bound.serve(shutdown)),
        }
    }

    #[tokio::test]
    async fn metrics_and_both_checks_are_served() {
        let running = run(server()).await;
        let (status, text) = running.get("/metrics").await;
        assert!(status == 200 && text.contains("tester_build_info"), "{status} {text}");
        assert_eq!(running.get("/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(running.get("/readyz").await, (200, "ok\n".to_owned()));
        assert_eq!(running.get("/else").await.0, 404);
    }

    #[tokio::test]
    async fn metrics_that_are_served_elsewhere_are_not_served_here() {
        let running = run(server().without_metrics()).await;
        assert_eq!(running.get("/metrics").await.0, 404);
        assert_eq!(running.get("/healthz").await.0, 200);
    }

    #[tokio::test]
    async fn secure_metrics_are_read_over_tls_alone_and_probes_go_on_as_before() {
        let certificate = Certificate::self_signed("tester").expect("made");
        let options = TlsOptions {
            min_version: TlsVersion::Tls13,
            cipher_suites: vec!["TLS_AES_256_GCM_SHA384".parse().expect("known")],
        };
        let config = options.server_config(certificate).expect("fits together");
        let running = run(server().secure_metrics(config)).await;
        assert_eq!(running.get("/healthz").await, (200, "ok\n".to_owned()));
        let (status, text) = running.get("/metrics").await;
        assert!(
            status == 403 && text.contains("https") && !text.contains("build_info"),
            "{status} {text}"
        );

        let url = running.url.replace("http://", "https://");
        let trusting = |newest| {
            let client = reqwest::Client::builder().danger_accept_invalid_certs(true);
            client.max_tls_version(newest).build().expect("a client")
        };
        let new = trusting(reqwest::tls::Version::TLS_1_3);
        let answer = new.get(format!("{url}/metrics")).send().await.expect("answers");
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("has a body");
        assert!(text.contains("tester_build_info"), "{text}");
        let old = trusting(reqwest::tls::Version::TLS_1_2);
        let error = old.get(format!("{url}/metrics")).send().await.expect_err("too old");
        assert!(error.is_connect(), "{error:?}");
    }

    #[tokio::test]
    async fn who_keeps_connections_open_and_says_nothing_holds_no_probe_up() {
        let certificate = Certificate::self_signed("tester").expect("made");
        let config = TlsOptions::default().server_config(certificate).expect("usual");
        let running = run(server().secure_metrics(config)).await;
        let address = running.url.trim_start_matches("http://").to_owned();
        let mut silent = Vec::new();
        for _ in 0..64 {
            silent.push(tokio::net::TcpStream::connect(&address).await.expect("connects"));
        }
        assert_eq!(running.get("/healthz").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn a_check_that_fails_says_why() {
        let server = server()
            .liveness(|| async { Err("socket is gone".to_owned()) })
            .readiness(|| async { Err("no login yet".to_owned()) });
        let running = run(server).await;
        assert_eq!(running.get("/healthz").await, (503, "socket is gone\n".to_owned()));
        assert_eq!(running.get("/readyz").await, (503, "no login yet\n".to_owned()));
    }

    #[tokio::test]
    async fn a_note_stands_beside_a_check_that_passes_and_not_beside_one_that_fails() {
        let note = || Some("the new password is wrong".to_owned());
        let running = run(server().readiness_note(note)).await;
        let expected = (200, "ok\nthe new password is wrong\n".to_owned());
        assert_eq!(running.get("/readyz").await, expected);
        let failing = server()
            .readiness_note(note)
            .readiness(|| async { Err("no".to_owned()) });
        assert_eq!(run(failing).await.get("/readyz").await, (503, "no\n".to_owned()));
    }

    #[tokio::test]
    async fn a_check_that_hangs_counts_as_failed() {
        let server = server()
            .liveness(std::future::pending)
            .check_timeout(Duration::from_millis(10));
        let (status, text) = run(server).await.get("/healthz").await;
        assert!(status == 503 && text.contains("10ms"), "{status} {text}");
    }

    #[tokio::test]
    async fn a_program_adds_pages_of_its_own() {
        let running = run(server().route("/version", get(|| async { "7" }))).await;
        assert_eq!(running.get("/version").await, (200, "7".to_owned()));
    }

    #[tokio::test]
    async fn shutdown_ends_the_server_even_while_a_request_hangs() {
        let server = server().route("/hang", get(std::future::pending::<&'static str>));
        let running = run(server).await;
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
}
