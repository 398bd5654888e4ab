// SPDX-License-Identifier: Apache-2.0
//! Reads and validates the credentials of a cloud, and formats the reasons for their rejection.

use std::path::Path;

use cinder_cloud::{
    CloudConfig, CloudError, CloudErrorKind, ConfigError, EndpointProblem, Failure, Interface, certificates,
    config::{ClientPem, Proxies},
};
use cinder_csi_crds::{
    BlockStorage, CaBundleKind, CaBundleRef, CinderCSIDriverSpec, Cloud as CloudSpec, EndpointType, Proxy,
};
use cinder_csi_driver::topology::REGION;
use cinder_operator_core::{
    manifests::DriverCredentials,
    reasons::{Refusal, Refused},
};
use csi_sources::UntrustedText;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;

use super::{LOGIN_LIMIT, TrialError};
use crate::kubernetes::{self, GuardedApi, SecretData, SecretError, get_secret};

/// Maximum number of characters of an error response. Services repeat the request in it, without a limit.
const LONGEST_FAULT: usize = 300;

/// Separates the certificates of the cloud's authorities from those of the proxy's authorities in a bundle. Readers of
/// PEM ignore text between certificates.
const PROXY_AUTHORITIES: &str = "# The authorities of the proxy:\n";

/// Splits a combined bundle into the certificates of the cloud's authorities and those of the proxy's authorities.
pub(crate) fn parted(bundle: &str) -> (&str, &str) {
    bundle.split_once(PROXY_AUTHORITIES).unwrap_or((bundle, ""))
}

/// Credentials that have not been checked.
#[derive(Debug)]
pub struct Candidate {
    pub(super) config: CloudConfig,
    pub(super) auth_url: String,
    pub(super) credentials: DriverCredentials,
}

/// The references to the credentials of a cloud.
#[derive(Debug, Clone)]
pub struct Source {
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
        super::auth_method(&self.config)
    }
}

impl Source {
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

    /// Parses the text of the Secret and builds the driver's credentials.
    pub(super) fn parse_candidate(&self, text: &str, certificates: Certificates) -> Result<Candidate, Refused> {
        // The CRD accepts only names with these extensions.
        let is_yaml = Path::new(&self.spec.credentials_secret_ref.key)
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml");
        let parsed = if is_yaml {
            CloudConfig::from_clouds_yaml_in(text, &self.spec.cloud_name, self.spec.region.as_deref())
        } else {
            CloudConfig::from_cloud_conf(text)
        };
        let mut config = parsed.map_err(|error| self.malformed(&error))?;
        if let Some(region) = &self.spec.region {
            config.region = Some(region.clone());
        }
        if let Some(endpoint_type) = self.spec.endpoint_type {
            config.interface = match endpoint_type {
                EndpointType::Public => Interface::Public,
                EndpointType::Internal => Interface::Internal,
                EndpointType::Admin => Interface::Admin,
            };
        }
        config.tls.insecure |= self.spec.insecure_skip_tls_verify;
        config.proxies = self.proxies.clone();
        let options = &mut config.block_storage;
        // Without a rescan, an expanded raw device would retain its old size.
        options.rescan_on_resize = self.block_storage.rescan_on_resize.unwrap_or(true);
        // Nodes never read the file. A limit in it would be unknown to the scheduler.
        options.node_volume_attach_limit = self.block_storage.node_volume_attach_limit;
        options.ignore_volume_az = self.block_storage.ignore_volume_az.unwrap_or(options.ignore_volume_az);
        options.ignore_volume_microversion = self
            .block_storage
            .ignore_volume_microversion
            .unwrap_or(options.ignore_volume_microversion);
        let zones = self.spec.availability_zone_map.clone();
        config.topology.zone_map.extend(zones);
        let region = self.spec.node_region.clone();
        config
            .topology
            .segments
            .extend(region.map(|region| (REGION.to_owned(), region)));
        if let Some(pem) = certificates.ca {
            config.tls.ca_file = None;
            config.tls.ca_pem = Some(pem);
        }
        if let Some(file) = &config.tls.ca_file {
            return Err(Refused::new(
                Refusal::CABundleMissing,
                format!(
                    "{} names the CA file {}, which the driver's pods do not have; put the certificates into a ConfigMap and name it in \
                 spec.clouds[].caBundleRef",
                    self.key(),
                    file.display()
                ),
            ));
        }
        if let Some(proxy) = certificates.proxy_ca {
            // The proxy's authorities do not replace the public ones. Hosts that the client reaches without the proxy
            // have certificates of public authorities.
            config.tls.also_public_roots |= config.tls.ca_pem.is_none();
            let cloud = config.tls.ca_pem.take().map(|pem| format!("{}\n", pem.trim_end()));
            config.tls.ca_pem = Some(format!("{}{PROXY_AUTHORITIES}{proxy}", cloud.unwrap_or_default()));
        }
        if let Some(pair) = certificates.client {
            config.tls.client = None;
            config.tls.client_pem = Some(pair);
        }
        if let Some(client) = &config.tls.client {
            return Err(Refused::new(
                Refusal::ClientCertificateMissing,
                format!(
                    "{} names the client certificate {}, which the driver's pods do not have; put it into a Secret of type \
                     kubernetes.io/tls and name that in spec.clouds[].clientCertSecretRef",
                    self.key(),
                    client.cert_file.display()
                ),
            ));
        }
        let credentials = DriverCredentials::of_cloud(&config);
        Ok(Candidate {
            auth_url: config.auth_url.clone(),
            config,
            credentials,
        })
    }

