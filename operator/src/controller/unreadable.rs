// SPDX-License-Identifier: Apache-2.0
//! Objects that this version of the operator cannot read, such as objects of a newer CustomResourceDefinition.

use cinder_csi_crds::{CinderCSIDriver, FINALIZER};
use cinder_operator_core::{
    cluster::{Owner, UndecodableObject},
    notice::Notice,
    reasons::Event,
    status,
};
use futures::TryFutureExt;
use kube::{
    Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;
use tracing::warn;

use super::Context;
use crate::{args::VERSION, error::ReconcileError, kubernetes::GuardedApi, leader::LeaderError, object_leases::Hold};

/// Reads the object again without its status, which the next status replaces. Reports an object that cannot be read even so.
pub(super) async fn without_status(
    invalid: &UndecodableObject,
    context: &Context,
) -> Result<CinderCSIDriver, ReconcileError> {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    let resource = ApiResource::erase::<CinderCSIDriver>(&());
    let api: GuardedApi<DynamicObject> = GuardedApi::all_with(context.client.clone(), &resource);
    let unreadable = ReconcileError::Unreadable(invalid.to_string());
    let Ok(Some(mut object)) = api.get_opt(name).await else {
        return Err(unreadable);
    };
    let status = object.data["status"].take();
    match serde_json::from_value(serde_json::to_value(&object)?) {
        Ok(driver) => Ok(driver),
        Err(error) => {
            report_unreadable(&object, &status, &error.to_string(), context).await;
            Err(unreadable)
        }
    }
}

/// Reports by status, event and metrics that the object cannot be read.
async fn report_unreadable(object: &DynamicObject, status: &Value, error: &str, context: &Context) {
    let is_kept =
        object.metadata.deletion_timestamp.is_some() && object.finalizers().iter().any(|one| one == FINALIZER);
    let message = format!(
        "the operator of version {VERSION} cannot read this object: {error}. Fix the field, or bring the operator and its \
         CustomResourceDefinition to the same version"
    );
    let (next, changed) = status::unreadable(
        status,
        object.metadata.generation,
        &message,
        is_kept,
        context.sources.now(),
    );
    let name = object.name_any();
    for condition in &changed {
        context.metrics.condition(&name, &condition.type_, &condition.status);
    }
    if next == *status {
        return;
    }
    let notice = Notice::new(Event::Unreadable, message);
    let resource = ApiResource::erase::<CinderCSIDriver>(&());
    context.events.publish(&object.object_ref(&resource), notice).await;
    let written = match acquire_lease(object, status, context).await {
        Ok(Hold::Held(guard)) => {
            let write = context.writer.set_status(&object.metadata, &next);
            guard.protect(write.map_err(ReconcileError::Status)).await
        }
        // Another operator has the Lease and writes the status.
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = written {
        warn!(driver = name, %error, "the status cannot say that the object cannot be read");
    }
}

/// Acquires the Lease of an object, as far as the object can be read.
async fn acquire_lease(object: &DynamicObject, status: &Value, context: &Context) -> Result<Hold, LeaderError> {
    let recorded = status["operandNamespace"].as_str();
    let namespace = recorded.or_else(|| object.data["spec"]["operandNamespace"].as_str());
    let namespace = namespace.unwrap_or(&context.namespace);
    if !context.serves(namespace) {
        return Ok(Hold::Unknown);
    }
    let owner = Owner {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    };
    context.leases.hold(&owner, namespace, recorded.is_some()).await
}
