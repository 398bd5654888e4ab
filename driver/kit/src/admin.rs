// SPDX-License-Identifier: Apache-2.0
//! The HTTP servers of a process: one for probes (`/healthz`, `/readyz`), one for metrics (`/metrics`).

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
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::endpoint::TcpAddress;
use crate::metrics::Metrics;
use crate::timing::TIMING;
use crate::tls::TlsListener;

type Note = Arc<dyn Fn() -> Option<String> + Send + Sync>;
type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The checks behind `/healthz` and `/readyz`. Each passes until another is set.
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
    /// Sets the check of `/healthz`. `Err` holds the reason, which is sent to the client.
    pub fn liveness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.liveness = Arc::new(move || Box::pin(check()));
        self
    }

    /// Sets the check of `/readyz`. `Err` holds the reason, which is sent to the client.
    pub fn readiness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.readiness = Arc::new(move || Box::pin(check()));
        self
    }

    /// Sets the text that `/readyz` adds while it passes: something to fix that stops no call yet.
    pub fn readiness_note(mut self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.note = Arc::new(note);
        self
    }

    /// Sets the duration after which a check counts as failed.
    pub fn check_timeout(mut self, timeout: Duration) -> Self {
        self.check_timeout = timeout;
        self
    }

    /// Returns the two pages.
    pub fn router(self) -> Router {
        let limit = self.check_timeout;
        let (liveness, readiness, note) = (self.liveness, self.readiness, self.note);
        Router::new()
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

/// Returns the page `/metrics`.
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

    /// Serves until `shutdown` is cancelled. Open connections then have two seconds to end.
    pub async fn serve(self, shutdown: CancellationToken) -> io::Result<()> {
        let stopped = shutdown.clone().cancelled_owned();
        match self.tls {
            None => {
                let serve = axum::serve(self.listener, self.router).with_graceful_shutdown(stopped);
                drained(serve.into_future(), shutdown).await
            }
            Some(config) => {
                let listener = TlsListener::new(self.listener, config)?;
                let serve = axum::serve(listener, self.router).with_graceful_shutdown(stopped);
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
            debug!("a connection did not end in time and is cut");
            Ok(())
        }),
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
    async fn metrics_and_checks_have_a_server_each() {
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
    async fn a_check_that_fails_says_why() {
        let checks = HealthChecks::default()
            .liveness(|| async { Err("socket is gone".to_owned()) })
            .readiness(|| async { Err("no login yet".to_owned()) });
        let running = probe(checks).await;
        assert_eq!(running.get("/healthz").await, (503, "socket is gone\n".to_owned()));
        assert_eq!(running.get("/readyz").await, (503, "no login yet\n".to_owned()));
    }

    #[tokio::test]
    async fn a_note_stands_beside_a_check_that_passes_and_not_beside_one_that_fails() {
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
    async fn a_check_that_hangs_counts_as_failed() {
        let checks = HealthChecks::default()
            .liveness(std::future::pending)
            .check_timeout(Duration::from_millis(10));
        let (status, text) = probe(checks).await.get("/healthz").await;
        assert!(status == 503 && text.contains("10ms"), "{status} {text}");
    }

    #[tokio::test]
    async fn shutdown_ends_the_server_even_while_a_request_hangs() {
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
}
