//! The classes of the driver with their parameters, whoever made them.

use std::ops::ControlFlow;

use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{KINDS, Kind, OptionalApis},
};
use kube::{Api, Client, ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::{ObserveError, pages};

/// The classes of a driver.
pub(crate) async fn class_parameters(
    client: &Client,
    driver: &str,
    apis: OptionalApis,
) -> Result<Vec<ClassParameters>, ObserveError> {
    let mut found = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.is_served(apis)) {
        let Some(class) = class_kind(kind) else { continue };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api_resource());
        pages(&api, kind.plural, |page| {
            let ours = page
                .iter()
                .filter(|object| driver_in(class, &object.data) == Some(driver));
            found.extend(ours.map(|object| ClassParameters {
                kind: class,
                name: object.name_any(),
                uid: object.uid().unwrap_or_default(),
                keys: keys_in(&object.data),
            }));
            ControlFlow::Continue(())
        })
        .await?;
    }
    Ok(found)
}

/// Whether objects of a kind are classes with parameters of a driver.
pub(super) fn class_kind(kind: &Kind) -> Option<ClassKind> {
    ClassKind::ALL.into_iter().find(|class| class.as_str() == kind.kind)
}

/// The driver that a class is for.
pub(super) fn driver_in(kind: ClassKind, class: &Value) -> Option<&str> {
    let field = match kind {
        ClassKind::StorageClass => "provisioner",
        ClassKind::VolumeSnapshotClass | ClassKind::VolumeGroupSnapshotClass => "driver",
        ClassKind::VolumeAttributesClass => "driverName",
    };
    class[field].as_str()
}

fn keys_in(class: &Value) -> Vec<String> {
    let parameters = class["parameters"].as_object().into_iter().flatten();
    parameters.map(|(key, _)| key.clone()).collect()
}
