// SPDX-License-Identifier: Apache-2.0
//! Adopts released objects of an earlier operator, and replaces another installation of the same driver, such as the
//! Go driver.
//!
//! The functions are pure. They take the observed installation and return the step and its actions. Records for later
//! reconciles are annotations of the other controller, set in the write that stops it. An operator that restarts in the
//! middle of a migration continues from them. The steps are:
//!
//! 1. The operator changes nothing before these conditions are met: the spec resolves, login with the credentials works,
//!    no open finding of the check remains, and no other namespace has an installation.
//! 2. The operator proves that this driver can start. Its DaemonSet starts next to the other one, and one of its pods
//!    runs. The pod finds that another plugin serves the driver's socket, and waits for the socket. A dry run proves that
//!    the API server accepts this driver's controller and one of its pods (admission, quota, pod security).
//! 3. The operator scales the other controller to zero. A pod of this driver's controller starts only after the other
//!    pods have ended and the leases of their sidecars are released or expired. Two leaders never run at the same time.
//!    A terminating pod on a node that is not Ready counts as ended when the leases have been expired for a while.
//!    Running pods keep their volumes. Requests in the meantime wait.
//! 4. This driver's controller starts. When it is ready, the operator takes ownership of the CSIDriver object.
//! 5. The operator deletes the other DaemonSet without its pods, and then deletes these pods node by node. The waiting pod
//!    of this driver takes the socket within a moment. Mounts are not affected.
//! 6. The status lists the remaining objects of the other installation, which the operator does not delete. They are
//!    scaled to zero or have no pods, and have no effect.
//!
//! This driver's controller must be ready within [`START_LIMIT`] after the other one was stopped. Otherwise the operator
//! deletes it and restores the pods of the other one. It does the same when the spec no longer requests the migration,
//! until this driver's controller is ready.

pub mod check;
mod finding;
pub mod secrets;
pub mod zones;

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use cinder_csi_crds::{AdoptionStep, INSTANCE_LABEL};
use k8s_openapi::{apimachinery::pkg::util::intstr::IntOrString, jiff::Timestamp};
use serde_json::{Value, json};

use crate::{
    cluster::{Installation, Key, Note, OldController, OldObject, Owner, is_applied, is_copy, kind},
    manifests::Stage,
    plan::{APPLIED_HASH, Action, Plan},
    rollout::scaled,
    text::join_truncated,
};
use finding::AdoptionFinding;

/// Annotation of the CinderCSIDriver that accepts the findings of the check. Its value is the object's own uid.
pub const ACCEPT_FINDINGS: &str = "csi.openstack.org/accept-findings";
/// Time for this driver's controller to become ready after the other one was stopped.
pub const START_LIMIT: Duration = Duration::from_mins(5);

impl OldController {
    /// Time of the stop, while this driver's controller has not been ready since.
    fn stopped(&self) -> Option<Timestamp> {
        self.note.as_ref().filter(|_| self.replicas == 0)?.stopped
    }
}

