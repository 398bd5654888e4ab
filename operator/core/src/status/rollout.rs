// SPDX-License-Identifier: Apache-2.0
//! Versions, components and rollouts, and their conditions.

use cinder_csi_crds::{ComponentStatus, ManagementState, RolloutState, RolloutStatus};

use super::nodes::{AbsentNodes, is_settled, without_driver};
use super::verdict::{Verdict, verdict};
use crate::{
    decide::{Report, Workload},
    problem::Problem,
    reasons::{Degraded, Progressing, Reason, Upgradeable},
    rollout::{Gate, Hold, NodeRollout},
    text::in_words,
};

/// Maximum number of failed nodes in the status.
const LISTED: usize = 10;

const CONTROLLER: &str = "controller";
const NODE: &str = "node";

/// Returns the components of the driver.
pub(super) fn components(report: &Report<'_>) -> Vec<ComponentStatus> {
    let Report { outcome, .. } = *report;
    let component = |name: &str, kind: &str, workload: &Workload| ComponentStatus {
        name: name.to_owned(),
        kind: kind.to_owned(),
        version: workload.version.clone(),
        image: workload.image.clone(),
        desired: workload.desired,
        updated: workload.updated,
        ready: workload.available,
    };
    let controller = outcome.controller.iter();
    let controller = controller.map(|workload| component(CONTROLLER, "Deployment", workload));
    let node = outcome.daemon_set.iter().map(|workload| {
        let mut node = component(NODE, "DaemonSet", workload);
        if let Some(rollout) = &outcome.node_rollout {
            (node.updated, node.ready) = (counted(rollout.updated), counted(rollout.serving));
        }
        node
    });
    controller.chain(node).collect()
}

/// Returns the version that is installed in all pods. During an update it is the old version. It is read from the
/// running pods and not from this program, because an update may be held or not approved.
pub(super) fn version(report: &Report<'_>) -> Option<String> {
    let Report { outcome, .. } = *report;
    let controller = outcome
        .controller
        .as_ref()
        .filter(|workload| workload.is_rolled_out())?;
    let node = outcome.daemon_set.as_ref().filter(|workload| workload.is_current)?;
    (is_settled(outcome) && controller.version == node.version)
        .then(|| controller.version.clone())
        .flatten()
}

/// Returns the rollout that is in progress, waits or has stopped.
pub(super) fn rollout(report: &Report<'_>) -> Option<RolloutStatus> {
    let Report { decision, outcome, .. } = *report;
    let controller = outcome.controller.as_ref()?;
    let nodes = outcome.node_rollout.as_ref()?;
    let from_version = decision.gate.from().map(str::to_owned);
    let is_controller_done = controller.is_rolled_out();
    if decision.gate.due.is_empty() && is_controller_done && is_settled(outcome) {
        return None;
    }
    let state = if is_paused(report) {
        RolloutState::Paused
    } else if let Some(hold) = &decision.gate.hold {
        hold.state()
    } else if has_stopped(nodes) || controller.stalled.is_some() {
        RolloutState::Stopped
    } else if is_controller_done && decision.leaves_pods && nodes.outdated > 0 {
        RolloutState::OnDelete
    } else {
        RolloutState::Rolling
    };
    let is_about_controller = !is_controller_done || decision.gate.hold.is_some();
    let (component, desired, updated) = if is_about_controller {
        (CONTROLLER, controller.desired, controller.updated)
    } else {
        (NODE, counted(nodes.desired), counted(nodes.updated))
    };
    Some(RolloutStatus {
        component: component.to_owned(),
        state,
        from_version,
        to_version: decision.gate.target_name(),
        desired,
        updated,
        failed: nodes.failed.iter().take(LISTED).cloned().collect(),
    })
}

/// Whether the rollout cannot continue: it has lost too many nodes, or the remaining nodes do not start.
fn has_stopped(nodes: &NodeRollout) -> bool {
    nodes.is_stopped() || nodes.outdated == 0 && !nodes.failed.is_empty()
}

