// SPDX-License-Identifier: Apache-2.0
//! TLS of the servers: versions, cipher suites and a certificate.
//!
//! Versions and cipher suites have the names that Kubernetes' own programs have for them (`--tls-min-version`,
//! `--tls-cipher-suites`).

mod certificate;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::ring::{self, cipher_suite};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

pub use certificate::{Certificate, CertificateError};

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// As Go and Kubernetes write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        }
    }

    /// This one and those after it.
    fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
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
        let found = Self::ALL.into_iter().find(|version| version.as_str() == text);
        found.ok_or_else(|| "use VersionTLS12 or VersionTLS13".to_owned())
    }
}

/// The cipher suites that there are, by their IANA names. Those for certificates with RSA keys are not among them: the
/// certificates that are made here have ECDSA keys.
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
    /// Every one that there is.
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
        let found = Self::all().find(|suite| suite.0 == text);
        found.ok_or_else(|| format!("there is no such cipher suite; known are {}", known()))
    }
}

/// How TLS is spoken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    pub min_version: TlsVersion,
    /// The cipher suites that may be used; every one that rustls takes for safe where none is named.
    pub cipher_suites: Vec<CipherSuite>,
}

impl TlsOptions {
    /// For a server that asks its clients for no certificate.
    pub fn server_config(&self, certificate: Certificate) -> Result<Arc<ServerConfig>, CertificateError> {
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            let wanted = |(name, suite): (&str, SupportedCipherSuite)| {
                let is_wanted = self.cipher_suites.iter().any(|wanted| wanted.0 == name);
                is_wanted.then_some(suite)
            };
            provider.cipher_suites = CIPHER_SUITES.into_iter().filter_map(wanted).collect();
        }
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.min_version.and_later())
            .map_err(CertificateError::Options)?
            .with_no_client_auth()
            .with_cert_resolver(certificate.into_resolver());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Who reads twice a minute keeps the connection; what could be resumed would only take memory.
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
    fn every_suite_of_the_library_that_such_a_certificate_can_use_has_its_name() {
        let names: Vec<String> = CipherSuite::all().map(|suite| suite.to_string()).collect();
        for suite in ring::default_provider().cipher_suites {
            // The library writes the version into the names of those of TLS 1.3.
            let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(names.contains(&name), !name.contains("_RSA_"), "{name}");
        }
        assert!(names.iter().all(|name| name.parse::<CipherSuite>().is_ok()));
    }

    #[test]
    fn a_suite_that_there_is_not_is_refused_with_those_that_there_are() {
        let error = "TLS_RSA_WITH_RC4_128_SHA".parse::<CipherSuite>().expect_err("none");
        assert!(error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
        assert!("VersionTLS11".parse::<TlsVersion>().is_err());
    }

    #[test]
    fn suites_of_an_older_version_than_the_oldest_leave_nothing_to_speak() {
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
