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

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverStatus, FINALIZER, ManagementState};
use cinder_operator_core::{
    class_parameters::unknown_parameters,
    cluster::{Blockers, Key, NodesView, OptionalApi, Owner, kind, view},
    manifests::{DriverCredentials, Operand, operands, overridden},
    notice::Notice,
    plan::{Desired, plan},
    problem::Problem,
    reasons::Event,
    resolve::{Resolved, namespace_of, resolve},
    rollout::hold_back,
    status::{self, ClassesView, MonitoringView, PodsView, Removal, Seen, Workload},
    text::listed,
};
use kube::{Resource, ResourceExt, core::DeserializeGuard, runtime::controller::Action};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

pub(crate) use classes::{leave_alone, look_at_own};
pub use context::{Context, Memories};

use adoption::Adoption;
use clouds::Checked;
use rollout::is_controller_done;

use crate::{
    apply::{Records, carry_out},
    error::ReconcileError,
    guard, observe, startup_taint,
};

/// The object as it is watched: one that cannot be read must not stop the others.
pub type Watched = DeserializeGuard<CinderCSIDriver>;

/// First pause after a failed reconcile; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause after a failed reconcile.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// By so much later than something ends is looked again.
const A_MOMENT: Duration = Duration::from_millis(100);
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
                Pass::of(driver, &context).tell_failure(error).await;
            }
            result
        }
        Err(error) => Err(error),
    };
    context
        .metrics
        .reconciled(if result.is_ok() { "success" } else { "error" }, begun.elapsed());
    if result.is_ok() {
        context.forgive(&driver.name_any());
    }
    result
}

/// Says when a failed reconcile is tried again.
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it with these types")]
pub fn error_policy(driver: Arc<Watched>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let failures = context.blame(&driver.name_any());
    let pause = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_PAUSE);
    warn!(driver = driver.name_any(), %error, pause = ?pause, "reconcile failed");
    Action::requeue(pause)
}

/// What the object asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
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

fn wish(driver: &CinderCSIDriver) -> Wish {
    let is_deleted = driver.metadata.deletion_timestamp.is_some();
    let is_kept = driver.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    match (driver.spec.management_state, is_deleted) {
        (_, true) if !is_kept => Wish::Nothing,
        (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, true) => Wish::Hold,
        (_, true) => Wish::Remove { finalize: true },
        (ManagementState::Managed, false) => Wish::Manage,
        (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, false) => Wish::Watch,
        (ManagementState::Removed, false) => Wish::Remove { finalize: false },
    }
}

async fn reconcile_one(driver: &CinderCSIDriver, context: &Context) -> Result<Action, ReconcileError> {
    let pass = Pass::of(driver, context);
    let wish = wish(driver);
    debug!(driver = pass.owner.name, ?wish, "reconcile");
    if wish == Wish::Nothing {
        context.forget(&pass.owner.name);
        return Ok(Action::await_change());
    }
    if let Some(problem) = namespace::unserved(driver, context) {
        return pass.stand_still(problem).await;
    }
    if !matches!(wish, Wish::Remove { .. })
        && let Some(done) = pass.look_at_volumes_alone().await
    {
        return done;
    }
    // On the heap: every reconcile that waits would be as large as the largest of them.
    match Box::pin(pass.carry_out(wish)).await {
        Err(ReconcileError::Observe(error)) => match namespace::forbidden(driver, context, &error) {
            Some(problem) => pass.stand_still(problem).await,
            None => Err(error.into()),
        },
        other => other,
    }
}