/// The observed state of this driver's own objects.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct Ours<'a> {
    /// Whether the spec requests the migration.
    pub is_wanted: bool,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether the spec resolves and login with the credentials works, so that this driver's controller can start.
    pub can_follow: bool,
    /// Findings of the check that no administrator has accepted, and findings that cannot be accepted.
    pub findings: &'a [AdoptionFinding],
    /// Workloads of installations in other namespaces, or the cause why they are unknown.
    pub elsewhere: Result<&'a [String], &'a str>,
    /// Key and uid of this driver's controller, if it exists and is not being deleted.
    pub controller: Option<(Key, String)>,
    /// Pods of this driver's controller that may run, including pods of a deleted controller.
    pub controller_pods: &'a [String],
    /// Whether all pods of the controller are up to date and ready.
    pub is_controller_done: bool,
    /// Why this driver's controller is not ready, for messages.
    pub trouble: &'a str,
    /// Result of a dry run of this driver's controller and of one of its pods, if there was one. `Err` has the error
    /// of the API server.
    pub trial: Option<Result<(), String>>,
    /// Whether this driver owns the CSIDriver object.
    pub has_driver: bool,
    /// Key and uid of this driver's DaemonSet, if it exists and is not being deleted.
    pub daemon_set: Option<(Key, String)>,
    /// Why pods of this driver's DaemonSet do not run, for messages. Empty if unknown.
    pub node_trouble: &'a str,
    pub now: Timestamp,
    /// Nodes where a pod of this driver should run and the kubelet responds.
    pub wanted: &'a BTreeSet<String>,
    /// Nodes where a pod of this driver should run, even if the kubelet does not respond.
    pub eligible: &'a BTreeSet<String>,
    /// Nodes where the container of this driver's pod runs.
    pub running: &'a BTreeSet<String>,
    /// Nodes where this driver's pod is Ready and the driver is registered.
    pub serving: &'a BTreeSet<String>,
    /// Maximum number of nodes without the driver at the same time.
    pub max_unavailable: &'a IntOrString,
}

/// One action of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Scale the other controller to zero and record its previous state.
    ScaleDown(OldController, Note),
    /// Record on the other controller that this driver's controller is ready, after which its pods are no longer
    /// restored. Or record why this driver's controller is deleted.
    Write(OldController, Note),
    /// Restore the pods of the other controller. The record remains if the migration failed.
    GiveBack(OldController, Option<Note>),
    /// Delete an object of this driver, because the other one is restored.
    Withdraw(Key, String),
    /// Delete the other DaemonSet without its pods.
    Orphan(OldObject),
    /// Delete the other pod on a node.
    Replace(OldObject),
}

/// Progress of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub step: AdoptionStep,
    /// Actions of this reconcile.
    pub acts: Vec<Act>,
    /// Object or event that the migration waits for, for messages.
    pub waits_for: String,
    /// Why the migration is blocked until an administrator acts.
    pub failure: Option<String>,
    /// Remaining objects of the other installation.
    pub leftovers: Vec<String>,
    /// Stages of objects that may be written. `None` allows all stages.
    pub stages: Option<&'static [Stage]>,
}

impl Migration {
    fn at(step: AdoptionStep, stages: Option<&'static [Stage]>, acts: Vec<Act>, waits_for: String) -> Self {
        Self {
            step,
            acts,
            waits_for,
            failure: None,
            leftovers: Vec::new(),
            stages,
        }
    }

    /// Removes writes of later stages from a plan.
    pub fn withhold_stages(&self, plan: &mut Plan) {
        retain_stages(plan, self.stages);
    }
}

/// Removes all writes from a plan that are not permitted before the operator knows the other installation.
pub fn withhold_until_known(plan: &mut Plan) {
    retain_stages(plan, PREPARED);
}

fn retain_stages(plan: &mut Plan, stages: Option<&[Stage]>) {
    let Some(stages) = stages else { return };
    plan.actions.retain(|action| match action {
        Action::Create(desired)
        | Action::Update { desired, .. }
        | Action::Repair { desired, .. }
        | Action::Recreate { desired, .. } => stages.contains(&desired.stage),
        Action::Prune { .. } => false,
    });
}

/// Stages that may exist before the operator changes the other installation.
const PREPARED: Option<&[Stage]> = Some(&[Stage::Base]);
/// Stages that may exist while the other installation runs: the node pods of this driver wait for the socket.
const BESIDE: Option<&[Stage]> = Some(&[Stage::Base, Stage::Node]);
/// Stages that may exist next to the other node plugins.
const STARTED: Option<&[Stage]> = Some(&[Stage::Base, Stage::Controller, Stage::Node]);
/// All stages.
const ALL: Option<&[Stage]> = None;

