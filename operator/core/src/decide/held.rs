// SPDX-License-Identifier: Apache-2.0
//! The objects that keep their last applied content: one mechanism for a part of the spec that cannot be carried out, for an
//! override that fails, and for a kind that cannot be listed.
//!
//! A held object is planned with its recorded content. So it is repaired and recreated, and never changed. An object
//! without a valid record is neither written nor pruned.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::Override;
use serde_json::Value;

use crate::{
    cluster::{Key, Owner, VERSION_LABEL, kind},
    manifests::{Overridden, Stage},
    plan::{Desired, LastApplied, PlanScope, RecordedObject, is_base},
    resolve::HoldScope,
    rollout::{Gate, is_workload, without_new_duties},
};

/// The objects of a spec that keep their last applied content.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    scopes: Vec<HoldScope>,
    /// The objects of failed overrides.
    failed: BTreeSet<Key>,
    /// Whether an override names an object that does not exist: it may be a misspelt name of any object.
    has_unknown_target: bool,
    /// The objects that overrides name, by kind and name.
    targets: BTreeSet<(String, String)>,
}

/// The desired objects, with the held ones at their last applied content.
#[derive(Debug, Clone, Default)]
pub struct HeldDesired {
    /// All objects that are planned, in the order of their stages.
    pub desired: Vec<Desired>,
    /// The objects with content from the record.
    pub recorded: BTreeSet<Key>,
    /// Objects that are neither written nor pruned.
    pub untouched: BTreeSet<Key>,
    /// Whether the driver was installed before.
    is_installed: bool,
}

impl Holds {
    pub(super) fn new(scopes: Vec<HoldScope>, overridden: &Overridden, overrides: &[Override]) -> Self {
        let targets = overrides.iter().map(|patch| &patch.target);
        Self {
            scopes,
            failed: overridden.held.clone(),
            has_unknown_target: overridden.has_unknown_target,
            targets: targets
                .map(|target| (target.kind.clone(), target.name.clone()))
                .collect(),
        }
    }

    /// Whether an object is held.
    pub(super) fn covers(&self, key: &Key, recorded: Option<&RecordedObject>) -> bool {
        let is_target = || self.targets.contains(&(key.kind.to_owned(), key.name.clone()));
        let has_lost_override =
            || self.has_unknown_target && recorded.is_some_and(|recorded| recorded.overridden) && !is_target();
        self.failed.contains(key) || self.scopes.iter().any(|scope| scope.covers(key)) || has_lost_override()
    }

    /// Replaces the held objects by their last applied content.
    pub(super) fn hold(
        &self,
        owner: &Owner,
        desired: &[Desired],
        live: &BTreeMap<Key, Value>,
        last_applied: &LastApplied,
        unlisted: &BTreeSet<&'static str>,
    ) -> HeldDesired {
        let is_own = |key: &Key| live.get(key).is_some_and(|existing| owner.owns(existing));
        let runs = live.keys().any(|key| is_workload(key) && is_own(key));
        let mut held = HeldDesired {
            is_installed: runs || !last_applied.is_empty(),
            ..HeldDesired::default()
        };
        let is_new = !held.is_installed && self.scopes.contains(&HoldScope::All);
        let desired_by_key: BTreeMap<&Key, &Desired> = desired.iter().map(|desired| (&desired.key, desired)).collect();
        let others = last_applied
            .iter()
            .map(|(key, _)| key)
            .chain(live.keys().filter(|key| is_own(key)));
        let others: BTreeSet<&Key> = others.filter(|key| !desired_by_key.contains_key(*key)).collect();
        for key in desired.iter().map(|desired| &desired.key).chain(others) {
            let known = desired_by_key.get(key).copied();
            // Rights and credentials do not depend on the spec, and pods of whatever content need them.
            let is_base = known.map_or_else(|| is_base(key.kind), |desired| desired.stage == Stage::Base);
            if unlisted.contains(key.kind) {
                held.untouched.insert(key.clone());
            } else if is_base {
                held.desired.extend(known.filter(|_| !is_new).cloned());
            } else if !self.covers(key, last_applied.get(key)) {
                held.desired.extend(known.cloned());
            } else if let Some(content) = last_applied.content_for(key, live.get(key)) {
                held.recorded.insert(key.clone());
                held.desired.push(content.clone());
            } else {
                held.untouched.insert(key.clone());
            }
        }
        held.desired.sort_by_key(|desired| desired.stage);
        held
    }
}

impl HeldDesired {
    /// Replaces workloads that cannot be rendered at their release by their recorded content. Without a valid record they remain as they
    /// are.
    pub(super) fn hold_workloads(
        &mut self,
        owner: &Owner,
        gate: &Gate,
        live: &BTreeMap<Key, Value>,
        last_applied: &LastApplied,
    ) {
        for desired in self
            .desired
            .iter_mut()
            .filter(|desired| gate.pinned.contains(desired.key.kind))
        {
            let existing = live.get(&desired.key);
            let version = |object: &Value| object["metadata"]["labels"][VERSION_LABEL].as_str().map(str::to_owned);
            let installed = match existing {
                Some(existing) => version(existing),
                None => Some(gate.from().unwrap_or(&gate.target.version).to_owned()),
            };
            let content = last_applied.content_for(&desired.key, existing);
            if let Some(content) = content.filter(|content| version(&content.object) == installed) {
                self.recorded.insert(desired.key.clone());
                *desired = content.clone();
            } else if existing.is_some_and(|existing| owner.owns(existing)) {
                self.untouched.insert(desired.key.clone());
            }
        }
    }

    /// Removes new duties of the nodes from the CSIDriver object. Returns the object with them.
    pub(super) fn defer_duties(&mut self, owner: &Owner, live: &BTreeMap<Key, Value>) -> Option<Desired> {
        let mut fresh = self
            .desired
            .iter_mut()
            .filter(|desired| !self.recorded.contains(&desired.key));
        let desired = fresh.find(|desired| desired.key.kind == kind::CSI_DRIVER)?;
        let existing = live.get(&desired.key).filter(|existing| owner.owns(existing))?;
        let early = without_new_duties(desired, existing)?;
        Some(std::mem::replace(desired, early))
    }

    /// Whether the pods of a workload differ from the spec.
    pub fn holds_workload(&self) -> bool {
        self.recorded.iter().chain(&self.untouched).any(is_workload)
    }

    /// The limits of the plan.
    pub(super) fn plan_scope(&self, is_complete: bool, last_applied: &LastApplied) -> PlanScope {
        let base = self.desired.iter().filter(|desired| desired.stage == Stage::Base);
        let base = base.filter(|_| self.is_installed).map(|desired| &desired.key);
        PlanScope {
            prune: is_complete,
            untouched: self.untouched.clone(),
            installed: base.chain(last_applied.iter().map(|(key, _)| key)).cloned().collect(),
        }
    }

    /// The record after the writes of a reconcile. `overridden` names the objects that `spec.overrides` changes.
    pub fn record(
        &self,
        last_applied: &LastApplied,
        owner: &Owner,
        overridden: &[String],
        live: &BTreeMap<Key, Value>,
    ) -> LastApplied {
        let fresh = self
            .desired
            .iter()
            .filter(|desired| !self.recorded.contains(&desired.key));
        let fresh = fresh.map(|desired| {
            let name = format!("{} {}", desired.key.kind, desired.key.name);
            (desired, overridden.contains(&name))
        });
        let is_desired =
            |key: &Key| self.untouched.contains(key) || self.desired.iter().any(|desired| desired.key == *key);
        last_applied.updated(owner, fresh, is_desired, live)
    }
}
