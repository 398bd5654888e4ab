// SPDX-License-Identifier: Apache-2.0
//! Reads the classes of the driver with their parameters, including classes that users created.

use std::{collections::BTreeMap, ops::ControlFlow};

use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters, refusal},
    cluster::{KINDS, Kind, OptionalApis, secret_parameters},
    migration::check::CheckFacts,
};
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::gaps::readable;
use crate::{
    kubernetes::GuardedApi,
    observe::{ObserveError, for_each_page},
};

/// Reads the classes of a driver: their parameters, and the Secrets that they refer to.
pub(super) async fn read_classes(
    client: &Client,
    driver: &str,
    apis: OptionalApis,
    facts: &mut CheckFacts,
) -> Result<(), ObserveError> {
    for (kind, class) in served_classes(apis) {
        let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client.clone(), &kind.api_resource());
        for_each_page(&api, kind.plural, |page| {
            for object in readable(kind.kind, page, &mut facts.gaps) {
                if driver_in(class, &object.data) == Some(driver) {
                    add_class(class, &object, facts);
                }
            }
            ControlFlow::Continue(())
        })
        .await?;
    }
    Ok(())
}

fn add_class(kind: ClassKind, class: &DynamicObject, facts: &mut CheckFacts) {
    let name = class.name_any();
    let parameters = class.data["parameters"].as_object().into_iter().flatten();
    let parameters = parameters.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    let parameters: BTreeMap<String, String> = parameters.collect();
    let references = secret_parameters(&parameters);
    facts.secrets.add(&format!("{} {name}", kind.as_str()), references);
    facts.classes.push(ClassParameters {
        kind,
        name,
        keys: parameters.keys().cloned().collect(),
        refusal: refusal(kind, parameters),
    });
}

/// The kinds of classes that the cluster serves.
fn served_classes(apis: OptionalApis) -> impl Iterator<Item = (&'static Kind, ClassKind)> {
    let served = KINDS.iter().filter(move |kind| kind.is_served(apis));
    served.filter_map(|kind| Some((kind, class_kind(kind)?)))
}

/// Whether objects of a kind are classes with parameters of a driver.
fn class_kind(kind: &Kind) -> Option<ClassKind> {
    ClassKind::ALL.into_iter().find(|class| class.as_str() == kind.kind)
}

/// The driver that a class refers to.
fn driver_in(kind: ClassKind, class: &Value) -> Option<&str> {
    let field = match kind {
        ClassKind::StorageClass => "provisioner",
        ClassKind::VolumeSnapshotClass | ClassKind::VolumeGroupSnapshotClass => "driver",
        ClassKind::VolumeAttributesClass => "driverName",
    };
    class[field].as_str()
}
