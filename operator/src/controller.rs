// SPDX-License-Identifier: Apache-2.0
//! Reconciles one `CinderCSIDriver`: observe → credentials → resolve → manifests → plan → apply → status.
//!
//! Everything is derived anew from what exists; what is remembered between two reconciles only saves work.

mod adoption;
mod classes;
mod clouds;
mod context;
mod failure;
mod namespace;
mod records;
mod relocation;
mod removal;
mod rollout;
mod suspension;
mod unreadable;
mod usage;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cinder_csi_crds::{AdoptionMode, CinderCSIDriver, CinderCSIDriverStatus, FINALIZER, ManagementState};
use csi_sources::UntrustedText;
use kube::{Resource, ResourceExt, runtime::controller::Action};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

pub use context::{Context, Memories};

use crate::{
    apply::{Records, apply_plan},
    error::ReconcileError,
    kubernetes::answer,
    object_leases::Hold,
    observe::{self, ObserveError},
    recreate_checks, startup_taint,
};
use adoption::Adoption;
use cinder_operator_core::{
    cluster::{
        AttachedNodes, Blockers, GuardedObject, Index, KINDS, Key, Kind, LostNodes, NodesView, OptionalApi, Owner,
        kind, view,
    },
    decide::{
        ClusterView, Decision, Existing, Facts, Intent, Lookups, MonitoringView, ObjectFacts, Outcome, ProjectGuard,
        Removal, Report, Situation, VolumeFacts, Workload, decide, draft, intend,
    },
    manifests::DriverCredentials,
    migration::adopt_orphans,
    notice::Notice,
    plan::{FailedWrite, LastApplied, Obstacle},
    problem::Problem,
    reasons::{Degraded, Event},
    resolve::{Resolved, name_prefix_of, namespace_of},
    status,
    text::join_truncated,
};
use classes::exclude_unmanaged;
use namespace::Residence;

/// The object as it is watched: one that cannot be read must not stop the others.
pub type Watched = GuardedObject<CinderCSIDriver>;

/// First pause after a failed reconcile; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause after a failed reconcile.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// By so much later than something ends is looked again.
const RECHECK_MARGIN: Duration = Duration::from_millis(100);
/// Pause before another look at what stands in the way.
const OBSTACLE_PAUSE: Duration = Duration::from_secs(10);
/// Pause before another attempt to hold a Lease whose holder is unknown.
const LEASE_PAUSE: Duration = Duration::from_secs(5);

/// Reconciles one object, within the time that a reconcile has.
pub async fn reconcile(driver: Arc<Watched>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let begun = Instant::now();
    context.begin(&driver.name_any());
    if let Some(uid) = driver.uid() {
        context.recognize(&driver.name_any(), &uid);
    }
    let limit = context.reconcile_timeout;
    let without_status;
    let readable = match &driver.0 {
        Ok(driver) => Ok(driver),
        Err(invalid) => {
            let read = Box::pin(unreadable::without_status(invalid, &context));
            let read = tokio::time::timeout(limit, read).await;
            match read.unwrap_or(Err(ReconcileError::TimedOut(limit))) {
                Ok(read) => {
                    without_status = read;
                    Ok(&without_status)
                }
                Err(error) => Err(error),
            }
        }
    };
    let result = match readable {
        Ok(driver) => {
            // On the heap: every reconcile that waits would be as large as the largest of them.
            let result = tokio::time::timeout(limit, Box::pin(reconcile_one(driver, &context)))
                .await
                .unwrap_or(Err(ReconcileError::TimedOut(limit)));
            if let Err(error) = &result {
                Box::pin(Reconciliation::of(driver, &context).report_error(error)).await;
            }
            result
        }
        Err(error) => Err(error),
    };
    context
        .metrics
        .reconciled(if result.is_ok() { "success" } else { "error" }, begun.elapsed());
    if result.is_ok() {
        context.reset_backoff(&driver.name_any());
    }
    result
}

/// Says when a failed reconcile is tried again.
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it with these types")]
pub fn error_policy(driver: Arc<Watched>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let failures = context.record_failure(&driver.name_any());
    let pause = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_PAUSE);
    warn!(driver = driver.name_any(), %error, pause = ?pause, "reconcile failed");
    Action::requeue(pause)
}

