// SPDX-License-Identifier: Apache-2.0
//! Credentials under evaluation, and the decision about them.

use std::time::Duration;

use cinder_operator_core::{
    clouds::CloudState,
    manifests::{DriverCredentials, Place},
    reasons::Refused,
    text::join_truncated,
};
use tracing::{info, warn};

use super::{
    credential_source::{Candidate, CredentialSource},
    project_change::{InstalledCloud, ProjectChangeCheck},
};

/// The result of one check.
#[derive(Debug, Clone)]
pub struct CredentialDecision {
    /// Whether the present content of the Secret logs in.
    pub authenticated: bool,
    /// Why the content was rejected.
    pub(crate) refusal: Option<Refused>,
    /// The credentials for the driver: the new ones if they are valid, otherwise the last valid ones.
    pub in_use: Option<DriverCredentials>,
    /// Project and region of accepted credentials, if they are certain.
    pub place: Option<Place>,
    /// Whether the present content of the Secret differs from the driver's credentials.
    pub is_changed: bool,
    /// Delay until the next check.
    pub next_check: Duration,
    /// State of the cloud that the successful checks read.
    pub state: CloudState,
    /// Keys of the credentials without an effect, as sentences.
    pub warnings: Vec<String>,
}

/// Credentials under evaluation.
pub(super) struct Attempt<'a> {
    pub(super) driver: &'a str,
    pub(super) source: &'a CredentialSource,
    pub(super) candidate: Candidate,
    /// Whether the driver uses different credentials now.
    pub(super) is_changed: bool,
    /// Whether this attempt logged in, and did not use a cached result.
    pub(super) is_fresh: bool,
    pub(super) installed: &'a InstalledCloud,
    pub(super) project_change: &'a ProjectChangeCheck<'a>,
}

impl Attempt<'_> {
    /// Logs the first successful login, and settings of the Secret without an effect.
    pub(super) fn report_login(&self) {
        let (driver, cloud) = (self.driver, &self.source.cloud);
        info!(driver, cloud, "the login works");
        for warning in &self.candidate.config.warnings {
            let secret = self.source.secret();
            warn!(
                driver,
                cloud, secret, warning, "the credentials hold something without effect"
            );
        }
    }

    /// Adds the keys without an effect to the message. One of them may be the cause.
    pub(super) fn explain(&self, refusal: Refused) -> Refused {
        let warnings = &self.candidate.config.warnings;
        if warnings.is_empty() {
            return refusal;
        }
        let message = format!("{}; not used: {}", refusal.message, join_truncated(warnings));
        Refused { message, ..refusal }
    }

    pub(super) fn accepted(self, place: Option<Place>, next_check: Duration, state: CloudState) -> CredentialDecision {
        let installed = self.installed.credentials.as_ref();
        let shown = place.clone().or_else(|| installed?.place().cloned());
        let credentials = self.candidate.credentials;
        let warnings = self.candidate.config.warnings;
        CredentialDecision {
            authenticated: true,
            refusal: None,
            in_use: Some(match shown {
                Some(shown) => credentials.at(shown),
                None => credentials,
            }),
            place,
            is_changed: false,
            next_check,
            state,
            warnings,
        }
    }
}

pub(super) fn refused(
    refusal: Refused,
    last_good: Option<DriverCredentials>,
    is_changed: bool,
    next_check: Duration,
    state: CloudState,
) -> CredentialDecision {
    CredentialDecision {
        authenticated: false,
        refusal: Some(refusal),
        in_use: last_good,
        place: None,
        is_changed,
        next_check,
        state,
        warnings: Vec::new(),
    }
}
