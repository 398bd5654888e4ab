// SPDX-License-Identifier: Apache-2.0
//! Differences between two installations, each with its locations.

use crate::migration::finding::{AdoptionFinding, AdoptionFindingReason, Sample, finding};

pub(super) const ZONES_ARE_USED: &str =
    "zones were not used, and this driver uses them where those of Nova and Cinder are the same";
/// The remedy of a flag that only an override sets.
pub(super) const BY_OVERRIDE: &str = "Add it by spec.overrides where it is needed (docs/overrides.md)";
/// The remedy of a flag that the check cannot compare.
pub(super) const BY_HAND: &str =
    "Compare the flag with the documentation of this driver (docs/clouds.md, docs/overrides.md)";

/// A difference, without its locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) reason: AdoptionFindingReason,
    pub(super) subject: String,
    pub(super) message: String,
    pub(super) remedy: String,
}

impl Difference {
    /// Creates a difference of a flag.
    pub(super) fn of_flag(subject: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(AdoptionFindingReason::Flag, subject, message, remedy)
    }

    pub(super) fn new(
        reason: AdoptionFindingReason,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            subject: subject.into(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Creates the difference of a flag with a value from these variables of Secrets. The value is omitted.
    pub(super) fn without_value(subject: String, variables: &[String]) -> Self {
        let message = format!(
            "the value comes from a Secret (variable {}) and differs from that of this driver",
            variables.join(", ")
        );
        Self::of_flag(subject, message, BY_HAND)
    }

    /// Creates a difference for an unknown part.
    pub(super) fn unknown(subject: impl Into<String>, why: &str, remedy: impl Into<String>) -> Self {
        let message = format!("what changes here is not known: {why}");
        Self::new(AdoptionFindingReason::NotChecked, subject, message, remedy)
    }
}

/// Differences in the order of their discovery. The same difference in several locations is one finding.
#[derive(Debug, Default)]
pub(super) struct Differences(Vec<(Difference, Vec<String>)>);

impl Differences {
    pub(super) fn add(&mut self, difference: Difference, place: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == difference) {
            Some((_, places)) => {
                if !places.iter().any(|known| known == place) {
                    places.push(place.to_owned());
                }
            }
            None => self.0.push((difference, vec![place.to_owned()])),
        }
    }

    pub(super) fn into_findings(self) -> Vec<AdoptionFinding> {
        let findings = self.0.into_iter().map(|(difference, places)| {
            let Difference {
                reason,
                subject,
                message,
                remedy,
            } = difference;
            finding(reason, subject, &Sample::from_iter(places), message, remedy)
        });
        findings.collect()
    }
}
