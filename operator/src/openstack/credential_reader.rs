// SPDX-License-Identifier: Apache-2.0
//! Reads the credentials and certificates of a cloud from Secrets and ConfigMaps.

use cinder_cloud::{certificates, config::ClientPem};
use cinder_csi_crds::{CaBundleKind, CaBundleRef};
use cinder_operator_core::reasons::{Refusal, Refused};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;

use super::credential_source::{Candidate, Certificates, CredentialSource};
use crate::kubernetes::{self, GuardedApi, SecretData, SecretError, get_secret};

impl CredentialSource {
    /// Reads the Secret and the certificates. Nothing is cached: the next reconcile observes a change.
    pub(crate) async fn read(&self, client: &Client) -> Result<Candidate, Refused> {
        let reference = &self.spec.credentials_secret_ref;
        let Some(data) = self.get_secret(client, &self.secret(), &reference.name).await? else {
            return Err(Refused::new(
                Refusal::SecretMissing,
                format!(
                    "{} with the credentials of cloud {} does not exist; create it with the key {}, or name another one in \
                 spec.clouds",
                    self.secret(),
                    self.cloud,
                    reference.key
                ),
            ));
        };
        let bytes = data
            .get(&reference.key)
            .map_err(|error| self.unreadable(&self.key(), &error))?;
        let Some(bytes) = bytes else {
            // The names of other keys are not shown to every reader of the status.
            let known: Vec<&str> = data.keys().filter(|key| is_credentials_key(key)).collect();
            return Err(Refused::new(
                Refusal::SecretMissing,
                format!(
                    "{} has no key {}; of its keys these can hold credentials: {}; add it, or name another key in spec.clouds[].credentialsSecretRef.key",
                    self.secret(),
                    reference.key,
                    if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    }
                ),
            ));
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| {
            Refused::new(
                Refusal::SecretMalformed,
                format!(
                    "{} is binary; it must be text in UTF-8: store the file itself, without another encoding",
                    self.key()
                ),
            )
        })?;
        let certificates = Certificates {
            ca: match &self.spec.ca_bundle_ref {
                Some(reference) => {
                    let whose = format!("cloud {}", self.cloud);
                    let place = (whose.as_str(), "spec.clouds[].caBundleRef");
                    Some(self.read_ca(client, reference, place).await?)
                }
                None => None,
            },
            proxy_ca: match &self.proxy_ca {
                Some(reference) => {
                    let place = ("the proxy", "spec.proxy.caBundleRef");
                    Some(self.read_ca(client, reference, place).await?)
                }
                None => None,
            },
            client: self.read_client_certificate(client).await?,
        };
        self.parse_candidate(text, certificates)
    }

    /// Reads a Secret of the cloud; `None` if it does not exist.
    async fn get_secret(&self, client: &Client, place: &str, name: &str) -> Result<Option<SecretData>, Refused> {
        let secret = get_secret(client, &self.namespace, name).await;
        secret.map_err(|error| self.unreadable(place, &error))
    }

    async fn read_client_certificate(&self, client: &Client) -> Result<Option<ClientPem>, Refused> {
        let Some(reference) = &self.spec.client_cert_secret_ref else {
            return Ok(None);
        };
        let place = format!("Secret {}/{}", self.namespace, reference.name);
        let data = self
            .get_secret(client, &place, &reference.name)
            .await?
            .unwrap_or_default();
        let text = |key: &str| {
            let bytes = data.get(key).map_err(|error| self.unreadable(&place, &error))?;
            Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
        };
        let (Some(certificate), Some(key)) = (text("tls.crt")?, text("tls.key")?) else {
            let message = format!(
                "{place} with the client certificate of cloud {} does not exist or lacks tls.crt or tls.key; create it \
                 (`kubectl create secret tls`), or change spec.clouds[].clientCertSecretRef",
                self.cloud
            );
            return Err(Refused::new(Refusal::ClientCertificateMissing, message));
        };
        Ok(Some(ClientPem {
            certificate,
            key: key.into(),
        }))
    }

    /// Reads a bundle of certificates. The pair contains its owner and the name of its field, for messages.
    async fn read_ca(
        &self,
        client: &Client,
        reference: &CaBundleRef,
        (whose, field): (&str, &str),
    ) -> Result<String, Refused> {
        let (kind, name, key) = (reference.kind, &reference.name, &reference.key);
        let place = format!("{kind:?} {}/{name}", self.namespace);
        let bundle = match kind {
            CaBundleKind::Secret => {
                let secret = self.get_secret(client, &place, name).await?;
                let bytes = secret.map(|data| data.get(key)).transpose();
                let bytes = bytes.map_err(|error| self.unreadable(&place, &error))?;
                bytes.map(|bytes| bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
            }
            CaBundleKind::ConfigMap => {
                let maps: GuardedApi<ConfigMap> = GuardedApi::namespaced(client.clone(), &self.namespace);
                let map = maps
                    .get_opt(name)
                    .await
                    .map_err(|error| self.unreadable(&place, &config_map_error(&error)))?;
                map.map(|map| map.data.and_then(|mut data| data.remove(key)))
            }
        };
        let pem = match bundle {
            None => {
                let message = format!(
                    "{place} with the CA bundle of {whose} does not exist; create it with the key {key}, or change {field}"
                );
                return Err(Refused::new(Refusal::CABundleMissing, message));
            }
            Some(None) => {
                let message =
                    format!("{place} has no text under the key {key}; add it, or name another key in {field}.key");
                return Err(Refused::new(Refusal::CABundleMissing, message));
            }
            Some(Some(pem)) => pem,
        };
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            let message = format!(
                "key {key} of {place} holds no certificate in PEM; it must begin with -----BEGIN CERTIFICATE-----"
            );
            return Err(Refused::new(Refusal::SecretMalformed, message));
        }
        if certificates::ends(&pem).is_empty() {
            let message = format!(
                "key {key} of {place} holds no certificate that can be read; store the certificates of the authorities as they \
                 are, in PEM"
            );
            return Err(Refused::new(Refusal::SecretMalformed, message));
        }
        Ok(pem)
    }

    fn unreadable(&self, what: &str, error: &SecretError) -> Refused {
        let message = format!("{what}, needed for cloud {}, cannot be read: {error}", self.cloud);
        match error {
            SecretError::Refused(_) | SecretError::NoAnswer => Refused::new(Refusal::SecretUnreadable, message),
            SecretError::Undecodable(_) => Refused::new(
                Refusal::SecretMalformed,
                format!("{message}. Delete it and create it again"),
            ),
        }
    }
}

/// Converts a failed read of a ConfigMap to the error for Secrets.
fn config_map_error(error: &kube::Error) -> SecretError {
    match error {
        kube::Error::Api(_) => SecretError::Refused(kubernetes::answer(error)),
        kube::Error::SerdeError(_) => SecretError::Undecodable("the types of its fields are not those of a ConfigMap"),
        _ => SecretError::NoAnswer,
    }
}

/// The suffixes of the keys that the CRD accepts.
pub(super) const CREDENTIALS_SUFFIXES: [&str; 3] = [".yaml", ".yml", ".conf"];

/// Whether the CRD accepts this key of a Secret.
fn is_credentials_key(key: &str) -> bool {
    CREDENTIALS_SUFFIXES.iter().any(|suffix| key.ends_with(suffix))
}
