// SPDX-License-Identifier: Apache-2.0
//! The records of a driver outside its Secret: where it runs, and where its volumes are.

use std::collections::BTreeMap;

use cinder_csi_crds::ConditionType;
use cinder_operator_core::{
    cluster::{Key, KubernetesVersion, OptionalApi, OptionalApis, Owner, kind},
    decide::{Decision, Existing, ProjectGuard},
    manifests::{DriverCredentials, cloud_config_name_of, workload_keys},
    reasons::{CredentialsValid, Reason},
    record::{DriverRecord, PlaceRecord},
    resolve::name_prefix_of,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{context::Context, driver_ref::DriverRef};
use crate::{error::ReconcileError, observe, openstack::MOVE_PROJECT};

/// Adds objects without their label: the objects that decide about credentials, and the workloads.
pub(super) async fn find_unlabelled(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &mut BTreeMap<Key, Value>,
) -> Result<(), ReconcileError> {
    let secret = cloud_config_name_of(driver.object);
    let mut keys = vec![
        Key::new(kind::SECRET, Some(driver.namespace), &secret),
        Key::new(kind::CSI_DRIVER, None, &driver.owner.name),
    ];
    keys.extend(workload_keys(driver.namespace, &name_prefix_of(driver.object)));
    Ok(observe::complete(&context.client, live, &keys).await?)
}

/// The version of Kubernetes and the optional APIs that the driver uses; none before it has pods. The status records the confirmed ones,
/// and each workload records the ones of its pods.
pub(super) fn known_apis(
    driver: &DriverRef<'_>,
    existing: Existing<'_>,
) -> (Option<KubernetesVersion>, Option<OptionalApis>) {
    if !existing.is_installed() {
        return (None, None);
    }
    let (status, inputs) = (driver.object.status.as_ref(), existing.inputs());
    let version = status.and_then(|status| KubernetesVersion::read(status.kubernetes_version.as_ref()?));
    let apis = status.and_then(|status| status.optional_apis.as_ref());
    let apis = apis.map(|names| {
        let is_named = |api: &OptionalApi| names.iter().any(|name| name == api.as_str());
        OptionalApi::ALL.into_iter().filter(is_named).collect()
    });
    let of_pods = inputs.as_ref();
    (
        version.or_else(|| of_pods?.kubernetes),
        apis.or_else(|| Some(of_pods?.apis)),
    )
}

/// Whether the driver has these credentials now.
pub(super) fn has_credentials(
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
    credentials: Option<&DriverCredentials>,
) -> bool {
    let stored = last_good(&driver.owner, live);
    let stored = stored.as_ref().map(DriverCredentials::hash);
    credentials.is_none_or(|credentials| stored == Some(credentials.hash()))
}

/// The record for the status. `places` is the new record once the driver has the credentials of these projects; else the previous one
/// remains.
pub(super) fn driver_record(
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
    places: Option<&PlaceRecord>,
    decision: &Decision,
) -> DriverRecord {
    let status = driver.object.status.as_ref();
    let is_operand = |(key, object): (&Key, &Value)| key.kind == kind::CSI_DRIVER && driver.owner.owns(object);
    let here = driver.namespace;
    let before = status.and_then(|status| status.operand_namespace.clone());
    DriverRecord {
        namespace: if decision.read_only() {
            before.or_else(|| live.iter().any(is_operand).then(|| here.to_owned()))
        } else {
            Some(here.to_owned())
        },
        places: match places {
            Some(places) => places.for_status(),
            None => status.map(|status| status.places.clone()).unwrap_or_default(),
        },
    }
}

/// Whether the annotation that confirms a move is set. `is_moved` indicates that the move was carried out now.
pub(super) fn project_guard(driver: &DriverRef<'_>, is_moved: bool) -> ProjectGuard {
    match may_move(driver) {
        false => ProjectGuard::On,
        true if is_moved || was_moved(driver) => ProjectGuard::Moved,
        true => ProjectGuard::Off,
    }
}

/// Whether the annotation is still set after a move that the status reports: an earlier process did not remove it.
pub(super) fn was_moved(driver: &DriverRef<'_>) -> bool {
    let status = driver.object.status.as_ref();
    let condition = status.and_then(|status| status.condition(ConditionType::CredentialsValid));
    may_move(driver) && condition.is_some_and(|condition| CredentialsValid::ProjectMoved.is(condition))
}

/// Removes the annotation that confirmed a move, once the move is recorded everywhere: the guard is on again.
pub(super) async fn end_move(context: &Context, driver: &DriverRef<'_>) -> Result<(), ReconcileError> {
    let removed = context.writer.remove_annotation(driver.object, MOVE_PROJECT).await;
    removed.map_err(ReconcileError::Confirmation)
}

/// The credentials in the driver's own Secret.
pub(super) fn last_good(owner: &Owner, live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    live.iter()
        .filter(|(key, secret)| key.kind == kind::SECRET && owner.owns(secret))
        .find_map(|(_, secret)| DriverCredentials::from_secret(&serde_json::from_value(secret.clone()).ok()?))
}

/// Whether an administrator has confirmed a change of project or region by an annotation with the uid of the object.
pub(super) fn may_move(driver: &DriverRef<'_>) -> bool {
    let annotation = driver.object.annotations().get(MOVE_PROJECT);
    annotation.is_some_and(|uid| *uid == driver.owner.uid)
}

/// The existing records of project and region.
pub(super) fn place_record(driver: &DriverRef<'_>, live: &BTreeMap<Key, Value>) -> PlaceRecord {
    let key = Key::new(kind::CSI_DRIVER, None, &driver.owner.name);
    PlaceRecord::read(driver.object.status.as_ref(), live.get(&key))
}
