// SPDX-License-Identifier: Apache-2.0
//! The actions of a reconcile.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use cinder_csi_crds::{AdoptionStep, CinderCSIDriver, NodeRegistration, PendingChanges, status::SidecarStatus};
use serde_json::Value;

use super::{
    facts::{DriverFacts, owner_of},
    held::HeldDesired,
};
use crate::{
    cluster::{Blockers, Key, OptionalApis},
    manifests::Overridden,
    migration::{Migration, claim_csi_driver},
    notice::Notice,
    plan::{Desired, Plan},
    problem::Problem,
    releases::{COMPONENTS, Component, ComponentRow, Image},
    resolve::{Classes, Environment, Resolved, Snapshots, Topology},
    rollout::Gate,
};

/// The pods of the driver by the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodsView {
    /// The confirmed version of the API server.
    pub kubernetes: Option<String>,
    /// The confirmed optional APIs.
    pub apis: OptionalApis,
    /// The row of the table of sidecars.
    pub version_set: String,
    /// The containers next to the driver.
    pub sidecars: Vec<SidecarStatus>,
    /// Fields of the spec that the API server does not know.
    pub unsupported: Vec<String>,
    /// The result of `spec.overrides`.
    pub overridden: Overridden,
}

impl PodsView {
    pub fn of(resolved: &Resolved, environment: &Environment, overridden: Overridden) -> Self {
        let by_sidecar = resolved.node.registrar == NodeRegistration::Sidecar;
        let runs = |row: &&ComponentRow| row.sidecar.map_or(by_sidecar, |name| resolved.controller.runs(name));
        let status = |row: &ComponentRow| {
            let Image { name, release, skew } = resolved.images.get(row.component)?.clone();
            Some(SidecarStatus {
                name: row.container.to_owned(),
                image: name,
                release: release.map(|release| format!("v{release}")),
                version_skew: skew?.as_str().to_owned(),
            })
        };
        Self {
            kubernetes: environment.kubernetes_version.map(|version| version.to_string()),
            apis: environment.apis.of_pod_templates(),
            version_set: resolved.version_set.name.to_owned(),
            sidecars: COMPONENTS.iter().filter(runs).filter_map(status).collect(),
            unsupported: resolved.unknown_classes.clone(),
            overridden,
        }
    }
}

/// The classes, snapshots and zones by the spec.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassesView {
    pub classes: Classes,
    pub snapshots: Snapshots,
    pub topology: Topology,
}

impl ClassesView {
    pub fn new(resolved: &Resolved) -> Self {
        Self {
            classes: resolved.storage_classes.clone(),
            snapshots: resolved.snapshots.clone(),
            topology: resolved.topology.clone(),
        }
    }
}

/// Differences between the desired and the existing objects that no change of the spec explains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects with the fields that another client changed.
    pub changed: Vec<String>,
    /// Objects that another client deleted.
    pub deleted: Vec<String>,
    /// Objects whose fields differ after every write.
    pub unresolvable: Vec<String>,
}

impl Drift {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty() && self.unresolvable.is_empty()
    }
}

/// The progress of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// These objects need the driver.
    Blocked(Blockers),
    /// The object is being deleted, and its spec forbids changes.
    Held,
    /// The condition that the removal waits for.
    UnderWay(String),
    /// The driver's objects are deleted.
    Finished,
    /// The driver continues to run without the operator.
    Released,
}

impl Removal {
    /// Whether the operator has no objects of the driver any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Finished | Self::Released)
    }
}

/// Whether a reconcile writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, because the spec forbids changes or another process may have the Lease.
    #[default]
    ReadOnly,
    ReadWrite,
}

/// The actions of a reconcile, and the view of the spec that the status reports.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Clone, Default)]
pub struct Decision {
    pub access: Access,
    /// The names of the desired objects.
    pub keys: Vec<Key>,
    /// Existing objects that the spec excludes from the operator.
    pub unmanaged: BTreeSet<Key>,
    /// The sidecars of the controller.
    pub sidecars: Vec<Component>,
    /// The taint that the operator removes from nodes with a registered driver.
    pub startup_taint: Option<String>,
    /// The parts of the spec that cannot be carried out.
    pub problems: Vec<Problem>,
    /// The objects of the plan, with the held ones.
    pub held: HeldDesired,
    pub pods: Option<PodsView>,
    pub classes: Option<ClassesView>,
    /// The state of a migration from another installation.
    pub migration: Option<Migration>,
    /// The obstacles to the migration.
    pub migration_problems: Vec<Problem>,
    /// The nodes with a pod of the other installation.
    pub foreign_nodes: BTreeSet<String>,
    /// Whether the CSIDriver object of the other installation counts as the driver's.
    pub claims_csi_driver: bool,
    /// Whether a search has just found no other installation.
    pub is_migration_settled: bool,
    pub removal: Option<Removal>,
    /// The installed versions, and whether an update may begin.
    pub gate: Gate,
    /// The changes by other clients.
    pub drift: Drift,
    /// The pending changes under DryRun.
    pub pending: Option<PendingChanges>,
    /// Whether zones are used.
    pub has_topology: bool,
    /// Whether an administrator replaces outdated node pods.
    pub leaves_pods: bool,
    /// The writes, and the obstacles.
    pub plan: Plan,
    /// The CSIDriver object with new duties for the nodes. It is written after the plan, once all nodes have new pods.
    pub after_nodes: Option<Desired>,
    /// The events of the decision.
    pub notices: Vec<Notice>,
}

impl Decision {
    /// Whether nothing is written.
    pub fn read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Whether the other controller gets its pods back. Nothing else has to succeed for that.
    pub fn is_returning(&self) -> bool {
        let step = self.migration.as_ref().map(|migration| migration.step);
        step == Some(AdoptionStep::GivingBack)
    }

    /// The existing objects that the plan applies to.
    pub fn planned_objects(&self, driver: &CinderCSIDriver, facts: &DriverFacts) -> BTreeMap<Key, Value> {
        let objects = managed_objects(&facts.live, &self.unmanaged);
        let mut objects = objects.into_owned();
        if self.claims_csi_driver {
            claim_csi_driver(&owner_of(driver), &mut objects);
        }
        objects
    }
}

/// The objects without the unmanaged ones.
pub(super) fn managed_objects<'a>(
    live: &'a BTreeMap<Key, Value>,
    unmanaged: &BTreeSet<Key>,
) -> Cow<'a, BTreeMap<Key, Value>> {
    if unmanaged.is_empty() {
        return Cow::Borrowed(live);
    }
    let managed = live.iter().filter(|(key, _)| !unmanaged.contains(*key));
    Cow::Owned(managed.map(|(key, object)| (key.clone(), object.clone())).collect())
}
