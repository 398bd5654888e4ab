// SPDX-License-Identifier: Apache-2.0
//! TLS of the servers: versions, cipher suites and a certificate.
//!
//! Versions and cipher suites have the same names as in Kubernetes (`--tls-min-version`, `--tls-cipher-suites`).

mod certificate;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::ring::{self, cipher_suite};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

pub use certificate::{Certificate, CertificateError};

/// The minimum version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    #[default]
    Tls12,
    Tls13,
}

impl TlsVersion {
    const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// Returns the name in Go and Kubernetes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        }
    }

    /// Returns this version and all later ones.
    fn supported_versions(self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        match self {
            Self::Tls12 => &BOTH,
            Self::Tls13 => &BOTH[..1],
        }
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TlsVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let version = Self::ALL.into_iter().find(|version| version.as_str() == text);
        version.ok_or_else(|| "use VersionTLS12 or VersionTLS13".to_owned())
    }
}

/// The supported cipher suites by their IANA names. Suites for certificates with RSA keys are excluded, because the
/// self-signed certificates have ECDSA keys.
const CIPHER_SUITES: [(&str, SupportedCipherSuite); 6] = [
    ("TLS_AES_256_GCM_SHA384", cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", cipher_suite::TLS13_AES_128_GCM_SHA256),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// A cipher suite, by its IANA name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CipherSuite(&'static str);

impl CipherSuite {
    /// Returns all supported cipher suites.
    pub fn all() -> impl Iterator<Item = Self> {
        CIPHER_SUITES.into_iter().map(|(name, _)| Self(name))
    }

    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for CipherSuite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::all().map(Self::as_str).collect::<Vec<_>>().join(", ");
        let version = Self::all().find(|suite| suite.0 == text);
        version.ok_or_else(|| format!("there is no such cipher suite; known are {}", known()))
    }
}

/// TLS settings of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    pub min_version: TlsVersion,
    /// The allowed cipher suites; empty for all suites that rustls considers safe.
    pub cipher_suites: Vec<CipherSuite>,
}

impl TlsOptions {
    /// Builds the configuration of a server that does not request client certificates.
    pub fn server_config(&self, certificate: Certificate) -> Result<Arc<ServerConfig>, CertificateError> {
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            let requested = |(name, suite): (&str, SupportedCipherSuite)| {
                let is_requested = self.cipher_suites.iter().any(|requested| requested.0 == name);
                is_requested.then_some(suite)
            };
            provider.cipher_suites = CIPHER_SUITES.into_iter().filter_map(requested).collect();
        }
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.min_version.supported_versions())
            .map_err(CertificateError::Options)?
            .with_no_client_auth()
            .with_cert_resolver(certificate.into_resolver());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Disables session resumption. A client that reads metrics twice a minute keeps its connection, so that
        // sessions would only use memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::*;

    #[test]
    fn supports_all_ecdsa_suites_of_rustls() {
        let names: Vec<String> = CipherSuite::all().map(|suite| suite.to_string()).collect();
        for suite in ring::default_provider().cipher_suites {
            // rustls includes the version in the names of TLS 1.3 suites.
            let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(names.contains(&name), !name.contains("_RSA_"), "{name}");
        }
        assert!(names.iter().all(|name| name.parse::<CipherSuite>().is_ok()));
    }

    #[test]
    fn unknown_suite_error_lists_supported_suites() {
        let error = "TLS_RSA_WITH_RC4_128_SHA".parse::<CipherSuite>().expect_err("none");
        assert!(error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
        assert!("VersionTLS11".parse::<TlsVersion>().is_err());
    }

    #[test]
    fn refuses_suites_below_minimum_version() {
        let options = TlsOptions {
            min_version: TlsVersion::Tls13,
            cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".parse().expect("known")],
        };
        let certificate = Certificate::self_signed("localhost").expect("made");
        let error = options
            .server_config(certificate)
            .expect_err("nothing is left")
            .to_string();
        assert!(error.contains("VersionTLS") || error.contains("cipher"), "{error}");
    }
}
