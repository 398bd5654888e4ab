// SPDX-License-Identifier: Apache-2.0
//! Table of causes. A rule is a function of the joined facts. The first matching rule is the diagnosis.

mod causes;

pub use causes::is_login_failure;

use super::suspect::{Case, CauseClass, Finding, Operation};
use Operation::{Attach, Delete, Detach, Provision, Resize};

/// One cause.
#[derive(Clone, Copy)]
pub struct Rule {
    /// One word, part of the API.
    pub reason: &'static str,
    /// Operations that the cause may block.
    pub operations: &'static [Operation],
    pub class: CauseClass,
    /// Description of the cause, for the documentation.
    pub meaning: &'static str,
    /// Returns the cause and the required action if the rule matches.
    pub hint: fn(&Case) -> Option<String>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

const fn rule(
    reason: &'static str,
    operations: &'static [Operation],
    class: CauseClass,
    meaning: &'static str,
    hint: fn(&Case) -> Option<String>,
) -> Rule {
    Rule {
        reason,
        operations,
        class,
        meaning,
        hint,
    }
}

const ANY: &[Operation] = &Operation::ALL;
const WITH_NODE: &[Operation] = &[Attach, Detach];

/// Reason when no rule matches.
pub(super) const UNEXPLAINED: &str = "Unexplained";

/// All causes in order of evaluation: causes that block all operations, then certain causes, then likely ones.
pub static RULES: &[Rule] = &[
    rule(
        "CredentialsRefused",
        ANY,
        CauseClass::Other,
        "The cloud refuses the credentials that the driver uses.",
        causes::credentials_refused,
    ),
    rule(
        "CloudUnreachable",
        ANY,
        CauseClass::Other,
        "A service of the cloud does not answer as it should.",
        causes::cloud_unreachable,
    ),
    rule(
        "ControllerDown",
        ANY,
        CauseClass::Other,
        "No pod of the controller serves.",
        causes::controller_down,
    ),
    rule(
        "NodeGone",
        WITH_NODE,
        CauseClass::NodeGone,
        "The node does not exist in Kubernetes any more.",
        causes::node_gone,
    ),
    rule(
        "QuotaExceeded",
        &[Provision, Resize],
        CauseClass::Other,
        "The project's quota leaves no room for it.",
        causes::quota_exceeded,
    ),
    rule(
        "ZoneConflict",
        &[Provision],
        CauseClass::Other,
        "Cinder has no zone for the zone of the node.",
        causes::zone_conflict,
    ),
    rule(
        "NotRegistered",
        &[Attach],
        CauseClass::Other,
        "The driver is not registered on the node.",
        causes::not_registered,
    ),
    rule(
        "AttachLimitReached",
        &[Attach],
        CauseClass::Other,
        "The node has as many volumes as it may have.",
        causes::attach_limit_reached,
    ),
    rule(
        "StillAttached",
        &[Delete],
        CauseClass::Other,
        "Kubernetes has the volume at nodes.",
        causes::still_attached,
    ),
    rule(
        "StillClaimed",
        &[Delete],
        CauseClass::Other,
        "The PersistentVolume was deleted while a claim is bound to it.",
        causes::still_claimed,
    ),
    rule(
        "WaitsForPod",
        &[Resize],
        CauseClass::Other,
        "Only the file system is left to grow, which happens where a pod uses it.",
        causes::waits_for_pod,
    ),
    rule(
        "RequestRefused",
        &[Provision, Attach, Resize],
        CauseClass::Other,
        "Driver or provisioner refuse what the claim, its class or its source asks for.",
        causes::request_refused,
    ),
    rule(
        "ErrorReported",
        ANY,
        CauseClass::Other,
        "None of the above is known; the hint has the last error of sidecar or driver.",
        causes::error_reported,
    ),
    rule(
        UNEXPLAINED,
        ANY,
        CauseClass::Other,
        "Nothing that is known explains it.",
        causes::unexplained,
    ),
];

/// Returns why an operation does not end.
pub fn explain(operation: Operation, case: &Case) -> Finding {
    let fitting = RULES.iter().filter(|rule| rule.operations.contains(&operation));
    let found = fitting.filter_map(|rule| {
        let hint = (rule.hint)(case)?;
        Some(Finding {
            reason: rule.reason,
            class: rule.class,
            hint,
        })
    });
    let mut found = found;
    found.next().unwrap_or_else(|| Finding {
        reason: UNEXPLAINED,
        class: CauseClass::Other,
        hint: causes::said(case),
    })
}

#[cfg(test)]
mod tests;
