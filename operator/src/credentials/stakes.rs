// SPDX-License-Identifier: Apache-2.0
//! Credentials of another project or region are good and must not be used all the same: the volumes of the driver do not exist there,
//! Cinder and Nova answer 404, and deletions and detachments end as if they were done while everything stays where it is.

use cinder_cloud::VolumeId;
use cinder_operator_core::{
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Degraded, Refusal, Refused},
    text::join_truncated,
};

use super::{Source, Tried};

/// Annotation by which an administrator says that a cloud may become another project or region, or go, although volumes of the driver
/// exist. Its value is the uid of the object, so that it cannot come along with a copied manifest.
pub const MOVE_PROJECT: &str = "csi.openstack.org/move-project";

/// What is lost when a cloud becomes another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stakes {
    /// Whether volumes or attachments of the driver exist.
    pub is_in_use: bool,
    /// Some volumes that exist in the cloud. None where it is not known in which of several clouds they are.
    pub volumes: Vec<VolumeId>,
    /// The object's uid, which the annotation has to bear.
    pub uid: String,
    /// Whether it bears it.
    pub may_move: bool,
}

impl Stakes {
    /// The volumes to be looked for with other credentials than the driver has: those, where it is not recorded where its own lead to.
    pub(super) fn to_look_for(&self, last_good: Option<&DriverCredentials>) -> Vec<VolumeId> {
        let is_recorded = last_good.and_then(DriverCredentials::place).is_some();
        if !self.is_in_use || self.may_move || is_recorded {
            return Vec::new();
        }
        self.volumes.clone()
    }

    /// Why credentials that work, and are not those of the driver, must not be used.
    pub(super) fn refusal(&self, source: &Source, tried: &Tried, before: Option<&Place>) -> Option<Refused> {
        if !self.is_in_use || self.may_move {
            return None;
        }
        let differs = match before {
            Some(before) if before.is_another(&tried.place) => {
                format!("lead to {}, and those of the driver to {before}", tried.place)
            }
            None if tried.knows_volumes == Some(false) => {
                let volumes: Vec<String> = self.volumes.iter().map(ToString::to_string).collect();
                format!(
                    "lead to {}, where none of these volumes of the driver exists: {}",
                    tried.place,
                    volumes.join(", ")
                )
            }
            _ => return None,
        };
        Some(Refused::new(
            Refusal::ProjectChanged,
            format!(
                "login with the credentials in {}, cloud {}, works, and {differs}. The driver would take its volumes for deleted and detached there while \
                 they stay. Put credentials of the same project and region into the Secret, or, where the move is meant, {}",
                source.key(),
                source.cloud,
                self.remedy()
            ),
        ))
    }

    /// Why a cloud that is no longer in the spec must stay with the driver, by the volumes that were found there, or why none could be
    /// looked for.
    pub(super) fn cloud_left(&self, cloud: &str, found: Result<&[VolumeId], &str>) -> Option<Problem> {
        let why = match found {
            Ok([]) => return None,
            Ok(found) => {
                let volumes: Vec<String> = found.iter().map(ToString::to_string).collect();
                format!("volumes of the driver exist there: {}", join_truncated(&volumes))
            }
            Err(error) => format!("the operator cannot find out whether volumes of the driver exist there: {error}"),
        };
        Some(Problem {
            reason: Degraded::CloudInUse,
            message: format!(
                "cloud {cloud} is no longer in spec.clouds, and {why}. The driver goes on with the credentials that it has for it. Put the \
                 cloud back, or delete these volumes first, or, where they are to be left behind, {}",
                self.remedy()
            ),
        })
    }

    /// How an administrator lets a move pass.
    pub(crate) fn remedy(&self) -> String {
        format!(
            "set the annotation {MOVE_PROJECT} of the CinderCSIDriver to its uid, {}",
            self.uid
        )
    }
}
