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
mod removal;
mod rollout;
mod unreadable;
mod volumes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cinder_csi_crds::{AdoptionFinding, CinderCSIDriver, CinderCSIDriverStatus, FINALIZER, ManagementState};
use kube::{Resource, ResourceExt, runtime::controller::Action};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

pub(crate) use classes::{exclude_unmanaged, observe_owned};
pub use context::{Context, Memories};

use adoption::Adoption;
use cinder_operator_core::{
    class_parameters::unknown_parameters,
    cluster::{Blockers, GuardedObject, Key, NodesView, OptionalApi, Owner, kind, view},
    decide::{
        ClusterView, Decision, Facts, Intent, Lookups, MonitoringView, ObjectFacts, Outcome, Removal, Report,
        Situation, VolumeFacts, Workload, decide, draft, intend,
    },
    manifests::DriverCredentials,
    notice::Notice,
    problem::Problem,
    reasons::Event,
    resolve::{Resolved, namespace_of},
    status,
    text::join_truncated,
};
use clouds::Checked;

use crate::{
    apply::{Records, apply_plan},
    error::ReconcileError,
    observe, recreate_checks, startup_taint,
};

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

/// Reconciles one object, within the time that a reconcile has.
pub async fn reconcile(driver: Arc<Watched>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let begun = Instant::now();
    context.begin(&driver.name_any());
    let limit = context.reconcile_timeout;
    let without_status;
    let readable = match &driver.0 {
        Ok(driver) => Ok(driver),
        Err(invalid) => {
            let read = tokio::time::timeout(limit, unreadable::without_status(invalid, &context)).await;
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
            let result = tokio::time::timeout(limit, reconcile_one(driver, &context))
                .await
                .unwrap_or(Err(ReconcileError::TimedOut(limit)));
            if let Err(error) = &result {
                Reconciliation::of(driver, &context).report_error(error).await;
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
        return Ok(Action::await_change());
    }
    if let Some(problem) = namespace::unserved(driver, context) {
        return pass.suspend(problem).await;
    }
    if !matches!(mode, ReconcileMode::Remove { .. })
        && let Some(done) = pass.reconcile_volumes_only().await
    {
        return done;
    }
    // On the heap: every reconcile that waits would be as large as the largest of them.
    match Box::pin(pass.execute(mode)).await {
        Err(ReconcileError::Observe(error)) => match namespace::forbidden(driver, context, &error) {
            Some(problem) => pass.suspend(problem).await,
            None => Err(error.into()),
        },
        other => other,
    }
}

impl Reconciliation<'_> {
    async fn execute(&self, mode: ReconcileMode) -> Result<Action, ReconcileError> {
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
                pass.maintain(None, true).await
            }
            ReconcileMode::Watch => pass.maintain(None, false).await,
            ReconcileMode::Hold => pass.maintain(Some(Removal::Held), false).await,
            ReconcileMode::Remove { finalize } => Box::pin(pass.remove(finalize)).await,
        }
    }

    /// Where the driver runs.
    fn namespace(&self) -> &str {
        namespace_of(self.driver, &self.context.namespace)
    }

    /// Changes nothing, looks at nothing, and says why.
    async fn suspend(&self, problem: Problem) -> Result<Action, ReconcileError> {
        let report = Report {
            facts: self.facts(),
            decision: Decision {
                problems: vec![problem],
                ..Decision::default()
            },
            ..Report::default()
        };
        let previous = self.driver.status.as_ref();
        let next = status::not_reconciled(previous, &report, self.context.sources.now());
        self.publish(previous, &next, Vec::new()).await?;
        Ok(Action::requeue(OBSTACLE_PAUSE))
    }
}

fn owner_of(driver: &CinderCSIDriver) -> Owner {
    Owner {
        name: driver.name_any(),
        uid: driver.uid().unwrap_or_default(),
    }
}

