//! Reconciles one `CinderCSIDriver`: observe → credentials → resolve → operands → plan → apply → status.
//!
//! Everything is derived anew from what exists; what is remembered between two reconciles only saves work.

mod context;
mod removal;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cinder_csi_crds::{CinderCSIDriver, ConditionType, FINALIZER, ManagementState};
use kube::{Resource, ResourceExt, core::DeserializeGuard, runtime::controller::Action};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

pub use context::{Context, Parts};

use crate::{
    apply::carry_out,
    credentials::{Source, Verdict},
    error::ReconcileError,
    events::Notice,
    objects::{Key, Owner, kind},
    observe::{self, NodesView, view},
    operands::{DriverCredentials, operands},
    plan::{Desired, plan},
    resolve::{Resolved, resolve},
    status::{self, CloudView, Removal, Seen, Workload},
};

/// The object as it is watched: one that cannot be read must not stop the others.
pub type Watched = DeserializeGuard<CinderCSIDriver>;

/// First pause after a failed reconcile; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause after a failed reconcile.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Pause before another look at what stands in the way.
const OBSTACLE_PAUSE: Duration = Duration::from_secs(10);

/// Reconciles one object, within the time that a reconcile has.
pub async fn reconcile(driver: Arc<Watched>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let begun = Instant::now();
    let limit = context.reconcile_timeout;
    let result = match &driver.0 {
        Ok(driver) => tokio::time::timeout(limit, reconcile_one(driver, &context))
            .await
            .unwrap_or(Err(ReconcileError::TimedOut(limit))),
        Err(invalid) => {
            let note = format!(
                "the object cannot be read: {invalid}; apply the CustomResourceDefinition of this operator's version and mend the \
                 object"
            );
            context
                .events
                .publish(&driver.object_ref(&()), Notice::warning("Unreadable", "Observe", note))
                .await;
            Ok(Action::await_change())
        }
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
    let pass = Pass {
        driver,
        context,
        owner: owner_of(driver),
    };
    let wish = wish(driver);
    debug!(driver = pass.owner.name, ?wish, "reconcile");
    match wish {
        Wish::Nothing => {
            context.forget(driver);
            Ok(Action::await_change())
        }
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
                    context.forget(driver);
                    return Ok(Action::await_change());
                }
            }
            pass.maintain(None, true).await
        }
        Wish::Watch => pass.maintain(None, false).await,
        Wish::Hold => pass.maintain(Some(Removal::Held), false).await,
        Wish::Remove { finalize } => pass.remove(finalize).await,
    }
}

fn owner_of(driver: &CinderCSIDriver) -> Owner {
    Owner {
        name: driver.name_any(),
        uid: driver.uid().unwrap_or_default(),
    }
}

