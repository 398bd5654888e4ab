// SPDX-License-Identifier: Apache-2.0
//! Accepts connections and shakes hands, so that a slow client holds nobody else up.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, Sleep},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::debug;

use crate::timing::TIMING;

/// Connections at once; further ones wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 32;
/// How long a connection may say nothing, between requests or in the middle of one: longer than between two reads of a Prometheus.
pub const IDLE_LIMIT: Duration = TIMING.idle_timeout;

/// The first byte of a TLS handshake; no request in plain HTTP begins with it.
const HANDSHAKE: u8 = 0x16;

/// What becomes of connections without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// They fail, as a handshake that makes no sense.
    Refused,
    /// They are let in beside the others; [`Connection::is_tls`] tells them apart.
    LetIn,
}

/// Connections whose handshake is done.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(Connection, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Takes what comes to `listener`.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, plain: Plain) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, connections) = mpsc::channel(MOST_CONNECTIONS);
        Ok(Self {
            address,
            connections,
            accepting: tokio::spawn(accept(listener, TlsAcceptor::from(config), plain, done)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    plain: Plain,
    done: mpsc::Sender<(Connection, SocketAddr)>,
) {
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let permit = match plain {
            Plain::Refused => Arc::clone(&permits).acquire_owned().await.ok(),
            // Probes must come through, however many read the metrics.
            Plain::LetIn => None,
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                tokio::time::sleep(TIMING.accept_retry).await;
                continue;
            }
        };
        let (acceptor, done, permits) = (acceptor.clone(), done.clone(), Arc::clone(&permits));
        tokio::spawn(async move {
            let begun = begin(stream, &acceptor, permit, &permits);
            match tokio::time::timeout(TIMING.handshake_timeout, begun).await {
                // Nobody takes it when the server has ended.
                Ok(Ok(connection)) => drop(done.send((connection, peer)).await),
                Ok(Err(error)) => debug!(%peer, %error, "no handshake"),
                Err(_) => debug!(%peer, "no handshake in time"),
            }
        });
    }
}

/// Shakes hands; without a permit only if the client begins to, and if there is one left.
async fn begin(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    permit: Option<OwnedSemaphorePermit>,
    permits: &Arc<Semaphore>,
) -> io::Result<Connection> {
    let mut first = [0];
    if permit.is_none() && (stream.peek(&mut first).await? == 0 || first[0] != HANDSHAKE) {
        return Ok(Connection::new(Stream::Plain(stream), None));
    }
    let permit = match permit {
        Some(permit) => permit,
        None => Arc::clone(permits).try_acquire_owned().map_err(io::Error::other)?,
    };
    let stream = acceptor.accept(stream).await?;
    Ok(Connection::new(Stream::Tls(Box::new(stream)), Some(permit)))
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The accepting task ends with this listener, not before.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection, counted for as long as it is there, which ends when nothing goes over it for long: it takes the place of another.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    idle: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn new(stream: Stream, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            stream,
            idle: Box::pin(tokio::time::sleep(IDLE_LIMIT)),
            _permit: permit,
        }
    }

    /// Whether what goes over it can be read on the way.
    pub const fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Passes on what went over the connection; an error when nothing did for too long.
    fn unless_idle<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_LIMIT);
            return polled;
        }
        self.idle
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        self.unless_idle(cx, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buffer),
        };
        self.unless_idle(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
