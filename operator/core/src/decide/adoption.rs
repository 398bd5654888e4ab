// SPDX-License-Identifier: Apache-2.0
//! The part of a decision that is about another installation of the driver.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{AdoptionMode, AdoptionStep, CinderCSIDriver};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    facts::{DriverFacts, OwnPart},
    intent::Intent,
    queries::{FindingsQuery, Queries},
    workload::{Workload, is_controller_done},
};
use crate::{
    cluster::{Installation, Key, NodePod, OldObject, Owner, kind},
    migration::{
        ACCEPT_FINDINGS, Migration, Ours, await_absence, check::AdoptionFinding, claim_csi_driver, needs_check,
        needs_others, needs_trial, plan_migration,
    },
    plan::{Desired, is_being_deleted, uid_of},
    problem::Problem,
    reasons::Degraded,
    text::join_truncated,
};

/// The state of a migration from another installation.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    pub(super) migration: Option<Migration>,
    /// The obstacles to the migration.
    pub(super) problems: Vec<Problem>,
    /// The nodes with a pod of the other installation.
    pub(super) nodes: BTreeSet<String>,
    /// Whether the CSIDriver object of the other installation counts as the driver's.
    pub(super) claims_csi_driver: bool,
    /// Whether a search has just found no other installation.
    pub(super) is_newly_settled: bool,
    /// Whether the other installation cannot be read, so that its controller may run.
    pub(super) is_unknown: bool,
}

impl Adoption {
    fn of(migration: Option<Migration>) -> Self {
        let problem = migration.as_ref().and_then(find_problem);
        Self {
            problems: problem.into_iter().collect(),
            migration,
            ..Self::default()
        }
    }
}

/// Whether the last reported migration may have stopped the other controller and had not reached the nodes.
pub(super) fn may_have_stopped(driver: &CinderCSIDriver) -> bool {
    let reported = driver.status.as_ref().and_then(|status| status.adoption.as_ref());
    let step = reported.and_then(|reported| reported.step);
    step.is_some_and(|step| !matches!(step, AdoptionStep::ReplacingNodes | AdoptionStep::Done))
}

/// Decides about another installation of the driver, or returns the queries that this depends on.
///
/// `intent` is `None` where the spec cannot be carried out: another installation is not replaced by an incomplete one.
pub(super) fn decide_adoption(
    driver: &CinderCSIDriver,
    owner: &Owner,
    facts: &DriverFacts,
    live: &BTreeMap<Key, Value>,
    intent: Option<&Intent>,
) -> Result<Adoption, Box<Queries>> {
    let spec = &driver.spec.adoption;
    let is_wanted = spec.mode == AdoptionMode::Migrate;
    if !(is_wanted && intent.is_some() || may_have_stopped(driver)) {
        return Ok(Adoption::default());
    }
    let is_owned = |kind: &str| live.iter().any(|(key, object)| key.kind == kind && owner.owns(object));
    let reported = reported_step(driver);
    let is_over = reported
        .as_ref()
        .is_none_or(|reported| reported.step == AdoptionStep::Done);
    if is_over && is_owned(kind::CSI_DRIVER) && facts.is_migration_settled {
        return Ok(Adoption {
            migration: reported,
            ..Adoption::default()
        });
    }
    let answers = &facts.answers;
    let installation = match &answers.installation {
        None => {
            return Err(Box::new(Queries {
                installation: true,
                ..Queries::default()
            }));
        }
        Some(Err(problem)) => {
            // After the migration, the administrator may remove the rights that it needed.
            let is_done = match &reported {
                Some(reported) => reported.step == AdoptionStep::Done,
                None => is_owned(kind::DEPLOYMENT),
            };
            return Ok(Adoption {
                migration: reported.map(await_access),
                problems: vec![problem.clone()],
                is_unknown: !is_done,
                ..Adoption::default()
            });
        }
        Some(Ok(installation)) => installation,
    };
    let is_foreign = |(key, object): (&Key, &Value)| key.kind == kind::CSI_DRIVER && !owner.owns(object);
    let has_foreign_driver = live.iter().any(is_foreign);
    // Without workloads, the other installation may be in another namespace. Then nothing is created next to it.
    if !installation.has_workloads() && (installation.is_gone() || has_foreign_driver) {
        if is_wanted && !is_owned(kind::DEPLOYMENT) {
            let Some(elsewhere) = &answers.elsewhere else {
                return Err(Box::new(Queries {
                    elsewhere: true,
                    ..Queries::default()
                }));
            };
            if let Some(migration) = await_absence(elsewhere.as_deref().map_err(String::as_str)) {
                return Ok(Adoption::of(Some(migration)));
            }
        }
        return Ok(Adoption {
            is_newly_settled: true,
            ..Adoption::default()
        });
    }
    let Some(own) = &answers.own_part else {
        return Err(Box::new(Queries {
            own_part: true,
            ..Queries::default()
        }));
    };
    let mut installation = installation.clone();
    installation.leave_dead_pods(|node| own.reachable_nodes.contains(node));
    let claimed = (is_wanted && has_foreign_driver).then(|| {
        let mut claimed = live.clone();
        claim_csi_driver(owner, &mut claimed);
        claimed
    });
    let input = MigrationInput {
        driver,
        owner,
        facts,
        installation: &installation,
        own,
        live: claimed.as_ref().unwrap_or(live),
        intent,
        claims_csi_driver: claimed.is_some(),
    };
    let migration = decide_migration(&input)?;
    let is_done = |migration: &Migration| migration.step == AdoptionStep::Done;
    Ok(Adoption {
        nodes: installation.nodes().into_iter().map(str::to_owned).collect(),
        claims_csi_driver: input.claims_csi_driver,
        is_newly_settled: migration.as_ref().is_some_and(is_done),
        ..Adoption::of(migration)
    })
}

