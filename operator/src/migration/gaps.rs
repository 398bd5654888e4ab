// SPDX-License-Identifier: Apache-2.0
//! Gaps of the check before a migration, and their remedies.

use cinder_operator_core::{cluster::GuardedObject, migration::check::CheckGap};

use crate::{
    kubernetes::{answer, is_forbidden},
    observe::ObserveError,
};

/// The remedy for a missing right.
pub(super) const RIGHTS: &str = "`kubectl apply -k config/rbac/adoption` lets the operator read this, after its name is added to the role \
                                 where that has names; `kubectl cinder-csi adopt --check` reads with the rights of its user";
/// The remedy for a failed request.
pub(super) const REPEAT: &str = "Fix the cause, and repeat the check";
/// The remedy for an unreadable file.
pub(super) const CORRECT: &str = "Correct the file";
/// The remedy for an object of unknown content.
pub(super) const BY_HAND: &str = "Look at the object: it may be one of those that a migration affects";
/// The remedy for a configuration that the check cannot evaluate.
pub(super) const COMPARE: &str = "Compare the file with the table of docs/migrate-from-cinder-csi-plugin.md";

/// Maximum number of gaps about single objects in a report.
pub(super) const MOST_GAPS: usize = 50;

/// Returns the value, or adds a gap and returns `None`.
pub(super) fn record_gap<T>(gaps: &mut Vec<CheckGap>, what: &str, result: Result<T, ObserveError>) -> Option<T> {
    result.map_err(|error| gaps.push(gap(what, &error))).ok()
}

fn gap(what: &str, error: &ObserveError) -> CheckGap {
    CheckGap {
        what: what.to_owned(),
        why: match error {
            ObserveError::List { source, .. } | ObserveError::Get { source, .. } => answer(source),
            other => other.to_string(),
        },
        remedy: match error {
            ObserveError::List { source, .. } | ObserveError::Get { source, .. } if is_forbidden(source) => RIGHTS,
            _ => REPEAT,
        },
    }
}

/// Adds a gap about a single object, unless the report is full.
pub(super) fn add_gap(gaps: &mut Vec<CheckGap>, what: String, why: String, remedy: &'static str) {
    if gaps.len() < MOST_GAPS {
        gaps.push(CheckGap { what, why, remedy });
    }
}

/// Returns the objects of a page that can be decoded, and adds a gap for each of the others.
pub(super) fn readable<K>(kind: &str, page: Vec<GuardedObject<K>>, gaps: &mut Vec<CheckGap>) -> Vec<K> {
    let decoded = page.into_iter().filter_map(|object| match object.0 {
        Ok(object) => Some(object),
        Err(undecodable) => {
            let what = format!("{kind} {}", undecodable.key());
            add_gap(gaps, what, undecodable.to_string(), BY_HAND);
            None
        }
    });
    decoded.collect()
}