/// When to look again. What stands in the way is not ours and so not watched: its end is seen by looking. Nor is time.
fn next_look(report: &Report, otherwise: Duration) -> Duration {
    let Report { decision, outcome, .. } = report;
    let otherwise = [
        decision.opens_in,
        outcome.nodes.look_again,
        outcome.node_rollout.as_ref().and_then(|nodes| nodes.look_again),
    ]
    .into_iter()
    .flatten()
    .fold(otherwise, Duration::min)
    // A moment later, so that it is over then.
    .saturating_add(RECHECK_MARGIN);
    let is_unwatched = matches!(&decision.removal, Some(Removal::Blocked(blockers)) if blockers.are_unwatched());
    if is_unwatched || report.is_held_up() {
        otherwise.min(OBSTACLE_PAUSE)
    } else {
        otherwise
    }
}

/// One reconcile of one object.
struct Reconciliation<'a> {
    driver: &'a CinderCSIDriver,
    context: &'a Context,
    owner: Owner,
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
        }
    }
}

/// What came of acting, with what only this reconcile needs.
struct Acted {
    outcome: Outcome,
    notices: Vec<Notice>,
    /// Why the reconcile is tried again.
    failed: Option<ReconcileError>,
    /// When to ask the controller's pods again.
    soon: Option<Duration>,
}

