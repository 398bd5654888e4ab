// SPDX-License-Identifier: Apache-2.0
//! Condition Available: whether the driver serves.

use cinder_csi_crds::CinderCSIDriverStatus;
use k8s_openapi::jiff::Timestamp;

use super::verdict::{Verdict, verdict};
use super::{clouds, nodes};
use crate::{
    decide::{Removal, Report},
    problem::Problem,
    reasons::Available,
    text::join_truncated,
};

pub(super) fn available(
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report<'_>,
    issues: &[Problem],
    now: Timestamp,
) -> Verdict<Available> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    if decision.removal == Some(Removal::Finished) {
        let remedy = if facts.object.is_deleted {
            ""
        } else {
            "; set spec.managementState to Managed to install it again"
        };
        return verdict(
            Available::Removed,
            format!("the driver was removed: the objects that the operator owned for it are deleted{remedy}"),
        );
    }
    if decision.removal == Some(Removal::Released) {
        return verdict(
            Available::Orphaned,
            "the operator has released ownership of the driver (spec.deletion.policy is Orphan), which goes on running unobserved. \
             With spec.adoption.mode Adopt and spec.managementState Managed the operator adopts it again",
        );
    }
    if let Some(Removal::UnderWay(_)) = &decision.removal {
        return verdict(Available::Removing, "the driver is being removed");
    }
    let Some(controller) = &outcome.controller else {
        let message = issues.first().map_or_else(
            || "there is no controller yet".to_owned(),
            |issue| format!("there is no controller yet, because {}", issue.message),
        );
        return verdict(Available::ControllerMissing, message);
    };
    if controller.available == 0 {
        return verdict(
            Available::ControllerDown,
            format!(
                "no pod of Deployment {} is available; `kubectl describe` of it and of its pods shows why",
                controller.name
            ),
        );
    }
    for workload in [Some(controller), outcome.daemon_set.as_ref()].into_iter().flatten() {
        if !workload.lacking.is_empty() {
            let message = format!(
                "the pods of {} have no container {}, without which they serve nothing; take back what changed its template",
                workload.name,
                workload.lacking.join(", ")
            );
            return verdict(Available::ContainersMissing, message);
        }
    }
    if outcome.daemon_set.is_none() {
        let message = issues.first().map_or_else(
            || "there is no DaemonSet of the nodes yet: no volume can be mounted or unmounted".to_owned(),
            |issue| {
                format!(
                    "there is no DaemonSet of the nodes, and no volume can be mounted or unmounted: {}",
                    issue.message
                )
            },
        );
        return verdict(Available::DaemonSetMissing, message);
    }
    if let Some(verdict) = nodes::unavailable(previous, outcome) {
        return verdict;
    }
    if outcome.nodes.desired == 0 {
        return verdict(
            Available::NoNodes,
            "no node matches spec.node (nodeSelector, affinity, tolerations): no pod can use \
            a volume",
        );
    }
    if outcome.nodes.registered == 0 {
        return verdict(
            Available::NodesNotReady,
            format!(
                "none of {} nodes is Ready: {}",
                outcome.nodes.desired,
                join_truncated(&outcome.nodes.not_ready)
            ),
        );
    }
    // A registration outlives the pod that created it.
    if let Some(daemon_set) = outcome
        .daemon_set
        .as_ref()
        .filter(|daemon_set| daemon_set.desired > 0 && daemon_set.available == 0)
    {
        return verdict(
            Available::NodePodsDown,
            format!(
                "no pod of DaemonSet {} is available: no volume can be mounted or unmounted; `kubectl describe` of it and of its \
                 pods shows why",
                daemon_set.name
            ),
        );
    }
    clouds::cut_off(previous, facts, outcome, now)
        .unwrap_or_else(|| verdict(Available::AsExpected, nodes::available(outcome)))
}
