// SPDX-License-Identifier: Apache-2.0
//! Another installation of the same driver, the Go driver's, as it was found.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Annotation on the other controller with a [`Note`], so that it can be given back what it had.
pub const NOTE: &str = "csi.openstack.org/takeover";

/// What is to be known of the other controller later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// How many pods it wanted.
    pub replicas: i32,
    /// Since when it is stopped; gone when ours serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// The generation of the spec with which ours did not serve, so that theirs was given back its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_generation: Option<i64>,
    /// Why it did not, noted before ours is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A Deployment or StatefulSet of the other controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldController {
    /// `Deployment` or `StatefulSet`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// How many pods it wants.
    pub replicas: i32,
    /// What was noted of it.
    pub note: Option<Note>,
}

/// A DaemonSet or a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldObject {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The node of a pod.
    pub node: String,
    /// Whether it is on its way out.
    pub leaving: bool,
}

impl OldObject {
    /// A pod and where it is, for people.
    pub fn place(&self) -> String {
        format!("{} on node {}", self.name, self.node)
    }
}

/// The other installation, as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// What makes the controller's pods.
    pub controllers: Vec<OldController>,
    /// The controller's pods.
    pub controller_pods: Vec<OldObject>,
    /// Leases of its sidecars that have a holder.
    pub leases: Vec<String>,
    /// Whether its sidecars have leases, and none was renewed for twice the time that it lasts.
    pub are_leases_over: bool,
    /// What makes the pods on the nodes.
    pub daemon_sets: Vec<OldObject>,
    /// The pods on the nodes.
    pub node_pods: Vec<OldObject>,
    /// What stays of it: what makes the controller's pods, and what else belongs to it.
    pub leftovers: Vec<String>,
}

impl Installation {
    /// Whether something of it is there that runs or makes pods.
    pub fn has_workloads(&self) -> bool {
        !(self.controllers.is_empty()
            && self.controller_pods.is_empty()
            && self.daemon_sets.is_empty()
            && self.node_pods.is_empty())
    }

    /// Whether nothing of it is there.
    pub fn is_gone(&self) -> bool {
        !self.has_workloads() && self.leases.is_empty() && self.leftovers.is_empty()
    }

    /// Takes out the pods that count as ended though their objects stay: on nodes that are not Ready they would hold everything up
    /// until these come back or their Node objects go. A pod of the controller may lead for as long as a lease of it may be in use.
    pub fn leave_dead_pods(&mut self, is_ready: impl Fn(&str) -> bool) {
        let is_dead = |pod: &OldObject| pod.leaving && !pod.node.is_empty() && !is_ready(&pod.node);
        self.node_pods.retain(|pod| !is_dead(pod));
        if self.are_leases_over {
            self.controller_pods.retain(|pod| !is_dead(pod));
        }
    }

    /// The nodes that its pods are on.
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.node_pods.iter().map(|pod| pod.node.as_str()).collect()
    }
}