struct MigrationInput<'a> {
    driver: &'a CinderCSIDriver,
    owner: &'a Owner,
    facts: &'a DriverFacts,
    installation: &'a Installation,
    own: &'a OwnPart,
    live: &'a BTreeMap<Key, Value>,
    intent: Option<&'a Intent>,
    claims_csi_driver: bool,
}

fn decide_migration(input: &MigrationInput<'_>) -> Result<Option<Migration>, Box<Queries>> {
    let MigrationInput {
        driver,
        owner,
        facts,
        installation,
        own,
        live,
        intent,
        claims_csi_driver,
    } = *input;
    let answers = &facts.answers;
    let desired: &[Desired] = intent.map(|intent| intent.desired.as_slice()).unwrap_or_default();
    let owned = |kind: &str| live.iter().find(|(key, object)| key.kind == kind && owner.owns(object));
    let staying = |kind: &str| {
        let (key, object) = owned(kind).filter(|(_, object)| !is_being_deleted(object))?;
        Some((key.clone(), uid_of(object)))
    };
    let is_serving = |pod: &&NodePod| pod.ready && !pod.leaving && own.registered.contains(&pod.node);
    let serving = own.node_pods.iter().filter(is_serving).map(|pod| pod.node.clone());
    let serving = serving.collect();
    let controller_pods: Vec<String> = own.controller_pods.iter().map(|pod| pod.name.clone()).collect();
    let node_trouble = describe_pods(&own.node_pods);
    let mut ours = Ours {
        is_wanted: driver.spec.adoption.mode == AdoptionMode::Migrate,
        generation: driver.metadata.generation.unwrap_or_default(),
        can_follow: intent.is_some_and(|intent| intent.has_credentials),
        findings: &[],
        elsewhere: Ok(&[]),
        controller: staying(kind::DEPLOYMENT),
        controller_pods: &controller_pods,
        is_controller_done: is_controller_done(live),
        trouble: "",
        trial: None,
        has_driver: !claims_csi_driver && owned(kind::CSI_DRIVER).is_some(),
        daemon_set: staying(kind::DAEMON_SET),
        node_trouble: &node_trouble,
        now: facts.environment.now,
        wanted: &own.ready_nodes,
        eligible: &own.eligible_nodes,
        running: &own.running,
        serving: &serving,
        max_unavailable: intent.map_or(&IntOrString::Int(1), |intent| &intent.resolved.node.max_unavailable),
    };
    let findings;
    if needs_check(installation, &ours) {
        let Some(all) = &answers.findings else {
            let topology = intent.map(|intent| Box::new(intent.resolved.topology.clone()));
            return Err(Box::new(Queries {
                findings: Some(FindingsQuery { topology }),
                ..Queries::default()
            }));
        };
        findings = open_findings(driver, owner, all);
        ours.findings = &findings;
    }
    if needs_others(&ours) {
        let Some(elsewhere) = &answers.elsewhere else {
            return Err(Box::new(Queries {
                elsewhere: true,
                ..Queries::default()
            }));
        };
        ours.elsewhere = elsewhere.as_deref().map_err(String::as_str);
    }
    if needs_trial(installation, &ours)
        && let Some(controller) = desired.iter().find(|desired| desired.key.kind == kind::DEPLOYMENT)
    {
        if answers.trial.is_none() {
            return Err(Box::new(Queries {
                trial: Some(Box::new(controller.clone())),
                ..Queries::default()
            }));
        }
        ours.trial.clone_from(&answers.trial);
    }
    let deployment = owned(kind::DEPLOYMENT).map(|(_, object)| object);
    let trouble = describe_controller(installation, &ours, deployment, &own.controller_pods);
    ours.trouble = &trouble;
    Ok(plan_migration(installation, &ours))
}

