// SPDX-License-Identifier: Apache-2.0
//! What was decided.

use cinder_csi_crds::{NodeRegistration, PendingChanges, status::SidecarStatus};

use super::HeldDesired;
use crate::{
    cluster::{Blockers, OptionalApis},
    manifests::Overridden,
    migration::Migration,
    notice::Notice,
    plan::{Desired, Plan},
    problem::Problem,
    releases::{COMPONENTS, ComponentRow, Image},
    resolve::{Classes, Environment, Resolved, Snapshots, Topology},
    rollout::Gate,
};

/// What the spec has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodsView {
    /// The confirmed version of the API server.
    pub kubernetes: Option<String>,
    /// The confirmed optional APIs.
    pub apis: OptionalApis,
    /// The row of the table of sidecars.
    pub version_set: String,
    /// The containers beside the driver.
    pub sidecars: Vec<SidecarStatus>,
    /// Fields of the spec that the API server does not know.
    pub unsupported: Vec<String>,
    /// The administrator's own changes.
    pub overridden: Overridden,
}

impl PodsView {
    /// What a resolved spec has come to.
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

/// What was decided about classes, snapshots and zones.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassesView {
    /// StorageClasses.
    pub classes: Classes,
    /// Snapshots.
    pub snapshots: Snapshots,
    /// Zones.
    pub topology: Topology,
}

impl ClassesView {
    /// What was decided; what exists is looked at later.
    pub fn new(resolved: &Resolved) -> Self {
        Self {
            classes: resolved.storage_classes.clone(),
            snapshots: resolved.snapshots.clone(),
            topology: resolved.topology.clone(),
        }
    }
}

/// Objects that are not as the operator wants them, though the spec asks for nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects with the fields that another client changed.
    pub changed: Vec<String>,
    /// Objects that another client deleted.
    pub deleted: Vec<String>,
    /// Objects whose fields become other than asked for however often they are written.
    pub unresolvable: Vec<String>,
}

impl Drift {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty() && self.unresolvable.is_empty()
    }
}

/// How far a removal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// These are in the way.
    Blocked(Blockers),
    /// The object is being deleted and is Unmanaged.
    Held,
    /// It goes on; what it waits for.
    UnderWay(String),
    /// Nothing is left.
    Finished,
    /// What there was goes on without the operator.
    Released,
}

impl Removal {
    /// Whether it is over, in whatever way: the operator has no objects any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Finished | Self::Released)
    }
}

/// What follows from the spec and the facts.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// What the spec asks for and cannot be had.
    pub problems: Vec<Problem>,
    /// The objects of the plan, with the held ones.
    pub held: HeldDesired,
    /// What the spec has come to.
    pub pods: Option<PodsView>,
    /// What was decided about classes, snapshots and zones.
    pub classes: Option<ClassesView>,
    /// How far a migration from another installation is.
    pub migration: Option<Migration>,
    /// How far a removal is, when one was asked for.
    pub removal: Option<Removal>,
    /// The versions in place, and whether another one may come.
    pub gate: Gate,
    /// What another client changed.
    pub drift: Drift,
    /// What would be changed under DryRun.
    pub pending: Option<PendingChanges>,
    /// Whether zones are used.
    pub has_topology: bool,
    /// Whether node pods that are out of date are left to the administrator.
    pub leaves_pods: bool,
    /// What is written, and what is in the way.
    pub plan: Plan,
    /// The CSIDriver object with new duties for the nodes. It is written after the plan, once all nodes have new pods.
    pub after_nodes: Option<Desired>,
    /// What is worth an event.
    pub notices: Vec<Notice>,
}