/// Treats objects that an operator created and released (spec.deletion.policy Orphan) as owned. The next write
/// restores their labels and annotations. Objects of another CinderCSIDriver or of other clients are not adopted.
pub fn adopt_orphans(owner: &Owner, live: &mut BTreeMap<Key, Value>) {
    let is_orphan = |object: &Value| {
        object["metadata"]["labels"][INSTANCE_LABEL].is_null() && is_applied(object) && !is_copy(object)
    };
    for object in live.values_mut().filter(|object| is_orphan(object)) {
        object["metadata"]["ownerReferences"] = json!([{"uid": owner.uid}]);
        // A release removes the hash. A placeholder makes the next difference an update of the operator, and not
        // drift.
        object["metadata"]["annotations"][APPLIED_HASH] = json!("released");
    }
}

/// Treats the CSIDriver object of another installation as owned, and returns whether one exists.
pub fn claim_csi_driver(owner: &Owner, live: &mut BTreeMap<Key, Value>) -> bool {
    let mut taken = false;
    for (key, object) in live.iter_mut() {
        if key.kind == kind::CSI_DRIVER && !owner.owns(object) {
            object["metadata"]["labels"][INSTANCE_LABEL] = json!(owner.name);
            taken = true;
        }
    }
    taken
}

/// Returns the step of the migration and its actions. `None` if no other installation exists or a migration is not
/// requested.
pub fn plan_migration(found: &Installation, ours: &Ours<'_>) -> Option<Migration> {
    if found.is_gone() {
        return None;
    }
    let next = match restore_other(found, ours) {
        Some(migration) => migration,
        None if ours.is_wanted => next(found, ours),
        None => return None,
    };
    Some(Migration {
        leftovers: found.leftovers.clone(),
        ..next
    })
}

/// Whether the migration can begin and therefore needs the check.
pub fn needs_check(found: &Installation, ours: &Ours<'_>) -> bool {
    let is_untouched = found.controllers.iter().all(|controller| controller.note.is_none());
    ours.is_wanted && ours.can_follow && is_untouched && ours.controller.is_none() && ours.daemon_set.is_none()
}

/// Whether a dry run of this driver's controller is needed now: before the other one is stopped, or to find out why
/// it fails to start.
pub fn needs_trial(found: &Installation, ours: &Ours<'_>) -> bool {
    let proves = prove_startup(found, ours).is_some() && ours.daemon_set.is_some() && !ours.running.is_empty();
    let fails = is_overdue(found, ours) && ours.controller.is_none();
    ours.can_follow && (proves || fails)
}

fn next(found: &Installation, ours: &Ours<'_>) -> Migration {
    if !ours.can_follow {
        let what = "the spec and the credentials to work (see condition Degraded)".to_owned();
        return Migration::at(AdoptionStep::Preparing, PREPARED, Vec::new(), what);
    }
    if !ours.findings.is_empty() {
        return await_findings(ours.findings);
    }
    if let Some(held) = await_others(ours) {
        return held;
    }
    if let Some(startup) = prove_startup(found, ours) {
        return startup;
    }
    if let Some(stop) = stop_other(found, ours) {
        return stop;
    }
    let starting =
        |stages, acts, what: &str| Migration::at(AdoptionStep::StartingController, stages, acts, what.to_owned());
    if !ours.is_controller_done {
        return starting(STARTED, Vec::new(), "the pods of this driver's controller");
    }
    let unsettled = found
        .controllers
        .iter()
        .filter(|controller| controller.stopped().is_some());
    let acts: Vec<Act> = unsettled
        .map(|controller| Act::Write(controller.clone(), new_note(controller, controller.replicas, None)))
        .collect();
    if !acts.is_empty() {
        return starting(STARTED, acts, "a note on the other controller that this one serves");
    }
    if !ours.has_driver {
        return starting(
            ALL,
            acts,
            "the CSIDriver object to become this driver's, while nothing is being attached",
        );
    }
    if found.daemon_sets.is_empty() && found.node_pods.is_empty() {
        return Migration::at(AdoptionStep::Done, ALL, Vec::new(), String::new());
    }
    replace_node_plugins(found, ours)
}

