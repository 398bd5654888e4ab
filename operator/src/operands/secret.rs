//! The driver's own Secret: what the controller's pods log in with.

use std::collections::BTreeMap;

use cinder_cloud::config::credentials_hash;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret, SecretString};

use super::metadata::{self, Component};
use crate::resolve::Resolved;

/// Where the Secret is mounted.
pub(super) const DIRECTORY: &str = "/etc/config";
/// The driver's configuration, as its flag names it.
pub(super) const CLOUD_CONF_FILE: &str = "/etc/config/cloud.conf";
/// The certificates, as the configuration names them.
pub const CA_FILE: &str = "/etc/config/ca.crt";
/// Annotation of the driver's Secret and of the controller's pods: a change of the credentials replaces them.
pub(super) const CREDENTIALS_HASH_ANNOTATION: &str = "csi.openstack.org/credentials-hash";

const CLOUD_CONF_KEY: &str = "cloud.conf";
const CA_KEY: &str = "ca.crt";
/// What goes into the hash beside the credentials. Pods and status are readable by more people than Secrets are, and without
/// it they could try passwords against the hash.
const SALT_KEY: &str = "salt";

/// Credentials that have logged in, in the form in which the driver reads them.
#[derive(Clone, Debug)]
pub struct DriverCredentials {
    cloud_conf: SecretString,
    ca_pem: Option<String>,
    salt: SecretString,
    hash: String,
}

impl DriverCredentials {
    /// From the text of a cloud.conf, which names [`CA_FILE`] if there are certificates, and those certificates in PEM.
    pub fn new(cloud_conf: SecretString, ca_pem: Option<String>) -> Self {
        let mut credentials = Self {
            cloud_conf,
            ca_pem,
            salt: SecretString::default(),
            hash: String::new(),
        };
        credentials.hash = credentials.digest();
        credentials
    }

    /// The same credentials, hashed together with `salt`, which stays in the driver's Secret.
    #[must_use]
    pub fn salted(mut self, salt: SecretString) -> Self {
        self.salt = salt;
        self.hash = self.digest();
        self
    }

    /// What the hash was made with; none if nothing was.
    pub fn salt(&self) -> Option<&SecretString> {
        Some(&self.salt).filter(|salt| !salt.expose_secret().is_empty())
    }

    fn digest(&self) -> String {
        // As the driver does, so that both can be compared.
        credentials_hash(&[
            self.salt.expose_secret().as_bytes(),
            self.cloud_conf.expose_secret().as_bytes(),
            self.ca_pem.as_deref().unwrap_or_default().as_bytes(),
        ])
    }

    /// What the driver's Secret holds now; none if it is not one that this operator wrote.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let credentials = Self::new(text(CLOUD_CONF_KEY)?.into(), text(CA_KEY));
        Some(credentials.salted(text(SALT_KEY).unwrap_or_default().into()))
    }

    /// SHA-256 of salt and content, in hexadecimal.
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
    if let Some(salt) = credentials.salt() {
        data.insert(
            SALT_KEY.to_owned(),
            ByteString(salt.expose_secret().as_bytes().to_vec()),
        );
    }
    let mut metadata = metadata::namespaced(resolved, cloud_config_name(resolved), Component::Controller);
    // It tells new credentials, which the operator wants, from a Secret that somebody changed.
    metadata
        .annotations
        .get_or_insert_default()
        .insert(CREDENTIALS_HASH_ANNOTATION.to_owned(), credentials.hash().to_owned());
    Secret {
        metadata,
        // `data` and not `stringData`, which the API server never gives back, so that a change would never be seen.
        data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::DriverCredentials;
    use crate::resolve::{
        resolve,
        tests::{mk_driver, mk_environment},
    };

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

    #[test]
    fn the_hash_depends_on_a_salt_that_only_the_secret_holds() {
        let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &mk_environment()).unwrap();
        let bare = DriverCredentials::new("ab".into(), None);
        let salted = bare.clone().salted("grain".into());
        assert_ne!(salted.hash(), bare.hash());

        let secret = super::secret(&resolved, &salted);
        let read = DriverCredentials::from_secret(&secret).unwrap();
        assert_eq!(read.hash(), salted.hash());
        assert!(!serde_json::to_string(&secret.metadata).unwrap().contains("grain"));
    }
}
