// SPDX-License-Identifier: Apache-2.0
//! Pending operations on volumes, the facts about them, and their diagnosis.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::{clouds::CloudFacts, cluster::ClaimRef};

/// An operation on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Create the volume of a claim.
    Provision,
    /// Attach the volume to a node.
    Attach,
    /// Detach the volume from a node.
    Detach,
    /// Delete the volume.
    Delete,
    /// Expand the volume.
    Resize,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 5] = [Self::Provision, Self::Attach, Self::Detach, Self::Delete, Self::Resize];

    /// Name in the status.
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
    /// As far as known.
    #[default]
    Open,
    /// A cloud refuses the credentials of the driver, with its message.
    Refused(String),
    /// A service is unavailable or fails, with its message.
    Unreachable(String),
}

/// One slow operation, with all facts that may explain it. Each field has a value for an unknown fact.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct Case {
    /// Kind and name of the waiting object.
    pub object: (&'static str, String),
    pub claim: Option<ClaimRef>,
    /// Id of the volume in Cinder.
    pub volume_id: Option<String>,
    /// Node of the operation.
    pub node: Option<String>,
    /// Whether that node exists.
    pub node_exists: bool,
    /// Server of the node, according to the registration of the driver there. `None` without a registration.
    pub node_server: Option<String>,
    /// Zone of the node.
    pub node_zone: Option<String>,
    /// Maximum number of volumes on the node, and the number that are attached or pending there.
    pub node_limit: Option<(u32, usize)>,
    /// Other nodes to which Kubernetes has attached the volume or is attaching it.
    pub other_nodes: Vec<String>,
    /// Whether the object is being deleted.
    pub is_terminating: bool,
    /// Whether a claim is bound to the volume.
    pub is_bound: bool,
    /// Whether the operation waits only for the node.
    pub waits_for_node: bool,
    /// Last message of a sidecar or of the kubelet.
    pub said: Option<String>,
    /// Whether a pod of the controller is ready.
    pub has_controller: bool,
    pub access: CloudAccess,
    /// The zones of the clouds.
    pub facts: Vec<CloudFacts>,
    /// Zones of Cinder by zone of Nova.
    pub zone_map: BTreeMap<String, String>,
}

/// A pending operation without a diagnosis.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    pub operation: Operation,
    /// Start of the operation.
    pub since: Timestamp,
    /// Known facts about the operation.
    pub case: Case,
}

/// The kind of a cause, for the condition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CauseClass {
    #[default]
    Other,
    /// The node does not exist.
    NodeGone,
}

/// Cause and remedy of a stuck operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// One word.
    pub reason: &'static str,
    pub class: CauseClass,
    /// Cause and required action.
    pub hint: String,
}

/// An operation that exceeds its time limit, with its diagnosis.
#[derive(Debug, Clone, PartialEq)]
pub struct Stuck {
    pub operation: Operation,
    /// Start of the operation.
    pub since: Timestamp,
    /// Kind and name of the waiting object.
    pub object: (&'static str, String),
    pub claim: Option<ClaimRef>,
    /// Id of the volume in Cinder.
    pub volume_id: Option<String>,
    pub node: Option<String>,
    pub finding: Finding,
}
