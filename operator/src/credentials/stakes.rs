// SPDX-License-Identifier: Apache-2.0
//! Credentials of another project or region are valid and must not be used: the volumes of the driver do not exist there. Cinder and
//! Nova answer 404, and deletions and detachments end as if they were done while the volumes remain.

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

use super::Source;

/// Annotation by which an administrator confirms that a cloud may become another project or region, or be removed, although the driver
/// is in use. Its value is the uid of the object, so that it cannot come along with a copied manifest.
pub const MOVE_PROJECT: &str = "csi.openstack.org/move-project";

/// The objects that need the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The known ones. One of them is enough.
    pub blockers: Blockers,
    /// The volumes, by their ids in Cinder.
    pub volumes: Arc<BTreeSet<String>>,
    /// The cause that some kinds could not be listed.
    pub failure: Option<String>,
}

impl Usage {
    /// Whether nothing needs the driver, and that is certain.
    pub fn is_free(&self) -> bool {
        self.blockers.is_empty() && self.failure.is_none()
    }

    /// Whether claims may be the only thing that needs the driver.
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

    /// Whether a lookup of volumes finds the cloud of everything that needs the driver.
    fn is_locatable(&self) -> bool {
        self.failure.is_none() && self.unattributed().is_empty() && !self.volumes.is_empty()
    }

    /// The objects whose cloud cannot be found by a lookup of volumes.
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
    /// Queries the API server; several callers share one answer.
    fn usage(&self) -> BoxFuture<'_, &Usage>;
}

/// The present state of one cloud of the driver.
#[derive(Debug, Clone, Default)]
pub struct InstalledCloud {
    /// The credentials.
    pub credentials: Option<DriverCredentials>,
    /// The recorded project and region.
    pub place: RecordedPlace,
}

/// The cost of another project or region.
#[derive(Clone)]
pub struct Stakes<'a> {
    /// Finds the objects that need the driver.
    pub query: &'a dyn UsageQuery,
    /// The object's uid, which is the value of the annotation.
    pub uid: String,
    /// Whether the annotation is set.
    pub may_move: bool,
    /// The recorded places of all clouds.
    pub places: Vec<Place>,
}

impl fmt::Debug for Stakes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stakes")
            .field("uid", &self.uid)
            .field("may_move", &self.may_move)
            .finish_non_exhaustive()
    }
}

/// Whether credentials that lead to a place may be used.
#[derive(Debug)]
pub(super) enum Admission<'a> {
    /// They may.
    Admitted,
    /// They may not, for this reason.
    Refused(String),
    /// Only where one of these volumes exists there; the cause that the place does not decide.
    IfFound(&'a Usage, String),
    /// Only where one of these volumes exists there and none in the recorded place; the reason of the refusal.
    IfReturned(&'a Usage, String),
}

impl Stakes<'_> {
    /// Judges credentials that lead to `place` by the record and the use of the driver.
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
                let reason = format!("they lead to {place}, and the driver is in use in {known} (in use: {usage})");
                // The credentials of two clouds may be swapped.
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
                "they lead to {place}, the project and region in use are unknown ({cause}), and there is no volume that could confirm \
                 them (in use: {usage})"
            ));
        }
        Admission::IfFound(usage, cause)
    }

    /// The refusal of credentials that work, and whose project or region is another one or unknown.
    pub(super) fn refused(&self, source: &Source, reason: &str) -> Refused {
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

    /// Returns the reason to retain a cloud that is no longer in the spec: volumes of the driver, or a failed list.
    pub(super) fn cloud_left(&self, cloud: &str, usage: &Usage, found: Result<&[VolumeId], &str>) -> Option<Problem> {
        let unattributed = usage.unattributed();
        let why = match (found, usage.failure.as_deref()) {
            (Ok([]), None) if unattributed.is_empty() => return None,
            (Ok([]), None) => format!(
                "the operator cannot determine whether these belong to it: {}",
                join_truncated(&unattributed)
            ),
            (Ok([]), Some(failure)) | (Err(failure), _) => {
                format!("the operator cannot find out whether volumes of the driver exist there: {failure}")
            }
            (Ok(found), _) => {
                let volumes: Vec<String> = found.iter().map(ToString::to_string).collect();
                format!("volumes of the driver exist there: {}", join_truncated(&volumes))
            }
        };
        Some(self.needed(
            cloud,
            &format!("{why}. The driver keeps the credentials that it has for it"),
        ))
    }

    /// A cloud that the driver is recorded to serve, and of which neither the spec nor the driver's Secret has credentials.
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

    /// How an administrator confirms a move.
    pub(crate) fn remedy(&self) -> String {
        format!(
            "set the annotation {MOVE_PROJECT} of the CinderCSIDriver to its uid, {}",
            self.uid
        )
    }
}
