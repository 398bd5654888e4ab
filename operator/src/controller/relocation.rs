// SPDX-License-Identifier: Apache-2.0
//! Moves a driver to the namespace of this operator, as an administrator has confirmed.
//!
//! While this operator holds the Lease in the recorded namespace, it ends the pods there and deletes all that the driver has there. Only
//! then it records the new namespace. A process that ends in between leaves records that disagree, and the annotation: the next one
//! continues.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::DeletionPolicy;
use cinder_operator_core::{
    cluster::{Blockers, Key, kind},
    manifests::OPERAND_NAMESPACE_ANNOTATION,
    notice::Notice,
    problem::Problem,
    reasons::Degraded,
    releases::COMPONENTS,
    removal::{Remains, Step, next_step},
    resolve::resolve,
};
use kube::{ResourceExt, runtime::controller::Action};
use serde_json::Value;

use super::{
    LEASE_PAUSE, OBSTACLE_PAUSE, Reconciliation,
    namespace::Elsewhere,
    owner_of,
    removal::{LOOK_AGAIN, MOST_STEPS, drain_timeout},
};
use crate::{credentials::Source, error::ReconcileError, object_leases::Hold, observe};

/// Annotation with the uid of the object: confirms that the driver moves to the namespace of the operator.
pub(super) const MOVE_NAMESPACE: &str = "csi.openstack.org/move-namespace";