/// What the object asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReconcileMode {
    /// Make it and keep it.
    Manage,
    /// Look only.
    Watch,
    /// It is being deleted while nothing may be changed: look only, and keep the finalizer.
    Hold,
    /// Take the driver away; `finalize` when the object goes too.
    Remove { finalize: bool },
    /// It is being deleted and nothing keeps it.
    Nothing,
}

fn mode_of(driver: &CinderCSIDriver) -> ReconcileMode {
    let is_deleted = driver.metadata.deletion_timestamp.is_some();
    let is_kept = driver.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    match (driver.spec.management_state, is_deleted) {
        (_, true) if !is_kept => ReconcileMode::Nothing,
        (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, true) => ReconcileMode::Hold,
        (_, true) => ReconcileMode::Remove { finalize: true },
        (ManagementState::Managed, false) => ReconcileMode::Manage,
        (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, false) => ReconcileMode::Watch,
        (ManagementState::Removed, false) => ReconcileMode::Remove { finalize: false },
    }
}

async fn reconcile_one(driver: &CinderCSIDriver, context: &Context) -> Result<Action, ReconcileError> {
    let pass = Reconciliation::of(driver, context);
    let mode = mode_of(driver);
    debug!(driver = pass.owner.name, ?mode, "reconcile");
    if mode == ReconcileMode::Nothing {
        context.forget(&pass.owner.name);
        context.leases.delete(&pass.owner.name).await;
        return Ok(Action::await_change());
    }
    if let Some(problem) = namespace::unserved(driver, context) {
        return pass.suspend(problem, Some(pass.namespace)).await;
    }
    if !matches!(mode, ReconcileMode::Remove { .. })
        && let Some(guard) = context.leases.held(&pass.owner.name)
        && let Some(done) = guard.protect(Box::pin(pass.reconcile_volumes_only())).await?
    {
        return Ok(done);
    }
    match Box::pin(pass.execute_at_home(mode)).await {
        Err(error) => match namespace::forbidden(pass.namespace, context, &error) {
            Some(problem) => pass.suspend(problem, Some(pass.namespace)).await,
            None => Err(error),
        },
        done => done,
    }
}

impl Reconciliation<'_> {
    /// Executes a mode while this process holds the Lease of the object, unless the driver runs in another namespace.
    async fn execute_at_home(&self, mode: ReconcileMode) -> Result<Action, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let is_new = match self.residence().await? {
            Residence::Elsewhere(elsewhere) => return self.stay_away(elsewhere, mode).await,
            Residence::New => true,
            Residence::Here => false,
        };
        let guard = match context.leases.hold(&self.owner, self.namespace, !is_new).await {
            Ok(Hold::Held(guard)) => guard,
            Ok(Hold::By(lease)) => return Ok(self.suspend_beside(&lease).await),
            Ok(Hold::Unknown) => return Ok(Action::requeue(LEASE_PAUSE)),
            // No operator can hold a Lease in such a namespace, and its objects are deleted with it.
            Err(error) if matches!(mode, ReconcileMode::Remove { .. }) && error.is_in_terminating_namespace() => {
                return Box::pin(self.execute(mode, is_new, false)).await;
            }
            Err(error) => return Err(error.into()),
        };
        context.end_suspension(name);
        let action = guard.protect(Box::pin(self.execute(mode, is_new, true))).await?;
        if action == Action::await_change() && mode != (ReconcileMode::Remove { finalize: false }) {
            context.leases.delete(name).await;
        }
        Ok(action)
    }

    /// Executes a mode. Without the Lease, `may_repair` is unset, and a blocked removal changes nothing.
    async fn execute(&self, mode: ReconcileMode, is_new: bool, may_repair: bool) -> Result<Action, ReconcileError> {
        let (pass, driver, context) = (self, self.driver, self.context);
        match mode {
            ReconcileMode::Nothing => Ok(Action::await_change()),
            ReconcileMode::Manage => {
                // Before anything is made, so that nothing is left behind by a deletion that comes in between.
                if !driver.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                    let is_there = context
                        .writer
                        .set_finalizer(driver, true)
                        .await
                        .map_err(ReconcileError::Finalizer)?;
                    if !is_there {
                        // What is made now, nobody would take away again.
                        context.forget(&self.owner.name);
                        return Ok(Action::await_change());
                    }
                }
                if is_new && let Some(elsewhere) = pass.claim().await? {
                    let namespace = elsewhere.only_namespace();
                    return pass.suspend(elsewhere.problem.clone(), namespace).await;
                }
                self.end_relocation().await?;
                pass.maintain(None, true).await
            }
            ReconcileMode::Watch => pass.maintain(None, false).await,
            ReconcileMode::Hold => pass.maintain(Some(Removal::Held), false).await,
            ReconcileMode::Remove { finalize } => Box::pin(pass.remove(finalize, may_repair)).await,
        }
    }
}

