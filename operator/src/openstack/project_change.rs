// SPDX-License-Identifier: Apache-2.0
//! Protects against credentials of a different project or region. They are valid, but the driver's volumes do not exist
//! there. Cinder and Nova return 404, so that deletions and detachments would be reported as successful while the
//! volumes remain.

use std::{collections::BTreeSet, fmt, sync::Arc};

use cinder_cloud::VolumeId;
use cinder_operator_core::{
    cluster::Blockers,
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Degraded, Refusal, Refused},
    record::RecordedPlace,
    text::join_truncated,
};
use futures::future::BoxFuture;

use super::CredentialSource;

/// Annotation that confirms a move of a cloud to a different project or region, or its removal, while the driver is in
/// use. An administrator sets it to the uid of the object, so that a copied manifest cannot contain a valid
/// confirmation.
pub const MOVE_PROJECT: &str = "csi.openstack.org/move-project";

/// The objects that need the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The known objects that block a move. One of them is sufficient.
    pub blockers: Blockers,
    /// The ids of the volumes in Cinder.
    pub volumes: Arc<BTreeSet<String>>,
    /// Why some kinds could not be listed.
    pub failure: Option<String>,
}

impl Usage {
    /// Whether it is certain that nothing needs the driver.
    pub fn is_free(&self) -> bool {
        self.blockers.is_empty() && self.failure.is_none()
    }

    /// Whether, at most, claims need the driver.
    pub(crate) fn has_only_claims(&self) -> bool {
        let Blockers {
            volumes,
            attachments,
            snapshots,
            group_snapshots,
            ..
        } = &self.blockers;
        let others = [volumes, attachments, snapshots, group_snapshots];
        self.failure.is_none() && others.into_iter().all(Vec::is_empty)
    }

    /// Whether a lookup of volumes can determine the cloud of every object that needs the driver.
    fn is_locatable(&self) -> bool {
        self.failure.is_none() && self.unattributed().is_empty() && !self.volumes.is_empty()
    }

    /// The objects for which a lookup of volumes does not find the cloud.
    fn unattributed(&self) -> Vec<String> {
        let kinds = self.blockers.by_kind();
        let kinds = kinds.filter(|(kind, _)| !matches!(*kind, "PersistentVolume" | "VolumeAttachment"));
        kinds
            .flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")))
            .collect()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.blockers.by_kind();
        let kinds = kinds.map(|(kind, names)| format!("{kind} {}", join_truncated(names)));
        let failure = self.failure.iter().map(|failure| format!("unknown, because {failure}"));
        f.write_str(&kinds.chain(failure).collect::<Vec<_>>().join("; "))
    }
}

/// Determines the objects that need the driver. It is called only when a decision depends on them.
pub trait UsageQuery: Sync {
    /// Queries the API server. Several callers share one response.
    fn usage(&self) -> BoxFuture<'_, &Usage>;
}

/// The present state of one cloud of the driver.
#[derive(Debug, Clone, Default)]
pub struct InstalledCloud {
    pub credentials: Option<DriverCredentials>,
    pub place: RecordedPlace,
}

/// The consequences of credentials for a different project or region.
#[derive(Clone)]
pub struct ProjectChangeCheck<'a> {
    /// Determines the objects that need the driver.
    pub query: &'a dyn UsageQuery,
    /// The uid of the object, which is the required value of the annotation.
    pub uid: String,
    /// Whether the annotation is set.
    pub may_move: bool,
    /// The recorded projects and regions of all clouds.
    pub places: Vec<Place>,
}

impl fmt::Debug for ProjectChangeCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectChangeCheck")
            .field("uid", &self.uid)
            .field("may_move", &self.may_move)
            .finish_non_exhaustive()
    }
}