    fn malformed(&self, error: &ConfigError) -> Refused {
        match error {
            ConfigError::UnknownCloud { cloud, known, .. } => Refused::new(
                Refusal::UnknownCloud,
                format!(
                    "{} has no cloud {cloud}; it has: {known}. Set spec.clouds[].cloudName to one of these",
                    self.key()
                ),
            ),
            error => Refused::new(
                Refusal::SecretMalformed,
                format!("{} cannot be used: {error}", self.key()),
            ),
        }
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

    /// Why a check failed, without details that differ between attempts (request ids, times).
    pub(super) fn refused(&self, auth_url: &str, error: &TrialError) -> Refused {
        let (service, error) = match error {
            TrialError::Login(error) if error.kind() == CloudErrorKind::RegionAmbiguous => {
                return Refused::new(
                    Refusal::RegionAmbiguous,
                    format!(
                        "the login with {}, cloud {}, works, but {error}, or spec.clouds[].region",
                        self.key(),
                        self.cloud
                    ),
                );
            }
            TrialError::Login(error) => return self.refusal(auth_url, error),
            TrialError::Service(service, error) => (service.as_str(), error),
        };
        let works = format!("the login with {}, cloud {}, works", self.key(), self.cloud);
        match (error.kind(), error.failure()) {
            (CloudErrorKind::NoEndpoint, _) => {
                let fields = match error {
                    CloudError::NoEndpoint {
                        problem: EndpointProblem::Place,
                        ..
                    } => ": region_name or spec.clouds[].region, and interface or spec.clouds[].endpointType",
                    _ => "",
                };
                Refused::new(Refusal::EndpointMissing, format!("{works}, but {error}{fields}"))
            }
            (CloudErrorKind::Credentials | CloudErrorKind::NotPermitted, Some(failure)) => Refused::new(
                Refusal::CredentialsForbidden,
                format!(
                    "{works}, but {service} does not let it list what there is: {}. Give the user or application credential a role in the \
                     project that may use volumes and servers, such as member",
                    answer(failure)
                ),
            ),
            _ => Refused::new(
                Refusal::CloudUnreachable,
                format!("{works}, but {service} does not answer as it should: {}", cause(error)),
            ),
        }
    }

    /// Why a login failed.
    fn refusal(&self, auth_url: &str, error: &CloudError) -> Refused {
        match (error.kind(), error.failure()) {
            // A 404 is also a rejection of the credentials: they were revoked, or the project was deleted.
            (CloudErrorKind::Credentials | CloudErrorKind::NotPermitted, Some(failure))
                if matches!(failure.status, Some(401 | 403 | 404)) =>
            {
                let is_forbidden = failure.status == Some(403);
                Refused::new(
                    if is_forbidden {
                        Refusal::CredentialsForbidden
                    } else {
                        Refusal::CredentialsRejected
                    },
                    format!(
                        "Keystone at {auth_url} does not accept the credentials in {}, cloud {}: {}. Check user or application credential, \
                 project, domain and expiry, and fix the Secret",
                        self.key(),
                        self.cloud,
                        answer(failure)
                    ),
                )
            }
            (CloudErrorKind::Unreachable, Some(failure)) => {
                let (key, fault) = (self.key(), failure.fault.trim_end_matches('.'));
                let message = match error {
                    CloudError::Tls { problem, .. } => {
                        format!("TLS with Keystone at {auth_url}, named by {key}, fails: {fault}: {problem}")
                    }
                    _ => format!(
                        "Keystone at {auth_url}, named by {key}, does not answer: {fault}. Check the auth URL, DNS, routes and \
                         firewalls between the cluster and the cloud, and the CA bundle"
                    ),
                };
                Refused::new(Refusal::CloudUnreachable, message)
            }
            (
                CloudErrorKind::Credentials
                | CloudErrorKind::NotPermitted
                | CloudErrorKind::BadRequest
                | CloudErrorKind::Busy
                | CloudErrorKind::ServiceFailed
                | CloudErrorKind::InvalidResponse
                | CloudErrorKind::Throttled,
                Some(failure),
            ) => Refused::new(
                Refusal::LoginFailed,
                format!(
                    "the login to Keystone at {auth_url} with {} failed: {}. If the URL is that of a Keystone v3, the cloud needs help",
                    self.key(),
                    answer(failure)
                ),
            ),
            (CloudErrorKind::NotFound, _) => Refused::new(
                Refusal::LoginFailed,
                format!(
                    "there is no Keystone v3 at {auth_url}, which {} names; check the auth URL",
                    self.key()
                ),
            ),
            _ => Refused::new(
                Refusal::LoginFailed,
                format!("the login with {} failed: {}", self.key(), cause(error)),
            ),
        }
    }

    /// Why a new content is not checked yet.
    pub(super) fn too_many_rejections(&self, count: u32) -> Refused {
        Refused::new(
            Refusal::LoginFailed,
            format!(
                "{} has changed again after {count} contents that cloud {} refused. The operator waits before the next login, because \
                 Keystone may lock a user after failed logins",
                self.key(),
                self.cloud
            ),
        )
    }

    pub(super) fn no_answer(&self, auth_url: &str) -> Refused {
        Refused::new(
            Refusal::CloudUnreachable,
            format!(
                "Keystone at {auth_url}, named by {}, did not answer within {} s. Check the auth URL, DNS, routes and firewalls between \
             the cluster and the cloud",
                self.key(),
                LOGIN_LIMIT.as_secs()
            ),
        )
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

/// Whether the CRD accepts this key of a Secret.
fn is_credentials_key(key: &str) -> bool {
    [".yaml", ".yml", ".conf"].iter().any(|ending| key.ends_with(ending))
}

/// The cause of an error of a service, without request ids and times.
pub(super) fn cause(error: &CloudError) -> String {
    match (error, error.failure()) {
        (CloudError::Throttled { .. }, _) => "it wants fewer requests".to_owned(),
        (CloudError::Tls { problem, .. }, Some(failure)) => format!("{}: {problem}", answer(failure)),
        (_, Some(failure)) => answer(failure),
        _ => error.to_string(),
    }
}

/// Formats the status and fault of a failed request.
fn answer(failure: &Failure) -> String {
    let fault = UntrustedText::with_limit(failure.fault.trim_end_matches('.'), LONGEST_FAULT);
    match failure.status {
        Some(status) => format!("HTTP {status}: {fault}"),
        None => fault.to_string(),
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
