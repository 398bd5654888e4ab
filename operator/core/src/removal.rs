// SPDX-License-Identifier: Apache-2.0
//! Removes a driver without harm to a volume. A pure function returns the next step. The controller executes it and
//! calls the function again.
//!
//! Every step is derived from existing objects. An operator that restarts in the middle of a removal continues with the
//! same step. The order is:
//!
//! 1. No step, while an object needs the driver for its orderly deletion. These are PersistentVolumes, VolumeAttachments,
//!    VolumeSnapshotContents and VolumeGroupSnapshotContents of the driver, and claims for which the driver was requested
//!    to create a volume. This applies to policy Block, and to policy Force until an administrator acknowledges it.
//! 2. The classes, so that no new volumes and snapshots are requested.
//! 3. The controller, and the end of its pods.
//! 4. The registration with the kubelets. A terminating pod cannot distinguish an update from a removal, and retains the
//!    registration for its successor. Therefore the DaemonSet is first rolled to pods that end the registration on
//!    purpose. The step ends when no CSINode lists the driver, or after `spec.deletion.drainTimeout`. If only nodes remain
//!    that are not Ready, it ends after [`NOT_READY_LIMIT`]. Before this step, the CSIDriver object stops the periodic
//!    queries of kubelets for the number of volumes per node. A kubelet with a response just after the end of the
//!    registration would recreate the entry of the CSINode.
//! 5. The DaemonSet, and the end of its pods.
//! 6. Accounts, roles and the Secret.
//! 7. The CSIDriver object, which must exist as long as pods use volumes.
//!
//! The controller is deleted only when no VolumeAttachment exists. Otherwise volumes would remain attached to servers
//! permanently.
//!
//! A pod on a node that is not Ready ends when the node recovers or its Node object is deleted. This may never happen. If
//! only such pods remain after `spec.deletion.drainTimeout`, the removal abandons them. For the controller, its leases
//! must have ended as well.
//!
//! Policy Orphan deletes nothing. It removes the labels and annotations by which the operator recognizes its objects.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::DeletionPolicy;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cluster::{Blockers, Key, kind},
    plan::{is_being_deleted, uid_of},
    text::{in_words, join_truncated},
};

/// Annotation on the DaemonSet with the time since when its pods end the registration.
pub const UNREGISTERING_SINCE: &str = "csi.openstack.org/unregistering-since";

/// Annotation on the CSIDriver object with the time since when it requests no updates from kubelets.
pub const UPDATES_STOPPED_SINCE: &str = "csi.openstack.org/updates-stopped-since";

/// Field of the CSIDriver object that requests periodic updates from kubelets.
const UPDATE_PERIOD: &str = "nodeAllocatableUpdatePeriodSeconds";

/// Time for kubelets to observe that change and to finish an update in progress.
const UPDATES_LIMIT: Duration = Duration::from_secs(10);

/// Finalizer of the API server on an object that waits for the deletion of its pods.
const FOREGROUND: &str = "foregroundDeletion";

/// Annotation with which an administrator permits the removal of the driver although volumes exist. Its value is the
/// uid of the object, so that a copied manifest has no effect.
pub const FORCE_DELETE: &str = "csi.openstack.org/force-delete";

/// Kinds with which users request volumes and snapshots.
const CLASSES: [&str; 4] = [
    kind::STORAGE_CLASS,
    "VolumeAttributesClass",
    "VolumeGroupSnapshotClass",
    "VolumeSnapshotClass",
];

/// Time limit for nodes that are not Ready. The removal waits for a node with a short outage, and does not wait for
/// one that is down permanently.
pub const NOT_READY_LIMIT: Duration = Duration::from_mins(1);

/// Input of the next step.
#[derive(Debug)]
pub struct Remains<'a> {
    /// Objects that need the driver.
    pub blockers: &'a Blockers,
    /// How the removal handles these objects.
    pub policy: DeletionPolicy,
    /// Whether the administrator has acknowledged policy Force.
    pub is_forced: bool,
    /// Time for kubelets to unregister the driver. A node whose pod does not start must not block the removal
    /// permanently.
    pub drain_timeout: Duration,
    /// Existing objects of this instance.
    pub live: &'a BTreeMap<Key, Value>,
    /// Ready nodes with a registered driver.
    pub registered: &'a [String],
    /// Nodes that are not Ready and had a registered driver.
    pub out_of_reach: &'a [String],
    /// Nodes of the last pods of workloads that cannot end.
    pub stranded: &'a Stranded,
    /// Whether a DaemonSet that ends the registration can be rendered. False if the spec does not resolve.
    pub can_unregister: bool,
    pub now: Timestamp,
}

