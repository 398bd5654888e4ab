// SPDX-License-Identifier: Apache-2.0
//! The observed state of a cloud.

use std::collections::BTreeMap;

use cinder_cloud::{Insecurity, certificates};
use k8s_openapi::jiff::Timestamp;

use crate::{
    clouds::CloudState,
    reasons::{CredentialsValid, Refusal, Refused},
};

/// The observed state of a cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    /// The name of the cloud in the spec.
    pub name: String,
    /// Whether login with the present credentials of the Secret works.
    pub authenticated: bool,
    /// The cause why login fails.
    pub refusal: Option<Refused>,
    /// Whether the credentials of the Secret differ from the driver's credentials.
    pub is_changed: bool,
    /// How the driver logs in.
    pub auth_method: Option<&'static str>,
    /// The ends of the certificates of its authorities.
    pub ca_ends: Vec<Timestamp>,
    /// The ends of the certificates of the proxy's authorities.
    pub proxy_ca_ends: Vec<Timestamp>,
    /// The ends of the client certificate and its chain.
    pub client_cert_ends: Vec<Timestamp>,
    /// The insecure properties of the connection.
    pub insecurities: Vec<Insecurity>,
    /// Keys of its credentials without an effect, each in a sentence.
    pub warnings: Vec<String>,
    /// Cinder's zone for zones of Nova.
    pub zone_map: BTreeMap<String, String>,
    /// Whether the driver ignores the zones of volumes.
    pub ignores_zones: bool,
    /// The facts that the checks of its credentials read.
    pub state: CloudState,
}

impl CloudView {
    /// Whether Keystone, Cinder or Nova does not answer as it should.
    pub fn is_down(&self) -> bool {
        let refusal = self.refusal.as_ref();
        refusal.is_some_and(|refusal| refusal.reason.credentials_valid() == CredentialsValid::NotChecked)
    }

    /// Whether the cloud refuses the credentials of the Secret.
    pub fn is_rejected(&self) -> bool {
        let rejections = [Refusal::CredentialsRejected, Refusal::CredentialsForbidden];
        let refusal = self.refusal.as_ref();
        refusal.is_some_and(|refusal| rejections.contains(&refusal.reason))
    }

    /// The first expiry of a CA bundle, of cloud or proxy.
    pub fn ca_end(&self, now: Timestamp) -> Option<Timestamp> {
        let bundles = [&self.ca_ends, &self.proxy_ca_ends].into_iter();
        bundles.filter_map(|ends| certificates::end_of_bundle(ends, now)).min()
    }

    /// The expiries of its credentials and certificates with their names, in ascending order.
    pub fn ends(&self, now: Timestamp) -> Vec<(String, Timestamp)> {
        let credential = self.state.credential.as_ref().and_then(|(name, end)| {
            let end = (*end)?;
            Some((format!("the application credential {name}"), end))
        });
        let token = self.state.token_ends.filter(|_| self.auth_method == Some("Token"));
        let client = self.client_cert_ends.iter().min().copied();
        let ca = certificates::end_of_bundle(&self.ca_ends, now);
        let proxy = certificates::end_of_bundle(&self.proxy_ca_ends, now);
        let mut ends: Vec<(String, Timestamp)> = credential
            .into_iter()
            .chain(token.map(|end| ("the token, which cannot be renewed,".to_owned(), end)))
            .chain(client.map(|end| ("the client certificate".to_owned(), end)))
            .chain(ca.map(|end| ("the CA bundle's certificate".to_owned(), end)))
            .chain(proxy.map(|end| ("a certificate of the proxy's CA bundle".to_owned(), end)))
            .collect();
        ends.sort_by_key(|(_, end)| *end);
        ends
    }
}
