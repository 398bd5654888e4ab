// SPDX-License-Identifier: Apache-2.0
//! Reasons why TLS with a service failed.

use std::error::Error;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// The reason why TLS with a service failed. `Display` is the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsProblem {
    Expired,
    NotYetValid,
    WrongName,
    UnknownIssuer,
    UnsupportedKey,
    /// The service rejects the driver's certificate, or requires one.
    ClientCertificate,
    Other,
}

impl TlsProblem {
    /// Finds the TLS failure among the causes of an error.
    pub(crate) fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(cause) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::classify(cause));
            }
            // The source of an I/O error is the source of the inner error, and not the inner error itself.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = match inner {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    fn classify(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => Self::UnsupportedKey,
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            ) => Self::ClientCertificate,
            _ => Self::Other,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::UnsupportedKey,
            // Another authority of the same name, or a self-signed certificate that is not configured.
            CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
                Self::UnknownIssuer
            }
            _ => Self::Other,
        }
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the certificate of the service has expired: renew it, and check the clock of this machine",
            Self::NotYetValid => {
                "the certificate of the service is not valid yet: check the clock of this machine, and the first day of the certificate"
            }
            Self::WrongName => {
                "the certificate of the service is for another name: use a host name or an address of its subjectAltName, or issue one \
                 with this name; the common name does not count"
            }
            Self::UnknownIssuer => {
                "the issuer of the certificate is not trusted: set ca-file in cloud.conf (cacert in clouds.yaml, caBundleRef in \
                 spec.clouds) to the certificate of its authority; with a CA, public authorities count only if also-public-roots is true"
            }
            Self::UnsupportedKey => {
                "a key of the certificates is not supported: use ECDSA with P-256 or P-384, Ed25519, or RSA from 2048 to 8192 bits; \
                 P-521 is not supported"
            }
            Self::ClientCertificate => {
                "the service requires another client certificate: set cert-file and key-file to one that it accepts"
            }
            Self::Other => "check that the address is that of an https endpoint with TLS 1.2 or 1.3",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_alerts_name_the_side_to_fix() {
        let problem = |alert| {
            let cause = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert));
            TlsProblem::find(&io::Error::other(cause))
        };
        // The alert of a server with a P-521 key, for which the driver has no algorithm.
        assert_eq!(
            problem(AlertDescription::HandshakeFailure),
            Some(TlsProblem::UnsupportedKey)
        );
        assert_eq!(
            problem(AlertDescription::CertificateRequired),
            Some(TlsProblem::ClientCertificate)
        );
        assert_eq!(problem(AlertDescription::RecordOverflow), Some(TlsProblem::Other));
        assert_eq!(TlsProblem::find(&io::Error::other("connection refused")), None);
    }
}
