// SPDX-License-Identifier: Apache-2.0
//! TLS with OpenStack: the trusted certificates and the client certificate.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret;

use crate::certificates::validity;
use crate::config::{ClientPem, Tls};
use crate::error::CloudError;

/// Returns the configuration of all connections to a cloud. A configured authority replaces the public ones, as in
/// the Go driver and in openstacksdk, unless `also-public-roots` is set.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, CloudError> {
    if let Some(reason) = unread_files_error(tls) {
        return Err(CloudError::Setup(reason));
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(ServerVerifier::new(tls, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CloudError::Setup(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client_pem {
        Some(client) => parse_identity(client)
            .and_then(|(chain, key)| builder.with_client_auth_cert(chain, key).ok())
            .ok_or_else(|| bad_identity(tls))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns an error text when the files of the configuration were not read.
fn unread_files_error(tls: &Tls) -> Option<String> {
    let is_missing = tls.ca_pem.is_none() && tls.ca_file.is_some() || tls.client_pem.is_none() && tls.client.is_some();
    let missing = || is_missing.then(|| "the files of ca-file, cert-file and key-file were not read".to_owned());
    tls.unreadable.clone().or_else(missing)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn parse_identity(client: &ClientPem) -> Option<Identity> {
    let chain = CertificateDer::pem_slice_iter(client.certificate.as_bytes());
    let chain: Vec<_> = chain.collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(client.key.expose_secret().as_bytes()).ok()?;
    Some((chain, key))
}

/// The error omits the parser's own text, which may quote the key.
fn bad_identity(tls: &Tls) -> CloudError {
    CloudError::Setup(match &tls.client {
        Some(files) => format!(
            "cert-file {} and key-file {} are not a certificate and its key in PEM",
            files.cert_file.display(),
            files.key_file.display()
        ),
        None => "the client certificate and its key are not PEM that belongs together".to_owned(),
    })
}

/// Verifies the server of a connection. The configuration determines how far its certificate is verified. The
/// possession of the certificate's key is always verified.
#[derive(Debug)]
struct ServerVerifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Trust {
    /// `tls-insecure`.
    AnyCertificate,
    Authorities(Authorities),
}

impl ServerVerifier {
    fn new(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Self, CloudError> {
        let trust = if tls.insecure {
            Trust::AnyCertificate
        } else {
            Trust::Authorities(Authorities::new(tls, provider)?)
        };
        Ok(Self {
            trust,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::AnyCertificate => Ok(ServerCertVerified::assertion()),
            Trust::Authorities(authorities) => {
                authorities.verify(end_entity, intermediates, server_name, ocsp_response, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies certificates of the configured authorities, or of the public ones.
#[derive(Debug)]
struct Authorities {
    webpki: Arc<WebPkiServerVerifier>,
    /// The certificates of the configuration.
    configured: Vec<CertificateDer<'static>>,
}

impl Authorities {
    fn new(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Self, CloudError> {
        let configured = parse_authorities(tls)?;
        let roots = root_store(&configured, tls.also_public_roots)?;
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Ok(Self {
            webpki: webpki.map_err(|error| CloudError::Setup(format!("the CA cannot be used: {error}")))?,
            configured,
        })
    }

    /// Verifies as webpki does, with one exception. A certificate of `openssl req -x509` is its own authority
    /// (CA:TRUE), and webpki never accepts an authority as a server. OpenSSL and Go accept it if this very
    /// certificate is configured, and so does this method.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self
            .webpki
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if is_authority_as_server(&error) && self.configured.contains(end_entity) => {
                verify_configured(end_entity, server_name, now)
            }
            verified => verified,
        }
    }
}

/// Returns the trusted authorities.
fn root_store(configured: &[CertificateDer<'static>], also_public: bool) -> Result<RootCertStore, CloudError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(configured.iter().cloned());
    if added == 0 && !configured.is_empty() {
        let reason = "the CA has no certificate that can be read; store the certificates of the authorities in PEM";
        return Err(CloudError::Setup(reason.to_owned()));
    }
    if configured.is_empty() || also_public {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(roots)
}

fn parse_authorities(tls: &Tls) -> Result<Vec<CertificateDer<'static>>, CloudError> {
    let Some(pem) = &tls.ca_pem else { return Ok(Vec::new()) };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| CloudError::Setup(format!("the CA is not PEM: {error}")))?;
    if certificates.is_empty() {
        let reason = "the CA holds no certificate (BEGIN CERTIFICATE)";
        return Err(CloudError::Setup(reason.to_owned()));
    }
    Ok(certificates)
}

/// rustls has no variant for this error and passes on the text of webpki.
fn is_authority_as_server(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == "CaUsedAsEndEntity")
}

/// Verifies the name and the dates of a certificate that is itself configured.
fn verify_configured(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let (begin, end) = validity(certificate).ok_or(CertificateError::BadEncoding)?;
    let today = i64::try_from(now.as_secs()).ok();
    let today = today.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let today = today.ok_or(Error::FailedToGetCurrentTime)?;
    if today < begin {
        return Err(CertificateError::NotValidYet.into());
    }
    if today > end {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    Ok(ServerCertVerified::assertion())
}

#[cfg(test)]
mod tests;
