//! The driver's own Secret: what the controller's pods log in with.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::metadata::{self, Component};
use crate::resolve::{Resolved, hex};

/// Where the Secret is mounted.
pub(super) const DIRECTORY: &str = "/etc/config";
/// The driver's configuration, as its flag names it.
pub(super) const CLOUD_CONF_FILE: &str = "/etc/config/cloud.conf";
/// The certificates, as the configuration names them.
pub const CA_FILE: &str = "/etc/config/ca.crt";
/// Annotation of the controller's pods: a change of the credentials replaces them.
pub(super) const CREDENTIALS_HASH_ANNOTATION: &str = "csi.openstack.org/credentials-hash";

const CLOUD_CONF_KEY: &str = "cloud.conf";
const CA_KEY: &str = "ca.crt";

/// Credentials that have logged in, in the form in which the driver reads them.
#[derive(Clone, Debug)]
pub struct DriverCredentials {
    cloud_conf: SecretString,
    ca_pem: Option<String>,
    hash: String,
}

impl DriverCredentials {
    /// From the text of a cloud.conf, which names [`CA_FILE`] if there are certificates, and those certificates in PEM.
    pub fn new(cloud_conf: SecretString, ca_pem: Option<String>) -> Self {
        let mut hasher = Sha256::new();
        for part in [cloud_conf.expose_secret(), ca_pem.as_deref().unwrap_or_default()] {
            // The length keeps the parts apart.
            hasher.update(part.len().to_be_bytes());
            hasher.update(part);
        }
        Self {
            cloud_conf,
            ca_pem,
            hash: hex(&hasher.finalize()),
        }
    }

    /// What the driver's Secret holds now; none if it is not one that this operator wrote.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        Some(Self::new(text(CLOUD_CONF_KEY)?.into(), text(CA_KEY)))
    }

    /// SHA-256 of the content, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The beginning of [`Self::hash`], for the status.
    pub fn short_hash(&self) -> &str {
        &self.hash[..12]
    }
}

/// Name of the driver's Secret.
pub(super) fn cloud_config_name(resolved: &Resolved) -> String {
    format!("{}-cloud-config", resolved.slug)
}

pub(super) fn secret(resolved: &Resolved, credentials: &DriverCredentials) -> Secret {
    let mut data = BTreeMap::from([(
        CLOUD_CONF_KEY.to_owned(),
        ByteString(credentials.cloud_conf.expose_secret().as_bytes().to_vec()),
    )]);
    if let Some(pem) = &credentials.ca_pem {
        data.insert(CA_KEY.to_owned(), ByteString(pem.as_bytes().to_vec()));
    }
    Secret {
        metadata: metadata::namespaced(resolved, cloud_config_name(resolved), Component::Controller),
        // `data` and not `stringData`, which the API server never gives back, so that a change would never be seen.
        data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::DriverCredentials;

    #[test]
    fn the_hash_tells_the_configuration_from_the_certificates() {
        let one = DriverCredentials::new("ab".into(), Some("c".into()));
        let other = DriverCredentials::new("a".into(), Some("bc".into()));

        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.hash(), DriverCredentials::new("ab".into(), Some("c".into())).hash());
        assert!(one.hash().starts_with(one.short_hash()));
    }

    #[test]
    fn credentials_are_not_in_the_debug_output() {
        let credentials = DriverCredentials::new("password = hunter2".into(), None);

        assert!(!format!("{credentials:?}").contains("hunter2"));
    }
}
