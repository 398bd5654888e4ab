// SPDX-License-Identifier: Apache-2.0
//! A cloud, as a status is made of it.

use std::collections::BTreeMap;

use cinder_cloud::certificates;
use k8s_openapi::jiff::Timestamp;

use crate::{
    clouds::CloudState,
    reasons::{CredentialsValid, Refusal, Refused},
};

/// A cloud as it was found.
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    /// Its name in the spec.
    pub name: String,
    /// Whether the credentials that the Secret holds now log in.
    pub authenticated: bool,
    /// Why not.
    pub refusal: Option<Refused>,
    /// Whether what the Secret holds now is not what the driver has.
    pub is_changed: bool,
    /// Whether these log in and the driver still has others after the writes.
    pub is_not_given: bool,
    /// Whether the driver has credentials of it.
    pub is_given: bool,
    /// How the driver logs in.
    pub auth_method: Option<&'static str>,
    /// The ends of the certificates of its authorities.
    pub ca_ends: Vec<Timestamp>,
    /// The ends of the certificates of the proxy's authorities.
    pub proxy_ca_ends: Vec<Timestamp>,
    /// The ends of the client certificate and its chain.
    pub client_cert_ends: Vec<Timestamp>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// Cinder's zone for zones of Nova.
    pub zone_map: BTreeMap<String, String>,
    /// Whether the zones of volumes are of no interest.
    pub ignores_zones: bool,
    /// What the checks of its credentials read.
    pub state: CloudState,
}

impl CloudView {
    /// Whether Keystone, Cinder or Nova does not answer as it should.
    pub fn is_down(&self) -> bool {
        let refusal = self.refusal.as_ref();
        refusal.is_some_and(|refusal| refusal.reason.credentials_valid() == CredentialsValid::NotChecked)
    }

    /// Whether the cloud refuses the very credentials that the driver has.
    pub fn is_locked_out(&self) -> bool {
        let rejections = [Refusal::CredentialsRejected, Refusal::CredentialsForbidden];
        let refusal = self.refusal.as_ref();
        let is_rejected = refusal.is_some_and(|refusal| rejections.contains(&refusal.reason));
        self.is_given && is_rejected && !self.is_changed
    }

    /// When the first of the bundles of authorities on the way to it ends.
    pub fn ca_end(&self, now: Timestamp) -> Option<Timestamp> {
        let bundles = [&self.ca_ends, &self.proxy_ca_ends].into_iter();
        bundles.filter_map(|ends| certificates::end_of_bundle(ends, now)).min()
    }

    /// Everything of it that ends, with a word for it, the first end first.
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