/// Describes an update that waits.
fn describe_update(gate: &Gate) -> String {
    let version = &gate.target.version;
    if let Some(from) = gate.from() {
        return format!("the driver's update from version {from} to {version} waits");
    }
    let causes = gate.changed_inputs();
    let causes = if causes.is_empty() {
        "the cause is unknown, because the record of the present pods is lost".to_owned()
    } else {
        causes.join(", ")
    };
    format!("other pods of version {version} ({causes}) wait")
}

/// Returns the verdict on Progressing during a rollout.
pub(super) fn progress(report: &Report<'_>) -> Option<Verdict<Progressing>> {
    let Report { decision, outcome, .. } = *report;
    match &decision.gate.hold {
        Some(Hold::Approval) => {
            let message = format!(
                "{} until spec.update.approvedVersion is {}; no pod is replaced until then",
                describe_update(&decision.gate),
                decision.gate.target_name()
            );
            return Some(verdict(Progressing::WaitingForApproval, message));
        }
        Some(Hold::Downgrade) => {
            return Some(verdict(
                Progressing::Blocked,
                "the operator is older than the driver, and leaves it as it is",
            ));
        }
        Some(Hold::Skip) => {
            return Some(verdict(
                Progressing::Blocked,
                format!(
                    "{}, because it would skip a minor version; no pod is replaced",
                    describe_update(&decision.gate)
                ),
            ));
        }
        None => {}
    }
    let nodes = outcome.node_rollout.as_ref()?;
    if nodes.is_stopped() && nodes.outdated > 0 {
        return Some(verdict(
            Progressing::Blocked,
            format!(
                "{} of {} node pods are updated; the others are left alone, because new ones did not come up on {}: condition \
                 Degraded names them",
                nodes.updated,
                nodes.desired,
                in_words(nodes.lost, "node")
            ),
        ));
    }
    None
}

/// Describes the nodes for Progressing while their pods are replaced.
pub(super) fn node_progress(report: &Report<'_>) -> Option<String> {
    let Report { decision, outcome, .. } = *report;
    let Some(nodes) = &outcome.node_rollout else {
        return outcome
            .daemon_set
            .as_ref()
            .map(|_| "node pods: not seen yet".to_owned());
    };
    if decision.gate.is_node_waiting {
        return Some("node pods: they follow when the controller is done".to_owned());
    }
    if is_settled(outcome) {
        return None;
    }
    let left = if decision.leaves_pods && nodes.outdated > 0 {
        format!(
            "; {} of an older revision wait to be deleted by hand (spec.node.update.type is OnDelete)",
            nodes.outdated
        )
    } else {
        String::new()
    };
    Some(format!(
        "node pods: {} of {} updated and registered, {} serve{left}",
        nodes.updated, nodes.desired, nodes.serving
    ))
}

/// Returns the problems of a rollout that an administrator must solve.
pub(super) fn issues(report: &Report<'_>) -> Vec<Problem> {
    let Report { decision, outcome, .. } = *report;
    let mut issues = Vec::new();
    if decision.gate.hold == Some(Hold::Downgrade) {
        issues.push(Problem {
            reason: Degraded::DowngradeRefused,
            message: format!(
                "the operator has version {}, and the driver {}, which is later: bring the operator to that version again, or, if \
                 the driver is to go back, set spec.update.policy to Manual, allowDowngrade to true and approvedVersion to {}",
                decision.gate.target.version,
                decision.gate.from().unwrap_or_default(),
                decision.gate.target.version
            ),
        });
    }
    if decision.gate.hold == Some(Hold::Skip)
        && let Some((from, next)) = decision.gate.find_skip()
    {
        issues.push(Problem {
            reason: Degraded::SkipRefused,
            message: format!(
                "the operator has version {}, and the driver {from}, more than one minor version before it: install version {next} of \
                 the operator, wait until status.version has it, and continue with the next one",
                decision.gate.target.version
            ),
        });
    }
    if !outcome.nodes.unserved.is_empty() {
        issues.push(Problem {
            reason: Degraded::NodesWithoutDriver,
            message: without_driver(&outcome.nodes),
        });
    }
    issues.extend(outcome.node_rollout.as_ref().and_then(failed_nodes));
    issues
}

