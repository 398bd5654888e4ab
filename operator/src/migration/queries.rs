// SPDX-License-Identifier: Apache-2.0
//! Answers the queries of a decision about a migration.

use std::collections::BTreeSet;

use cinder_operator_core::{
    cluster::{CONTROLLER_COMPONENT, Installation, Key, NodeFacts, NodePod, eligible_nodes, kind, ready_nodes},
    decide::{DriverFacts, OwnPart},
    manifests::controller_account_of,
    migration::{check, check::AdoptionFinding, secrets::SidecarAccount},
    problem::Problem,
    resolve::Topology,
};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use super::{
    adoption_check::{Successor, adoption_check},
    context::{MigrationContext, describe_missing_right},
    elsewhere::installations_elsewhere,
    installation::installation,
    pauses::{CHECK_PAUSE, ELSEWHERE_PAUSE, OPEN_CHECK_PAUSE},
    references::review_secrets,
};
use crate::{
    error::ReconcileError,
    kubernetes::is_forbidden,
    observe::{self, ObserveError},
};

/// Reads the installation that a migration replaces, or returns the problem that a right is missing.
pub(crate) async fn query_installation(
    context: &MigrationContext<'_>,
) -> Result<Result<Installation, Problem>, ReconcileError> {
    let namespace = context.old_namespace();
    let old_pods = &context.memory.old_pods;
    let read = installation(context.client, context.owner, namespace, &context.renewals, old_pods).await;
    match read {
        Err(ObserveError::List { plural, source }) if is_forbidden(&source) => {
            Ok(Err(describe_missing_right(&plural, namespace)))
        }
        other => Ok(Ok(other?)),
    }
}

/// Lists the installations in other namespaces, or returns the cause that they are unknown.
pub(crate) async fn query_elsewhere(context: &MigrationContext<'_>) -> Result<Vec<String>, String> {
    if let Some(known) = context.memory.elsewhere(ELSEWHERE_PAUSE) {
        return Ok(known);
    }
    let installations = installations_elsewhere(context.client, context.old_namespace()).await;
    let installations = installations.map_err(|error| error.to_string())?;
    context.memory.remember_elsewhere(&installations);
    Ok(installations)
}

/// Checks the differences between this driver and the other installation, or returns the findings of a recent check.
pub(crate) async fn find_differences(
    context: &MigrationContext<'_>,
    topology: Option<&Topology>,
) -> Vec<AdoptionFinding> {
    let spec = &context.object.spec;
    let (name, generation) = (&context.owner.name, context.object.metadata.generation);
    let recent = |within| context.memory.findings(generation, within);
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
        namespace: context.namespace,
    };
    let old = context.old_namespace();
    let mut facts = adoption_check(context.client, name, old, apis, successor, false).await;
    let account = SidecarAccount {
        namespace: context.namespace.to_owned(),
        name: controller_account_of(context.object),
    };
    review_secrets(context.client, account, &mut facts.secrets).await;
    facts.zone_labels.compute_zones = topology.and_then(|topology| topology.compute_zones.clone());
    let decided = topology.filter(|topology| topology.is_decided);
    facts.zone_labels.is_enabled = decided.map(|topology| topology.enabled);
    let findings = check::findings(spec, &facts);
    context.memory.remember_findings(generation, &findings);
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

/// Reads the pods of this driver, and the nodes that it serves.
pub(crate) async fn query_own_part(
    context: &MigrationContext<'_>,
    facts: &DriverFacts,
) -> Result<OwnPart, ReconcileError> {
    let installation = facts.answers.installation.as_ref().and_then(|read| read.as_ref().ok());
    let (client, owner, namespace) = (context.client, context.owner, context.namespace);
    let running = observe::running_node_pods(client, owner, namespace).await?;
    let mut controller_pods = observe::pods_of(client, owner, namespace, &[CONTROLLER_COMPONENT]).await?;
    let cluster = context.cluster;
    let is_dead =
        |pod: &NodePod| pod.leaving && !pod.node.is_empty() && !cluster.read(|index| index.is_ready(&pod.node));
    if controller_pods.iter().any(is_dead)
        && observe::leases_have_ended(client, owner, namespace, &context.renewals).await?
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
