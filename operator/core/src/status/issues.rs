// SPDX-License-Identifier: Apache-2.0
//! Problems that an administrator must solve, the most severe first.

use std::collections::BTreeMap;

use super::rollout;
use crate::{
    cluster::{Key, RELEASED, kind},
    decide::{CloudView, NARROW_NODES, Report},
    plan::Obstacle,
    problem::Problem,
    reasons::Degraded,
    text::join_truncated,
};

/// Returns all problems, the most severe first. Short outages of clouds are omitted, because they may pass.
pub(super) fn of(report: &Report<'_>, is_young: impl Fn(&CloudView) -> bool) -> Vec<Problem> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    let refusals = facts
        .clouds
        .iter()
        .filter(|cloud| !is_young(cloud))
        .filter_map(|cloud| {
            let refusal = cloud.refusal.as_ref()?;
            let consequence = if outcome.has_credentials(cloud) {
                "The driver keeps the credentials that were accepted last"
            } else {
                "The driver is not started before credentials have been accepted"
            };
            Some(Problem {
                reason: refusal.reason.degraded(),
                message: format!("{}. {consequence}", refusal.message),
            })
        });
    let failures = outcome.failures.iter().map(|failure| Problem {
        reason: Degraded::ApplyFailed,
        message: format!("{} could not be written or deleted: {}", failure.key, failure.message),
    });
    let stalled = outcome.controller.iter().filter_map(|controller| {
        let message = controller.stalled.as_ref()?;
        Some(Problem {
            reason: Degraded::ControllerStalled,
            message: format!(
                "Deployment {} does not get its pods running: {message}",
                controller.name
            ),
        })
    });
    let misidentified = (!outcome.nodes.misidentified.is_empty()).then(|| Problem {
        reason: Degraded::NodeIdentityMismatch,
        message: format!(
            "nodes are registered as another server than their providerID names: {}. Volumes of their pods are attached to the registered \
             server. `openstack server list` shows which one is right; correct the source of the node's identity, or its providerID",
            join_truncated(&outcome.nodes.misidentified)
        ),
    });
    let classes = decision.classes.iter().flat_map(super::classes::issues);
    let problems = report.problems().cloned();
    problems
        .chain(obstacles(&decision.plan.obstacles))
        .chain(refusals)
        .chain(failures)
        .chain(stalled)
        .chain(misidentified)
        .chain(classes)
        .chain(super::monitoring::issue(report.facts.monitoring))
        .chain(rollout::issues(report))
        .collect()
}

/// Returns the problems for obstacles. Objects of other owners are joined into one problem, because a released
/// installation has many of them.
fn obstacles(all: &[Obstacle]) -> Vec<Problem> {
    let mut issues = Vec::new();
    let mut made_by: BTreeMap<(&str, bool), Vec<&Key>> = BTreeMap::new();
    for one in all {
        match one {
            Obstacle::Foreign { key, maker } if key.kind != kind::CSI_DRIVER => {
                let keys = made_by.entry((maker, key.kind == kind::STORAGE_CLASS)).or_default();
                keys.push(key);
            }
            _ => issues.push(obstacle(one)),
        }
    }
    issues.extend(made_by.into_iter().map(|((maker, _), keys)| foreign(&keys, maker)));
    issues
}

/// Describes an obstacle.
pub fn describe_obstacle(one: &Obstacle) -> String {
    obstacle(one).message
}

fn obstacle(obstacle: &Obstacle) -> Problem {
    match obstacle {
        Obstacle::Foreign { key, maker } if key.kind == kind::CSI_DRIVER && maker == RELEASED => Problem {
            reason: Degraded::OwnershipConflict,
            message: format!(
                "{key} exists and was made by {maker}: a driver goes on without the operator, and nothing is done beside it. Set \
                 spec.adoption.mode to Adopt to manage it again, or delete this CinderCSIDriver"
            ),
        },
        Obstacle::Foreign { key, maker } if key.kind == kind::CSI_DRIVER => Problem {
            reason: Degraded::OwnershipConflict,
            message: format!(
                "{key} exists and was not made for this CinderCSIDriver but by {maker}: another installation of this driver runs in the \
                 cluster, and nothing is done beside it. Set spec.adoption.mode to Migrate, with the namespace that it is in, to put this driver in its place (pods keep their volumes), or delete this CinderCSIDriver. \
                 `kubectl cinder-csi adopt --check` lists what changes for volumes and classes then"
            ),
        },
        Obstacle::Foreign { key, maker } => foreign(&[key], maker),
        Obstacle::Refused { key, fields } => Problem {
            reason: Degraded::ImmutableField,
            message: format!(
                "{key} differs from the spec in {}, which Kubernetes does not allow to change, and onImmutableChange is Refuse. \
                 Put the spec back, set onImmutableChange to Recreate, or give the class another name",
                fields.join(", ")
            ),
        },
        Obstacle::Waiting { key, fields, what } => Problem {
            reason: Degraded::PendingRecreate,
            message: format!(
                "{key} differs from the spec in {}, which Kubernetes does not allow to change. It is recreated as soon as \
                 nothing needs it any more: {what}",
                fields.join(", ")
            ),
        },
        Obstacle::NodesInUse { key, lost } => Problem {
            reason: Degraded::NodesInUse,
            message: format!(
                "{key} keeps its last applied content, because its new one excludes nodes that have volumes of the driver attached: \
                 {lost}. The change proceeds when the volumes are detached. To apply it now, annotate the CinderCSIDriver with \
                 {NARROW_NODES} and its own uid as the value: pods there can then neither unmount their volumes nor be deleted"
            ),
        },
        Obstacle::Immutable { key, fields } => Problem {
            reason: Degraded::ImmutableField,
            message: format!(
                "{key} differs from the spec in {}, which Kubernetes does not allow to change, and to recreate it could harm \
                 running pods. Put the spec back, or delete the object yourself at a time without volumes in use",
                fields.join(", ")
            ),
        },
    }
}

/// Describes objects of one owner: either all of them or none are StorageClasses.
fn foreign(keys: &[&Key], maker: &str) -> Problem {
    let is_class = keys.iter().any(|key| key.kind == kind::STORAGE_CLASS);
    let message = match (keys, is_class) {
        ([key], true) => format!(
            "{key} exists, was made by {maker} and is left alone. Use another name in spec.storageClasses.items, or delete it \
             (`kubectl delete storageclass {}`; volumes made from it stay)",
            key.name
        ),
        ([key], false) => format!(
            "{key} exists, was made by {maker} and is left alone. Delete or rename it if nothing needs it any more"
        ),
        (keys, _) => {
            let remedy = if is_class {
                "Use other names in spec.storageClasses, or delete them (volumes made from them stay)"
            } else {
                "Delete or rename them if nothing needs them any more"
            };
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!(
                "{} objects exist, were made by {maker} and are left alone: {}. {remedy}; status.pendingChanges lists them while managementState is DryRun",
                keys.len(),
                join_truncated(&names)
            )
        }
    };
    Problem {
        reason: Degraded::OwnershipConflict,
        message,
    }
}