impl Reconciliation<'_> {
    /// Makes what is wanted (or only looks, without `may_write`), and says how it is.
    async fn maintain(&self, removal: Option<Removal>, may_write: bool) -> Result<Action, ReconcileError> {
        let context = self.context;
        let mut live = observe::live(&context.client, &self.owner, self.namespace(), context.cluster.apis()).await?;
        let Checked {
            clouds,
            needed,
            health,
            wanted,
            has,
            look_again,
        } = self.check_credentials(&live, may_write).await;
        let classes = context
            .cluster
            .class_parameters(&context.client, &self.owner.name)
            .await?;
        let mut environment = context.environment(&self.owner.name, self.namespace()).await?;
        self.complete(&mut environment, &live).await;
        let intent = intend(self.driver, &environment, wanted.as_ref())?;
        if let Ok(intent) = &intent {
            observe::complete(&context.client, &mut live, &intent.keys()).await?;
            exclude_unmanaged(&intent.resolved, &intent.desired, &mut live);
        }
        let adoption = if intent.is_ok() || self.may_have_stopped() {
            Box::pin(self.look_for_installation(&mut live, intent.as_ref().ok())).await?
        } else {
            Adoption::default()
        };
        let (decision, findings) = match &intent {
            Ok(intent) => Box::pin(self.decide(intent, &live, &adoption, removal, may_write)).await?,
            Err(problems) => {
                let decision = Decision {
                    problems: [problems.as_slice(), &adoption.problems].concat(),
                    migration: adoption.migration.clone(),
                    removal,
                    ..Decision::default()
                };
                (decision, Vec::new())
            }
        };
        let facts = Facts {
            health,
            clouds,
            needed_clouds: needed,
            unknown_parameters: Some(unknown_parameters(&classes)),
            findings,
            ..self.facts()
        };
        let intent = intent.as_ref().ok();
        let Acted {
            outcome,
            notices,
            failed,
            soon,
        } = Box::pin(self.act(intent, &decision, &adoption, has.as_ref(), live, may_write)).await?;
        let (volumes, of_volumes) = self.observe_volumes(&facts, &outcome);
        let report = Report {
            facts: Facts { volumes, ..facts },
            decision,
            outcome,
        };
        self.report_left_out_types(&report).await;
        let soon = soon.into_iter().chain(self.migration_pause(&adoption, may_write)).min();
        let of_classes = classes::next_look(&report, self).unwrap_or(look_again);
        let look_again = next_look(&report, soon.unwrap_or(look_again).min(look_again).min(of_classes));
        self.report_status(&report, notices).await?;
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

    /// Decides what is done now, and looks up what a plan needs to know; also what would change if another installation that is left
    /// alone were replaced.
    async fn decide(
        &self,
        intent: &Intent,
        live: &BTreeMap<Key, Value>,
        adoption: &Adoption,
        removal: Option<Removal>,
        may_write: bool,
    ) -> Result<(Decision, Vec<AdoptionFinding>), ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let situation = Situation {
            driver: self.driver,
            owner: &self.owner,
            intent,
            live,
            unapplied: &context.unapplied(name),
            now: context.sources.now(),
            instant: Instant::now().into_std(),
        };
        let draft = draft(&situation);
        let in_use = recreate_checks::in_use(&context.client, &context.cluster, name, &draft.plan).await?;
        let findings = Box::pin(self.check_adoption(&draft.plan)).await;
        let templates = if may_write {
            self.newest_templates(&draft).await?
        } else {
            BTreeMap::new()
        };
        let lookups = Lookups {
            in_use,
            templates,
            migration: adoption.migration.clone(),
            migration_problems: adoption.problems.clone(),
            removal,
            known: self.known_objects(&draft),
            may_write,
        };
        Ok((decide(&situation, draft, lookups), findings))
    }

    /// Does what was decided, and reads how the driver is after it.
    async fn act(
        &self,
        intent: Option<&Intent>,
        decision: &Decision,
        adoption: &Adoption,
        credentials: Option<&DriverCredentials>,
        mut live: BTreeMap<Key, Value>,
        may_write: bool,
    ) -> Result<Acted, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let (mut failures, mut problems, mut failed) = (Vec::new(), Vec::new(), None);
        let mut notices = decision.notices.clone();
        let keys = intent.map(Intent::keys).unwrap_or_default();
        if may_write && intent.is_some() {
            notices.extend(recreate_checks::pre_delete_events(&context.client, &decision.plan).await?);
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
            notices.extend(applied.notices);
        }
        if may_write && (failures.is_empty() || adoption.is_returning()) {
            match self.migrate(adoption, &mut notices).await {
                Ok(refused) => problems.extend(refused),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(intent) = intent {
            if may_write {
                notices.extend(self.remove_startup_taints(&intent.resolved).await);
            }
            // What is missing after that, the operator itself has taken away.
            let kept = if adoption.is_returning() { &[] } else { keys.as_slice() };
            self.remember_objects(kept, &live, &failures);
        }
        let mut outcome = Outcome {
            failures,
            ..self.observe_workloads(&live)
        };
        if let (Some(controller), Some(intent)) = (&mut outcome.controller, intent) {
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
        outcome.node_rollout = self.judge_nodes(&live, intent, may_replace, adoption).await?;
        if let Some(rollout) = &outcome.node_rollout {
            match self.replace(rollout).await {
                Ok(replaced) => notices.extend(replaced),
                Err(error) => failed = Some(error),
            }
        }
        problems.extend(failed.as_ref().map(ReconcileError::problem));
        outcome.problems = problems;
        let soon = self.confirm_reload(&mut outcome, credentials, may_write).await;
        Ok(Acted {
            outcome,
            notices,
            failed,
            soon,
        })
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
                    all.map(|(kind, name, reason)| format!("{kind} {}: {reason}", name.escape_debug()))
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
        let (deadline, now) = (self.context.registration_deadline, self.context.sources.now());
        let classes = live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
        Outcome {
            controller: of(kind::DEPLOYMENT).map(Workload::of_deployment),
            daemon_set: daemon_set.map(Workload::of_daemon_set),
            nodes: daemon_set
                .and_then(observe::pod_template)
                .map_or_else(NodesView::default, |template| {
                    let name = &self.owner.name;
                    self.context
                        .cluster
                        .read(|index| view(&index.nodes(), &template, &index.registered_on(name), deadline, now))
                }),
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
        context.metrics.seen(name, report, now);
        self.report_to_claims(report).await;
        self.report_unknown_parameters(report).await;
        let nodes = &report.outcome.nodes;
        context.metrics.nodes(name, nodes.desired, nodes.registered);
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

/// The credentials that the driver has now: those in its own Secret.
fn last_good(live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    live.iter()
        .filter(|(key, _)| key.kind == kind::SECRET)
        .find_map(|(_, secret)| DriverCredentials::from_secret(&serde_json::from_value(secret.clone()).ok()?))
}

#[cfg(test)]
pub(crate) mod tests;
