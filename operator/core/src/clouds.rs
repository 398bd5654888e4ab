// SPDX-License-Identifier: Apache-2.0
//! What the clouds of a driver are like, as far as they tell: services, zones, volume types, quotas.
//!
//! The facts are read by a look of its own, slowly and at a fixed interval, and remembered: a cloud that does not answer leaves
//! the facts that it told last. Decisions are made from facts by pure functions elsewhere; no time is among them, so that
//! equal facts are equal.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

pub mod certificates;
pub mod trouble;

use trouble::TroubleKind;

/// What one cloud has told. Empty until it was seen for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudFacts {
    /// The services that answer, by their names in the catalogue: `block-storage`, `compute`.
    pub services: BTreeMap<String, ServiceFact>,
    /// The availability zones of Nova, sorted.
    pub compute_zones: Vec<String>,
    /// The availability zones of Cinder, sorted.
    pub volume_zones: Vec<String>,
    /// The volume types that the project may use, sorted by name.
    pub volume_types: Vec<VolumeTypeFact>,
    /// The quotas of the project that have a limit, sorted.
    pub quota: Vec<QuotaFact>,
}

/// A service that answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFact {
    /// The highest microversion, as in `3.71`; none for a service without microversions.
    pub microversion: Option<String>,
}

/// A volume type that the project may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeTypeFact {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Whether several servers may have a volume of this type.
    pub multiattach: bool,
    /// What the cloud says about it.
    pub description: Option<String>,
}

/// A quota with a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuotaFact {
    /// What is limited: `volumes`, `gigabytes`, `snapshots`, …
    pub resource: String,
    /// The volume type that it is about; all types when `None`.
    pub volume_type: Option<String>,
    /// How much is used or promised.
    pub used: u64,
    /// How much there may be.
    pub limit: u64,
}

/// What stands between the operator and a service of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The service: `identity`, `block-storage` or `compute`.
    pub service: &'static str,
    /// What is wrong with it.
    pub kind: TroubleKind,
    /// What was said, without what differs from one try to the next.
    pub message: String,
}

/// A cloud as it was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudState {
    /// Whether a look has come to its end with these credentials.
    pub is_known: bool,
    /// What it told, now or earlier.
    pub facts: CloudFacts,
    /// What stood in the way at the last look, one per service at most.
    pub troubles: Vec<Trouble>,
    /// The name and the end of the application credential in use; no end when it has none.
    pub credential: Option<(String, Option<Timestamp>)>,
    /// When the token of the last look ends.
    pub token_ends: Option<Timestamp>,
}
