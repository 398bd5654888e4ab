// SPDX-License-Identifier: Apache-2.0
//! Status, problems and events of classes, snapshots and zones.

use cinder_csi_crds::{CinderCSIDriverStatus, RecordedContents, SnapshotsMode, StorageClassesStatus, TopologyStatus};

use crate::{
    decide::ClassesView,
    notice::Notice,
    problem::Problem,
    reasons::{Degraded, Event},
    resolve::ControllerSight,
};

/// Maximum number of class names in a status.
const MOST_NAMES: usize = 256;

pub(super) fn topology(previous: Option<&CinderCSIDriverStatus>, view: Option<&ClassesView>) -> Option<TopologyStatus> {
    match view.map(|view| &view.topology).filter(|topology| topology.is_decided) {
        Some(topology) => Some(topology.status.clone()),
        None => previous.and_then(|previous| previous.topology.clone()),
    }
}

pub(super) fn storage_classes(
    previous: Option<&CinderCSIDriverStatus>,
    view: Option<&ClassesView>,
    existing: &[String],
) -> Option<StorageClassesStatus> {
    let Some(view) = view else {
        return previous.and_then(|previous| previous.storage_classes.clone());
    };
    let names = view.classes.items.iter().map(|class| &class.item.name);
    let is_made = |class: &&crate::resolve::Class| class.was_made || existing.contains(&class.item.name);
    let made = view.classes.items.iter().filter(is_made);
    let status = StorageClassesStatus {
        default_class: view.classes.default_class().map(str::to_owned),
        existing_default_class: view.classes.passed_over.as_ref().map(|passed| passed.other.clone()),
        created_once: if view.classes.is_left_to_others() {
            made.map(|class| class.item.name.clone()).take(MOST_NAMES).collect()
        } else {
            Vec::new()
        },
    };
    // Returns no empty object. Server-side apply changes an object that lost its last field to null, which the schema
    // rejects.
    let is_empty = status == StorageClassesStatus::default() || names.count() == 0;
    (!is_empty).then_some(status)
}

/// Returns the record of the snapshot contents.
pub(super) fn snapshot_contents(
    previous: Option<&CinderCSIDriverStatus>,
    view: Option<&ClassesView>,
) -> Vec<RecordedContents> {
    match view {
        Some(view) => view.snapshots.contents.clone(),
        None => previous
            .map(|previous| previous.snapshot_contents.clone())
            .unwrap_or_default(),
    }
}

/// Describes why no snapshot-controller processes the VolumeSnapshots of the cluster.
fn controller_trouble(view: &ClassesView) -> Option<String> {
    let snapshots = &view.snapshots;
    if !snapshots.enabled {
        return None;
    }
    match &snapshots.sight {
        ControllerSight::Found(_) => None,
        ControllerSight::Down(place) => Some(format!(
            "no pod of Deployment {place}, the snapshot-controller, is available; `kubectl describe` of it gives the reason"
        )),
        ControllerSight::Unknown(why) => Some(format!(
            "the operator cannot find out whether a snapshot-controller works: {why}"
        )),
        ControllerSight::Missing | ControllerSight::Unseen => Some(
            "the cluster knows VolumeSnapshots, and no snapshot-controller works on them; install one: `kubectl apply -k \
             config/snapshot-controller`"
                .to_owned(),
        ),
    }
}

/// Returns the event about an unavailable snapshot-controller. Under mode Enabled, condition Degraded reports it as
/// well.
pub fn unavailable_snapshot_controller(view: &ClassesView) -> Option<Notice> {
    controller_trouble(view).map(|trouble| Notice::new(Event::SnapshotControllerUnavailable, trouble))
}

fn crds_missing() -> &'static str {
    "spec.snapshots.mode is Enabled, and the API server does not know the kinds of snapshot.storage.k8s.io/v1: install the \
     CustomResourceDefinitions of VolumeSnapshots, or set the mode to Auto or Disabled"
}

/// Returns the problems that an administrator must solve.
pub(super) fn issues(view: &ClassesView) -> Vec<Problem> {
    let mut issues = Vec::new();
    if view.snapshots.mode == SnapshotsMode::Enabled && !view.snapshots.enabled {
        issues.push(Problem {
            reason: Degraded::SnapshotCRDsMissing,
            message: crds_missing().to_owned(),
        });
    }
    if view.snapshots.mode == SnapshotsMode::Enabled {
        issues.extend(controller_trouble(view).map(|message| Problem {
            reason: Degraded::SnapshotControllerUnavailable,
            message,
        }));
    }
    issues.extend(view.snapshots.problems.iter().cloned());
    issues.extend(view.topology.refusal.clone());
    issues
}

/// Returns the events for a change of the status that conditions do not cover.
pub(super) fn notices(previous: Option<&CinderCSIDriverStatus>, next: &CinderCSIDriverStatus) -> Vec<Notice> {
    let mut notices = Vec::new();
    let before = previous.and_then(|previous| previous.topology.as_ref());
    if let (Some(before), Some(now)) = (before, &next.topology)
        && before.enabled != now.enabled
    {
        let state = if now.enabled {
            "are used from now on"
        } else {
            "are not used any more"
        };
        let note = format!("availability zones {state} ({})", now.reason);
        notices.push(Notice::new(Event::TopologyChanged, note));
    }
    let passed_over = |status: &CinderCSIDriverStatus| status.storage_classes.as_ref()?.existing_default_class.clone();
    if let Some(other) = passed_over(next)
        && previous.and_then(passed_over).as_ref() != Some(&other)
    {
        let note = format!(
            "no StorageClass of this driver is marked as the default, because StorageClass {other} is; remove the default annotation from that one, or \
             set spec.storageClasses.default.policy to Never"
        );
        notices.push(Notice::new(Event::DefaultStorageClassSkipped, note));
    }
    notices
}

#[cfg(test)]
mod tests;
