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

/// Connections whose handshake is done.
#[derive(Debug)]
pub(crate) struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(Connection, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Takes what comes to `listener`.
    pub(crate) fn new(listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, connections) = mpsc::channel(MOST_CONNECTIONS);
        Ok(Self {
            address,
            connections,
            accepting: tokio::spawn(accept(listener, TlsAcceptor::from(config), done)),
        })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, done: mpsc::Sender<(Connection, SocketAddr)>) {
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                tokio::time::sleep(TIMING.accept_retry).await;
                continue;
            }
        };
        let (acceptor, done) = (acceptor.clone(), done.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(TIMING.handshake_timeout, acceptor.accept(stream)).await {
                // The receiver is dropped when the server has ended.
                Ok(Ok(stream)) => drop(done.send((Connection::new(stream, permit), peer)).await),
                Ok(Err(error)) => debug!(%peer, %error, "no handshake"),
                Err(_) => debug!(%peer, "no handshake in time"),
            }
        });
    }
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

/// A connection that holds one of the places, and ends when it is idle for too long.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TlsStream<TcpStream>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            idle: Box::pin(tokio::time::sleep(IDLE_LIMIT)),
            _permit: permit,
        }
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
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.unless_idle(cx, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.unless_idle(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
