// SPDX-License-Identifier: Apache-2.0
//! Parts of a spec that cannot be applied, and the objects that retain their last applied content because of them.

use crate::cluster::{Key, kind};
use crate::problem::Problem;

/// A part of the spec that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecHold {
    pub problem: Problem,
    /// The objects that depend on it.
    pub scope: HoldScope,
}

/// The objects that a problem affects. Accounts, roles, bindings and the driver's Secret are never included. Their
/// content does not depend on the spec, and all pods need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldScope {
    Nothing,
    All,
    /// All objects of these kinds.
    Kinds(Vec<&'static str>),
    /// These objects, by kind and name.
    Objects(Vec<(String, String)>),
}

impl HoldScope {
    /// The controller with the objects that select its pods by port or number.
    pub(super) fn controller() -> Self {
        Self::Kinds(vec![kind::DEPLOYMENT, "PodDisruptionBudget", "NetworkPolicy"])
    }

    /// The node plugin.
    pub(super) fn nodes() -> Self {
        Self::Kinds(vec![kind::DAEMON_SET])
    }

    /// Whether an object depends on the problem.
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Kinds(kinds) => kinds.contains(&key.kind),
            Self::Objects(objects) => objects.iter().any(|(kind, name)| kind == key.kind && *name == key.name),
        }
    }
}

impl SpecHold {
    pub(super) fn new(problem: Problem, scope: HoldScope) -> Self {
        Self { problem, scope }
    }
}
