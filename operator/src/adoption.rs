//! Taking up what an operator let go of, and taking the place of another installation of the same driver, the Go driver's.
//!
//! Pure functions: what was found goes in, the step and what is to be done now come out. Nothing is remembered; an operator that is
//! killed in the middle goes on where it was. The place of another installation is taken so:
//!
//! 1. Nothing is touched before the spec resolves and the credentials log in.
//! 2. The other controller is scaled to zero. Its pods have to be gone, and the leases of its sidecars given back or expired, before
//!    a pod of ours starts: never are there two leaders. A pod that leaves and whose node is not Ready is gone when the leases have
//!    been expired for a while. Pods that run keep their volumes; what is asked for meanwhile waits.
//! 3. Our controller starts, and the CSIDriver object changes hands.
//! 4. Our DaemonSet comes beside theirs. A pod of ours finds the driver's socket served and waits for it. Their DaemonSet is
//!    deleted without its pods, and these go node by node: the one that waits takes over within a moment, no mount is touched.
//! 5. What is left is named and stays. Scaled to zero or without pods it does nothing.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{AdoptionStep, INSTANCE_LABEL};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::{
    objects::{Key, Owner, is_applied, is_copy, kind},
    operands::Stage,
    plan::{APPLIED_HASH, Action, Plan},
    rollout::scaled,
    words::listed,
};

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

/// The other installation, as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// What makes the controller's pods.
    pub controllers: Vec<OldController>,
    /// The controller's pods.
    pub controller_pods: Vec<OldObject>,
    /// Leases of its sidecars that somebody holds.
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

/// Our own part, as it was found.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct Ours<'a> {
    /// Whether spec and credentials work, so that a controller of ours can follow.
    pub can_follow: bool,
    /// Whether our controller is there.
    pub has_controller: bool,
    /// Whether all its pods are as they should be.
    pub is_controller_done: bool,
    /// Whether our DaemonSet is there.
    pub has_daemon_set: bool,
    /// Nodes where a pod of ours is to run and the kubelet answers.
    pub wanted: &'a BTreeSet<String>,
    /// Nodes where a pod of ours is to run, whether the kubelet answers or not.
    pub eligible: &'a BTreeSet<String>,
    /// Nodes where the container of our pod runs.
    pub running: &'a BTreeSet<String>,
    /// Nodes where our pod is Ready and the driver registered.
    pub serving: &'a BTreeSet<String>,
    /// How many nodes may be without the driver at once.
    pub max_unavailable: &'a IntOrString,
}

/// One thing to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Their controller is to have no pods.
    ScaleDown(OldController),
    /// Their DaemonSet is to go without its pods.
    Orphan(OldObject),
    /// Their pod on a node is to go.
    Replace(OldObject),
}

/// Where the take-over is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// The step.
    pub step: AdoptionStep,
    /// What is to be done now.
    pub acts: Vec<Act>,
    /// What is waited for, for people.
    pub waits_for: String,
    /// What is left of the other installation.
    pub leftovers: Vec<String>,
}

impl Takeover {
    fn at(step: AdoptionStep, acts: Vec<Act>, waits_for: String) -> Self {
        Self {
            step,
            acts,
            waits_for,
            leftovers: Vec::new(),
        }
    }

    /// The last stage of objects that may be written at this step; `None`: all.
    fn limit(&self) -> Option<Stage> {
        match self.step {
            AdoptionStep::Preparing | AdoptionStep::StoppingController => Some(Stage::Base),
            AdoptionStep::StartingController => Some(Stage::Controller),
            AdoptionStep::ReplacingNodes | AdoptionStep::Done => None,
        }
    }

    /// Takes out of a plan what must wait.
    pub fn hold_back(&self, plan: &mut Plan) {
        let Some(limit) = self.limit() else { return };
        plan.actions.retain(|action| match action {
            Action::Create(desired)
            | Action::Update { desired, .. }
            | Action::Repair { desired, .. }
            | Action::Recreate { desired, .. } => desired.stage <= limit,
            Action::Prune { .. } => false,
        });
    }
}

/// Counts what an operator made and let go of (spec.deletion.policy Orphan) as the owner's: the writes that follow put the marks back.
/// What another CinderCSIDriver has, and what others made, stays theirs.
pub fn take_up(owner: &Owner, live: &mut BTreeMap<Key, Value>) {
    let is_orphan = |object: &Value| {
        object["metadata"]["labels"][INSTANCE_LABEL].is_null() && is_applied(object) && !is_copy(object)
    };
    for object in live.values_mut().filter(|object| is_orphan(object)) {
        object["metadata"]["ownerReferences"] = json!([{"uid": owner.uid}]);
        // Its hash went with the marks: what differs now is what the operator has to apply, and no drift.
        object["metadata"]["annotations"][APPLIED_HASH] = json!("released");
    }
}