/// Returns the problem of nodes without the driver.
fn failed_nodes(nodes: &NodeRollout) -> Option<Problem> {
    if nodes.failed.is_empty() {
        return None;
    }
    let has_stopped = nodes.is_stopped() && nodes.outdated > 0;
    let (reason, remedy) = if has_stopped {
        let stopped = format!(
            "The rollout has stopped at spec.node.update.maxUnavailable ({}), and {} with an old pod will not get a new one. Fix the \
             spec, or the node, and delete the pod to have it tried again",
            nodes.limit,
            in_words(nodes.outdated, "node")
        );
        (Degraded::RolloutStopped, stopped)
    } else {
        let remedy = "Fix the node, or delete the pod to have it tried again";
        (Degraded::NodePodsFailing, remedy.to_owned())
    };
    let failed = nodes.failed.iter().take(LISTED).map(|failed| {
        let pod = failed.pod.as_deref().unwrap_or("no pod");
        format!("{} ({pod}): {}", failed.node, failed.reason)
    });
    let mut failed: Vec<String> = failed.collect();
    if let Some(more @ 1..) = nodes.failed.len().checked_sub(LISTED) {
        failed.push(format!("and {more} more"));
    }
    let message = format!(
        "node pods did not come up in time on {} of {}: {}. {remedy}",
        nodes.failed.len(),
        in_words(nodes.desired, "node"),
        failed.join("; ")
    );
    Some(Problem { reason, message })
}

/// Returns the verdict on Upgradeable: whether the operator or Kubernetes can be upgraded now.
pub(super) fn upgradeable(report: &Report<'_>, issues: &[Problem]) -> Verdict<Upgradeable> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    if facts.object.state == ManagementState::Unmanaged {
        return verdict(
            Upgradeable::AsExpected,
            "the operator changes nothing, in whatever version",
        );
    }
    let overridden = super::pods::overridden(decision.pods.as_ref());
    if let Some(failed) = overridden
        .clone()
        .filter(|(reason, _)| *reason == Upgradeable::OverrideFailed)
    {
        return failed;
    }
    let absent = AbsentNodes::of(outcome);
    if let Some(issue) = issues.iter().find(|issue| !absent.are_tolerated(issue)) {
        return verdict(
            Upgradeable::Degraded,
            format!(
                "resolve first the problem that condition Degraded reports ({})",
                issue.reason.as_str()
            ),
        );
    }
    if let Some(trouble) = super::cluster::unreadable(&facts.cluster).or_else(|| super::drift::conflict(report)) {
        return trouble;
    }
    match rollout(report).filter(|_| is_replacing(report)) {
        Some(rollout) => verdict(
            Upgradeable::RolloutInProgress,
            format!(
                "wait for the end of the rollout to version {} ({}: {} of {} updated)",
                rollout.to_version, rollout.component, rollout.updated, rollout.desired
            ),
        ),
        None => overridden.unwrap_or_else(|| verdict(Upgradeable::AsExpected, "the driver is ready to be upgraded")),
    }
}

/// Whether pods are being replaced. A failing pod of the desired revision does not count.
fn is_replacing(report: &Report<'_>) -> bool {
    let Report { decision, outcome, .. } = *report;
    let mut controller = outcome.controller.iter();
    let mut nodes = outcome.node_rollout.iter();
    !decision.gate.due.is_empty() || controller.any(Workload::is_replacing) || nodes.any(NodeRollout::is_replacing)
}

/// Whether the management state forbids changes.
pub(super) fn is_paused(report: &Report<'_>) -> bool {
    matches!(
        report.facts.object.state,
        ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged
    )
}

/// Describes the changes that the operator omits while spec.managementState forbids them.
pub(super) fn paused(report: &Report<'_>) -> String {
    let message = match report.facts.object.state {
        ManagementState::DryRun => {
            "spec.managementState is DryRun: status.pendingChanges lists what would be changed if it were Managed"
        }
        ManagementState::Unmanaged => {
            return "spec.managementState is Unmanaged: the operator reports and changes nothing".to_owned();
        }
        _ => "spec.managementState is Paused: nothing is changed until it is Managed again",
    };
    match super::drift::describe_unrestored(report) {
        Some(drift) => format!("{message}. {drift}"),
        None => message.to_owned(),
    }
}

fn counted(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