fn owner_of(driver: &CinderCSIDriver) -> Owner {
    Owner {
        name: driver.name_any(),
        uid: driver.uid().unwrap_or_default(),
    }
}

/// Computes the pause until the next reconcile. `unwatched` is the pause while an obstacle exists that no watch reports. The end of all
/// other obstacles causes an event.
fn next_look(report: &Report, otherwise: Duration, unwatched: Option<Duration>) -> Duration {
    let Report { decision, outcome, .. } = report;
    let of_nodes = outcome.node_rollout.as_ref().and_then(|nodes| nodes.look_again);
    let otherwise = of_nodes.map_or(otherwise, |of_nodes| otherwise.min(of_nodes));
    // A moment later, so that it is over then.
    let otherwise = otherwise.saturating_add(RECHECK_MARGIN);
    let is_unwatched = matches!(&decision.removal, Some(Removal::Blocked(blockers)) if blockers.are_unwatched());
    if is_unwatched {
        return otherwise.min(OBSTACLE_PAUSE);
    }
    unwatched.map_or(otherwise, |pause| otherwise.min(pause))
}

/// The obstacles that no watch reports.
fn unwatched(report: &Report, adoption: &Adoption) -> Vec<String> {
    let Report {
        facts,
        decision,
        outcome,
    } = report;
    let obstacles = decision.plan.obstacles.iter();
    let is_watched = |obstacle: &&Obstacle| {
        matches!(
            obstacle,
            Obstacle::NodesInUse {
                lost: LostNodes::Nodes(_),
                ..
            }
        )
    };
    let obstacles = obstacles.filter(|obstacle| !is_watched(obstacle));
    let problems = [&facts.needed_clouds, &adoption.problems, &outcome.problems]
        .into_iter()
        .flatten();
    obstacles
        .map(status::describe_obstacle)
        .chain(problems.map(|problem| problem.message.clone()))
        .collect()
}

/// One reconcile of one object.
struct Reconciliation<'a> {
    driver: &'a CinderCSIDriver,
    context: &'a Context,
    owner: Owner,
    /// Where the driver runs.
    namespace: &'a str,
    /// How often a look at everything had been called for when it began.
    calls: u64,
}

impl<'a> Reconciliation<'a> {
    fn of(driver: &'a CinderCSIDriver, context: &'a Context) -> Self {
        let owner = owner_of(driver);
        Self {
            driver,
            context,
            calls: context.calls(&owner.name),
            owner,
            namespace: namespace_of(driver, &context.namespace),
        }
    }
}

/// The observations of a reconcile, next to the existing objects.
#[derive(Clone, Copy)]
struct Seen<'a> {
    intent: &'a Intent,
    last_applied: &'a LastApplied,
    unlisted: &'a BTreeSet<&'static str>,
    adoption: &'a Adoption,
}

/// What came of acting, with what only this reconcile needs.
struct Acted {
    outcome: Outcome,
    notices: Vec<Notice>,
    /// Why the reconcile is tried again.
    failed: Option<ReconcileError>,
    /// The credentials that the driver has after it.
    has: Option<DriverCredentials>,
    /// The objects after it.
    live: BTreeMap<Key, Value>,
}

