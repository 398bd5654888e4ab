// SPDX-License-Identifier: Apache-2.0
//! Carries a migration out. What is to be done, [`cinder_operator_core::migration`] says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cinder_csi_crds::{AdoptionMode, AdoptionStep};
use cinder_operator_core::{
    cluster::{
        CONTROLLER_COMPONENT, Installation, Key, NodeFacts, NodePod, OldObject, eligible_nodes, kind, ready_nodes,
    },
    decide::{Intent, Workload, is_controller_done},
    manifests::controller_account_of,
    migration::{
        ACCEPT_FINDINGS, Act, Migration, Ours, adopt_orphans, await_absence, check, check::AdoptionFinding,
        claim_csi_driver, needs_check, needs_others, needs_trial, plan_migration, secrets::SidecarAccount,
    },
    notice::Notice,
    plan::{is_being_deleted, uid_of},
    problem::Problem,
    reasons::{Degraded, Event},
    resolve::Topology,
    text::join_truncated,
};
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::util::intstr::IntOrString};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{context::Context, driver_ref::DriverRef, pauses::OBSTACLE_PAUSE};
use crate::{
    error::ReconcileError,
    kubernetes::is_forbidden,
    observe::{self, ObserveError, Successor},
};

/// Pause before another look at an installation that is being replaced.
pub(super) const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// What has not changed for so long will not change within a moment: a pod takes 30 s to end.
pub(super) const MIGRATION_STALLS_AFTER: Duration = Duration::from_mins(1);

/// The pause before the check before a migration is repeated with the same spec. It lists volumes, claims and pods.
pub(super) const CHECK_PAUSE: Duration = Duration::from_mins(10);

/// The same while findings are open that no annotation accepts.
pub(super) const OPEN_CHECK_PAUSE: Duration = Duration::from_mins(1);

/// The pause before the pods of all namespaces are listed again.
pub(super) const ELSEWHERE_PAUSE: Duration = Duration::from_mins(1);

/// Another installation, and where its migration is.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    found: Installation,
    pub(super) migration: Option<Migration>,
    /// What stands against it.
    pub(super) problems: Vec<Problem>,
}

impl Adoption {
    /// The nodes where a pod of the other installation is: ours waits there.
    pub(super) fn nodes(&self) -> BTreeSet<&str> {
        self.found.nodes()
    }

    /// Whether the other controller gets its pods back, for which nothing else has to succeed.
    pub(super) fn is_returning(&self) -> bool {
        let step = self.migration.as_ref().map(|migration| migration.step);
        step == Some(AdoptionStep::GivingBack)
    }
}

/// Our own part, as far as it has to be asked for.
struct Found {
    running: BTreeSet<String>,
    controller_pods: Vec<NodePod>,
}

/// Looks for the installation that is to be replaced; its CSIDriver object counts as ours from then on, and so does what an
/// operator let go of where that is to be taken up.
pub(super) async fn find_installation(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &mut BTreeMap<Key, Value>,
    intent: Option<&Intent>,
) -> Result<Adoption, ReconcileError> {
    let spec = &driver.object.spec.adoption;
    if spec.mode == AdoptionMode::Adopt {
        adopt_orphans(&driver.owner, live);
    }
    let is_wanted = spec.mode == AdoptionMode::Migrate;
    if !is_wanted && !may_have_stopped(driver) {
        return Ok(Adoption::default());
    }
    if is_settled(context, driver, live) {
        return Ok(Adoption {
            migration: reported_step(driver),
            ..Adoption::default()
        });
    }
    let renewals = context.lease_renewals(&driver.owner.name);
    let old_pods = context.memory(&driver.owner.name, |memory| Arc::clone(&memory.migration.old_pods));
    let looked = observe::installation(&context.client, &driver.owner, &spec.namespace, &renewals, &old_pods).await;
    let mut found = match looked {
        Err(ObserveError::List { plural, source }) if is_forbidden(&source) => {
            return Ok(Adoption {
                migration: step_without_access(driver),
                problems: vec![forbidden(&plural, &spec.namespace)],
                ..Adoption::default()
            });
        }
        other => other?,
    };
    // Where nothing runs, the other installation may be in another namespace: nothing is done beside it.
    if !found.has_workloads() {
        let is_foreign = |(key, object): (&Key, &Value)| key.kind == kind::CSI_DRIVER && !driver.owner.owns(object);
        if found.is_gone() || live.iter().any(is_foreign) {
            if is_wanted && let Some(held) = hold_without_controller(context, driver, live).await {
                return Ok(held);
            }
            remember_settled(context, driver);
            return Ok(Adoption::default());
        }
    }
    context
        .cluster
        .read(|index| found.leave_dead_pods(|node| index.is_ready(node)));
    let is_theirs = is_wanted && claim_csi_driver(&driver.owner, live);
    let asked = query_own_part(context, driver).await?;
    let migration = plan_step(context, driver, &found, &asked, live, intent, is_theirs).await;
    let failure = migration.as_ref().and_then(failure);
    if migration.as_ref().is_some_and(|one| one.step == AdoptionStep::Done) {
        remember_settled(context, driver);
    }
    Ok(Adoption {
        found,
        migration,
        problems: failure.into_iter().collect(),
    })
}

