// SPDX-License-Identifier: Apache-2.0
//! The observations that a decision still needs.

use crate::{
    cluster::{AttachedNodes, Key},
    plan::Desired,
    resolve::Topology,
};

use super::{decision::Decision, narrowing::NodesChange};

/// The result of one call of [`super::decide`].
#[derive(Debug)]
pub enum DecisionStep {
    /// The facts lack the answers to these queries.
    Need(Box<Queries>),
    /// The facts are complete.
    Decided(Box<Decision>),
}

/// Queries about the cluster. [`super::QueryAnswers`] has the answer to each of them.
#[derive(Debug, Default)]
pub struct Queries {
    /// Objects to read by name.
    pub objects: Vec<Key>,
    /// The other installation of the driver that a migration replaces.
    pub installation: bool,
    /// The installations of the driver in other namespaces.
    pub elsewhere: bool,
    /// The pods of this driver, and the nodes that it serves.
    pub own_part: bool,
    /// The differences between this driver and the other installation.
    pub findings: Option<FindingsQuery>,
    /// A dry run of the controller's Deployment and of one of its pods.
    pub trial: Option<Box<Desired>>,
    /// Objects to recreate: what uses them now.
    pub uses: Vec<Key>,
    /// The nodes with attached volumes.
    pub attached_nodes: Option<AttachedNodesQuery>,
    /// Missing workloads: the newest remaining revision of each of their templates.
    pub templates: Vec<Key>,
}

/// A query for the differences between this driver and the other installation.
#[derive(Debug, Default)]
pub struct FindingsQuery {
    /// The topology of this driver, where its spec can be carried out.
    pub topology: Option<Box<Topology>>,
}

/// A query for the nodes with attached volumes.
#[derive(Debug)]
pub struct AttachedNodesQuery {
    pub(super) changes: Vec<NodesChange>,
}

impl AttachedNodesQuery {
    /// Whether the plan excludes one of these nodes. Then the list need not be complete.
    pub fn is_answered_by(&self, attached: &AttachedNodes) -> bool {
        self.changes.iter().any(|change| change.lost_nodes(attached).is_some())
    }
}

impl Queries {
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            objects,
            installation,
            elsewhere,
            own_part,
            findings,
            trial,
            uses,
            attached_nodes,
            templates,
        } = self;
        let is_flagged = *installation || *elsewhere || *own_part;
        let is_listed = !objects.is_empty() || !uses.is_empty() || !templates.is_empty();
        !is_flagged && !is_listed && findings.is_none() && trial.is_none() && attached_nodes.is_none()
    }
}