fn await_findings(findings: &[AdoptionFinding]) -> Migration {
    let subjects: Vec<String> = findings.iter().map(|finding| finding.subject.clone()).collect();
    let what = "the findings that condition Degraded names".to_owned();
    let finals = findings.iter().filter(|finding| finding.reason.is_final());
    let finals: Vec<String> = finals
        .map(|finding| format!("{}: {}", finding.subject, finding.message))
        .collect();
    if !finals.is_empty() {
        return Migration {
            failure: Some(format!(
                "the operator cannot replace this installation. {}. Set spec.adoption.mode to Refuse",
                join_truncated(&finals)
            )),
            ..Migration::at(AdoptionStep::Preparing, PREPARED, Vec::new(), what)
        };
    }
    let open = findings.iter().find(|finding| !finding.reason.can_be_accepted());
    let open = open.map_or_else(String::new, |finding| {
        format!(
            ". Acceptance does not include {:?} ({}): existing volumes would stop working. The operator repeats the check every minute",
            finding.reason, finding.subject
        )
    });
    Migration {
        failure: Some(format!(
            "the migration does not begin, because this driver differs from the other installation in: {}. `kubectl cinder-csi adopt \
             --check` prints each finding with its remedy. Fix them and change the spec, or annotate the object with {ACCEPT_FINDINGS} and \
             its own uid as the value, to migrate with these differences{open}",
            join_truncated(&subjects)
        )),
        ..Migration::at(AdoptionStep::Preparing, PREPARED, Vec::new(), what)
    }
}

/// Whether the operator must verify that no other namespace has an installation.
pub fn needs_others(ours: &Ours<'_>) -> bool {
    ours.is_wanted && ours.can_follow && ours.findings.is_empty() && ours.controller.is_none()
}

/// Blocks a migration while another namespace has an installation of the driver, or may have one.
fn await_others(ours: &Ours<'_>) -> Option<Migration> {
    if !needs_others(ours) {
        return None;
    }
    let held = await_absence(ours.elsewhere)?;
    Some(match ours.daemon_set {
        None => held,
        Some(_) => Migration {
            step: AdoptionStep::StartingNodes,
            stages: BESIDE,
            ..held
        },
    })
}

/// Blocks a driver without a controller while another namespace has an installation, and the namespace of the
/// migration has none.
pub fn await_absence(elsewhere: Result<&[String], &str>) -> Option<Migration> {
    let what = "the installations in other namespaces that condition Degraded names".to_owned();
    Some(Migration {
        failure: Some(describe_others(elsewhere)?),
        ..Migration::at(AdoptionStep::Preparing, PREPARED, Vec::new(), what)
    })
}

/// Returns why this driver's controller must not start. Accepting findings does not affect it.
fn describe_others(elsewhere: Result<&[String], &str>) -> Option<String> {
    match elsewhere {
        Ok([]) => None,
        Ok(others) => Some(format!(
            "the migration does not continue, because other namespaces have installations of the driver as well, and two controllers \
             would serve the same volumes: {}. Remove them, or name their namespace in spec.adoption.namespace",
            join_truncated(others)
        )),
        Err(cause) => Some(format!(
            "the migration does not continue, because it is unknown whether another namespace has an installation of the driver: \
             {cause}. If a right is missing, `kubectl apply -k config/rbac/adoption`"
        )),
    }
}

/// Returns the record of a controller. `replicas` applies if no earlier record has the number of pods. `stopped` is
/// the time of the stop.
fn new_note(controller: &OldController, replicas: i32, stopped: Option<Timestamp>) -> Note {
    let known = controller.note.as_ref().map(|note| note.replicas);
    Note {
        replicas: if replicas > 0 {
            replicas
        } else {
            known.unwrap_or(replicas)
        },
        stopped,
        failed_generation: None,
        reason: None,
    }
}

