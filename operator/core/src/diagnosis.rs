// SPDX-License-Identifier: Apache-2.0
//! Why an operation on a volume does not end, and what to do about it.
//!
//! ```text
//! cases      what is under way in Kubernetes, and since when       from the index
//! rules      the joined facts → reason and hint                    a table; the first rule that fits counts
//! ```

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::{clouds::CloudFacts, cluster::ClaimRef};

mod cases;
mod login;
mod rules;

pub use cases::{LOOKED_INTO, Suspects, suspects};
pub use login::{LoginDoubts, login_doubts};
pub use rules::{RULES, Rule, explain, is_login_failure};

/// What is done to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// It is made.
    Provision,
    /// It goes to a node.
    Attach,
    /// It leaves a node.
    Detach,
    /// It goes.
    Delete,
    /// It grows.
    Resize,
}

impl Operation {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Provision, Self::Attach, Self::Detach, Self::Delete, Self::Resize];

    /// As in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provision => "Provision",
            Self::Attach => "Attach",
            Self::Detach => "Detach",
            Self::Delete => "Delete",
            Self::Resize => "Resize",
        }
    }
}

/// Whether the driver can work in the clouds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CloudAccess {
    /// As far as is known.
    #[default]
    Open,
    /// The credentials that the driver uses are refused; what was said.
    Refused(String),
    /// A service does not answer as it should; what was said.
    Unreachable(String),
}

/// One operation that takes long, with everything that may explain it. Facts that are not known say so.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct Case {
    /// The object that waits: its kind and name.
    pub object: (&'static str, String),
    /// The claim.
    pub claim: Option<ClaimRef>,
    /// The volume's id in Cinder.
    pub volume_id: Option<String>,
    /// The node that it is about.
    pub node: Option<String>,
    /// Whether that node exists.
    pub node_exists: bool,
    /// The node's server, by the driver's registration there; none without one.
    pub node_server: Option<String>,
    /// The node's zone.
    pub node_zone: Option<String>,
    /// How many volumes the node may have, and how many it has or waits for.
    pub node_limit: Option<(u32, usize)>,
    /// Other nodes that have the volume, or wait for it, in Kubernetes.
    pub other_nodes: Vec<String>,
    /// Whether the object was deleted.
    pub is_terminating: bool,
    /// Whether a claim is bound to the volume.
    pub is_bound: bool,
    /// Whether only the node has something left to do.
    pub waits_for_node: bool,
    /// What sidecar or kubelet said last.
    pub said: Option<String>,
    /// Whether a pod of the controller serves.
    pub has_controller: bool,
    /// Whether the clouds let the driver in.
    pub access: CloudAccess,
    /// The zones of the clouds.
    pub facts: Vec<CloudFacts>,
    /// Cinder's zone for zones of Nova.
    pub zone_map: BTreeMap<String, String>,
}

/// An operation under way, not explained yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// What is done.
    pub operation: Operation,
    /// Since when.
    pub since: Timestamp,
    /// What is known.
    pub case: Case,
}

/// The kind of a cause, for the condition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CauseClass {
    /// Anything else.
    #[default]
    Other,
    /// The node does not exist.
    NodeGone,
}

/// Why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// One word.
    pub reason: &'static str,
    /// Its kind.
    pub class: CauseClass,
    /// What is the matter and what to do.
    pub hint: String,
}

/// An operation that takes longer than it may, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct Stuck {
    /// What is done.
    pub operation: Operation,
    /// Since when.
    pub since: Timestamp,
    /// The object that waits: its kind and name.
    pub object: (&'static str, String),
    /// The claim.
    pub claim: Option<ClaimRef>,
    /// The volume's id in Cinder.
    pub volume_id: Option<String>,
    /// The node.
    pub node: Option<String>,
    /// Why, and what to do.
    pub finding: Finding,
}

/// Explains a suspect.
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
