// SPDX-License-Identifier: Apache-2.0
//! The view of a cloud that decisions and the status use.

use std::collections::{BTreeMap, BTreeSet};

use cinder_cloud::{CloudConfig, Insecurity, certificates};
use cinder_csi_crds::Cloud as CloudSpec;
use cinder_operator_core::{clouds::CloudFacts, decide::CloudView, manifests::DriverCredentials};
use k8s_openapi::jiff::Timestamp;

use super::{attempt::CredentialDecision, candidate::parted, credential_source};

/// The zones of each cloud, where they are known.
pub(crate) fn known_zones(clouds: &[CloudView]) -> BTreeMap<String, CloudFacts> {
    let clouds = clouds
        .iter()
        .map(|cloud| (cloud.name.clone(), cloud.state.facts.clone()));
    clouds.filter(|(_, facts)| *facts != CloudFacts::default()).collect()
}

/// The clouds that do not answer.
pub(crate) fn silent_clouds(clouds: &[CloudView]) -> BTreeSet<String> {
    let silent = clouds.iter().filter(|cloud| cloud.is_down());
    silent.map(|cloud| cloud.name.clone()).collect()
}

/// Describes a cloud of the spec after the check of its credentials.
pub(crate) fn describe_cloud(
    cloud: &CloudSpec,
    decision: &CredentialDecision,
    auth_method: Option<&'static str>,
) -> CloudView {
    let config = decision.in_use.as_ref().and_then(DriverCredentials::config);
    let pem = |pem: Option<&str>| -> Vec<Timestamp> { pem.map(certificates::ends).unwrap_or_default() };
    let tls = config.as_ref().map(|config| &config.tls);
    let authorities = tls.and_then(|tls| tls.ca_pem.as_deref()).map(parted);
    CloudView {
        name: cloud.name.clone(),
        authenticated: decision.authenticated,
        refusal: decision.refusal.clone(),
        is_changed: decision.is_changed,
        auth_method: config.as_ref().map(credential_source::auth_method).or(auth_method),
        ca_ends: pem(authorities.map(|(cloud, _)| cloud)),
        proxy_ca_ends: pem(authorities.map(|(_, proxy)| proxy)),
        client_cert_ends: pem(tls
            .and_then(|tls| tls.client_pem.as_ref())
            .map(|client| client.certificate.as_str())),
        insecurities: insecurities(cloud, config.as_ref()),
        warnings: decision.warnings.clone(),
        zone_map: config
            .as_ref()
            .map(|config| config.topology.zone_map.clone())
            .unwrap_or_default(),
        ignores_zones: config
            .as_ref()
            .is_some_and(|config| config.block_storage.ignore_volume_az),
        state: decision.state.clone(),
    }
}

/// The insecure settings of a cloud in the driver's configuration, or in the spec before the driver has one.
fn insecurities(cloud: &CloudSpec, config: Option<&CloudConfig>) -> Vec<Insecurity> {
    let mut all = config.map(CloudConfig::insecurities).unwrap_or_default();
    if cloud.insecure_skip_tls_verify && !all.contains(&Insecurity::AnyCertificate) {
        all.push(Insecurity::AnyCertificate);
    }
    all
}
