// SPDX-License-Identifier: Apache-2.0
//! Selects the mode of a reconcile, and executes it under the Lease of the object.

use cinder_csi_crds::{CinderCSIDriver, FINALIZER, ManagementState};
use kube::{ResourceExt, runtime::controller::Action};

use super::{
    context::Context,
    driver_ref::DriverRef,
    maintain::maintain,
    namespace::{self, Residence},
    pauses::LEASE_PAUSE,
    relocation,
    removal::remove,
    suspension::{self, suspend},
};
use crate::{error::ReconcileError, object_leases::Hold};

/// The task of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconcileMode {
    /// Install and maintain the driver.
    Manage,
    /// Observe and report, without a write to the driver's objects.
    Watch,
    /// The same while the object is being deleted and its spec forbids changes. The finalizer remains.
    Hold,
    /// Remove the driver, and with `finalize` the finalizer of the object as well.
    Remove { finalize: bool },
    /// The object is being deleted, without the finalizer of the operator.
    Nothing,
}

impl ReconcileMode {
    /// The mode by the spec and the deletion of an object.
    pub(super) fn of(driver: &CinderCSIDriver) -> Self {
        let is_deleted = driver.metadata.deletion_timestamp.is_some();
        let has_finalizer = driver.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        match (driver.spec.management_state, is_deleted) {
            (_, true) if !has_finalizer => Self::Nothing,
            (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, true) => Self::Hold,
            (_, true) => Self::Remove { finalize: true },
            (ManagementState::Managed, false) => Self::Manage,
            (ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged, false) => Self::Watch,
            (ManagementState::Removed, false) => Self::Remove { finalize: false },
        }
    }
}

/// Executes a mode under the Lease of the object, unless the driver runs in another namespace.
pub(super) async fn execute_with_lease(
    context: &Context,
    driver: &DriverRef<'_>,
    mode: ReconcileMode,
) -> Result<Action, ReconcileError> {
    let name = &driver.owner.name;
    let is_new = match namespace::find_residence(context, driver).await? {
        Residence::Elsewhere(elsewhere) if mode == ReconcileMode::Manage && relocation::may_relocate(driver) => {
            return Box::pin(relocation::relocate(context, driver, elsewhere)).await;
        }
        Residence::Elsewhere(elsewhere) => return suspension::suspend_elsewhere(context, driver, elsewhere).await,
        Residence::New => true,
        Residence::Here => false,
    };
    let guard = match context.leases.hold(&driver.owner, driver.namespace, !is_new).await {
        Ok(Hold::Held(guard)) => guard,
        Ok(Hold::By(lease)) => return Ok(suspension::suspend_beside(context, driver, &lease).await),
        Ok(Hold::Unknown) => return Ok(Action::requeue(LEASE_PAUSE)),
        // A Lease cannot be created in such a namespace, and the driver's objects are deleted with the namespace.
        Err(error) if matches!(mode, ReconcileMode::Remove { .. }) && error.is_in_terminating_namespace() => {
            return Box::pin(execute(context, driver, mode, is_new, false)).await;
        }
        Err(error) => return Err(error.into()),
    };
    context.memory(name, |memory| memory.suspension.end());
    let action = guard
        .protect(Box::pin(execute(context, driver, mode, is_new, true)))
        .await?;
    if action == Action::await_change() && mode != (ReconcileMode::Remove { finalize: false }) {
        context.leases.delete(name).await;
    }
    Ok(action)
}

/// Executes a mode. Without the Lease, a blocked removal changes nothing.
async fn execute(
    context: &Context,
    driver: &DriverRef<'_>,
    mode: ReconcileMode,
    is_new: bool,
    has_lease: bool,
) -> Result<Action, ReconcileError> {
    match mode {
        ReconcileMode::Nothing => Ok(Action::await_change()),
        ReconcileMode::Manage => {
            // Set before any object is created, so that a deletion at this moment removes them.
            if !driver
                .object
                .finalizers()
                .iter()
                .any(|finalizer| finalizer == FINALIZER)
            {
                let is_there = context
                    .writer
                    .set_finalizer(driver.object, true)
                    .await
                    .map_err(ReconcileError::Finalizer)?;
                if !is_there {
                    // No deletion would remove objects that are created now.
                    context.forget(&driver.owner.name);
                    return Ok(Action::await_change());
                }
            }
            if is_new && let Some(elsewhere) = namespace::claim_namespace(context, driver).await? {
                let namespace = elsewhere.only_namespace();
                return suspend(context, driver, elsewhere.problem.clone(), namespace).await;
            }
            relocation::end_relocation(context, driver).await?;
            maintain(context, driver, None, has_lease).await
        }
        ReconcileMode::Watch | ReconcileMode::Hold => maintain(context, driver, None, has_lease).await,
        ReconcileMode::Remove { finalize } => Box::pin(remove(context, driver, finalize, has_lease)).await,
    }
}
