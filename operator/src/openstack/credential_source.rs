// SPDX-License-Identifier: Apache-2.0
//! The credentials of a cloud and the references to them.

use cinder_cloud::{
    Auth, CloudConfig,
    config::{ClientPem, Proxies},
};
use cinder_csi_crds::{BlockStorage, CaBundleRef, CinderCSIDriverSpec, Cloud as CloudSpec, Proxy};
use cinder_operator_core::manifests::DriverCredentials;

/// Credentials that have not been checked.
#[derive(Debug)]
pub struct Candidate {
    pub(super) config: CloudConfig,
    pub(super) auth_url: String,
    pub(super) credentials: DriverCredentials,
}

/// The references to the credentials of a cloud.
#[derive(Debug, Clone)]
pub struct CredentialSource {
    /// Name of the cloud in the spec.
    pub cloud: String,
    /// Namespace of the Secret.
    pub namespace: String,
    pub spec: CloudSpec,
    /// Options of the driver for Cinder.
    pub block_storage: BlockStorage,
    /// Proxies between the pods and the cloud.
    pub proxies: Proxies,
    /// Reference to the certificates of the proxies' authorities.
    pub proxy_ca: Option<CaBundleRef>,
}

/// Certificates for the connection to the cloud.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// The cloud's authorities.
    pub(super) ca: Option<String>,
    /// The proxy's authorities.
    pub(super) proxy_ca: Option<String>,
    /// The client certificate.
    pub(super) client: Option<ClientPem>,
}

impl Candidate {
    /// The authentication method.
    pub fn auth_method(&self) -> &'static str {
        auth_method(&self.config)
    }
}

impl CredentialSource {
    pub fn new(namespace: &str, spec: &CloudSpec) -> Self {
        Self {
            cloud: spec.name.clone(),
            namespace: namespace.to_owned(),
            spec: spec.clone(),
            block_storage: BlockStorage::default(),
            proxies: Proxies::default(),
            proxy_ca: None,
        }
    }

    /// Adds the options that the driver's spec has for all its clouds.
    #[must_use]
    pub fn with_options_of(mut self, driver: &CinderCSIDriverSpec) -> Self {
        self.block_storage = driver.block_storage.clone();
        self.proxies = proxies(driver.proxy.as_ref());
        self.proxy_ca = driver.proxy.as_ref().and_then(|proxy| proxy.ca_bundle_ref.clone());
        self
    }

    pub(super) fn secret(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.spec.credentials_secret_ref.name)
    }

    pub(super) fn key(&self) -> String {
        format!("key {} of {}", self.spec.credentials_secret_ref.key, self.secret())
    }
}

/// The authentication method of a configuration.
pub(super) fn auth_method(config: &CloudConfig) -> &'static str {
    match config.auth {
        Auth::ApplicationCredential { .. } => "ApplicationCredential",
        Auth::Password { .. } => "Password",
        Auth::Trust { .. } => "Trust",
        Auth::Token { .. } => "Token",
    }
}

/// Converts the proxies of a spec for the client.
fn proxies(spec: Option<&Proxy>) -> Proxies {
    let Some(spec) = spec else { return Proxies::default() };
    Proxies {
        http: spec.http_proxy.clone(),
        https: spec.https_proxy.clone(),
        direct: spec.no_proxy.join(","),
    }
}