/// Holds a driver without a controller where another namespace has an installation.
async fn hold_without_controller(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
) -> Option<Adoption> {
    let has_controller = |(key, object): (&Key, &Value)| key.kind == kind::DEPLOYMENT && driver.owner.owns(object);
    if live.iter().any(has_controller) {
        return None;
    }
    let elsewhere = installations_elsewhere(context, driver).await;
    let migration = await_absence(elsewhere.as_deref().map_err(String::as_str))?;
    Some(Adoption {
        problems: failure(&migration).into_iter().collect(),
        migration: Some(migration),
        ..Adoption::default()
    })
}

/// Lists the installations in other namespaces, or returns the cause that they are unknown.
async fn installations_elsewhere(context: &Context, driver: &DriverRef<'_>) -> Result<Vec<String>, String> {
    let name = &driver.owner.name;
    if let Some(known) = context.memory(name, |memory| memory.migration.elsewhere(ELSEWHERE_PAUSE)) {
        return Ok(known);
    }
    let found = observe::installations_elsewhere(&context.client, &driver.object.spec.adoption.namespace).await;
    let found = found.map_err(|error| error.to_string())?;
    context.memory(name, |memory| memory.migration.remember_elsewhere(&found));
    Ok(found)
}

/// Returns the findings of the check that block the migration. An administrator may have accepted the others.
async fn check_adoption(
    context: &Context,
    driver: &DriverRef<'_>,
    topology: Option<&Topology>,
) -> Vec<AdoptionFinding> {
    let mut findings = find_differences(context, driver, topology).await;
    let accepted = driver.object.annotations().get(ACCEPT_FINDINGS);
    if accepted.is_some_and(|uid| *uid == driver.owner.uid) {
        findings.retain(|finding| !finding.reason.can_be_accepted());
    }
    findings
}

