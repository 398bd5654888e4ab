// SPDX-License-Identifier: Apache-2.0
//! Common processing of every RPC: a span, metrics, recovery from panics, and log lines without secrets.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use csi_kit::telemetry;
use csi_sources::Sources;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Request, Response, Status};
use tower::{Layer, Service};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::{Instrument, Span};

use crate::metrics::DriverMetrics;
use crate::operations::{Deadline, Operations};
use crate::status;

type PanicAnswer = fn(Box<dyn Any + Send>) -> http::Response<Body>;

/// Returns a layer that converts a panic in a handler to `INTERNAL`, so that it ends one call instead of the process.
///
/// Place it inside [`RpcLayer`], which then counts the error.
pub fn catch_panic() -> CatchPanicLayer<PanicAnswer> {
    CatchPanicLayer::custom(answer_panic as PanicAnswer)
}

fn answer_panic(_payload: Box<dyn Any + Send>) -> http::Response<Body> {
    // The panic hook has logged the message and the location.
    status::panicked("the call").into_http()
}

/// A layer that opens a span for each RPC and measures it.
#[derive(Debug, Clone)]
pub struct RpcLayer {
    metrics: DriverMetrics,
    sources: Sources,
}

impl RpcLayer {
    /// Creates a layer that counts in `metrics` and takes the ids of calls from `sources`.
    pub fn new(metrics: DriverMetrics, sources: Sources) -> Self {
        Self { metrics, sources }
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = RpcService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RpcService {
            inner,
            metrics: self.metrics.clone(),
            sources: self.sources.clone(),
        }
    }
}

/// The service of [`RpcLayer`].
#[derive(Debug, Clone)]
pub struct RpcService<S> {
    inner: S,
    metrics: DriverMetrics,
    sources: Sources,
}

impl<S, B, R> Service<http::Request<B>> for RpcService<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = request.uri().path().to_owned();
        // Computed outside the macro, because fields are evaluated only if a subscriber or a feature of `tracing`
        // enables them.
        let request_id = short_id(&self.sources);
        let span = tracing::info_span!(
            "rpc",
            method,
            %request_id,
            volume_id = tracing::field::Empty,
        );
        let measure = Measure {
            metrics: self.metrics.clone(),
            method,
            since: Instant::now(),
            code: Code::Cancelled,
        };
        let answer = span.in_scope(|| self.inner.call(request));
        Box::pin(
            async move {
                // Moves the whole value into the future, because its drop counts the call.
                let mut measure = measure;
                let answer = answer.await;
                measure.code = match &answer {
                    // A unary error is in the headers. Without one, the call succeeded.
                    Ok(answer) => Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code()),
                    Err(_) => Code::Unknown,
                };
                answer
            }
            .instrument(span),
        )
    }
}

/// Counts a call when it ends, even if its client disconnects before.
struct Measure {
    metrics: DriverMetrics,
    method: String,
    since: Instant,
    code: Code,
}

impl Drop for Measure {
    fn drop(&mut self) {
        self.metrics.rpc_finished(&self.method, self.code, self.since.elapsed());
    }
}

/// Returns an id that distinguishes the calls of one process in its log.
fn short_id(sources: &Sources) -> String {
    format!("{:08x}", sources.random() >> 32)
}

/// Whether an RPC is read-only. The kubelet and the sidecars call these often, and their success is not worth a log
/// line.
fn changes_nothing(rpc: &str) -> bool {
    ["Get", "List", "Validate"].iter().any(|verb| rpc.contains(verb))
}

/// Runs the handler of one RPC.
///
/// Records the volume in the span, and logs request and response at debug level (`Debug` of a request shows no secret).
/// Logs one line at the end, at debug level if a read-only RPC succeeded. `volume` returns the volume's id, or its name
/// before it has an id. The handler must respond by the deadline of [`Operations::deadline`].
pub(crate) async fn traced_rpc<Q, R, F>(
    operations: &Operations,
    rpc: &'static str,
    request: Request<Q>,
    volume: impl FnOnce(&Q) -> &str,
    handler: impl FnOnce(Q, Deadline) -> F,
) -> Result<Response<R>, Status>
where
    Q: Debug,
    R: Debug,
    F: Future<Output = Result<R, Status>>,
{
    let since = Instant::now();
    let deadline = operations.deadline(&request);
    let request = request.into_inner();
    let volume = volume(&request).to_owned();
    Span::current().record("volume_id", &volume);
    tracing::debug!(rpc, ?request, "request");
    let answer = handler(request, deadline).await.map_err(status::bounded);
    let elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The request ids for the logs of Keystone, Cinder and Nova. A call that joined an operation has none: the call
    // that started the operation logs them.
    let openstack_requests = telemetry::openstack_requests(&Span::current()).join(",");
    match &answer {
        Ok(answer) => {
            tracing::debug!(rpc, ?answer, "answer");
            let code = status::code_name(Code::Ok);
            if changes_nothing(rpc) {
                tracing::debug!(rpc, volume, code, elapsed_ms, openstack_requests, "{rpc} done");
            } else {
                tracing::info!(rpc, volume, code, elapsed_ms, openstack_requests, "{rpc} done");
            }
        }
        Err(refusal) => {
            let code = status::code_name(refusal.code());
            let reason = refusal.message();
            tracing::warn!(
                rpc,
                volume,
                code,
                elapsed_ms,
                openstack_requests,
                reason,
                "{rpc} refused"
            );
        }
    }
    answer.map(Response::new)
}

/// Implements the service of a `tonic` server.
///
/// Each row is an RPC: its method, request, field that identifies the object, response, handler, and required alpha
/// capability.
macro_rules! rpcs {
    (
        impl $server:ident for $service:ident;
        $($method:ident($request:ident $(.$field:ident)?) -> $answer:ident = $handler:path $(, if $capability:ident)?;)*
    ) => {
        #[tonic::async_trait]
        impl $server for $service {
            $(
                async fn $method(
                    &self,
                    request: tonic::Request<csi_proto::csi::v1::$request>,
                ) -> Result<tonic::Response<csi_proto::csi::v1::$answer>, tonic::Status> {
                    $(self.disabled().check(AlphaCapability::$capability)?;)?
                    crate::layers::traced_rpc(
                        self.operations(),
                        stringify!($request).trim_end_matches("Request"),
                        request,
                        |_request| crate::layers::rpcs!(@object _request $(.$field)?),
                        |request, deadline| $handler(self, request, deadline),
                    )
                    .await
                }
            )*
        }
    };
    (@object $request:ident) => { "" };
    (@object $request:ident .$field:ident) => { &$request.$field };
}
pub(crate) use rpcs;

#[cfg(test)]
mod tests;
