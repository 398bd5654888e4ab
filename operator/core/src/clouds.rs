// SPDX-License-Identifier: Apache-2.0
//! Facts that a check of the credentials reads from a cloud. The zones of an unreachable cloud are the last known
//! ones.

use k8s_openapi::jiff::Timestamp;

/// The availability zones of a cloud. Empty before the first successful check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudFacts {
    /// The availability zones of Nova, sorted.
    pub compute_zones: Vec<String>,
    /// The availability zones of Cinder, sorted.
    pub volume_zones: Vec<String>,
}

/// State of a cloud at the last successful checks of the credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudState {
    pub facts: CloudFacts,
    /// Name and expiry of the application credential. No expiry if it never expires.
    pub credential: Option<(String, Option<Timestamp>)>,
    /// Expiry of the token.
    pub token_ends: Option<Timestamp>,
}