impl Pass<'_> {
    async fn carry_out(&self, wish: Wish) -> Result<Action, ReconcileError> {
        let (pass, driver, context) = (self, self.driver, self.context);
        match wish {
            Wish::Nothing => Ok(Action::await_change()),
            Wish::Manage => {
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
                pass.maintain(pass.seen(), true).await
            }
            Wish::Watch => pass.maintain(pass.seen(), false).await,
            Wish::Hold => {
                let held = Seen {
                    removal: Some(Removal::Held),
                    ..pass.seen()
                };
                pass.maintain(held, false).await
            }
            Wish::Remove { finalize } => Box::pin(pass.remove(finalize)).await,
        }
    }

    /// Where the driver runs.
    fn namespace(&self) -> &str {
        namespace_of(self.driver, &self.context.namespace)
    }

    /// Changes nothing, looks at nothing, and says why.
    async fn stand_still(&self, problem: Problem) -> Result<Action, ReconcileError> {
        let mut seen = self.seen();
        seen.problems.push(problem);
        let previous = self.driver.status.as_ref();
        let next = status::unseen(previous, &seen, self.context.sources.now());
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
fn next_look(seen: &Seen, otherwise: Duration) -> Duration {
    let otherwise = [
        seen.opens_in,
        seen.nodes.look_again,
        seen.node_rollout.as_ref().and_then(|nodes| nodes.look_again),
    ]
    .into_iter()
    .flatten()
    .fold(otherwise, Duration::min)
    // A moment later, so that it is over then.
    .saturating_add(A_MOMENT);
    if !seen.blockers.are_unwatched() && seen.obstacles.is_empty() && seen.problems.is_empty() {
        otherwise
    } else {
        otherwise.min(OBSTACLE_PAUSE)
    }
}

/// One reconcile of one object.
struct Pass<'a> {
    driver: &'a CinderCSIDriver,
    context: &'a Context,
    owner: Owner,
    /// How often a look at everything had been called for when it began.
    calls: u64,
}

