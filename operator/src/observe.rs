// SPDX-License-Identifier: Apache-2.0
//! Reads the cluster: with watches for most objects ([`Cluster`]), and with requests where the result must be exact.

#[cfg(test)]
mod accepted_tests;
mod apis;
mod crd;
mod error;
mod leases;
mod own_pods;
mod pages;
mod revisions;
pub(crate) mod snapshot_controller;
mod users;
mod wake;
mod wake_watch;
mod watch_loop;
mod watches;

use std::collections::BTreeMap;

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::cluster::{KINDS, Key, Kind, OptionalApis, Owner, is_applied, is_copy};
use k8s_openapi::api::core::v1::PodSpec;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, TypeMeta},
};
use serde_json::Value;

pub use apis::discover;
pub(crate) use apis::watch_operands;
pub use error::ObserveError;
pub(crate) use leases::sidecar_leases;
pub use leases::{LeaseRenewals, leases_have_ended};
pub use own_pods::{pods_of, running_node_pods};
pub(crate) use pages::{decoded, for_each_page, list_matching, paged};
pub use revisions::{current_revision, newest_template};
pub(crate) use users::snapshot_contents;
pub use users::{attached_volumes, blockers, snapshots};
pub(crate) use wake::{ChangeReceiver, ChangeSender, Changes, change_channel};
pub(crate) use wake_watch::hear;
pub(crate) use watch_loop::{WatchHealth, WatchLoop};
pub use watches::Cluster;

use crate::kubernetes::{GuardedApi, api_for};

/// Lists the existing objects of this instance, by their label. Copies that other clients created are excluded, because
/// the operator may delete the returned objects when it does not need them. Kinds whose API is not served have no
/// objects.
pub async fn live(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    apis: OptionalApis,
) -> Result<BTreeMap<Key, Value>, ObserveError> {
    let mut live = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| kind.is_served(apis)) {
        live.extend(live_of(client, owner, namespace, kind).await?);
    }
    Ok(live)
}

/// Lists the existing objects of this instance, and tolerates failed lists of optional kinds. Returns their errors by
/// kind.
///
/// The content of such a kind is unknown. The driver works without it, and all other objects are maintained.
pub async fn live_parts(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    apis: OptionalApis,
) -> Result<(BTreeMap<Key, Value>, BTreeMap<&'static str, ObserveError>), ObserveError> {
    let (mut live, mut unlisted) = (BTreeMap::new(), BTreeMap::new());
    for kind in KINDS.iter().filter(|kind| kind.is_served(apis)) {
        match live_of(client, owner, namespace, kind).await {
            Ok(objects) => live.extend(objects),
            Err(error) if kind.optional.is_some() => drop(unlisted.insert(kind.kind, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((live, unlisted))
}

async fn live_of(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    kind: &'static Kind,
) -> Result<BTreeMap<Key, Value>, ObserveError> {
    let params = ListParams::default().labels(&format!("{INSTANCE_LABEL}={}", owner.name));
    let resource = kind.api_resource();
    let api: GuardedApi<DynamicObject> = if kind.namespaced {
        GuardedApi::namespaced_with(client.clone(), namespace, &resource)
    } else {
        GuardedApi::all_with(client.clone(), &resource)
    };
    let failed = |source| ObserveError::List {
        plural: kind.plural.to_owned(),
        source: Box::new(source),
    };
    let mut live = BTreeMap::new();
    for mut object in api.list(&params).await.map_err(failed)? {
        // Items of a list have no type.
        object.types = Some(TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        let key = Key::new(kind.kind, object.metadata.namespace.as_deref(), &object.name_any());
        let object = serde_json::to_value(&object)?;
        if is_applied(&object) && !is_copy(&object) {
            live.insert(key, object);
        }
    }
    Ok(live)
}

/// Adds the objects of these names that exist without the label. They belong to another client, or have lost the label.
pub async fn complete(client: &Client, live: &mut BTreeMap<Key, Value>, desired: &[Key]) -> Result<(), ObserveError> {
    for key in desired {
        if live.contains_key(key) {
            continue;
        }
        let failed = |source| ObserveError::Get {
            key: key.clone(),
            source: Box::new(source),
        };
        if let Some(object) = api_for(client, key)?.get_opt(&key.name).await.map_err(failed)? {
            live.insert(key.clone(), serde_json::to_value(&object)?);
        }
    }
    Ok(())
}

/// The pod spec in the template of a Deployment or DaemonSet.
pub fn pod_template(workload: &Value) -> Option<PodSpec> {
    serde_json::from_value(workload.pointer("/spec/template/spec")?.clone()).ok()
}
