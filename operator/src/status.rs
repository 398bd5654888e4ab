//! What the operator says about a driver: a pure function from what was seen to the status.
//!
//! Reasons are part of the API and stable; messages name the thing, what is wrong with it and what to do. Nothing in a status
//! changes by itself: no times but those of transitions, no counters of attempts.

use cinder_csi_crds::{
    Blocker, CinderCSIDriverStatus, CloudStatus, ConditionType, ControllerStatus, DeletionStatus, ManagementState,
    NodesStatus, VolumesStatus,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::{
    apply::FailedWrite,
    events::Notice,
    observe::NodesView,
    plan::Obstacle,
    reference,
    resolve::Problem,
    teardown::{blockers_sentence, listed},
};

mod issues;
mod workload;

pub(crate) use issues::Issue;
pub use workload::Workload;

/// How many names a list in the status holds.
const NAMED: usize = 10;

/// The longest message of a condition that the API server takes.
const LONGEST_MESSAGE: usize = 32_768;

/// A cloud as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    /// Its name in the spec.
    pub name: String,
    /// Whether the credentials that the Secret holds now log in.
    pub authenticated: bool,
    /// Why not.
    pub refusal: Option<Problem>,
    /// Hash of the credentials in use; `None` when none have ever been good.
    pub hash: Option<String>,
}

fn counted(names: &[String]) -> i32 {
    i32::try_from(names.len()).unwrap_or(i32::MAX)
}

/// How far a removal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Volumes are in the way.
    Blocked,
    /// The object is being deleted and is Unmanaged.
    Held,
    /// It goes on; what it waits for.
    UnderWay(String),
    /// Nothing is left.
    Finished,
}

/// All that a status is made of.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// What the spec asks for.
    pub state: ManagementState,
    /// What stands against the spec.
    pub problems: Vec<Problem>,
    /// The clouds.
    pub clouds: Vec<CloudView>,
    /// What the operator will not do on its own.
    pub obstacles: Vec<Obstacle>,
    /// Writes that failed.
    pub failures: Vec<FailedWrite>,
    /// The controller.
    pub controller: Option<Workload>,
    /// The DaemonSet.
    pub daemon_set: Option<Workload>,
    /// The nodes.
    pub nodes: NodesView,
    /// PersistentVolumes, sorted.
    pub volumes: Vec<String>,
    /// VolumeAttachments, sorted.
    pub attachments: Vec<String>,
    /// How far a removal is, when one was asked for.
    pub removal: Option<Removal>,
}

/// Makes the status. Transition times stay where a condition's status did not change.
pub fn status(previous: Option<&CinderCSIDriverStatus>, seen: &Seen, now: Timestamp) -> CinderCSIDriverStatus {
    let issues = issues::of(seen);
    let verdicts = [
        (ConditionType::Available, available(seen, &issues)),
        (ConditionType::Progressing, progressing(seen, &issues)),
        (ConditionType::Degraded, degraded(seen, &issues)),
    ];
    let conditions = verdicts
        .map(|(type_, verdict)| condition(previous, seen, type_, verdict, now))
        .into();
    let is_gone = seen.removal == Some(Removal::Finished);
    CinderCSIDriverStatus {
        observed_generation: seen.generation,
        version: if is_gone { None } else { version(previous, seen) },
        conditions,
        controller: seen.controller.as_ref().map(|controller| ControllerStatus {
            desired: controller.desired,
            ready: controller.available,
        }),
        nodes: (!is_gone).then(|| NodesStatus {
            desired: i32::try_from(seen.nodes.desired).unwrap_or(i32::MAX),
            registered: i32::try_from(seen.nodes.registered).unwrap_or(i32::MAX),
            unregistered: seen.nodes.unregistered.iter().take(NAMED).cloned().collect(),
        }),
        clouds: seen
            .clouds
            .iter()
            .map(|cloud| CloudStatus {
                name: cloud.name.clone(),
                authenticated: cloud.authenticated,
                secret_hash: cloud.hash.as_ref().map(|hash| hash.chars().take(16).collect()),
                ..CloudStatus::default()
            })
            .collect(),
        volumes: Some(VolumesStatus {
            persistent_volumes: counted(&seen.volumes),
            attachments: counted(&seen.attachments),
            ..VolumesStatus::default()
        }),
        deletion: deletion(seen),
        target_version: None,
        components: Vec::new(),
        rollout: None,
        pending_changes: None,
    }
}

