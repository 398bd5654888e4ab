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

/// Connections at once; further ones wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 32;
/// How long a client may take to shake hands.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may say nothing, between requests or in the middle of one: longer than between two reads of a Prometheus.
pub(super) const IDLE_LIMIT: Duration = Duration::from_mins(2);
/// Pause after the kernel had no connection to give, for want of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Connections whose handshake is done.
#[derive(Debug)]
pub(super) struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(Connection, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, connections) = mpsc::channel(MOST_CONNECTIONS);
        Ok(Self {
            address,
            connections,
            accepting: tokio::spawn(accept(listener, TlsAcceptor::from(config), done)),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
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
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, done) = (acceptor.clone(), done.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
                // Nobody takes it when the server has ended.
                Ok(Ok(stream)) => drop(
                    done.send((
                        Connection {
                            stream,
                            idle: Box::pin(tokio::time::sleep(IDLE_LIMIT)),
                            _permit: permit,
                        },
                        peer,
                    ))
                    .await,
                ),
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

/// A connection, counted for as long as it is there, which ends when nothing goes over it for long: it takes the place of another.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
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