/// Counts the CSIDriver object of another installation as the owner's; tells whether there was one.
pub fn take_driver(owner: &Owner, live: &mut BTreeMap<Key, Value>) -> bool {
    let mut taken = false;
    for (key, object) in live.iter_mut() {
        if key.kind == kind::CSI_DRIVER && !owner.owns(object) {
            object["metadata"]["labels"][INSTANCE_LABEL] = json!(owner.name);
            taken = true;
        }
    }
    taken
}

/// Says where the take-over is and what is to be done; `None` where there is nothing to take over.
pub fn takeover(found: &Installation, ours: &Ours<'_>) -> Option<Takeover> {
    (!found.is_gone()).then(|| Takeover {
        leftovers: found.leftovers.clone(),
        ..next(found, ours)
    })
}

fn next(found: &Installation, ours: &Ours<'_>) -> Takeover {
    if !ours.can_follow {
        let what = "the spec and the credentials to work, which condition Degraded tells about".to_owned();
        return Takeover::at(AdoptionStep::Preparing, Vec::new(), what);
    }
    if let Some(stopping) = stopping(found, ours) {
        return stopping;
    }
    if !ours.is_controller_done {
        let what = "the pods of this driver's controller".to_owned();
        return Takeover::at(AdoptionStep::StartingController, Vec::new(), what);
    }
    if found.daemon_sets.is_empty() && found.node_pods.is_empty() {
        return Takeover::at(AdoptionStep::Done, Vec::new(), String::new());
    }
    replacing(found, ours)
}

/// Their controller goes; also one that somebody has brought back.
fn stopping(found: &Installation, ours: &Ours<'_>) -> Option<Takeover> {
    let running = found.controllers.iter().filter(|controller| controller.replicas > 0);
    let acts: Vec<Act> = running.cloned().map(Act::ScaleDown).collect();
    let place = |pod: &OldObject| format!("{} on node {}", pod.name, pod.node);
    let pods: Vec<String> = found.controller_pods.iter().map(place).collect();
    let what = if !pods.is_empty() {
        format!("the pods of the other controller to end: {}", listed(&pods))
    } else if !acts.is_empty() {
        "the other controller to be scaled to 0".to_owned()
    } else if !ours.has_controller && !found.leases.is_empty() {
        format!(
            "leases of the other controller's sidecars to end: {}",
            listed(&found.leases)
        )
    } else {
        return None;
    };
    Some(Takeover::at(AdoptionStep::StoppingController, acts, what))
}

fn replacing(found: &Installation, ours: &Ours<'_>) -> Takeover {
    let step = AdoptionStep::ReplacingNodes;
    if !ours.has_daemon_set {
        return Takeover::at(step, Vec::new(), "this driver's DaemonSet".to_owned());
    }
    if !found.daemon_sets.is_empty() {
        let there = found.daemon_sets.iter().filter(|set| !set.leaving);
        let acts = there.cloned().map(Act::Orphan).collect();
        return Takeover::at(step, acts, "the other DaemonSet to go without its pods".to_owned());
    }
    let old: BTreeSet<&str> = found
        .node_pods
        .iter()
        .filter(|pod| !pod.leaving)
        .map(|pod| pod.node.as_str())
        .collect();
    let is_served = |node: &&String| ours.serving.contains(*node) || old.contains(node.as_str());
    let unavailable = ours.wanted.len() - ours.wanted.iter().filter(is_served).count();
    let budget = scaled(ours.max_unavailable, ours.wanted.len()).saturating_sub(unavailable);
    let may_go = |pod: &&OldObject| !pod.leaving && ours.wanted.contains(&pod.node) && ours.running.contains(&pod.node);
    let acts = found.node_pods.iter().filter(may_go).take(budget).cloned();
    let acts = acts.map(Act::Replace).collect();
    let nodes: Vec<String> = found.nodes().into_iter().map(str::to_owned).collect();
    let (inside, outside): (Vec<String>, Vec<String>) =
        nodes.iter().cloned().partition(|node| ours.eligible.contains(node));
    let is_absent = |node: &String| !ours.running.contains(node);
    let absent: Vec<String> = inside.into_iter().filter(is_absent).collect();
    let mut what = format!("the node plugins on {} to be replaced", listed(&nodes));
    if !outside.is_empty() {
        what.push_str("; spec.node keeps the pods of this driver, which would replace them, from ");
        what.push_str(&listed(&outside));
        what.push_str(
            ": let its nodeSelector, affinity and tolerations admit these nodes, or delete the old pods there once nothing on these \
             nodes uses a volume",
        );
    }
    if !absent.is_empty() {
        what.push_str("; no pod of this driver runs yet, so nothing is replaced, on ");
        what.push_str(&listed(&absent));
    }
    Takeover::at(step, acts, what)
}

#[cfg(test)]
mod tests;