impl Reconciliation<'_> {
    /// Whether an administrator has confirmed, on this very object, that the driver moves.
    pub(super) fn may_relocate(&self) -> bool {
        self.driver.annotations().get(MOVE_NAMESPACE) == Some(&self.owner.uid)
    }

    /// Removes the confirmation of a move that is complete.
    pub(super) async fn end_relocation(&self) -> Result<(), ReconcileError> {
        if !self.may_relocate() {
            return Ok(());
        }
        let removed = self.context.writer.remove_annotation(self.driver, MOVE_NAMESPACE).await;
        removed.map_err(ReconcileError::Confirmation)
    }

    /// Moves the driver from its recorded namespaces to this one.
    pub(super) async fn relocate(&self, elsewhere: Elsewhere) -> Result<Action, ReconcileError> {
        let (context, here) = (self.context, self.namespace);
        let former: Vec<&String> = elsewhere.namespaces.iter().filter(|name| *name != here).collect();
        let [from] = former.as_slice() else {
            return self.suspend_elsewhere(elsewhere).await;
        };
        if let Some(obstacle) = self.relocation_obstacle(from).await {
            return self.suspend(obstacle, Some(from)).await;
        }
        let guard = match context.leases.hold(&self.owner, from, true).await? {
            Hold::Held(guard) => guard,
            Hold::By(_) => return self.suspend_elsewhere(elsewhere).await,
            Hold::Unknown => return Ok(Action::requeue(LEASE_PAUSE)),
        };
        let there = Reconciliation {
            driver: self.driver,
            context,
            owner: owner_of(self.driver),
            namespace: from,
            calls: self.calls,
        };
        let evacuate = async {
            if let Some(action) = there.evacuate(here).await? {
                return Ok(Some(action));
            }
            let claimed = context.writer.claim_namespace(self.driver, here, Some(from)).await;
            claimed.map_err(ReconcileError::Status)?;
            Ok::<_, ReconcileError>(None)
        };
        if let Some(action) = guard.protect(evacuate).await? {
            return Ok(action);
        }
        match context.leases.hold(&self.owner, here, false).await? {
            Hold::Held(guard) => guard.protect(self.record_relocation()).await,
            _ => Ok(Action::requeue(LEASE_PAUSE)),
        }
    }

    /// What prevents a move: nothing is stopped before the driver can run here.
    async fn relocation_obstacle(&self, from: &str) -> Option<Problem> {
        let (context, here) = (self.context, self.namespace);
        let problem = |message: String| Problem {
            reason: Degraded::OperandsElsewhere,
            message: format!("the move of the driver from namespace {from} to {here} has not begun: {message}"),
        };
        if !context.serves(from) {
            return Some(problem(format!(
                "the operator does not serve namespace {from}; start it with --operand-namespaces={from} and its role there"
            )));
        }
        for cloud in &self.driver.spec.clouds {
            let source = Source::new(here, cloud).with_options_of(&self.driver.spec);
            if let Err(error) = source.read(&context.client).await {
                return Some(problem(error.message.clone()));
            }
        }
        None
    }

    /// Deletes all that the driver has in this namespace, its pods first. Returns `None` when nothing is there.
    async fn evacuate(&self, target: &str) -> Result<Option<Action>, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let environment = context.environment(self.namespace, self.driver, (None, None)).await?;
        let resolved = resolve(self.driver, &environment).ok();
        let mut notices = Vec::new();
        for _ in 0..MOST_STEPS {
            let apis = context.cluster.apis();
            let mut live = observe::live(&context.client, &self.owner, self.namespace, apis).await?;
            self.find_by_name(&mut live, resolved.as_ref()).await?;
            live.retain(|key, _| key.namespace.as_deref() == Some(self.namespace));
            // The operator itself deletes the objects from now on.
            context.remember_objects(name, |_| BTreeSet::new());
            let what = match self.evacuation_step(&live).await? {
                Step::Delete { objects } => {
                    self.delete(objects, &mut notices).await?;
                    continue;
                }
                Step::Abandon { objects, nodes } => {
                    self.abandon(objects, &nodes, &mut notices).await?;
                    continue;
                }
                Step::Finished => {
                    self.delete_sidecar_leases().await?;
                    self.report_evacuation(target, "the new record", notices).await?;
                    return Ok(None);
                }
                Step::Wait { what } => what,
                other => format!("{other:?}"),
            };
            self.report_evacuation(target, &what, notices).await?;
            return Ok(Some(Action::requeue(LOOK_AGAIN)));
        }
        Ok(Some(Action::requeue(LOOK_AGAIN)))
    }

    async fn evacuation_step(&self, live: &BTreeMap<Key, Value>) -> Result<Step, ReconcileError> {
        let stranded = self.stranded(live).await?;
        Ok(next_step(&Remains {
            blockers: &Blockers::default(),
            policy: DeletionPolicy::Force,
            is_forced: true,
            drain_timeout: drain_timeout(&self.driver.spec.deletion),
            live,
            // The kubelets keep the registration for the next pods.
            registered: &[],
            out_of_reach: &[],
            stranded: &stranded,
            can_unregister: false,
            now: self.context.sources.now(),
        }))
    }

    /// Deletes the Leases of sidecars whose pods have ended.
    async fn delete_sidecar_leases(&self) -> Result<(), ReconcileError> {
        let names = COMPONENTS.iter().filter_map(|sidecar| sidecar.lease(&self.owner.name));
        for name in names {
            let deleted = self.context.writer.delete_lease(self.namespace, &name).await;
            deleted.map_err(|source| ReconcileError::Delete {
                key: Key::new("Lease", Some(self.namespace), &name),
                source,
            })?;
        }
        Ok(())
    }

    async fn report_evacuation(&self, target: &str, what: &str, notices: Vec<Notice>) -> Result<(), ReconcileError> {
        let problem = Problem {
            reason: Degraded::OperandsElsewhere,
            message: format!(
                "the driver moves from namespace {} to {target}, as the annotation {MOVE_NAMESPACE} confirms; the move waits for {what}",
                self.namespace
            ),
        };
        let next = self.suspended_status(problem);
        self.publish(self.driver.status.as_ref(), &next, notices).await
    }

    /// Completes the records of the new namespace, and removes the confirmation.
    async fn record_relocation(&self) -> Result<Action, ReconcileError> {
        let key = Key::new(kind::CSI_DRIVER, None, &self.owner.name);
        let writer = &self.context.writer;
        let annotated = writer
            .annotate(&key, OPERAND_NAMESPACE_ANNOTATION, self.namespace)
            .await;
        annotated.map_err(|error| ReconcileError::Write {
            key,
            message: error.to_string(),
        })?;
        self.end_relocation().await?;
        Ok(Action::requeue(OBSTACLE_PAUSE))
    }
}