/// When to look again. What stands in the way is not ours and so not watched: its end is seen by looking.
fn next_look(seen: &Seen, otherwise: Duration) -> Duration {
    if seen.obstacles.is_empty() && seen.problems.is_empty() {
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
}

impl Pass<'_> {
    /// Makes what is wanted (or only looks, without `may_write`), and says how it is.
    async fn maintain(&self, removal: Option<Removal>, may_write: bool) -> Result<Action, ReconcileError> {
        let context = self.context;
        let mut live = observe::live(&context.client, &self.owner, &context.namespace, context.cluster.apis()).await?;
        let mut seen = Seen { removal, ..self.seen() };
        let (credentials, look_again) = self.check_credentials(&live, &mut seen).await;
        let mut notices = Vec::new();
        match resolve(self.driver, &context.environment().await?) {
            Err(problems) => seen.problems = problems,
            Ok(resolved) => {
                let desired = desired(&resolved, credentials.as_ref())?;
                let keys: Vec<Key> = desired.iter().map(|desired| desired.key.clone()).collect();
                observe::complete(&context.client, &mut live, &keys).await?;
                let mut unrepairable = context.unrepairable(&self.owner.name);
                // Without credentials the list of what is wanted is not complete.
                let plan = plan(&self.owner, &desired, &live, &unrepairable, credentials.is_some());
                seen.obstacles.clone_from(&plan.obstacles);
                if may_write {
                    let outcome = carry_out(&context.writer, &plan, &mut unrepairable).await;
                    context.remember_unrepairable(&self.owner.name, unrepairable);
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
                    notices = outcome.notices;
                }
            }
        }
        self.look_at(&live, &mut seen);
        let look_again = next_look(&seen, look_again);
        self.tell(&seen, notices).await?;
        if let Some(failure) = seen.failures.first() {
            return Err(ReconcileError::Write {
                key: failure.key.clone(),
                message: failure.message.clone(),
            });
        }
        Ok(Action::requeue(look_again))
    }

    /// What is known without looking at the driver's objects.
    fn seen(&self) -> Seen {
        let name = &self.owner.name;
        Seen {
            generation: self.driver.metadata.generation,
            state: self.driver.spec.management_state,
            volumes: self.context.cluster.read(|index| index.volumes_of(name)),
            attachments: self.context.cluster.read(|index| index.attachments_of(name)),
            ..Seen::default()
        }
    }

    /// Checks the credentials of the cloud; returns what the driver is to be given and when to look again.
    async fn check_credentials(
        &self,
        live: &BTreeMap<Key, Value>,
        seen: &mut Seen,
    ) -> (Option<DriverCredentials>, Duration) {
        let context = self.context;
        let last_good = last_good(live);
        let Some(cloud) = self.driver.spec.clouds.first() else {
            return (last_good, context.idle_interval);
        };
        let source = Source::new(&context.namespace, cloud);
        let candidate = source.read(&context.client).await;
        let Verdict {
            authenticated,
            refusal,
            in_use,
            look_again,
        } = context
            .checker
            .check(&self.owner.name, &source, candidate, last_good)
            .await;
        context.metrics.credential(&self.owner.name, &cloud.name, authenticated);
        seen.clouds = vec![CloudView {
            name: cloud.name.clone(),
            authenticated,
            refusal,
            hash: in_use.as_ref().map(|credentials| credentials.short_hash().to_owned()),
        }];
        (in_use, look_again)
    }

    /// Reads the state of controller and nodes from what exists.
    fn look_at(&self, live: &BTreeMap<Key, Value>, seen: &mut Seen) {
        let of = |wanted: &str| {
            live.iter()
                .find(|(key, object)| key.kind == wanted && self.owner.owns(object))
                .map(|(_, object)| object)
        };
        seen.controller = of(kind::DEPLOYMENT).map(Workload::of_deployment);
        let daemon_set = of(kind::DAEMON_SET);
        seen.daemon_set = daemon_set.map(Workload::of_daemon_set);
        seen.nodes = daemon_set
            .and_then(observe::pod_template)
            .map_or_else(NodesView::default, |template| {
                let name = &self.owner.name;
                self.context
                    .cluster
                    .read(|index| view(&index.nodes(), &template, &index.registered_on(name)))
            });
    }

    /// Writes the status if it changed, sends the events, sets the gauges.
    async fn tell(&self, seen: &Seen, mut notices: Vec<Notice>) -> Result<(), ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let previous = self.driver.status.as_ref();
        let next = status::status(previous, seen, k8s_openapi::jiff::Timestamp::now());
        for condition in &next.conditions {
            context.metrics.condition(name, &condition.type_, &condition.status);
        }
        context.metrics.nodes(name, seen.nodes.desired, seen.nodes.registered);
        let is_blocked = seen.removal == Some(Removal::Blocked);
        let blockers = |names: &[String]| if is_blocked { names.len() } else { 0 };
        context
            .metrics
            .deletion_blockers(name, "PersistentVolume", blockers(&seen.volumes));
        context
            .metrics
            .deletion_blockers(name, "VolumeAttachment", blockers(&seen.attachments));
        if previous != Some(&next) {
            context
                .writer
                .set_status(self.driver, &next)
                .await
                .map_err(ReconcileError::Status)?;
        }
        notices.extend(status::notices(previous, &next));
        for notice in notices {
            context.events.publish(&self.driver.object_ref(&()), notice).await;
        }
        Ok(())
    }
}

/// The objects that are wanted. Without credentials the controller is left out: it would only fail, and one that runs with
/// older credentials must not be touched.
fn desired(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Desired>, ReconcileError> {
    let operands = operands(resolved, credentials)?;
    let wanted = operands
        .iter()
        .filter(|operand| credentials.is_some() || operand.kind.kind != kind::DEPLOYMENT);
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

/// The names of all conditions, for forgetting their gauges.
fn condition_names() -> Vec<&'static str> {
    ConditionType::ALL.iter().map(|type_| type_.as_str()).collect()
}

#[cfg(test)]
mod tests;