impl<'a> Pass<'a> {
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

impl Pass<'_> {
    /// Makes what is wanted (or only looks, without `may_write`), and says how it is.
    async fn maintain(&self, mut seen: Seen, may_write: bool) -> Result<Action, ReconcileError> {
        let context = self.context;
        let mut live = observe::live(&context.client, &self.owner, self.namespace(), context.cluster.apis()).await?;
        let Checked {
            wanted: credentials,
            has,
            look_again,
        } = self.check_credentials(&live, &mut seen, may_write).await;
        let classes = observe::class_parameters(&context.client, &self.owner.name, context.cluster.apis()).await?;
        seen.unknown_parameters = Some(unknown_parameters(&classes));
        let mut notices = Vec::new();
        let mut adoption = Adoption::default();
        let mut failed = None;
        let mut environment = context.environment(&self.owner.name, self.namespace()).await?;
        self.complete(&mut environment, &live).await;
        let resolved = resolve(self.driver, &environment)
            .and_then(|resolved| Ok((resolved, self.window().map_err(|problem| vec![problem])?)));
        let (resolved, window) = resolved.map_err(|problems| seen.problems = problems).ok().unzip();
        if let (Some(resolved), Some(window)) = (&resolved, &window) {
            let overridden = overridden(resolved, credentials.as_ref())?;
            seen.pods = Some(PodsView::of(resolved, environment.kubernetes_version, overridden));
            seen.classes = Some(ClassesView::new(resolved));
            let desired = desired(resolved, credentials.as_ref())?;
            let keys: Vec<Key> = desired.iter().map(|desired| desired.key.clone()).collect();
            observe::complete(&context.client, &mut live, &keys).await?;
            leave_alone(resolved, &desired, &mut live);
            adoption = Box::pin(self.look_for_installation(
                &mut live,
                Some(resolved),
                &desired,
                credentials.is_some(),
                &mut seen,
            ))
            .await?;
            // Not before: what is taken up only now has a version too.
            seen.gate = self.gate(&live, &resolved.version, window.as_ref());
            let unrepairable = context.unrepairable(&self.owner.name);
            // Without credentials or zones the list of what is wanted is not complete.
            let is_complete = credentials.is_some() && resolved.topology.is_decided;
            let mut plan = plan(
                &self.owner,
                &desired,
                &live,
                &unrepairable,
                is_complete,
                Instant::now().into_std(),
            );
            guard::hold_back(&context.client, &context.cluster, &self.owner.name, &mut plan).await?;
            seen.obstacles.clone_from(&plan.obstacles);
            seen.findings = Box::pin(self.check_adoption(&plan)).await;
            // Before it is compared: what has to wait for its time is no drift. A dry run tells all that is to come.
            if let Some(takeover) = adoption
                .takeover
                .as_ref()
                .filter(|_| seen.state != ManagementState::DryRun)
            {
                takeover.hold_back(&mut plan);
            }
            self.compare(&plan, &live, &mut seen);
            if may_write {
                notices.extend(self.restore(&mut plan, &seen.gate).await?);
                hold_back(&mut plan, &seen.gate, &live, is_controller_done(&live));
                let last_words = guard::last_words(&context.client, &plan).await?;
                let outcome = carry_out(&context.writer, &plan, &live, Records::of(self.driver).only(&keys)).await;
                context.remember_unrepairable(&self.owner.name, outcome.left);
                outcome
                    .repaired
                    .iter()
                    .for_each(|kind| context.metrics.drift_repaired(&self.owner.name, kind));
                for (key, object) in outcome.written {
                    match object {
                        Some(object) => live.insert(key, object),
                        None => live.remove(&key),
                    };
                }
                seen.failures = outcome.failures;
                notices.extend(last_words);
                notices.extend(outcome.notices);
                if seen.failures.is_empty() || adoption.is_returning() {
                    match self.take_over(&adoption, &mut seen).await {
                        Ok(done) => notices.extend(done),
                        Err(error) => failed = Some(error),
                    }
                }
                notices.extend(self.free_nodes(resolved).await);
            }
            // What is missing after that, the operator itself has taken away.
            let kept = if adoption.is_returning() { &[] } else { keys.as_slice() };
            self.remember_objects(kept, &live, &seen.failures);
        } else if self.may_have_stopped() {
            adoption = Box::pin(self.look_for_installation(&mut live, None, &[], false, &mut seen)).await?;
            if may_write {
                match self.take_over(&adoption, &mut seen).await {
                    Ok(done) => notices.extend(done),
                    Err(error) => failed = Some(error),
                }
            }
        }
        self.look_at(&live, &mut seen);
        if let (Some(controller), Some(resolved)) = (&mut seen.controller, &resolved) {
            controller.wants(resolved.controller.sidecars.iter().map(|sidecar| sidecar.component));
        }
        let may_roll = may_write && failed.is_none();
        match self
            .roll_nodes(&live, resolved.as_ref(), may_roll, &adoption, &mut seen)
            .await
        {
            Ok(done) => notices.extend(done),
            Err(error @ ReconcileError::ReplacePod { .. }) => failed = Some(error),
            Err(error) => return Err(error),
        }
        // Told with all that was seen.
        seen.problems.extend(failed.as_ref().map(ReconcileError::problem));
        let soon = self.confirm_reload(&mut seen, has.as_ref(), may_write).await;
        let soon = soon.into_iter().chain(self.takeover_pause(&adoption, may_write)).min();
        seen.has_topology = resolved.as_ref().is_some_and(|resolved| resolved.topology.enabled);
        let of_volumes = self.look_at_volumes(&mut seen);
        self.remind_of_types(&seen).await;
        let of_classes = classes::next_look(&seen, self).unwrap_or(look_again);
        let look_again = next_look(&seen, soon.unwrap_or(look_again).min(look_again).min(of_classes));
        self.tell(&seen, notices).await?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(failure) = seen.failures.first() {
            return Err(ReconcileError::Write {
                key: failure.key.clone(),
                message: failure.message.clone(),
            });
        }
        if adoption.takeover.is_some() {
            // It goes on with the attachments.
            let soon = of_volumes.map(|soon| soon.saturating_add(A_MOMENT));
            return Ok(Action::requeue(soon.map_or(look_again, |soon| soon.min(look_again))));
        }
        Ok(self.until_next_look(seen, of_volumes, look_again))
    }

    /// Takes the startup taint away from nodes where the driver is registered by now.
    async fn free_nodes(&self, resolved: &Resolved) -> Option<Notice> {
        let key = resolved.node.startup_taint.as_deref()?;
        let name = &self.owner.name;
        let ready = self
            .context
            .cluster
            .read(|index| startup_taint::ready_nodes(&index.nodes(), &index.registered_on(name), key));
        let freed = startup_taint::free(&self.context.client, &ready, key).await;
        if let Some((node, message)) = freed.failed.first() {
            let note = format!(
                "taint {key} of node {node} cannot be taken away, it is tried again: {message}. The right for it comes with `kubectl apply -k \
                 config/rbac/startup-taint`, or the chart's value rights.startupTaint"
            );
            return Some(Notice::new(Event::StartupTaintLeft, note));
        }
        (!freed.nodes.is_empty()).then(|| {
            let note = format!(
                "the driver is registered, and taint {key} was taken away: {}",
                listed(&freed.nodes)
            );
            Notice::new(Event::StartupTaintRemoved, note)
        })
    }

