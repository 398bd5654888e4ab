// SPDX-License-Identifier: Apache-2.0
//! TLS settings: the trusted certificates of the services, and the driver's own certificate.

use std::fmt;
use std::path::{Path, PathBuf};

use csi_sources::files::read_config_text;
use secrecy::{ExposeSecret, SecretString};

/// TLS settings: the trusted certificates of the services, and the driver's own certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// A file of PEM certificates. If set, only its authorities are trusted.
    pub ca_file: Option<PathBuf>,
    /// The authorities inline, or the content of the file.
    pub ca_pem: Option<String>,
    /// Whether to trust the public authorities in addition to the configured ones: `also-public-roots`.
    pub also_public_roots: bool,
    /// Whether to accept any certificate. For test environments.
    pub insecure: bool,
    /// A client certificate with its chain, and its key, as PEM files.
    pub client: Option<ClientCertificate>,
    /// The client certificate inline, or the content of the files. A `cloud.conf` has files only.
    pub client_pem: Option<ClientPem>,
    /// The reason why a file could not be read.
    pub(crate) unreadable: Option<String>,
}

/// A client certificate (mutual TLS). One file may contain certificate and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and its chain.
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// A client certificate with its key, inline. Its `Debug` shows neither.
#[derive(Clone)]
pub struct ClientPem {
    /// The certificate and its chain.
    pub certificate: String,
    pub key: SecretString,
}

impl fmt::Debug for ClientPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPem").finish_non_exhaustive()
    }
}

impl PartialEq for ClientPem {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate && self.key.expose_secret() == other.key.expose_secret()
    }
}

impl Eq for ClientPem {}

impl Tls {
    /// The configured files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let client = self
            .client
            .iter()
            .flat_map(|client| [&client.cert_file, &client.key_file]);
        self.ca_file.iter().chain(client).map(PathBuf::as_path)
    }

    /// Reads the configured files, because a connection reads no files. An unreadable file becomes an error of the
    /// first connection, which concerns only this cloud.
    pub fn read_files(&mut self) {
        self.unreadable = self.read_all().err();
    }

    fn read_all(&mut self) -> Result<(), String> {
        if let Some(path) = &self.ca_file {
            self.ca_pem = Some(read("ca-file", path)?);
        }
        if let Some(client) = &self.client {
            self.client_pem = Some(ClientPem {
                certificate: read("cert-file", &client.cert_file)?,
                key: read("key-file", &client.key_file)?.into(),
            });
        }
        Ok(())
    }

    /// The certificates and keys, for comparisons.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        let client = self.client_pem.as_ref();
        let parts = [
            self.ca_pem.as_deref(),
            client.map(|client| client.certificate.as_str()),
            client.map(|client| client.key.expose_secret()),
        ];
        parts.into_iter().map(|part| part.unwrap_or_default().as_bytes())
    }
}

fn read(key: &str, path: &Path) -> Result<String, String> {
    read_config_text(path).map_err(|error| format!("{key} {}: {error}; check that it is mounted", path.display()))
}