/// Nodes that are not Ready and have the last pods of a workload, sorted. Empty if other pods of the workload exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stranded {
    /// Nodes with controller pods. Empty while a lease of these pods may be in use.
    pub controller: Vec<String>,
    /// Nodes with node pods.
    pub node: Vec<String>,
}

/// One step of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An object needs the driver.
    Blocked,
    /// Remove the ownership labels and annotations from these objects.
    Release {
        /// Objects with their uids.
        objects: Vec<(Key, String)>,
    },
    /// Delete these objects. The API server removes them after their dependents.
    Delete {
        /// Objects with their uids.
        objects: Vec<(Key, String)>,
    },
    /// Set the CSIDriver object to request no more updates from kubelets.
    StopUpdates,
    /// Roll the DaemonSet to pods that end the registration.
    Unregister,
    /// Delete these workloads without their pods, which cannot end.
    Abandon {
        /// Objects with their uids.
        objects: Vec<(Key, String)>,
        /// Nodes of the pods.
        nodes: Vec<String>,
    },
    /// Wait for an event.
    Wait {
        /// The awaited event, for messages. The text does not change between reconciles.
        what: String,
    },
    /// No object remains.
    Finished,
}

impl Step {
    /// Whether the step removes an object that volumes need. Before it, the operator verifies with the API server
    /// that nothing needs the object.
    pub fn harms_volumes(&self) -> bool {
        match self {
            Self::Unregister | Self::StopUpdates => true,
            Self::Delete { objects } => objects.iter().any(|(key, _)| {
                CLASSES.contains(&key.kind) || [kind::DEPLOYMENT, kind::DAEMON_SET].contains(&key.kind)
            }),
            _ => false,
        }
    }
}

/// Returns the next step.
pub fn next_step(remains: &Remains<'_>) -> Step {
    // Volumes may exist without this installation. Volumes of another installation of the driver do not block its
    // removal.
    if remains.live.is_empty() {
        return Step::Finished;
    }
    if remains.policy == DeletionPolicy::Orphan {
        let objects = remains.live.iter().map(|(key, object)| (key.clone(), uid_of(object)));
        return Step::Release {
            objects: objects.collect(),
        };
    }
    if !remains.blockers.is_empty() && !remains.is_forced {
        return Step::Blocked;
    }
    let of = |kind: &str| -> Vec<(&Key, &Value)> { remains.live.iter().filter(|(key, _)| key.kind == kind).collect() };
    let classes: Vec<_> = remains
        .live
        .iter()
        .filter(|(key, _)| CLASSES.contains(&key.kind))
        .collect();
    if !classes.is_empty() {
        return delete_or_wait(&classes, "the classes to go");
    }
    let controller = of(kind::DEPLOYMENT);
    if !controller.is_empty() {
        let stranded = &remains.stranded.controller;
        return end_pods(&controller, stranded, "the controller's pods to end", remains);
    }
    let node = of(kind::DAEMON_SET);
    if !node.is_empty() {
        let is_going = node.iter().all(|(_, object)| is_being_deleted(object));
        return match unregistration(&node, remains) {
            Some(step) if !is_going => step,
            _ => end_pods(&node, &remains.stranded.node, "the node pods to end", remains),
        };
    }
    let rest: Vec<_> = remains
        .live
        .iter()
        .filter(|(key, _)| key.kind != kind::CSI_DRIVER)
        .collect();
    if !rest.is_empty() {
        return delete_or_wait(&rest, "accounts, roles and the Secret to go");
    }
    let driver = of(kind::CSI_DRIVER);
    if !driver.is_empty() {
        return delete_or_wait(&driver, "the CSIDriver object to go");
    }
    Step::Finished
}

/// Returns the next step for the registrations. `None` when it is complete.
fn unregistration(daemon_sets: &[(&Key, &Value)], remains: &Remains<'_>) -> Option<Step> {
    let nodes = [remains.registered, remains.out_of_reach].concat();
    if nodes.is_empty() || !remains.can_unregister {
        return None;
    }
    let limit = if remains.registered.is_empty() {
        NOT_READY_LIMIT.min(remains.drain_timeout)
    } else {
        remains.drain_timeout
    };
    let since = |(_, object): &(&Key, &Value)| unregistering_since(object);
    let Some(since) = daemon_sets.iter().map(since).min().flatten() else {
        return Some(stop_updates(remains).unwrap_or(Step::Unregister));
    };
    let waited = remains.now.duration_since(since);
    if waited.unsigned_abs() > limit {
        return None;
    }
    let what = format!(
        "the kubelets of these nodes to unregister the driver: {}",
        join_truncated(&nodes)
    );
    Some(Step::Wait { what })
}