/// Decision about the use of credentials for a project and region.
#[derive(Debug)]
pub(super) enum Admission<'a> {
    Admitted,
    /// The credentials must not be used, for this reason.
    Refused(String),
    /// The credentials may be used only if one of these volumes exists there. The text explains why the record does not
    /// decide.
    IfFound(&'a Usage, String),
    /// The credentials may be used only if one of these volumes exists there and none in the recorded project. The text
    /// is the reason otherwise.
    IfReturned(&'a Usage, String),
}

impl ProjectChangeCheck<'_> {
    /// Evaluates credentials for `place`, by the record and the use of the driver.
    pub(super) async fn admit(&self, recorded: &RecordedPlace, place: &Place) -> Admission<'_> {
        if self.may_move || recorded.known().is_some_and(|known| known.is_same(place)) {
            return Admission::Admitted;
        }
        let usage = self.query.usage().await;
        if usage.is_free() {
            return Admission::Admitted;
        }
        let cause = match recorded {
            RecordedPlace::NewCloud => return Admission::Admitted,
            RecordedPlace::Never if usage.has_only_claims() => return Admission::Admitted,
            RecordedPlace::Known(known) if known.is_another(place) => {
                let reason = format!("they belong to {place}, but the driver is in use in {known} (in use: {usage})");
                // The credentials of two clouds may have been swapped.
                let is_of_other_cloud = self.places.iter().any(|recorded| recorded.is_same(place));
                return if usage.is_locatable() && !is_of_other_cloud {
                    Admission::IfReturned(usage, reason)
                } else {
                    Admission::Refused(reason)
                };
            }
            RecordedPlace::Known(known) => format!("the record has {known}, which names no region to compare"),
            RecordedPlace::Unknown(cause) => cause.clone(),
            RecordedPlace::Never => "the project and region of the volumes were never recorded".to_owned(),
        };
        if usage.volumes.is_empty() {
            return Admission::Refused(format!(
                "they belong to {place}, the project and region in use are unknown ({cause}), and there is no volume that could confirm \
                 them (in use: {usage})"
            ));
        }
        Admission::IfFound(usage, cause)
    }

    /// Rejects credentials that log in to a different or unknown project or region.
    pub(super) fn refused(&self, source: &CredentialSource, reason: &str) -> Refused {
        Refused::new(
            Refusal::ProjectChanged,
            format!(
                "login with the credentials in {}, cloud {}, works, but {reason}. In another project or region the driver would report \
                 its volumes as deleted and detached while they remain. Put credentials of the same project and region into the Secret, \
                 or, for an intended move, {}",
                source.key(),
                source.cloud,
                self.remedy()
            ),
        )
    }

    /// Returns the reason to retain a cloud that was removed from the spec: volumes of the driver, or a failed list.
    pub(super) fn refuse_removal(
        &self,
        cloud: &str,
        usage: &Usage,
        existing: Result<&[VolumeId], &str>,
    ) -> Option<Problem> {
        let unattributed = usage.unattributed();
        let why = match (existing, usage.failure.as_deref()) {
            (Ok([]), None) if unattributed.is_empty() => return None,
            (Ok([]), None) => format!(
                "the operator cannot determine whether these belong to it: {}",
                join_truncated(&unattributed)
            ),
            (Ok([]), Some(failure)) | (Err(failure), _) => {
                format!("the operator cannot find out whether volumes of the driver exist there: {failure}")
            }
            (Ok(existing), _) => {
                let volumes: Vec<String> = existing.iter().map(ToString::to_string).collect();
                format!("volumes of the driver exist there: {}", join_truncated(&volumes))
            }
        };
        Some(self.needed(
            cloud,
            &format!("{why}. The driver keeps the credentials that it has for it"),
        ))
    }

    /// Reports a recorded cloud without credentials in both the spec and the driver's Secret.
    pub(crate) fn cloud_lost(&self, cloud: &str, usage: &Usage) -> Problem {
        self.needed(
            cloud,
            &format!(
                "the driver is recorded to serve it, and its credentials are lost (in use: {usage}). The controller is not changed meanwhile"
            ),
        )
    }

    fn needed(&self, cloud: &str, why: &str) -> Problem {
        Problem {
            reason: Degraded::CloudInUse,
            message: format!(
                "cloud {cloud} is no longer in spec.clouds, and {why}. Put the cloud back, or delete what needs it first, or, to leave it \
                 behind, {}",
                self.remedy()
            ),
        }
    }

    /// The instruction that confirms a move.
    pub(crate) fn remedy(&self) -> String {
        format!(
            "set the annotation {MOVE_PROJECT} of the CinderCSIDriver to its uid, {}",
            self.uid
        )
    }
}
