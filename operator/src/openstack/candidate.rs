// SPDX-License-Identifier: Apache-2.0
//! Parses the credentials of a cloud and builds the configuration of the driver from them.

use std::path::Path;

use cinder_cloud::{CloudConfig, ConfigError, Interface};
use cinder_csi_crds::EndpointType;
use cinder_csi_driver::topology::REGION;
use cinder_operator_core::{
    manifests::DriverCredentials,
    reasons::{Refusal, Refused},
};

use super::credential_source::{Candidate, Certificates, CredentialSource};

/// The line between the authorities of the cloud and of the proxy in a combined bundle. Readers of PEM ignore text
/// between certificates.
const PROXY_AUTHORITIES: &str = "# The authorities of the proxy:\n";

/// Splits a combined bundle into the authorities of the cloud and of the proxy.
pub(super) fn parted(bundle: &str) -> (&str, &str) {
    bundle.split_once(PROXY_AUTHORITIES).unwrap_or((bundle, ""))
}

impl CredentialSource {
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
}
