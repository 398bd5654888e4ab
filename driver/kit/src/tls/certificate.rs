// SPDX-License-Identifier: Apache-2.0
//! The certificate of a server: from files, which are reloaded after a renewal, or self-signed at the start.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use csi_sources::files::read_config;
use parking_lot::Mutex;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::timing::TIMING;

/// Reasons why the server has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file contains no certificate or key.
    #[error("cannot read {path} as PEM: {reason}", path = path.display())]
    Read { path: PathBuf, reason: String },
    /// Certificate and key do not match, or their kind is not supported.
    #[error("the certificate for the metrics cannot be used: {0}")]
    Use(#[source] rustls::Error),
    /// A self-signed certificate could not be created.
    #[error("cannot make a certificate for the metrics: {0}")]
    Make(#[source] rcgen::Error),
    /// The cipher suites exclude all allowed versions.
    #[error("TLS for the metrics: {0}; choose cipher suites of a version that is spoken")]
    Options(#[source] rustls::Error),
}

/// The certificate that the server presents to its clients.
#[derive(Debug)]
pub struct Certificate(Arc<Source>);

impl Certificate {
    /// Loads the certificate from files, and reloads it when they change: certificates are renewed while the program
    /// runs.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let loaded = LoadedCertificate {
            changed: files.modification_times(),
            checked: Instant::now(),
            key: files.read()?,
        };
        Ok(Self(Arc::new(Source::Files(files, Mutex::new(loaded)))))
    }

    /// Creates a self-signed certificate for a server of this name.
    pub fn self_signed(name: &str) -> Result<Self, CertificateError> {
        let generated = rcgen::generate_simple_self_signed(vec![name.to_owned()]).map_err(CertificateError::Make)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der()));
        let key = build_key(vec![generated.cert.der().clone()], key)?;
        Ok(Self(Arc::new(Source::Fixed(key))))
    }

    pub(super) fn into_resolver(self) -> Arc<dyn ResolvesServerCert> {
        self.0
    }
}

fn build_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map(Arc::new)
        .map_err(CertificateError::Use)
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn modification_times(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key].map(|path| std::fs::metadata(path).ok()?.modified().ok())
    }

    fn read(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let failed = |path: &Path, reason: &dyn fmt::Display| CertificateError::Read {
            path: path.to_owned(),
            reason: reason.to_string(),
        };
        let read = |path: &Path| read_config(path).map_err(|error| failed(path, &error));
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(&self.certificate, &error))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| failed(&self.key, &error))?;
        build_key(chain, key)
    }
}

#[derive(Debug)]
struct LoadedCertificate {
    changed: [Option<SystemTime>; 2],
    checked: Instant,
    key: Arc<CertifiedKey>,
}

#[derive(Debug)]
enum Source {
    Fixed(Arc<CertifiedKey>),
    Files(Files, Mutex<LoadedCertificate>),
}

impl Source {
    fn current(&self) -> Arc<CertifiedKey> {
        let (files, loaded) = match self {
            Self::Fixed(key) => return Arc::clone(key),
            Self::Files(files, loaded) => (files, loaded),
        };
        let mut loaded = loaded.lock();
        if loaded.checked.elapsed() >= TIMING.certificate_check {
            loaded.checked = Instant::now();
            let changed = files.modification_times();
            if changed != loaded.changed {
                match files.read() {
                    Ok(key) => {
                        info!(file = %files.certificate.display(), "loaded a new certificate for the metrics");
                        loaded.key = key;
                        loaded.changed = changed;
                    }
                    // Only one of the two files has been replaced so far. The next check reads both.
                    Err(error) => warn!(%error, "keeping the certificate for the metrics"),
                }
            }
        }
        Arc::clone(&loaded.key)
    }
}

impl ResolvesServerCert for Source {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