/// Returns the next step that prevents kubelets from recreating an entry that a later step removes.
fn stop_updates(remains: &Remains<'_>) -> Option<Step> {
    let (_, driver) = remains.live.iter().find(|(key, _)| key.kind == kind::CSI_DRIVER)?;
    match time_in(&driver["metadata"]["annotations"][UPDATES_STOPPED_SINCE]) {
        None if driver["spec"][UPDATE_PERIOD].is_null() => None,
        None => Some(Step::StopUpdates),
        Some(since) if remains.now.duration_since(since).unsigned_abs() <= UPDATES_LIMIT => Some(Step::Wait {
            what: "the kubelets to end their updates of the driver's entry in CSINode".to_owned(),
        }),
        Some(_) => None,
    }
}

/// Sets a CSIDriver object to request no more updates from kubelets, with the time of the change.
pub fn without_updates(csi_driver: &mut Value, since: Timestamp) {
    if let Some(spec) = csi_driver["spec"].as_object_mut() {
        spec.remove(UPDATE_PERIOD);
    }
    annotate(csi_driver, UPDATES_STOPPED_SINCE, since);
}

/// Returns since when the pods of a DaemonSet end the registration.
pub fn unregistering_since(daemon_set: &Value) -> Option<Timestamp> {
    time_in(&daemon_set["metadata"]["annotations"][UNREGISTERING_SINCE])
}

fn time_in(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn annotate(object: &mut Value, name: &str, since: Timestamp) {
    let metadata = &mut object["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][name] = json!(format!("{since:.0}"));
}

/// Adds the time of the change to a DaemonSet whose pods end the registration. It also lets all pods be replaced at
/// once, because no volume exists that needs one of them.
pub fn hasten_unregistration(daemon_set: &mut Value, since: Timestamp) {
    annotate(daemon_set, UNREGISTERING_SINCE, since);
    daemon_set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}});
}

/// Deletes workloads and waits for their pods. It stops waiting for pods on nodes that do not respond.
fn end_pods(objects: &[(&Key, &Value)], stranded: &[String], what: &str, remains: &Remains<'_>) -> Step {
    let step = delete_or_wait(objects, what);
    if stranded.is_empty() || !matches!(step, Step::Wait { .. }) {
        return step;
    }
    let waits = |object: &Value| {
        let finalizers = object["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FOREGROUND))
    };
    let waiting = objects.iter().filter(|(_, object)| waits(object));
    let is_overdue = |object: &Value| {
        let since = time_in(&object["metadata"]["deletionTimestamp"]);
        since.is_some_and(|since| remains.now.duration_since(since).unsigned_abs() > remains.drain_timeout)
    };
    let overdue: Vec<_> = waiting
        .filter(|(_, object)| is_overdue(object))
        .map(|(key, object)| ((*key).clone(), uid_of(object)))
        .collect();
    if overdue.is_empty() {
        let nodes = join_truncated(stranded);
        let what = format!(
            "{what}; those on nodes that are not Ready are left behind after spec.deletion.drainTimeout: {nodes}"
        );
        return Step::Wait { what };
    }
    Step::Abandon {
        objects: overdue,
        nodes: stranded.to_vec(),
    }
}

fn delete_or_wait(objects: &[(&Key, &Value)], what: &str) -> Step {
    let remaining: Vec<_> = objects
        .iter()
        .filter(|(_, object)| !is_being_deleted(object))
        .map(|(key, object)| ((*key).clone(), uid_of(object)))
        .collect();
    if remaining.is_empty() {
        Step::Wait { what: what.to_owned() }
    } else {
        Step::Delete { objects: remaining }
    }
}

impl Blockers {
    /// Returns the message about the blocking objects and the required action.
    pub fn sentence(&self, policy: DeletionPolicy) -> String {
        let parts: Vec<String> = self
            .by_kind()
            .map(|(kind, names)| format!("{} ({})", in_words(names.len(), kind), join_truncated(names)))
            .collect();
        let remedy = match policy {
            DeletionPolicy::Force => format!(
                "spec.deletion.policy is Force; to remove the driver although they exist, set the annotation {FORCE_DELETE} to this \
                 object's uid"
            ),
            _ => "Delete the claims, pods and snapshots that use them; a PersistentVolume with reclaim policy Retain is deleted by \
                  hand and leaves its data in Cinder"
                .to_owned(),
        };
        format!("the driver stays because of {}. {remedy}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests;
