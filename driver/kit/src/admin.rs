//! The HTTP server of a process for probes and Prometheus: `/metrics`, `/healthz`, `/readyz`, and what a program adds.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::endpoint::TcpAddress;
use crate::metrics::Metrics;

/// How long open connections may take to end after shutdown was asked for.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a check may take where [`AdminServer::check_timeout`] says nothing else. Shorter than the timeouts that probes
/// usually have, so that the reason reaches the kubelet's event.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

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
            check_timeout: CHECK_TIMEOUT,
            extra: Router::new(),
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

    /// What `/readyz` says besides while it passes: something to mend that stops nobody yet.
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
            router: self.router(),
        })
    }

    fn router(self) -> Router {
        let metrics = self.metrics;
        let limit = self.check_timeout;
        let (liveness, readiness, note) = (self.liveness, self.readiness, self.note);
        let pages = match metrics {
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
    router: Router,
}

impl BoundAdminServer {
    /// Where it listens: tells the port where 0 was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Answers until `shutdown` is cancelled, then gives open connections two seconds to end.
    pub async fn serve(self, shutdown: CancellationToken) -> io::Result<()> {
        let stopped = shutdown.clone();
        let serve = axum::serve(self.listener, self.router)
            .with_graceful_shutdown(async move { stopped.cancelled().await })
            .into_future();
        tokio::pin!(serve);
        tokio::select! {
            served = &mut serve => served,
            () = shutdown.cancelled() => timeout(DRAIN, serve).await.unwrap_or_else(|_elapsed| {
                debug!("an admin connection did not end in time and is cut");
                Ok(())
            }),
        }
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
        timeout(DRAIN * 5, running.task)
            .await
            .expect("ends in time")
            .expect("does not panic")
            .expect("no error");
        hanging.abort();
    }
}
