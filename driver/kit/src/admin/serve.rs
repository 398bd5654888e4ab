// SPDX-License-Identifier: Apache-2.0
//! Accepts connections and serves each in its own task.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use super::connections::{ConnectionSlot, Connections};
use crate::timing::TIMING;

/// The client's address of a request, as an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// The router and the TLS configuration of a server.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
}

/// Serves until `shutdown` is cancelled. Open connections then have two seconds to end.
pub(super) async fn serve(listener: TcpListener, service: Service, shutdown: CancellationToken) {
    let connections = Connections::default();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                sleep(TIMING.accept_retry).await;
                continue;
            }
        };
        if let Some(slot) = connections.admit(peer.ip()) {
            tasks.spawn(service.clone().serve(stream, peer, slot, shutdown.clone()));
        } else {
            debug!(%peer, "too many connections");
        }
    }
    drop(listener);
    let drained = timeout(TIMING.drain_timeout, async {
        while tasks.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        debug!("a connection did not end in time and is closed");
    }
}

impl Service {
    async fn serve(self, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot, shutdown: CancellationToken) {
        let slot = Arc::new(slot);
        let served = async {
            match &self.tls {
                None => self.serve_http(stream, peer, &slot, &shutdown).await,
                Some(acceptor) => match timeout(TIMING.handshake_timeout, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => self.serve_http(stream, peer, &slot, &shutdown).await,
                    Ok(Err(error)) => debug!(%peer, %error, "no handshake"),
                    Err(_) => debug!(%peer, "no handshake in time"),
                },
            }
        };
        tokio::select! {
            () = served => {}
            () = slot.evicted() => debug!(%peer, "the connection is closed for another one"),
        }
    }

    async fn serve_http<S>(&self, stream: S, peer: SocketAddr, slot: &Arc<ConnectionSlot>, shutdown: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answer = |mut request: hyper::Request<Incoming>| {
            let answering = slot.answer();
            request.extensions_mut().insert(PeerAddress(peer.ip().to_canonical()));
            let response = self.router.clone().oneshot(request.map(Body::new));
            async move {
                let response = response.await;
                drop(answering);
                response
            }
        };
        let stream = TokioIo::new(TimedStream::new(stream, Arc::clone(slot)));
        let connection = http1::Builder::new().serve_connection(stream, service_fn(answer));
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%peer, %error, "the connection ended");
        }
    }
}

/// A stream that fails at the deadline of its client.
struct TimedStream<S> {
    stream: S,
    slot: Arc<ConnectionSlot>,
    timer: Pin<Box<Sleep>>,
}

impl<S> TimedStream<S> {
    fn new(stream: S, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            stream,
            slot,
            timer: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Returns an error instead of `Pending` after the deadline.
    fn limit<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Some(deadline) = self.slot.deadline().filter(|_| polled.is_pending()) else {
            return polled;
        };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer
            .as_mut()
            .poll(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.slot.receive();
        }
        self.limit(context, polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(context, polled)
    }
}
