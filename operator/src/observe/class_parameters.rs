// SPDX-License-Identifier: Apache-2.0
//! The classes of the driver with their parameters, whoever made them.

use std::{collections::BTreeMap, ops::ControlFlow};

use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters, refusal},
    cluster::{KINDS, Kind, OptionalApis},
};
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::{ObserveError, pages};
use crate::kubernetes::GuardedApi;

/// Lists the classes of a driver. Adds classes that cannot be decoded to `undecodable`, each with the reason.
pub(super) async fn class_parameters(
    client: &Client,
    driver: &str,
    apis: OptionalApis,
    undecodable: &mut Vec<(String, String)>,
) -> Result<Vec<ClassParameters>, ObserveError> {
    let mut found = Vec::new();
    for (kind, class) in served_classes(apis) {
        found.extend(list_classes(client, kind, class, driver, undecodable).await?);
    }
    Ok(found)
}

/// The kinds of classes that the cluster serves.
pub(super) fn served_classes(apis: OptionalApis) -> impl Iterator<Item = (&'static Kind, ClassKind)> {
    let served = KINDS.iter().filter(move |kind| kind.is_served(apis));
    served.filter_map(|kind| Some((kind, class_kind(kind)?)))
}

/// The classes of one kind of a driver, asked of the API server.
async fn list_classes(
    client: &Client,
    kind: &Kind,
    class: ClassKind,
    driver: &str,
    undecodable: &mut Vec<(String, String)>,
) -> Result<Vec<ClassParameters>, ObserveError> {
    let mut found = Vec::new();
    let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client.clone(), &kind.api_resource());
    pages(&api, kind.plural, |page| {
        for object in page {
            match object.0 {
                Ok(object) if driver_in(class, &object.data) == Some(driver) => {
                    found.push(parameters_of(class, &object));
                }
                Ok(_) => {}
                Err(object) => undecodable.push((format!("{} {}", kind.kind, object.key()), object.to_string())),
            }
        }
        ControlFlow::Continue(())
    })
    .await?;
    Ok(found)
}

/// Whether objects of a kind are classes with parameters of a driver.
fn class_kind(kind: &Kind) -> Option<ClassKind> {
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

fn parameters_of(kind: ClassKind, class: &DynamicObject) -> ClassParameters {
    let parameters = class.data["parameters"].as_object().into_iter().flatten();
    let parameters = parameters.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    let parameters: BTreeMap<String, String> = parameters.collect();
    ClassParameters {
        kind,
        name: class.name_any(),
        keys: parameters.keys().cloned().collect(),
        refusal: refusal(kind, parameters),
    }
}
