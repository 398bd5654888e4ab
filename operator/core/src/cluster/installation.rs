// SPDX-License-Identifier: Apache-2.0
//! The observed state of another installation of the same driver, such as the Go driver.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Annotation on the other controller with a [`Note`], from which its previous state can be restored.
pub const NOTE: &str = "csi.openstack.org/takeover";

/// The record of a migration on the other controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// Desired number of pods before the stop.
    pub replicas: i32,
    /// Time of the stop. Removed when this driver's controller is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// Generation of the spec with which this driver's controller was not ready, so that the pods of the other one
    /// were restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_generation: Option<i64>,
    /// Cause of that failure, recorded before this driver's controller is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A Deployment or StatefulSet of the other controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldController {
    /// `Deployment` or `StatefulSet`.
    pub kind: &'static str,
    pub name: String,
    pub uid: String,
    /// Desired number of pods.
    pub replicas: i32,
    /// The record of the migration on this object.
    pub note: Option<Note>,
}

/// A DaemonSet or a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldObject {
    pub name: String,
    pub uid: String,
    /// Node of a pod.
    pub node: String,
    /// Whether the object is being deleted.
    pub leaving: bool,
}

impl OldObject {
    /// Describes a pod with its node, for messages.
    pub fn place(&self) -> String {
        format!("{} on node {}", self.name, self.node)
    }
}

/// The observed state of the other installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// Workloads of the controller.
    pub controllers: Vec<OldController>,
    /// Pods of the controller.
    pub controller_pods: Vec<OldObject>,
    /// Leases of its sidecars with a holder.
    pub leases: Vec<String>,
    /// Whether its sidecars have leases, and none was renewed within twice its duration.
    pub are_leases_over: bool,
    /// DaemonSets of the node plugin.
    pub daemon_sets: Vec<OldObject>,
    /// Pods of the node plugin.
    pub node_pods: Vec<OldObject>,
    /// Objects that remain after the migration: the workloads of the controller, and other objects of the
    /// installation.
    pub leftovers: Vec<String>,
}

impl Installation {
    /// Whether workloads or pods of it exist.
    pub fn has_workloads(&self) -> bool {
        !(self.controllers.is_empty()
            && self.controller_pods.is_empty()
            && self.daemon_sets.is_empty()
            && self.node_pods.is_empty())
    }

    /// Whether no object of it exists.
    pub fn is_gone(&self) -> bool {
        !self.has_workloads() && self.leases.is_empty() && self.leftovers.is_empty()
    }

    /// Removes pods that count as ended although their objects exist. On nodes that are not Ready, they would block
    /// the migration until the nodes recover or are deleted. A controller pod may lead as long as one of its leases
    /// may be in use.
    pub fn leave_dead_pods(&mut self, is_ready: impl Fn(&str) -> bool) {
        let is_dead = |pod: &OldObject| pod.leaving && !pod.node.is_empty() && !is_ready(&pod.node);
        self.node_pods.retain(|pod| !is_dead(pod));
        if self.are_leases_over {
            self.controller_pods.retain(|pod| !is_dead(pod));
        }
    }

    /// Returns the nodes of its pods.
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.node_pods.iter().map(|pod| pod.node.as_str()).collect()
    }
}
