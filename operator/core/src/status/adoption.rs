// SPDX-License-Identifier: Apache-2.0
//! Progress of a migration from another installation.

use cinder_csi_crds::{AdoptionStatus, AdoptionStep};

use super::verdict::{Verdict, verdict};
use crate::{decide::Report, reasons::Progressing};

pub(super) fn status(report: &Report<'_>) -> Option<AdoptionStatus> {
    let migration = report.decision.migration.as_ref()?;
    Some(AdoptionStatus {
        step: Some(migration.step),
        leftovers: migration.leftovers.clone(),
    })
}

/// Returns the verdict on Progressing while a migration is in progress.
pub(super) fn progress(report: &Report<'_>) -> Option<Verdict<Progressing>> {
    let migration = report.decision.migration.as_ref()?;
    let what = match migration.step {
        AdoptionStep::Done => return None,
        AdoptionStep::GivenBack => {
            let message = format!(
                "the other controller has its pods back; waiting for {}",
                migration.waits_for
            );
            return Some(verdict(Progressing::Blocked, message));
        }
        AdoptionStep::Preparing => "nothing of the other installation is touched yet",
        AdoptionStep::StartingNodes => "this driver is shown to start before the other controller is stopped",
        AdoptionStep::GivingBack => "the other controller gets its pods back",
        AdoptionStep::StoppingController => "the other controller is stopped",
        AdoptionStep::StartingController => "this driver's controller starts in place of the other one",
        AdoptionStep::ReplacingNodes => "the node plugins change, a few nodes at once",
    };
    Some(verdict(
        Progressing::Migrating,
        format!("{what}; waiting for {}", migration.waits_for),
    ))
}
