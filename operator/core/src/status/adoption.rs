//! How far another installation is replaced.

use cinder_csi_crds::{AdoptionStatus, AdoptionStep};

use super::{Verdict, verdict};
use crate::{decide::Report, migration::check::bounded, reasons::Progressing};

pub(super) fn status(report: &Report) -> Option<AdoptionStatus> {
    let takeover = report.decision.takeover.as_ref();
    if takeover.is_none() && report.facts.findings.is_empty() {
        return None;
    }
    let (findings, count) = bounded(report.facts.findings.clone());
    Some(AdoptionStatus {
        step: takeover.map(|takeover| takeover.step),
        leftovers: takeover.map(|takeover| takeover.leftovers.clone()).unwrap_or_default(),
        finding_count: (count > 0).then_some(count),
        findings,
    })
}

/// What Progressing says of a take-over, while there is something to do.
pub(super) fn progress(report: &Report) -> Option<Verdict<Progressing>> {
    let takeover = report.decision.takeover.as_ref()?;
    let what = match takeover.step {
        AdoptionStep::Done => return None,
        AdoptionStep::GivenBack => {
            let message = format!(
                "the other controller has its pods back; waiting for {}",
                takeover.waits_for
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
        Progressing::TakingOver,
        format!("{what}; waiting for {}", takeover.waits_for),
    ))
}
