// SPDX-License-Identifier: Apache-2.0
//! Why an operation on a volume does not end, and what to do about it.
//!
//! ```text
//! cases      what is under way in Kubernetes, and since when       from the index
//! rules      the joined facts → reason and hint                    a table; the first rule that fits counts
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cinder_cloud::{Server, ServerId, Volume};
use k8s_openapi::jiff::Timestamp;

use crate::{clouds::CloudFacts, cluster::ClaimRef};

mod cases;
mod rules;

pub use cases::{LOOKED_INTO, Suspects, suspects};
pub use rules::{RULES, Rule, explain};

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

/// What the clouds say of something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CloudAnswer<T> {
    /// They were not asked, or gave no answer.
    #[default]
    Unknown,
    /// It does not exist.
    Missing,
    /// It is so.
    Found(T),
}

impl<T> CloudAnswer<T> {
    /// What was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            _ => None,
        }
    }

    /// Whether it certainly does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
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
    /// Whether it is Ready.
    pub node_ready: bool,
    /// The node's server, by the driver's registration there; none without one.
    pub node_server: Option<String>,
    /// The node's zone.
    pub node_zone: Option<String>,
    /// How many volumes the node may have, and how many it has or waits for.
    pub node_limit: Option<(u32, usize)>,
    /// Other nodes that have the volume, or wait for it, in Kubernetes.
    pub other_nodes: Vec<String>,
    /// The nodes of servers that Kubernetes knows.
    pub nodes_of_servers: Arc<BTreeMap<String, String>>,
    /// Whether several nodes are to have the volume.
    pub is_shared: bool,
    /// Whether the object was deleted.
    pub is_terminating: bool,
    /// Whether a claim is bound to the volume.
    pub is_bound: bool,
    /// Whether the attacher's finalizer is on the volume.
    pub has_attacher_finalizer: bool,
    /// Whether only the node has something left to do.
    pub waits_for_node: bool,
    /// How many bytes are wanted.
    pub wanted: Option<u64>,
    /// What sidecar or kubelet said last.
    pub said: Option<String>,
    /// Whether a pod of the controller serves.
    pub has_controller: bool,
    /// Whether the clouds let the driver in.
    pub access: CloudAccess,
    /// What the clouds have told of themselves.
    pub facts: Vec<CloudFacts>,
    /// Cinder's zone for zones of Nova.
    pub zone_map: BTreeMap<String, String>,
    /// The volume in Cinder.
    pub volume: CloudAnswer<Volume>,
    /// Servers that it is about, by id: those that have the volume and the node's.
    pub servers: BTreeMap<ServerId, Option<Server>>,
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
    /// A node or a server is gone.
    NodeGone,
    /// The volume is in an error state.
    InErrorState,
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
    /// The volume's status in Cinder.
    pub cinder_status: Option<String>,
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
        volume_id: case
            .volume_id
            .clone()
            .or_else(|| case.volume.found().map(|volume| volume.id.to_string())),
        node: case.node.clone(),
        cinder_status: case.volume.found().map(|volume| volume.status.as_str().to_owned()),
        finding: explain(*operation, case),
    }
}

/// The servers that a case is about.
pub fn servers_of(case: &Case) -> BTreeSet<ServerId> {
    let node = case.node_server.iter().map(|id| ServerId::new(id.clone()));
    let of_volume = case.volume.found().map(Volume::servers).unwrap_or_default();
    node.chain(of_volume).filter(ServerId::is_uuid).collect()
}