/// The version is the one in place everywhere; while an update runs it stays the old one. It is read from what runs and not
/// from this program: an update may be held up, or not be wanted at all.
fn version(previous: Option<&CinderCSIDriverStatus>, seen: &Seen) -> Option<String> {
    let in_place = |workload: &Option<Workload>| {
        let rolled_out = workload.as_ref().filter(|workload| workload.is_rolled_out());
        rolled_out.and_then(|workload| workload.version.clone())
    };
    match (in_place(&seen.controller), in_place(&seen.daemon_set)) {
        (Some(controller), Some(node)) if controller == node => Some(controller),
        _ => previous.and_then(|previous| previous.version.clone()),
    }
}

fn deletion(seen: &Seen) -> Option<DeletionStatus> {
    // Never an empty object: server-side apply turns one that lost its last field into null, which the schema refuses.
    if seen.removal != Some(Removal::Blocked) {
        return None;
    }
    let blocker = |kind: &str, names: &[String]| Blocker {
        kind: kind.to_owned(),
        count: counted(names),
        names: names.iter().take(NAMED).cloned().collect(),
    };
    let blockers = [
        blocker("PersistentVolume", &seen.volumes),
        blocker("VolumeAttachment", &seen.attachments),
    ];
    Some(DeletionStatus {
        blockers: blockers.into_iter().filter(|blocker| blocker.count > 0).collect(),
    })
}

/// Status, reason and message of a condition.
type Verdict = (&'static str, String, String);

fn verdict(status: &'static str, reason: &str, message: impl Into<String>) -> Verdict {
    (status, reason.to_owned(), message.into())
}

fn available(seen: &Seen, issues: &[Issue]) -> Verdict {
    if seen.removal == Some(Removal::Finished) {
        return verdict(
            "False",
            "Removed",
            "the driver was removed and nothing of it is left; set spec.managementState to \
            Managed to have it again",
        );
    }
    if let Some(Removal::UnderWay(_)) = &seen.removal {
        return verdict("False", "Removing", "the driver is being removed");
    }
    let Some(controller) = &seen.controller else {
        let message = issues.first().map_or_else(
            || "there is no controller yet".to_owned(),
            |issue| format!("there is no controller yet, because {}", issue.message),
        );
        return verdict("False", "ControllerMissing", message);
    };
    if controller.available == 0 {
        return verdict(
            "False",
            "ControllerDown",
            format!(
                "no pod of Deployment {} is available; `kubectl describe` of it and of its pods tells why",
                controller.name
            ),
        );
    }
    let nodes = &seen.nodes;
    if nodes.desired == 0 {
        return verdict(
            "False",
            "NoNodes",
            "no node matches spec.node (nodeSelector, affinity, tolerations): no pod can use \
            a volume",
        );
    }
    if !nodes.unregistered.is_empty() {
        return verdict(
            "False",
            "NodesUnregistered",
            format!(
                "{} of {} nodes have no CSINode entry of the driver, and their pods cannot use volumes: {}; look at the node pods \
             there and their logs",
                nodes.unregistered.len(),
                nodes.desired,
                listed(&nodes.unregistered)
            ),
        );
    }
    if nodes.registered == 0 {
        return verdict(
            "False",
            "NodesNotReady",
            format!("none of {} nodes is Ready: {}", nodes.desired, listed(&nodes.not_ready)),
        );
    }
    // A registration outlives the pod that made it.
    if let Some(daemon_set) = seen
        .daemon_set
        .as_ref()
        .filter(|daemon_set| daemon_set.desired > 0 && daemon_set.available == 0)
    {
        return verdict(
            "False",
            "NodePodsDown",
            format!(
                "no pod of DaemonSet {} is available: no volume can be mounted or unmounted; `kubectl describe` of it and of its \
                 pods tells why",
                daemon_set.name
            ),
        );
    }
    verdict(
        "True",
        "AsExpected",
        "the controller serves, and the driver is registered on every Ready node that should have it",
    )
}

fn progressing(seen: &Seen, issues: &[Issue]) -> Verdict {
    match &seen.removal {
        Some(Removal::Blocked) => {
            return verdict(
                "True",
                "DeletionBlocked",
                blockers_sentence(&seen.volumes, &seen.attachments),
            );
        }
        Some(Removal::Held) => {
            return verdict(
                "False",
                "DeletionHeld",
                "the object is being deleted, and spec.managementState is Unmanaged: \
                nothing is taken away; set it to Managed to let the removal begin",
            );
        }
        Some(Removal::UnderWay(what)) => {
            return verdict(
                "True",
                "Removing",
                format!("the driver is being removed; waiting for {what}"),
            );
        }
        Some(Removal::Finished) => return verdict("False", "Removed", "nothing is left to do"),
        None => {}
    }
    if seen.state == ManagementState::Unmanaged {
        return verdict(
            "False",
            "Unmanaged",
            "spec.managementState is Unmanaged: the operator reports and changes nothing",
        );
    }
    let mut parts = Vec::new();
    if let Some(controller) = seen
        .controller
        .as_ref()
        .filter(|controller| !controller.is_rolled_out())
    {
        let left = match controller.outdated {
            0 => String::new(),
            outdated => format!(", {outdated} of an older version left"),
        };
        parts.push(format!(
            "controller: {} of {} pods updated, {} available{left}",
            controller.updated, controller.desired, controller.available
        ));
    }
    if let Some(daemon_set) = seen
        .daemon_set
        .as_ref()
        .filter(|daemon_set| !daemon_set.is_rolled_out())
    {
        parts.push(format!(
            "node pods: {} of {} updated, {} available",
            daemon_set.updated, daemon_set.desired, daemon_set.available
        ));
    }
    if !seen.nodes.unregistered.is_empty() {
        parts.push(format!(
            "nodes: {} of {} registered",
            seen.nodes.registered, seen.nodes.desired
        ));
    }
    if !parts.is_empty() {
        return verdict("True", "RollingOut", parts.join("; "));
    }
    let is_held_up = !(seen.problems.is_empty() && seen.obstacles.is_empty() && seen.failures.is_empty());
    if is_held_up || seen.controller.is_none() || seen.daemon_set.is_none() {
        return match issues.first() {
            Some(_) => verdict(
                "False",
                "Stopped",
                "nothing more can be made until what condition Degraded tells is mended",
            ),
            None => verdict("True", "Installing", "the objects of the driver are being made"),
        };
    }
    verdict("False", "AsExpected", "everything is as the spec wants it")
}

fn degraded(seen: &Seen, issues: &[Issue]) -> Verdict {
    let Some(first) = issues.first() else {
        let message = if seen.removal == Some(Removal::Finished) {
            "the driver was removed"
        } else {
            "nothing needs help"
        };
        return verdict("False", "AsExpected", message);
    };
    let mut message = issues
        .iter()
        .map(|issue| issue.message.as_str())
        .collect::<Vec<_>>()
        .join(" | ");
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    verdict("True", first.reason, message)
}

fn condition(
    previous: Option<&CinderCSIDriverStatus>,
    seen: &Seen,
    type_: ConditionType,
    (status, reason, message): Verdict,
    now: Timestamp,
) -> Condition {
    debug_assert!(
        reference::knows_condition(type_, status, &reason),
        "{type_}={status} ({reason}) is not in the reference"
    );
    let old = previous.and_then(|previous| find(previous, type_));
    let last_transition_time = match old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason,
        message,
        observed_generation: seen.generation,
        last_transition_time,
    }
}

