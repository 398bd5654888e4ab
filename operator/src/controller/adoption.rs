// SPDX-License-Identifier: Apache-2.0
//! Observes a migration from another installation, and carries out its acts. [`cinder_operator_core::migration`] decides about it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cinder_csi_crds::AdoptionStep;
use cinder_operator_core::{
    cluster::{CONTROLLER_COMPONENT, Installation, Key, NodeFacts, NodePod, eligible_nodes, kind, ready_nodes},
    decide::{Decision, DriverFacts, OwnPart},
    manifests::controller_account_of,
    migration::{Act, check, check::AdoptionFinding, secrets::SidecarAccount},
    notice::Notice,
    problem::Problem,
    reasons::{Degraded, Event},
    resolve::Topology,
};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use super::{context::Context, driver_ref::DriverRef, pauses::OBSTACLE_PAUSE};
use crate::{
    error::ReconcileError,
    kubernetes::is_forbidden,
    observe::{self, ObserveError, Successor},
};

/// Pause between two observations of an installation that is being replaced.
pub(super) const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// A migration without progress for this time is observed less often. A pod takes 30 s to end.
pub(super) const MIGRATION_STALLS_AFTER: Duration = Duration::from_mins(1);

/// The pause between two checks before a migration with the same spec. A check lists volumes, claims and pods.
pub(super) const CHECK_PAUSE: Duration = Duration::from_mins(10);

/// The same pause while findings are open that an annotation cannot accept.
pub(super) const OPEN_CHECK_PAUSE: Duration = Duration::from_mins(1);

/// The pause before the pods of all namespaces are listed again.
pub(super) const ELSEWHERE_PAUSE: Duration = Duration::from_mins(1);

/// Reads the installation that a migration replaces, or returns the problem that a right is missing.
pub(super) async fn query_installation(
    context: &Context,
    driver: &DriverRef<'_>,
) -> Result<Result<Installation, Problem>, ReconcileError> {
    let namespace = &driver.object.spec.adoption.namespace;
    let renewals = context.lease_renewals(&driver.owner.name);
    let old_pods = context.memory(&driver.owner.name, |memory| Arc::clone(&memory.migration.old_pods));
    let read = observe::installation(&context.client, &driver.owner, namespace, &renewals, &old_pods).await;
    match read {
        Err(ObserveError::List { plural, source }) if is_forbidden(&source) => {
            Ok(Err(describe_missing_right(&plural, namespace)))
        }
        other => Ok(Ok(other?)),
    }
}

/// Lists the installations in other namespaces, or returns the cause that they are unknown.
pub(super) async fn installations_elsewhere(context: &Context, driver: &DriverRef<'_>) -> Result<Vec<String>, String> {
    let name = &driver.owner.name;
    if let Some(known) = context.memory(name, |memory| memory.migration.elsewhere(ELSEWHERE_PAUSE)) {
        return Ok(known);
    }
    let installations = observe::installations_elsewhere(&context.client, &driver.object.spec.adoption.namespace).await;
    let installations = installations.map_err(|error| error.to_string())?;
    context.memory(name, |memory| memory.migration.remember_elsewhere(&installations));
    Ok(installations)
}

/// Checks the differences between this driver and the other installation, or returns the findings of a recent check.
pub(super) async fn find_differences(
    context: &Context,
    driver: &DriverRef<'_>,
    topology: Option<&Topology>,
) -> Vec<AdoptionFinding> {
    let spec = &driver.object.spec;
    let (name, generation) = (&driver.owner.name, driver.object.metadata.generation);
    let recent = |within| context.memory(name, |memory| memory.migration.findings(generation, within));
    if let Some(known) = recent(CHECK_PAUSE) {
        // Their remedies are outside the spec.
        let is_open = known.iter().any(|finding| !finding.reason.can_be_accepted());
        if !is_open || recent(OPEN_CHECK_PAUSE).is_some() {
            return known;
        }
    }
    let apis = context.cluster.apis();
    let successor = Successor {
        spec,
        namespace: driver.namespace,
    };
    let old = &spec.adoption.namespace;
    let mut facts = observe::adoption_check(&context.client, name, old, apis, successor, false).await;
    let account = SidecarAccount {
        namespace: driver.namespace.to_owned(),
        name: controller_account_of(driver.object),
    };
    observe::review_secrets(&context.client, account, &mut facts.secrets).await;
    facts.zone_labels.compute_zones = topology.and_then(|topology| topology.compute_zones.clone());
    let decided = topology.filter(|topology| topology.is_decided);
    facts.zone_labels.is_enabled = decided.map(|topology| topology.enabled);
    let findings = check::findings(spec, &facts);
    context.memory(name, |memory| memory.migration.remember_findings(generation, &findings));
    findings
}

/// The nodes with a pod of the other installation, as far as `select` selects them.
fn nodes_of(installation: Option<&Installation>, select: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let pods = installation.into_iter().flat_map(|installation| {
        let node_pods = installation.node_pods.iter();
        node_pods.chain(&installation.controller_pods)
    });
    pods.filter(|pod| select(&pod.node))
        .map(|pod| pod.node.clone())
        .collect()
}

/// Records that no other installation exists, so that it is not searched in every reconcile.
pub(super) fn remember_settled(context: &Context, driver: &DriverRef<'_>) {
    let generation = driver.object.metadata.generation;
    context.memory(&driver.owner.name, |memory| {
        memory.migration.remember_settled(generation);
    });
}