/// The findings that block the migration. An administrator may have accepted the others.
fn open_findings(driver: &CinderCSIDriver, owner: &Owner, all: &[AdoptionFinding]) -> Vec<AdoptionFinding> {
    let is_accepted = driver.annotations().get(ACCEPT_FINDINGS) == Some(&owner.uid);
    let open = all
        .iter()
        .filter(|finding| !is_accepted || !finding.reason.can_be_accepted());
    open.cloned().collect()
}

/// The last reported step while the other installation cannot be read. Without it, a stopped controller would be forgotten.
fn await_access(reported: Migration) -> Migration {
    Migration {
        waits_for: "the role that condition Degraded names".to_owned(),
        ..reported
    }
}

fn reported_step(driver: &CinderCSIDriver) -> Option<Migration> {
    let reported = driver.status.as_ref()?.adoption.as_ref()?;
    Some(Migration {
        step: reported.step?,
        acts: Vec::new(),
        waits_for: String::new(),
        failure: None,
        leftovers: reported.leftovers.clone(),
        stages: None,
    })
}

/// The problem of a migration that does not continue.
fn find_problem(migration: &Migration) -> Option<Problem> {
    let reason = if migration.step <= AdoptionStep::StartingNodes {
        Degraded::MigrationHeldUp
    } else {
        Degraded::MigrationFailed
    };
    let message = migration.failure.clone()?;
    Some(Problem { reason, message })
}

/// The causes that keep pods from running, with their nodes.
fn describe_pods(pods: &[NodePod]) -> String {
    let describe = |pod: &NodePod| Some(format!("{} on node {}: {}", pod.name, pod.node, pod.trouble.as_ref()?));
    join_truncated(&pods.iter().filter_map(describe).collect::<Vec<_>>())
}

/// The cause that keeps this driver's controller from serving.
fn describe_controller(
    installation: &Installation,
    ours: &Ours<'_>,
    deployment: Option<&Value>,
    pods: &[NodePod],
) -> String {
    if ours.controller.is_none() && !installation.controller_pods.is_empty() {
        let pods: Vec<String> = installation.controller_pods.iter().map(OldObject::place).collect();
        return format!("pods of the other controller did not end: {}", join_truncated(&pods));
    }
    if let Some(Err(cause)) = &ours.trial {
        return format!("the API server refuses it: {cause}");
    }
    if !ours.can_follow {
        return "the spec or the credentials do not work; see condition Degraded".to_owned();
    }
    let Some(deployment) = deployment else {
        return "its Deployment is not there: it could not be made, or the operator did not run".to_owned();
    };
    let workload = Workload::of_deployment(deployment);
    let causes = describe_pods(pods);
    format!(
        "{} of {} pods of Deployment {} are available{}{causes}",
        workload.available,
        workload.desired,
        workload.name,
        if causes.is_empty() { "" } else { "; " }
    )
}
