// SPDX-License-Identifier: Apache-2.0
//! Objects that this version of the operator cannot read, such as those of a newer CustomResourceDefinition.

use cinder_csi_crds::{CinderCSIDriver, FINALIZER};
use cinder_operator_core::{cluster::UndecodableObject, notice::Notice, reasons::Event, status};
use kube::{
    Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;
use tracing::warn;

use super::Context;
use crate::{args::VERSION, error::ReconcileError, kubernetes::GuardedApi};

/// Reads the object again without its status, which the next one replaces. Where the rest cannot be read, the status says so.
pub(super) async fn without_status(
    invalid: &UndecodableObject,
    context: &Context,
) -> Result<CinderCSIDriver, ReconcileError> {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    let resource = ApiResource::erase::<CinderCSIDriver>(&());
    let api: GuardedApi<DynamicObject> = GuardedApi::all_with(context.client.clone(), &resource);
    let unreadable = ReconcileError::Unreadable(invalid.to_string());
    // It is tried again.
    let Ok(Some(mut object)) = api.get_opt(name).await else {
        return Err(unreadable);
    };
    let status = object.data["status"].take();
    match serde_json::from_value(serde_json::to_value(&object)?) {
        Ok(driver) => Ok(driver),
        Err(error) => {
            report(&object, &status, &error.to_string(), context).await;
            Err(unreadable)
        }
    }
}

/// Says in status, event and gauges what cannot be read.
async fn report(object: &DynamicObject, status: &Value, error: &str, context: &Context) {
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
    if let Err(error) = context.writer.set_status(&object.metadata, &next).await {
        warn!(driver = name, %error, "the status cannot say that the object cannot be read");
    }
}