/// Returns all findings of the check before a migration, which are remembered for a while.
async fn find_differences(
    context: &Context,
    driver: &DriverRef<'_>,
    topology: Option<&Topology>,
) -> Vec<AdoptionFinding> {
    let spec = &driver.object.spec;
    let (context, name, generation) = (context, &driver.owner.name, driver.object.metadata.generation);
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

/// Records that no other installation exists, so that it is not searched in every reconcile.
fn remember_settled(context: &Context, driver: &DriverRef<'_>) {
    let generation = driver.object.metadata.generation;
    context.memory(&driver.owner.name, |memory| {
        memory.migration.remember_settled(generation)
    });
}

/// Whether there was lately nothing to take over, or nothing any more: the other installation's namespace may have all of a cluster's
/// agents, and the mode often stays in the spec.
fn is_settled(context: &Context, driver: &DriverRef<'_>, live: &BTreeMap<Key, Value>) -> bool {
    let is_ours = |(key, object): (&Key, &Value)| key.kind == kind::CSI_DRIVER && driver.owner.owns(object);
    reported_step(driver).is_none_or(|told| told.step == AdoptionStep::Done)
        && live.iter().any(is_ours)
        && context.memory(&driver.owner.name, |memory| {
            let generation = driver.object.metadata.generation;
            memory.migration.is_settled(generation, context.idle_interval)
        })
}

/// Whether a migration was on when the status was written last, and had not come to the nodes.
pub(super) fn may_have_stopped(driver: &DriverRef<'_>) -> bool {
    let told = driver
        .object
        .status
        .as_ref()
        .and_then(|status| status.adoption.as_ref());
    let step = told.and_then(|told| told.step);
    step.is_some_and(|step| !matches!(step, AdoptionStep::ReplacingNodes | AdoptionStep::Done))
}

/// The step that was told last, where nothing can be looked at: without it a controller that was stopped would be forgotten.
fn step_without_access(driver: &DriverRef<'_>) -> Option<Migration> {
    Some(Migration {
        waits_for: "the role that condition Degraded names".to_owned(),
        ..reported_step(driver)?
    })
}

fn reported_step(driver: &DriverRef<'_>) -> Option<Migration> {
    let told = driver.object.status.as_ref()?.adoption.as_ref()?;
    Some(Migration {
        step: told.step?,
        acts: Vec::new(),
        waits_for: String::new(),
        failure: None,
        leftovers: told.leftovers.clone(),
        stages: None,
    })
}

async fn query_own_part(context: &Context, driver: &DriverRef<'_>) -> Result<Found, ReconcileError> {
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
    Ok(Found {
        running,
        controller_pods,
    })
}

async fn plan_step(
    context: &Context,
    driver: &DriverRef<'_>,
    found: &Installation,
    asked: &Found,
    live: &BTreeMap<Key, Value>,
    intent: Option<&Intent>,
    is_theirs: bool,
) -> Option<Migration> {
    let name = &driver.owner.name;
    let desired = intent.map(|intent| intent.desired.as_slice()).unwrap_or_default();
    let own = |kind: &str| {
        live.iter()
            .find(|(key, object)| key.kind == kind && driver.owner.owns(object))
    };
    let staying = |kind: &str| {
        let (key, object) = own(kind).filter(|(_, object)| !is_being_deleted(object))?;
        Some((key.clone(), uid_of(object)))
    };
    let template = own(kind::DAEMON_SET).and_then(|(_, object)| observe::pod_template(object));
    let (wanted, eligible, pods, registered) = context.cluster.read(|index| {
        let nodes = index.nodes();
        let of = |choose: fn(&[&NodeFacts], &PodSpec) -> BTreeSet<String>| {
            template
                .as_ref()
                .map(|template| choose(&nodes, template))
                .unwrap_or_default()
        };
        (
            of(ready_nodes),
            of(eligible_nodes),
            index.node_pods_of(name),
            index.registered_on(name),
        )
    });
    let serving = pods
        .iter()
        .filter(|pod| pod.ready && !pod.leaving && registered.contains(&pod.node))
        .map(|pod| pod.node.clone())
        .collect();
    let names: Vec<String> = asked.controller_pods.iter().map(|pod| pod.name.clone()).collect();
    let mut ours = Ours {
        is_wanted: driver.object.spec.adoption.mode == AdoptionMode::Migrate,
        generation: driver.object.metadata.generation.unwrap_or_default(),
        can_follow: intent.is_some_and(|intent| intent.has_credentials),
        findings: &[],
        elsewhere: Ok(&[]),
        controller: staying(kind::DEPLOYMENT),
        controller_pods: &names,
        is_controller_done: is_controller_done(live),
        trouble: "",
        trial: None,
        has_driver: !is_theirs && own(kind::CSI_DRIVER).is_some(),
        daemon_set: staying(kind::DAEMON_SET),
        node_trouble: &troubles(&pods),
        now: context.sources.now(),
        wanted: &wanted,
        eligible: &eligible,
        running: &asked.running,
        serving: &serving,
        max_unavailable: intent.map_or(&IntOrString::Int(1), |intent| &intent.resolved.node.max_unavailable),
    };
    let findings;
    if needs_check(found, &ours) {
        let topology = intent.map(|intent| &intent.resolved.topology);
        findings = Box::pin(check_adoption(context, driver, topology)).await;
        ours.findings = &findings;
    }
    let elsewhere;
    if needs_others(&ours) {
        elsewhere = installations_elsewhere(context, driver).await;
        ours.elsewhere = elsewhere.as_deref().map_err(String::as_str);
    }
    if needs_trial(found, &ours)
        && let Some(controller) = desired.iter().find(|one| one.key.kind == kind::DEPLOYMENT)
    {
        let tried = context.writer.try_out(controller).await;
        ours.trial = Some(tried.map_err(|error| error.to_string()));
    }
    let trouble = trouble(
        found,
        &ours,
        own(kind::DEPLOYMENT).map(|(_, object)| object),
        &asked.controller_pods,
    );
    ours.trouble = &trouble;
    plan_migration(found, &ours)
}

/// When to look again: the other installation is not ours and so not watched. Not soon where nothing may be done or nothing
/// happens, because every look lists much.
pub(super) fn migration_pause(
    context: &Context,
    driver: &DriverRef<'_>,
    adoption: &Adoption,
    may_write: bool,
) -> Option<Duration> {
    let migration = adoption.migration.as_ref()?;
    let still = context.memory(&driver.owner.name, |memory| memory.migration.time_in_state(migration));
    match migration.step {
        AdoptionStep::Done => None,
        AdoptionStep::Preparing | AdoptionStep::GivenBack => Some(OBSTACLE_PAUSE),
        _ if may_write && still < MIGRATION_STALLS_AFTER => Some(MIGRATION_PAUSE),
        _ => Some(OBSTACLE_PAUSE),
    }
}

/// Does what is to be done now; says what it may not do.
pub(super) async fn carry_out_acts(
    context: &Context,
    driver: &DriverRef<'_>,
    adoption: &Adoption,
    notices: &mut Vec<Notice>,
) -> Result<Option<Problem>, ReconcileError> {
    let namespace = &driver.object.spec.adoption.namespace;
    let acts = adoption.migration.iter().flat_map(|migration| &migration.acts);
    for act in acts {
        match context.writer.migrate(namespace, act).await {
            Ok(()) => notices.extend(notice(act, namespace)),
            Err(crate::kubernetes::ApplyError::Refused { code: 403, .. }) => {
                let plural = match act {
                    Act::Orphan(_) => "daemonsets",
                    Act::Replace(_) => "pods",
                    _ => "deployments",
                };
                return Ok(Some(forbidden(plural, namespace)));
            }
            Err(source) => {
                return Err(ReconcileError::Migrate {
                    act: sentence(act, namespace),
                    source,
                });
            }
        }
    }
    Ok(None)
}

/// The problem of a migration that does not continue.
fn failure(migration: &Migration) -> Option<Problem> {
    let reason = if migration.step <= AdoptionStep::StartingNodes {
        Degraded::MigrationHeldUp
    } else {
        Degraded::MigrationFailed
    };
    let message = migration.failure.clone()?;
    Some(Problem { reason, message })
}

fn forbidden(plural: &str, namespace: &str) -> Problem {
    Problem {
        reason: Degraded::AdoptionForbidden,
        message: format!(
            "the operator may not read or change {plural} in namespace {namespace}, which a migration and its way back need. \
             `kubectl apply -k config/rbac/adoption` gives it the role in kube-system. For another namespace change it there \
             and in spec.adoption.namespace"
        ),
    }
}

/// What keeps pods from running, by their nodes.
fn troubles(pods: &[NodePod]) -> String {
    let told = |pod: &NodePod| Some(format!("{} on node {}: {}", pod.name, pod.node, pod.trouble.as_ref()?));
    join_truncated(&pods.iter().filter_map(told).collect::<Vec<_>>())
}

/// What keeps our controller from serving.
fn trouble(found: &Installation, ours: &Ours<'_>, deployment: Option<&Value>, pods: &[NodePod]) -> String {
    if ours.controller.is_none() && !found.controller_pods.is_empty() {
        let pods: Vec<String> = found.controller_pods.iter().map(OldObject::place).collect();
        return format!("pods of the other controller did not end: {}", join_truncated(&pods));
    }
    if let Some(Err(why)) = &ours.trial {
        return format!("the API server refuses it: {why}");
    }
    if !ours.can_follow {
        return "the spec or the credentials do not work; see condition Degraded".to_owned();
    }
    let Some(deployment) = deployment else {
        return "its Deployment is not there: it could not be made, or the operator did not run".to_owned();
    };
    let workload = Workload::of_deployment(deployment);
    let troubles = troubles(pods);
    format!(
        "{} of {} pods of Deployment {} are available{}{troubles}",
        workload.available,
        workload.desired,
        workload.name,
        if troubles.is_empty() { "" } else { "; " }
    )
}

fn notice(act: &Act, namespace: &str) -> Option<Notice> {
    match act {
        Act::Write(..) => None,
        Act::GiveBack(_, Some(_)) => Some(Notice::new(Event::MigrationFailed, sentence(act, namespace))),
        _ => Some(Notice::new(Event::AdoptionStepDone, sentence(act, namespace))),
    }
}

fn sentence(act: &Act, namespace: &str) -> String {
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
