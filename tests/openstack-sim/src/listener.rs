// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 over TCP, with or without TLS.

mod socket;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Response;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::TlsIdentity;
pub(crate) use socket::Reset;
use socket::Socket;

/// The listener cannot start.
#[derive(Debug, Error)]
pub enum ListenerError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}; choose an address of this machine and a free port")]
    Bind {
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The certificate or its key is not valid PEM.
    #[error("the TLS {what} is not PEM: {source}")]
    DecodePem {
        /// `certificate` or `key`.
        what: &'static str,
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate does not match the key.
    #[error("the TLS certificate and its key cannot be used: {source}")]
    UseTls { source: rustls::Error },
}

/// A bound address.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Listener {
    /// Binds the address. With `client_ca`, refuses clients without a certificate of this CA.
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Option<&TlsIdentity>,
        client_ca: Option<&str>,
    ) -> Result<Self, ListenerError> {
        let tls = tls.map(|tls| tls_config(tls, client_ca)).transpose()?.map(Arc::new);
        let fail = |source| ListenerError::Bind { address, source };
        let tcp = TcpListener::bind(address).await.map_err(fail)?;
        let address = tcp.local_addr().map_err(fail)?;
        Ok(Self { tcp, address, tls })
    }

    /// Returns the URL of the listener.
    pub(crate) fn url(&self) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "https" } else { "http" },
            self.address
        )
    }

    /// Serves requests until it is stopped. If `answer` fails, the connection is closed without a response.
    pub(crate) async fn serve<A, F, E>(self, stopped: CancellationToken, answer: A)
    where
        A: Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send,
        E: std::error::Error + Send + Sync + 'static,
    {
        let acceptor = self.tls.map(TlsAcceptor::from);
        loop {
            let Some(accepted) = stopped.run_until_cancelled(self.tcp.accept()).await else {
                return;
            };
            let Ok((tcp, _)) = accepted else {
                // For example, no file descriptor is available; one may become free soon.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            };
            drop(tcp.set_nodelay(true));
            let (answer, acceptor, stopped) = (answer.clone(), acceptor.clone(), stopped.clone());
            tokio::spawn(async move {
                let socket = Socket::new(tcp);
                let reset = socket.reset.clone();
                let connection = async {
                    match acceptor {
                        Some(acceptor) => match acceptor.accept(socket).await {
                            Ok(tls) => converse(tls, reset, answer).await,
                            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
                        },
                        None => converse(socket, reset, answer).await,
                    }
                };
                stopped.run_until_cancelled(connection).await;
            });
        }
    }
}

async fn converse<A, F, E>(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, reset: Reset, answer: A)
where
    A: Fn(http::Request<Incoming>) -> F,
    F: Future<Output = Result<Response<Full<Bytes>>, E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(
        TokioIo::new(stream),
        service_fn(move |mut request| {
            request.extensions_mut().insert(reset.clone());
            answer(request)
        }),
    );
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended");
    }
}

fn tls_config(identity: &TlsIdentity, client_ca: Option<&str>) -> Result<rustls::ServerConfig, ListenerError> {
    let certificates = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| ListenerError::DecodePem {
            what: "certificate",
            source,
        })?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|source| ListenerError::DecodePem { what: "key", source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|source| ListenerError::UseTls { source })?;
    let config = match client_ca {
        Some(pem) => config.with_client_cert_verifier(client_verifier(pem, &provider)?),
        None => config.with_no_client_auth(),
    };
    let mut config = config
        .with_single_cert(certificates, key)
        .map_err(|source| ListenerError::UseTls { source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn client_verifier(
    pem: &str,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, ListenerError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|source| ListenerError::DecodePem {
            what: "authority of clients",
            source,
        })?;
        roots
            .add(certificate)
            .map_err(|source| ListenerError::UseTls { source })?;
    }
    let roots = Arc::new(roots);
    rustls::server::WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| ListenerError::UseTls {
            source: rustls::Error::General(error.to_string()),
        })
}