/// Proves that this driver can start before the other one is stopped.
fn prove_startup(found: &Installation, ours: &Ours<'_>) -> Option<Migration> {
    let runs = found.controllers.iter().any(|controller| controller.replicas > 0);
    if !runs || ours.controller.is_some() {
        return None;
    }
    let waits = |what: String| Migration::at(AdoptionStep::StartingNodes, BESIDE, Vec::new(), what);
    if ours.daemon_set.is_none() {
        return Some(waits("this driver's DaemonSet".to_owned()));
    }
    if ours.running.is_empty() {
        let what = "a pod of this driver to run on a node, which shows that the node can pull its image";
        let separator = if ours.node_trouble.is_empty() { "" } else { ": " };
        return Some(waits(format!("{what}{separator}{}", ours.node_trouble)));
    }
    match &ours.trial {
        Some(Ok(())) => None,
        None => Some(waits("a dry run of this driver's controller".to_owned())),
        Some(Err(why)) => Some(Migration {
            failure: Some(format!(
                "the other controller is not stopped, because this driver's would not start: the API server refuses a dry run of it: \
                 {why}. Fix that; it is tried again"
            )),
            ..waits(format!("a dry run of this driver's controller to pass: {why}"))
        }),
    }
}

/// Whether this driver's controller has exceeded [`START_LIMIT`].
fn is_overdue(found: &Installation, ours: &Ours<'_>) -> bool {
    let mut stopped = found.controllers.iter().filter_map(OldController::stopped);
    !ours.is_controller_done && stopped.any(|since| ours.now.duration_since(since).unsigned_abs() > START_LIMIT)
}

/// Restores the pods of the other controller, because this driver's controller is not ready or the migration is no
/// longer requested. It deletes this driver's objects first.
fn restore_other(found: &Installation, ours: &Ours<'_>) -> Option<Migration> {
    let notes = found
        .controllers
        .iter()
        .filter_map(|controller| controller.note.as_ref());
    let mut failed = notes.filter(|note| note.failed_generation == Some(ours.generation));
    if let Some(note) = failed.next().filter(|_| ours.is_wanted) {
        let what = "a change of the spec, after which it is tried again";
        return Some(Migration {
            failure: Some(format!(
                "this driver's controller did not serve within {} min after the other one was stopped, which has its pods back. The reason: \
                 {}. Fix that and change the spec, for example spec.adoption.mode to Refuse and back, to have it tried again",
                START_LIMIT.as_secs() / 60,
                note.reason.as_deref().unwrap_or_default()
            )),
            ..Migration::at(AdoptionStep::GivenBack, BESIDE, Vec::new(), what.to_owned())
        });
    }
    let runs = found.controllers.iter().any(|controller| controller.replicas > 0);
    let stopped: Vec<&OldController> = found.controllers.iter().filter(|one| one.stopped().is_some()).collect();
    let is_overdue = is_overdue(found, ours);
    // A migration cannot be reverted when this driver's controller is ready and the other one is not.
    let is_taken_back = !ours.is_wanted && (runs || !stopped.is_empty());
    if !is_overdue && !is_taken_back {
        return None;
    }
    let recorded_reason = stopped
        .iter()
        .find_map(|controller| controller.note.as_ref()?.reason.clone());
    let reason = recorded_reason.clone().unwrap_or_else(|| ours.trouble.to_owned());
    let on_nodes = ours.daemon_set.iter().filter(|_| is_taken_back);
    let withdrawn = ours.controller.iter().chain(on_nodes);
    let mut acts: Vec<Act> = withdrawn
        .map(|(key, uid)| Act::Withdraw(key.clone(), uid.clone()))
        .collect();
    let what = if !acts.is_empty() {
        if is_overdue && recorded_reason.is_none() {
            // After the controller is deleted, its state no longer shows the cause.
            let note = |controller: &OldController| Note {
                reason: Some(reason.clone()),
                ..new_note(controller, 0, controller.stopped())
            };
            let notes = stopped.iter().map(|&one| Act::Write(one.clone(), note(one)));
            acts.splice(0..0, notes);
        }
        "this driver's controller to be removed".to_owned()
    } else if !ours.controller_pods.is_empty() {
        format!(
            "the pods of this driver's controller to end: {}",
            join_truncated(ours.controller_pods)
        )
    } else if !stopped.is_empty() {
        let note = |controller: &OldController| Note {
            failed_generation: Some(ours.generation),
            reason: Some(reason.clone()),
            ..new_note(controller, 0, None)
        };
        let back = |&controller: &&OldController| {
            let note = (!is_taken_back).then(|| note(controller));
            Act::GiveBack(controller.clone(), note)
        };
        acts.extend(stopped.iter().map(back));
        "the other controller to have its pods again".to_owned()
    } else {
        return None;
    };
    let stages = if is_taken_back { PREPARED } else { BESIDE };
    Some(Migration {
        failure: (!is_taken_back).then(|| {
            format!(
                "this driver's controller does not serve, and the other one gets its pods back. The reason: {reason}"
            )
        }),
        ..Migration::at(AdoptionStep::GivingBack, stages, acts, what)
    })
}

