// SPDX-License-Identifier: Apache-2.0
//! Condition Progressing: current and pending operations on the driver.

use super::verdict::{Verdict, verdict};
use super::{adoption, nodes, rollout};
use crate::{
    decide::{Removal, Report},
    problem::Problem,
    reasons::Progressing,
};

pub(super) fn progressing(report: &Report<'_>, issues: &[Problem]) -> Verdict<Progressing> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    match &decision.removal {
        Some(Removal::Blocked(blockers)) => {
            return verdict(
                Progressing::DeletionBlocked,
                blockers.sentence(facts.object.deletion_policy),
            );
        }
        Some(Removal::Held) => {
            return verdict(
                Progressing::DeletionPaused,
                "the object is being deleted, and spec.managementState forbids changes: \
                nothing is removed; set it to Managed to let the removal begin",
            );
        }
        Some(Removal::UnderWay(what)) => {
            return verdict(
                Progressing::Removing,
                format!("the driver is being removed; waiting for {what}"),
            );
        }
        Some(Removal::Finished | Removal::Released) => {
            return verdict(Progressing::AsExpected, "nothing is left to do");
        }
        None => {}
    }
    if rollout::is_paused(report) {
        return verdict(Progressing::Paused, rollout::paused(report));
    }
    if let Some(verdict) = adoption::progress(report) {
        return verdict;
    }
    if let Some(verdict) = rollout::progress(report) {
        return verdict;
    }
    let mut parts = Vec::new();
    if let Some(controller) = outcome
        .controller
        .as_ref()
        .filter(|controller| !controller.is_rolled_out())
    {
        let left = match controller.outdated {
            0 => String::new(),
            outdated => format!(", {outdated} of an older version left"),
        };
        parts.push(format!(
            "controller: {} of {} pods updated, {} available{left}",
            controller.updated, controller.desired, controller.available
        ));
    }
    parts.extend(rollout::node_progress(report));
    if nodes::awaits_registration(outcome) {
        parts.push(format!(
            "nodes: {} of {} registered",
            outcome.nodes.registered, outcome.nodes.desired
        ));
    }
    if !parts.is_empty() {
        return verdict(Progressing::RollingOut, parts.join("; "));
    }
    let is_held_up = report.is_held_up();
    if is_held_up || outcome.controller.is_none() || outcome.daemon_set.is_none() {
        return match issues.first() {
            Some(_) => verdict(
                Progressing::Blocked,
                "the rollout is blocked; resolve the problem that condition Degraded reports",
            ),
            None => verdict(Progressing::Installing, "the objects of the driver are being made"),
        };
    }
    verdict(Progressing::AsExpected, "everything is as the spec wants it")
}