impl Reconciliation<'_> {
    /// Makes what is wanted (or only looks, without `may_write`), and says how it is.
    async fn maintain(&self, removal: Option<Removal>, may_write: bool) -> Result<Action, ReconcileError> {
        let context = self.context;
        let (namespace, apis) = (self.namespace, context.cluster.apis());
        let (mut live, unlisted) = observe::live_parts(&context.client, &self.owner, namespace, apis).await?;
        let prefix = name_prefix_of(self.driver);
        let record = LastApplied::key(namespace, &prefix);
        observe::complete(&context.client, &mut live, std::slice::from_ref(&record)).await?;
        let last_applied = LastApplied::take(&mut live, &self.owner, namespace, &prefix);
        self.find_unlabelled(&mut live).await?;
        self.recheck_credentials();
        let checked = self.check_credentials(&live).await;
        let adopts = self.driver.spec.adoption.mode == AdoptionMode::Adopt;
        if adopts {
            // The releases of adopted workloads count.
            adopt_orphans(&self.owner, &mut live);
        }
        let existing = Existing {
            owner: &self.owner,
            live: &live,
            last_applied: &last_applied,
        };
        let mut environment = context
            .environment(namespace, self.driver, self.known_apis(existing))
            .await?;
        environment.records = checked.record.annotations();
        (environment.clouds, environment.silent_clouds) = (checked.zones(), checked.silent());
        self.complete(&mut environment, &live).await;
        let mut intent = intend(self.driver, &environment, checked.wanted.as_ref(), existing)?;
        intent.problems.extend(unlisted.values().map(unlisted_kind));
        // A request for an object of an unserved kind fails, also for an object that is only in the record. Objects of an unconfirmed kind
        // may become desired later.
        let is_unserved = |kind: &&Kind| !kind.is_served(apis) || !kind.is_served(environment.apis);
        let unserved = KINDS.iter().filter(is_unserved).map(|kind| kind.kind);
        let unlisted: BTreeSet<&'static str> = unlisted.into_keys().chain(unserved).collect();
        let recorded = last_applied.iter().map(|(key, _)| key.clone());
        let mut keys: Vec<Key> = intent.keys().into_iter().chain(recorded).collect();
        keys.retain(|key| !unlisted.contains(key.kind));
        observe::complete(&context.client, &mut live, &keys).await?;
        exclude_unmanaged(&intent.resolved, &intent.desired, &mut live);
        // Another installation is not replaced by one that cannot be created as the spec describes it.
        let complete = Some(&intent).filter(|intent| intent.problems.is_empty());
        let adoption = if complete.is_some() || adopts || self.may_have_stopped() {
            Box::pin(self.look_for_installation(&mut live, complete)).await?
        } else {
            Adoption::default()
        };
        let seen = Seen {
            intent: &intent,
            last_applied: &last_applied,
            unlisted: &unlisted,
            adoption: &adoption,
        };
        let decision = Box::pin(self.decide(seen, &live, removal, may_write)).await?;
        let Acted {
            mut outcome,
            mut notices,
            failed,
            has,
            live,
        } = Box::pin(self.act(seen, &decision, live, may_write)).await?;
        notices.extend(checked.rotations(has.as_ref()));
        let (look_again, is_move) = (checked.look_again, checked.is_move);
        let is_given = self.has_given(&live, checked.wanted.as_ref());
        outcome.record = Some(self.driver_record(&live, is_given.then_some(&checked.record), may_write));
        let facts = checked.facts(self, has.as_ref());
        let (volumes, of_volumes) = self.observe_volumes(&facts, &outcome);
        let is_moved = is_move && may_write && is_given && outcome.failures.is_empty();
        let guard = self.project_guard(is_moved);
        let report = Report {
            facts: Facts {
                volumes,
                guard,
                ..facts
            },
            decision,
            outcome,
        };
        let soon = self.migration_pause(&adoption, may_write);
        let of_classes = classes::next_look(&report, self).unwrap_or(look_again);
        let unwatched = context.obstacle_pause(&self.owner.name, unwatched(&report, &adoption));
        let otherwise = soon.unwrap_or(look_again).min(look_again).min(of_classes);
        let look_again = next_look(&report, otherwise, unwatched);
        self.report_status(&report, notices).await?;
        if may_write && (report.facts.guard == ProjectGuard::Moved || self.was_moved()) {
            self.end_move().await?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(failure) = report.outcome.failures.first() {
            return Err(ReconcileError::Write {
                key: failure.key.clone(),
                message: failure.message.clone(),
            });
        }
        if adoption.migration.is_some() {
            // It goes on with the attachments.
            let soon = of_volumes.map(|soon| soon.saturating_add(RECHECK_MARGIN));
            return Ok(Action::requeue(soon.map_or(look_again, |soon| soon.min(look_again))));
        }
        Ok(self.until_next_look(report, of_volumes, look_again))
    }

    /// Decides the next actions, and reads the facts that a plan requires.
    async fn decide(
        &self,
        seen: Seen<'_>,
        live: &BTreeMap<Key, Value>,
        removal: Option<Removal>,
        may_write: bool,
    ) -> Result<Decision, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let adoption = seen.adoption;
        let situation = Situation {
            driver: self.driver,
            owner: &self.owner,
            intent: seen.intent,
            live,
            last_applied: seen.last_applied,
            unlisted: seen.unlisted,
            unapplied: &context.unapplied(name),
            instant: Instant::now().into_std(),
        };
        let draft = draft(&situation);
        let in_use = recreate_checks::in_use(&context.client, &context.cluster, name, &draft.plan).await;
        let attached = if draft.may_lose_nodes(&situation) {
            let is_lost = |attached: &AttachedNodes| draft.lost_nodes(&situation, attached).is_some();
            recreate_checks::attached_nodes(&context.client, &context.cluster, name, is_lost).await
        } else {
            AttachedNodes::default()
        };
        let templates = if may_write {
            self.newest_templates(&draft).await?
        } else {
            BTreeMap::new()
        };
        let lookups = Lookups {
            in_use,
            attached,
            templates,
            migration: adoption.migration.clone(),
            migration_problems: adoption.problems.clone(),
            removal,
            known: self.known_objects(&draft),
            may_write,
        };
        Ok(decide(&situation, draft, lookups))
    }

    /// Does what was decided, and reads how the driver is after it.
    async fn act(
        &self,
        seen: Seen<'_>,
        decision: &Decision,
        mut live: BTreeMap<Key, Value>,
        may_write: bool,
    ) -> Result<Acted, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let (intent, adoption) = (seen.intent, seen.adoption);
        let (mut failures, mut problems, mut failed) = (Vec::new(), Vec::new(), None);
        let mut notices = decision.notices.clone();
        let keys = intent.keys();
        if may_write {
            notices.extend(recreate_checks::pre_delete_events(&context.client, &decision.plan).await);
            let records = Records::of(self.driver).only(&keys);
            let applied = apply_plan(&context.writer, &decision.plan, &live, records).await;
            context.remember_unapplied(name, applied.left);
            let repaired = applied.repaired.iter();
            repaired.for_each(|kind| context.metrics.drift_repaired(name, kind));
            for (key, object) in applied.written {
                match object {
                    Some(object) => live.insert(key, object),
                    None => live.remove(&key),
                };
            }
            failures = applied.failures;
            failures.extend(self.record_applied(seen, decision, &live).await);
            notices.extend(applied.notices);
        }
        // The driver has the credentials that its Secret contains after the writes.
        let has = last_good(&self.owner, &live);
        if may_write && (failures.is_empty() || adoption.is_returning()) {
            match self.migrate(adoption, &mut notices).await {
                Ok(refused) => problems.extend(refused),
                Err(error) => failed = Some(error),
            }
        }
        if may_write {
            notices.extend(self.remove_startup_taints(&intent.resolved).await);
        }
        // What is missing after that, the operator itself has taken away.
        let kept = if adoption.is_returning() { &[] } else { keys.as_slice() };
        self.remember_objects(kept, &live, &failures);
        let mut outcome = Outcome {
            failures,
            ..self.observe_workloads(&live)
        };
        // While another installation is replaced, its pods serve the nodes.
        outcome.node_template = outcome.node_template.filter(|_| adoption.migration.is_none());
        self.observe_unserved(&mut outcome);
        if let Some(controller) = &mut outcome.controller {
            controller.wants(
                intent
                    .resolved
                    .controller
                    .sidecars
                    .iter()
                    .map(|sidecar| sidecar.component),
            );
        }
        let may_replace = may_write && failed.is_none() && outcome.failures.is_empty();
        outcome.node_rollout = self.judge_nodes(&live, Some(intent), may_replace, adoption).await?;
        if let Some(rollout) = &outcome.node_rollout {
            match self.replace(rollout).await {
                Ok(replaced) => notices.extend(replaced),
                Err(error) => failed = Some(error),
            }
        }
        if may_replace && failed.is_none() {
            let added = self
                .add_duties(decision, outcome.node_rollout.as_ref(), &mut live)
                .await;
            outcome.failures.extend(added.failures);
            notices.extend(added.notices);
        }
        problems.extend(failed.as_ref().map(ReconcileError::problem));
        outcome.problems = problems;
        Ok(Acted {
            outcome,
            notices,
            failed,
            has,
            live,
        })
    }

    /// Updates the record of the last applied content where it differs from the ConfigMap.
    async fn record_applied(
        &self,
        seen: Seen<'_>,
        decision: &Decision,
        live: &BTreeMap<Key, Value>,
    ) -> Option<FailedWrite> {
        let (owner, prefix) = (&self.owner, &seen.intent.resolved.name_prefix);
        let overridden = decision.pods.as_ref().map(|pods| pods.overridden.changed.as_slice());
        let record = decision
            .held
            .record(seen.last_applied, owner, overridden.unwrap_or_default(), live);
        if record.is_empty() && record.uid().is_none() {
            return None;
        }
        let written = match record.config_map(owner, self.namespace, prefix) {
            Ok(config_map) if record.is_stored_as(&config_map) => return None,
            Ok(config_map) => {
                let uid = record.uid();
                let applied = self.context.writer.apply(&config_map, uid.as_deref()).await;
                applied.map(drop)
            }
            Err(error) => Err(error.into()),
        };
        let message = written.err()?.to_string();
        let key = LastApplied::key(self.namespace, prefix);
        Some(FailedWrite { key, message })
    }

    /// Finds nodes with attached volumes that the DaemonSet excludes.
    fn observe_unserved(&self, outcome: &mut Outcome) {
        let template = outcome.node_template.as_deref();
        let unserved = template.map(|template| {
            let index = |index: &Index| index.unserved_nodes(&self.owner.name, template);
            self.context.cluster.read(index)
        });
        outcome.nodes.unserved = unserved.unwrap_or_default();
    }

    /// Takes the startup taint away from nodes where the driver is registered by now.
    async fn remove_startup_taints(&self, resolved: &Resolved) -> Option<Notice> {
        let key = resolved.node.startup_taint.as_deref()?;
        let name = &self.owner.name;
        let ready = self
            .context
            .cluster
            .read(|index| startup_taint::ready_nodes(&index.nodes(), &index.registered_on(name), key));
        let freed = startup_taint::remove(&self.context.client, &ready, key).await;
        if let Some((node, message)) = freed.failed.first() {
            let note = format!(
                "taint {key} of node {node} cannot be removed, the operator tries again: {message}. The right for it comes with `kubectl apply -k \
                 config/rbac/startup-taint`, or the chart's value rights.startupTaint"
            );
            return Some(Notice::new(Event::StartupTaintLeft, note));
        }
        (!freed.nodes.is_empty()).then(|| {
            let note = format!(
                "the driver is registered, and taint {key} was removed: {}",
                join_truncated(&freed.nodes)
            );
            Notice::new(Event::StartupTaintRemoved, note)
        })
    }

    /// What is known without looking at the driver's objects.
    fn facts(&self) -> Facts {
        let name = &self.owner.name;
        Facts {
            object: ObjectFacts::of(self.driver),
            monitoring: MonitoringView {
                mode: self.driver.spec.monitoring.mode,
                served: self.context.cluster.apis().has(OptionalApi::Monitoring),
            },
            cluster: ClusterView {
                undecodable: self.context.cluster.read(|index| {
                    let all = index.undecodable();
                    all.map(|(kind, name, reason)| format!("{kind} {}: {reason}", UntrustedText::new(name)))
                        .collect()
                }),
                failing_watches: self.context.cluster.failing_watches(),
            },
            volumes: VolumeFacts {
                count: self.context.cluster.read(|index| index.count_of(name)),
                ..VolumeFacts::default()
            },
            ..Facts::default()
        }
    }

    /// Reads the state of controller, nodes and classes from what exists.
    fn observe_workloads(&self, live: &BTreeMap<Key, Value>) -> Outcome {
        let of = |wanted: &str| {
            live.iter()
                .find(|(key, object)| key.kind == wanted && self.owner.owns(object))
                .map(|(_, object)| object)
        };
        let daemon_set = of(kind::DAEMON_SET);
        let template = daemon_set.and_then(observe::pod_template);
        let classes = live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
        Outcome {
            controller: of(kind::DEPLOYMENT).map(Workload::of_deployment),
            daemon_set: daemon_set.map(Workload::of_daemon_set),
            nodes: template.as_ref().map_or_else(NodesView::default, |template| {
                let name = &self.owner.name;
                self.context.cluster.read(|index| NodesView {
                    misidentified: index.misidentified_nodes(name),
                    ..view(&index.nodes(), template, &index.registered_on(name))
                })
            }),
            node_template: template.map(Box::new),
            storage_classes: classes.map(|key| key.name.clone()).collect(),
            ..Outcome::default()
        }
    }

    /// Tells all that was seen: in the status, by events and gauges.
    async fn report_status(&self, report: &Report, notices: Vec<Notice>) -> Result<(), ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let previous = self.driver.status.as_ref();
        let now = context.sources.now();
        let next = status::status(previous, report, now);
        context.metrics.export(name, report);
        self.report_to_claims(report).await;
        context.metrics.nodes(name, &report.outcome);
        let blockers = match &report.decision.removal {
            Some(Removal::Blocked(blockers)) => blockers,
            _ => &Blockers::default(),
        };
        for kind in Blockers::KINDS {
            let of_kind = blockers.by_kind().find(|(known, _)| *known == kind);
            let count = of_kind.map_or(0, |(_, names)| names.len());
            context.metrics.deletion_blockers(name, kind, count);
        }
        context.metrics.rollout(name, next.rollout.as_ref());
        let classes = report.decision.classes.as_ref();
        if let Some(notice) = classes.and_then(status::unavailable_snapshot_controller) {
            context.events.publish_daily(&self.driver.object_ref(&()), notice).await;
        }
        self.publish(previous, &next, notices).await?;
        context.remember_broken(name, &next);
        Ok(())
    }

    /// Writes the status if it changed, sends the events, sets the gauges of the conditions.
    async fn publish(
        &self,
        previous: Option<&CinderCSIDriverStatus>,
        next: &CinderCSIDriverStatus,
        mut notices: Vec<Notice>,
    ) -> Result<(), ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        for condition in &next.conditions {
            context.metrics.condition(name, &condition.type_, &condition.status);
        }
        if previous != Some(next) {
            context
                .writer
                .set_status(&self.driver.metadata, next)
                .await
                .map_err(ReconcileError::Status)?;
        }
        notices.extend(status::notices(previous, next));
        // It stays true for days: told once a day, and not as a change.
        notices.retain(|notice| notice.event != Event::CredentialsExpiring);
        let definition = context.cluster.wrong_definition();
        let definition = definition.map(|note| Notice::new(Event::CRDMismatch, note));
        for notice in [status::expiring(next), definition].into_iter().flatten() {
            context.events.publish_daily(&self.driver.object_ref(&()), notice).await;
        }
        for notice in notices {
            context.events.publish(&self.driver.object_ref(&()), notice).await;
        }
        Ok(())
    }
}

/// The problem of a kind that cannot be listed.
fn unlisted_kind(error: &ObserveError) -> Problem {
    let message = match error {
        ObserveError::List { plural, source } => format!("cannot list {plural}: {}", answer(source)),
        other => other.to_string(),
    };
    Problem {
        reason: Degraded::ReconcileFailed,
        message: format!(
            "{message}. Objects of this kind are neither written nor removed meanwhile; all others are maintained"
        ),
    }
}

/// The credentials that the driver has now: those in its own Secret.
fn last_good(owner: &Owner, live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    live.iter()
        .filter(|(key, secret)| key.kind == kind::SECRET && owner.owns(secret))
        .find_map(|(_, secret)| DriverCredentials::from_secret(&serde_json::from_value(secret.clone()).ok()?))
}

#[cfg(test)]
pub(crate) mod tests;