/// Scales the other controller to zero, also when another client has scaled it up again.
fn stop_other(found: &Installation, ours: &Ours<'_>) -> Option<Migration> {
    let running = found.controllers.iter().filter(|controller| controller.replicas > 0);
    let acts: Vec<Act> = running
        .map(|controller| {
            // An existing controller does not get a new time limit.
            let since = match &ours.controller {
                None => Some(ours.now),
                Some(_) => controller.note.as_ref().and_then(|note| note.stopped),
            };
            Act::ScaleDown(controller.clone(), new_note(controller, controller.replicas, since))
        })
        .collect();
    let pods: Vec<String> = found.controller_pods.iter().map(OldObject::place).collect();
    let what = if !pods.is_empty() {
        format!("the pods of the other controller to end: {}", join_truncated(&pods))
    } else if !acts.is_empty() {
        "the other controller to be scaled to 0".to_owned()
    } else if ours.controller.is_none() && !found.leases.is_empty() {
        format!(
            "leases of the other controller's sidecars to end: {}",
            join_truncated(&found.leases)
        )
    } else {
        return None;
    };
    Some(Migration::at(AdoptionStep::StoppingController, BESIDE, acts, what))
}

fn replace_node_plugins(found: &Installation, ours: &Ours<'_>) -> Migration {
    let step = AdoptionStep::ReplacingNodes;
    if ours.daemon_set.is_none() {
        return Migration::at(step, ALL, Vec::new(), "this driver's DaemonSet".to_owned());
    }
    if !found.daemon_sets.is_empty() {
        let remaining = found.daemon_sets.iter().filter(|set| !set.leaving);
        let acts = remaining.cloned().map(Act::Orphan).collect();
        return Migration::at(step, ALL, acts, "the other DaemonSet to go without its pods".to_owned());
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
    let mut what = format!("the node plugins on {} to be replaced", join_truncated(&nodes));
    if !outside.is_empty() {
        what.push_str("; spec.node keeps the pods of this driver, which would replace them, from ");
        what.push_str(&join_truncated(&outside));
        what.push_str(
            ": let its nodeSelector, affinity and tolerations admit these nodes, or delete the old pods there once nothing on these \
             nodes uses a volume",
        );
    }
    if !absent.is_empty() {
        what.push_str("; no pod of this driver runs yet, so nothing is replaced, on ");
        what.push_str(&join_truncated(&absent));
    }
    Migration::at(step, ALL, acts, what)
}

#[cfg(test)]
mod tests;