/// The API server keeps no fractions of a second; a time that came back different would look like a change.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The condition of a type.
pub fn find(status: &CinderCSIDriverStatus, type_: ConditionType) -> Option<&Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_.as_str())
}

/// The events that the change from one status to the next is worth: one per condition whose status or reason changed.
pub fn notices(previous: Option<&CinderCSIDriverStatus>, next: &CinderCSIDriverStatus) -> Vec<Notice> {
    let changed = |type_: &ConditionType| {
        let old = previous.and_then(|previous| find(previous, *type_));
        let new = find(next, *type_)?;
        let is_same = old.is_some_and(|old| old.status == new.status && old.reason == new.reason);
        // The first status of a healthy kind is no news.
        let is_quiet_start = old.is_none() && new.reason == "AsExpected";
        // That nothing is under way is said by Available or Degraded already.
        let is_told_elsewhere = *type_ == ConditionType::Progressing && new.status != "True";
        (!is_same && !is_quiet_start && !is_told_elsewhere).then(|| notice(*type_, new))
    };
    ConditionType::ALL.iter().filter_map(changed).collect()
}

fn notice(type_: ConditionType, new: &Condition) -> Notice {
    let reason = match (type_, new.status.as_str(), new.reason.as_str()) {
        (ConditionType::Available, "True", _) => "Available",
        (ConditionType::Available, ..) => "NotAvailable",
        (ConditionType::Progressing, _, "DeletionBlocked") => "DeletionBlocked",
        (ConditionType::Progressing, ..) => "Progressing",
        (ConditionType::Degraded, "True", _) => "Degraded",
        (ConditionType::Degraded, ..) => "NotDegraded",
    };
    let note = format!("{}={} ({}): {}", new.type_, new.status, new.reason, new.message);
    let is_bad = matches!(reason, "NotAvailable" | "Degraded" | "DeletionBlocked");
    if is_bad {
        Notice::warning(reason, "Observe", note)
    } else {
        Notice::normal(reason, "Observe", note)
    }
}

#[cfg(test)]
mod tests;