    /// What is known without looking at the driver's objects.
    fn seen(&self) -> Seen {
        let name = &self.owner.name;
        Seen {
            generation: self.driver.metadata.generation,
            state: self.driver.spec.management_state,
            is_deleted: self.driver.metadata.deletion_timestamp.is_some(),
            deletion_policy: self.driver.spec.deletion.policy,
            count: self.context.cluster.read(|index| index.count_of(name)),
            monitoring: MonitoringView {
                mode: self.driver.spec.monitoring.mode,
                served: self.context.cluster.apis().has(OptionalApi::Monitoring),
            },
            ..Seen::default()
        }
    }

    /// Reads the state of controller and nodes from what exists.
    fn look_at(&self, live: &BTreeMap<Key, Value>, seen: &mut Seen) {
        let of = |wanted: &str| {
            live.iter()
                .find(|(key, object)| key.kind == wanted && self.owner.owns(object))
                .map(|(_, object)| object)
        };
        seen.controller = of(kind::DEPLOYMENT).map(Workload::of_deployment);
        Self::look_at_classes(live, seen);
        let daemon_set = of(kind::DAEMON_SET);
        let (deadline, now) = (self.context.registration_deadline, self.context.sources.now());
        seen.daemon_set = daemon_set.map(Workload::of_daemon_set);
        seen.nodes = daemon_set
            .and_then(observe::pod_template)
            .map_or_else(NodesView::default, |template| {
                let name = &self.owner.name;
                self.context
                    .cluster
                    .read(|index| view(&index.nodes(), &template, &index.registered_on(name), deadline, now))
            });
    }

    /// Tells all that was seen: in the status, by events and gauges.
    async fn tell(&self, seen: &Seen, notices: Vec<Notice>) -> Result<(), ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let previous = self.driver.status.as_ref();
        let now = context.sources.now();
        let next = status::status(previous, seen, now);
        context.metrics.seen(name, seen, now);
        self.tell_claims(seen).await;
        self.remind_of_parameters(seen).await;
        context.metrics.nodes(name, seen.nodes.desired, seen.nodes.registered);
        let is_blocked = seen.removal == Some(Removal::Blocked);
        for kind in Blockers::KINDS {
            let of_kind = seen.blockers.by_kind().find(|(known, _)| *known == kind);
            let count = of_kind.map_or(0, |(_, names)| names.len());
            let count = if is_blocked { count } else { 0 };
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
            context.events.remind(&self.driver.object_ref(&()), notice).await;
        }
        for notice in notices {
            context.events.publish(&self.driver.object_ref(&()), notice).await;
        }
        Ok(())
    }
}

/// The objects that are wanted. Without credentials the controller is left out: it would only fail, and one that runs with
/// older credentials must not be touched. Controller and nodes wait until it is known whether zones are used.
fn desired(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Desired>, ReconcileError> {
    let operands = operands(resolved, credentials)?;
    let waits = |operand: &&Operand| match operand.kind.kind {
        kind::DEPLOYMENT => credentials.is_none() || !resolved.topology.is_decided,
        kind::DAEMON_SET => !resolved.topology.is_decided,
        _ => false,
    };
    let wanted = operands.iter().filter(|operand| !waits(operand));
    wanted
        .map(|operand| Desired::from_operand(operand).map_err(ReconcileError::Encode))
        .collect()
}

/// The credentials that the driver has now: those in its own Secret.
fn last_good(live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    live.iter()
        .filter(|(key, _)| key.kind == kind::SECRET)
        .find_map(|(_, secret)| DriverCredentials::from_secret(&serde_json::from_value(secret.clone()).ok()?))
}

#[cfg(test)]
pub(crate) mod tests;
