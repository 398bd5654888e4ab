// SPDX-License-Identifier: Apache-2.0
//! What a check of credentials reads from a cloud. Zones of a cloud that does not answer stay as they were read last.

use k8s_openapi::jiff::Timestamp;

/// The availability zones of a cloud. Empty until they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudFacts {
    /// The availability zones of Nova, sorted.
    pub compute_zones: Vec<String>,
    /// The availability zones of Cinder, sorted.
    pub volume_zones: Vec<String>,
}

/// What the last successful checks of the credentials read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudState {
    /// The zones.
    pub facts: CloudFacts,
    /// The name and the expiry of the application credential; no expiry where it has none.
    pub credential: Option<(String, Option<Timestamp>)>,
    /// The expiry of the token.
    pub token_ends: Option<Timestamp>,
}
