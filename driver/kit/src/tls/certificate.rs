// SPDX-License-Identifier: Apache-2.0
//! The certificate of the server: one that was given, read again when it is renewed, or one that is made at the start.

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

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file holds none.
    #[error("cannot read {path} as PEM: {reason}", path = path.display())]
    Read { path: PathBuf, reason: String },
    /// Certificate and key do not fit, or are of a kind that is not served.
    #[error("the certificate for the metrics cannot be used: {0}")]
    Use(#[source] rustls::Error),
    /// None could be made.
    #[error("cannot make a certificate for the metrics: {0}")]
    Make(#[source] rcgen::Error),
    /// The versions and cipher suites leave nothing to speak.
    #[error("TLS for the metrics: {0}; choose cipher suites of a version that is spoken")]
    Options(#[source] rustls::Error),
}

/// What the server shows to its clients.
#[derive(Debug)]
pub struct Certificate(Arc<Source>);

impl Certificate {
    /// From files, which are read again when they change: certificates are renewed while the program runs.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let loaded = LoadedCertificate {
            changed: files.changed(),
            looked: Instant::now(),
            key: files.read()?,
        };
        Ok(Self(Arc::new(Source::Files(files, Mutex::new(loaded)))))
    }

    /// One that nobody vouches for, for a server of this name.
    pub fn self_signed(name: &str) -> Result<Self, CertificateError> {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).map_err(CertificateError::Make)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let key = certified(vec![made.cert.der().clone()], key)?;
        Ok(Self(Arc::new(Source::Fixed(key))))
    }

    pub(super) fn into_resolver(self) -> Arc<dyn ResolvesServerCert> {
        self.0
    }
}

fn certified(
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
    fn changed(&self) -> [Option<SystemTime>; 2] {
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
        certified(chain, key)
    }
}

#[derive(Debug)]
struct LoadedCertificate {
    changed: [Option<SystemTime>; 2],
    looked: Instant,
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
        if loaded.looked.elapsed() >= TIMING.certificate_check {
            loaded.looked = Instant::now();
            let changed = files.changed();
            if changed != loaded.changed {
                match files.read() {
                    Ok(key) => {
                        info!(file = %files.certificate.display(), "loaded a new certificate for the metrics");
                        loaded.key = key;
                        loaded.changed = changed;
                    }
                    // Half of a pair that is being replaced: the next look finds both.
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
