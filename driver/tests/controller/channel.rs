// SPDX-License-Identifier: Apache-2.0
//! The connection to a driver: through its socket, or by direct calls of its service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cinder_csi_driver::Rpcs;
use http::{Request, Response};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tower::{Service, ServiceExt};

#[derive(Clone)]
pub(crate) enum Channel {
    /// To a socket.
    Socket(tonic::transport::Channel),
    /// To a driver in the same runtime.
    Direct(Direct),
}

/// A driver in the same runtime. Each call is a task, as behind a socket.
#[derive(Clone)]
pub(crate) struct Direct {
    pub(crate) rpcs: Rpcs,
    pub(crate) killed: CancellationToken,
}

impl Direct {
    async fn call(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        if self.killed.is_cancelled() {
            return Err(Status::unavailable("connection refused"));
        }
        let limit = time_limit(&request).unwrap_or(Duration::MAX);
        let handler = self.killed.run_until_cancelled_owned(self.rpcs.oneshot(request));
        // A client that disconnects aborts the call.
        let task = AbortOnDropHandle::new(tokio::spawn(handler));
        match tokio::time::timeout(limit, task).await {
            Ok(Ok(Some(Ok(answer)))) => Ok(answer),
            Ok(Ok(Some(Err(never)))) => match never {},
            Ok(Ok(None) | Err(_)) => Err(Status::unavailable("connection reset by peer")),
            Err(_) => Err(Status::cancelled("Timeout expired")),
        }
    }
}

/// Parses the client's timeout in the units that tonic's client sends.
fn time_limit(request: &Request<Body>) -> Option<Duration> {
    let text = request.headers().get("grpc-timeout")?.to_str().expect("ASCII");
    let (count, unit) = text.split_at(text.len() - 1);
    let count = count.parse().expect("a number");
    Some(match unit {
        "n" => Duration::from_nanos(count),
        "u" => Duration::from_micros(count),
        "m" => Duration::from_millis(count),
        "S" => Duration::from_secs(count),
        other => panic!("{other} is no unit of tonic's"),
    })
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match self {
            Self::Socket(channel) => channel
                .poll_ready(context)
                .map_err(|error| Status::from_error(error.into())),
            // Each call uses its own clone.
            Self::Direct(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            Self::Socket(channel) => {
                let answer = channel.call(request);
                Box::pin(async move { answer.await.map_err(|error| Status::from_error(error.into())) })
            }
            Self::Direct(direct) => Box::pin(direct.clone().call(request)),
        }
    }
}