/// Reads the pods of this driver, and the nodes that it serves.
pub(super) async fn query_own_part(
    context: &Context,
    driver: &DriverRef<'_>,
    facts: &DriverFacts,
) -> Result<OwnPart, ReconcileError> {
    let installation = facts.answers.installation.as_ref().and_then(|read| read.as_ref().ok());
    let (client, owner, namespace) = (&context.client, &driver.owner, driver.namespace);
    let running = observe::running_node_pods(client, owner, namespace).await?;
    let mut controller_pods = observe::pods_of(client, owner, namespace, &[CONTROLLER_COMPONENT]).await?;
    let cluster = &context.cluster;
    let is_dead =
        |pod: &NodePod| pod.leaving && !pod.node.is_empty() && !cluster.read(|index| index.is_ready(&pod.node));
    if controller_pods.iter().any(is_dead)
        && observe::leases_have_ended(client, owner, namespace, &context.lease_renewals(&owner.name)).await?
    {
        controller_pods.retain(|pod| !is_dead(pod));
    }
    let is_own = |(key, object): &(&Key, &Value)| key.kind == kind::DAEMON_SET && owner.owns(object);
    let template = facts.live.iter().find(is_own);
    let template = template.and_then(|(_, object)| observe::pod_template(object));
    Ok(cluster.read(|index| {
        let nodes = index.nodes();
        let select = |select: fn(&[&NodeFacts], &PodSpec) -> BTreeSet<String>| {
            let selected = template.as_ref().map(|template| select(&nodes, template));
            selected.unwrap_or_default()
        };
        OwnPart {
            reachable_nodes: nodes_of(installation, |node| index.is_ready(node)),
            running,
            controller_pods,
            ready_nodes: select(ready_nodes),
            eligible_nodes: select(eligible_nodes),
            node_pods: index.node_pods_of(&owner.name),
            registered: index.registered_on(&owner.name),
        }
    }))
}

/// The pause until the next observation of a migration. No watch reports the other installation. The pause is longer while nothing is
/// written or nothing changes, because an observation takes many requests.
pub(super) fn migration_pause(context: &Context, driver: &DriverRef<'_>, decision: &Decision) -> Option<Duration> {
    let migration = decision.migration.as_ref()?;
    let still = context.memory(&driver.owner.name, |memory| memory.migration.time_in_state(migration));
    match migration.step {
        AdoptionStep::Done => None,
        AdoptionStep::Preparing | AdoptionStep::GivenBack => Some(OBSTACLE_PAUSE),
        _ if !decision.read_only() && still < MIGRATION_STALLS_AFTER => Some(MIGRATION_PAUSE),
        _ => Some(OBSTACLE_PAUSE),
    }
}

/// Carries out the acts of a migration. Returns the problem if a right is missing.
pub(super) async fn carry_out_acts(
    context: &Context,
    driver: &DriverRef<'_>,
    decision: &Decision,
    notices: &mut Vec<Notice>,
) -> Result<Option<Problem>, ReconcileError> {
    let namespace = &driver.object.spec.adoption.namespace;
    let acts = decision.migration.iter().flat_map(|migration| &migration.acts);
    for act in acts {
        match context.writer.migrate(namespace, act).await {
            Ok(()) => notices.extend(act_event(act, namespace)),
            Err(crate::kubernetes::ApplyError::Refused { code: 403, .. }) => {
                let plural = match act {
                    Act::Orphan(_) => "daemonsets",
                    Act::Replace(_) => "pods",
                    _ => "deployments",
                };
                return Ok(Some(describe_missing_right(plural, namespace)));
            }
            Err(source) => {
                return Err(ReconcileError::Migrate {
                    act: describe_act(act, namespace),
                    source,
                });
            }
        }
    }
    Ok(None)
}

fn describe_missing_right(plural: &str, namespace: &str) -> Problem {
    Problem {
        reason: Degraded::AdoptionForbidden,
        message: format!(
            "the operator may not read or change {plural} in namespace {namespace}, which a migration and its way back need. \
             `kubectl apply -k config/rbac/adoption` gives it the role in kube-system. For another namespace change it there \
             and in spec.adoption.namespace"
        ),
    }
}

fn act_event(act: &Act, namespace: &str) -> Option<Notice> {
    match act {
        Act::Write(..) => None,
        Act::GiveBack(_, Some(_)) => Some(Notice::new(Event::MigrationFailed, describe_act(act, namespace))),
        _ => Some(Notice::new(Event::AdoptionStepDone, describe_act(act, namespace))),
    }
}

fn describe_act(act: &Act, namespace: &str) -> String {
    match act {
        Act::ScaleDown(controller, note) => format!(
            "{} {namespace}/{} of the other installation is scaled to 0 (it had {})",
            controller.kind, controller.name, note.replicas
        ),
        Act::Write(controller, _) => format!(
            "the step of the migration is recorded on {} {namespace}/{}",
            controller.kind, controller.name
        ),
        Act::GiveBack(controller, note) => {
            let reason = note.as_ref().and_then(|note| note.reason.as_deref());
            format!(
                "{} {namespace}/{} of the other installation has its {} pods again: {}",
                controller.kind,
                controller.name,
                controller.note.as_ref().map_or(1, |known| known.replicas),
                reason.unwrap_or("spec.adoption.mode is no longer Migrate")
            )
        }
        Act::Withdraw(key, _) => format!("{key} is removed, because the other installation goes on"),
        Act::Orphan(set) => format!(
            "DaemonSet {namespace}/{} of the other installation is deleted, its pods go on",
            set.name
        ),
        Act::Replace(pod) => format!(
            "pod {namespace}/{} of the other installation is deleted: the driver on node {} changes",
            pod.name, pod.node
        ),
    }
}
