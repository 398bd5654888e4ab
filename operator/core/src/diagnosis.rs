// SPDX-License-Identifier: Apache-2.0
//! Finds the cause and the remedy of a stuck operation on a volume.
//!
//! ```text
//! cases      pending operations in Kubernetes, with their start    from the index
//! rules      the joined facts → reason and hint                    a table; the first matching rule applies
//! ```

mod cases;
mod login;
mod rules;
mod suspect;

pub use cases::{LOOKED_INTO, Suspects, suspects};
pub use login::{LoginDoubts, login_doubts};
pub use rules::{RULES, Rule, explain, is_login_failure};
pub use suspect::{Case, CauseClass, CloudAccess, Finding, Operation, Stuck, Suspect};

/// Finds the cause of a slow operation.
pub fn diagnose(suspect: &Suspect) -> Stuck {
    let Suspect { operation, since, case } = suspect;
    Stuck {
        operation: *operation,
        since: *since,
        object: case.object.clone(),
        claim: case.claim.clone(),
        volume_id: case.volume_id.clone(),
        node: case.node.clone(),
        finding: explain(*operation, case),
    }
}
