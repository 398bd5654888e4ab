// SPDX-License-Identifier: Apache-2.0
//! Servers between the driver and the simulator: a TLS terminator and a forward proxy.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::site::LOOPBACK;

/// Maximum length of a request head.
const HEAD_MAX: usize = 16 * 1024;

/// A certificate chain, its key, and the CA certificates for the client, all in PEM.
#[derive(Debug, Clone)]
pub(crate) struct ServerIdentity {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) authorities: String,
}

/// Terminates TLS in front of another port, until it is dropped.
#[derive(Debug)]
pub(crate) struct TlsServer {
    task: JoinHandle<()>,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsServer {
    pub(crate) async fn start(port: u16, upstream: u16, identity: &ServerIdentity) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(identity)?));
        let listener = TcpListener::bind((LOOPBACK, port)).await.context("cannot listen")?;
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(acceptor.clone(), client, upstream));
            }
        });
        Ok(Self { task })
    }

    /// Stops the server and frees the port.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        // The result is always a cancellation.
        drop((&mut self.task).await);
    }
}

fn tls_config(identity: &ServerIdentity) -> Result<ServerConfig> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("no private key")?;
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("no version of TLS")?
        .with_no_client_auth()
        .with_single_cert(chain.context("no certificates")?, key)
        .context("the certificate cannot be used")
}

async fn pass_on(acceptor: TlsAcceptor, client: TcpStream, upstream: u16) -> Result<()> {
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect((LOOPBACK, upstream)).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// A forward proxy for tunnels and for requests with absolute URLs. It resolves every host to the loopback address, so
/// a client needs no name server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxy {
    lines: Arc<Mutex<Vec<String>>>,
    /// Whether every request is refused for lack of valid credentials.
    refuses: bool,
}

impl Proxy {
    /// Creates a proxy that accepts no credentials.
    pub(crate) fn refusing() -> Self {
        Self {
            refuses: true,
            ..Self::default()
        }
    }

    pub(crate) async fn start(self, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((LOOPBACK, port)).await.context("cannot listen")?;
        let proxy = self.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(proxy.clone().serve(client));
            }
        });
        Ok(self)
    }

    /// Takes the first lines of the requests so far.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }

    async fn serve(self, mut client: TcpStream) -> Result<()> {
        let head = read_head(&mut client).await?;
        let text = String::from_utf8_lossy(&head);
        let line = text.lines().next().unwrap_or_default().to_owned();
        self.lines.lock().push(line.clone());
        if self.refuses {
            let answer =
                "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
            client.write_all(answer.as_bytes()).await?;
            return Ok(());
        }
        let (method, target) = line.split_once(' ').context("no request")?;
        let authority = target.trim_start_matches("http://");
        let authority = authority.split(['/', ' ']).next().unwrap_or_default();
        let port: u16 = authority.rsplit_once(':').context("no port")?.1.parse()?;
        let mut server = TcpStream::connect((LOOPBACK, port)).await?;
        if method == "CONNECT" {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        } else {
            server.write_all(&head).await?;
        }
        copy_bidirectional(&mut client, &mut server).await?;
        Ok(())
    }
}

async fn read_head(client: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
        if head.len() > HEAD_MAX {
            bail!("the head of the request does not end");
        }
    }
    Ok(head)
}
