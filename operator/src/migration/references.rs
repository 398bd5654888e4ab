// SPDX-License-Identifier: Apache-2.0
//! Reads the Secrets and zones that existing objects refer to, for the check before a migration. Also determines
//! whether the sidecars may read the Secrets.

use std::ops::ControlFlow;

use cinder_operator_core::{
    cluster::{OptionalApis, VolumeObject, annotated_secrets},
    migration::{
        check::CheckGap,
        secrets::{SecretAccess, SecretReferences, SecretScope, SidecarAccount},
        zones::{TOPOLOGY_ZONE, ZoneLabelFacts},
    },
};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::Node};
use kube::{
    Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta},
};
use serde::Deserialize;

use super::gaps::readable;
use crate::{
    kubernetes::{GuardedApi, answer, is_account_allowed},
    observe::{ObserveError, for_each_page},
};

/// Whether the API of a kind is served.
type IsServed = fn(OptionalApis) -> bool;

/// Kinds of snapshot contents. Their annotations name the Secret for the deletion.
const CONTENTS: [(&str, &str, IsServed); 2] = [
    ("snapshot.storage.k8s.io", "VolumeSnapshotContent", |apis| {
        apis.snapshots
    }),
    ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent", |apis| {
        apis.group_snapshots
    }),
];

/// A node with its labels only.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Node)]
pub(crate) struct LabelledNode {
    metadata: ObjectMeta,
}

/// Adds the Secrets and zone labels of a PersistentVolume of the driver.
pub(super) fn add_volume(volume: &VolumeObject, secrets: &mut SecretReferences, zones: &mut ZoneLabelFacts) {
    let name = volume.meta().name.as_deref().unwrap_or_default();
    secrets.add(&format!("PersistentVolume {name}"), volume.secret_references());
    for label in volume.label_values(TOPOLOGY_ZONE) {
        zones.add_volume(name, label);
    }
}

/// Adds the zone labels of the nodes.
pub(super) async fn node_labels(
    client: &Client,
    zones: &mut ZoneLabelFacts,
    gaps: &mut Vec<CheckGap>,
) -> Result<(), ObserveError> {
    let nodes: GuardedApi<LabelledNode> = GuardedApi::all(client.clone());
    for_each_page(&nodes, "nodes", |page| {
        for node in readable("Node", page, gaps) {
            if let Some(label) = node.labels().get(TOPOLOGY_ZONE) {
                zones.add_node(&node.name_any(), label);
            }
        }
        ControlFlow::Continue(())
    })
    .await
}

/// Adds the Secrets of contents of snapshots.
pub(super) async fn read_contents(
    client: &Client,
    driver: &str,
    apis: OptionalApis,
    secrets: &mut SecretReferences,
    gaps: &mut Vec<CheckGap>,
) -> Result<(), ObserveError> {
    for (group, kind, is_served) in CONTENTS {
        if !is_served(apis) {
            continue;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client.clone(), &resource);
        for_each_page(&api, &resource.plural, |page| {
            for object in readable(kind, page, gaps) {
                if object.data["spec"]["driver"] == driver {
                    let references = annotated_secrets(object.annotations());
                    secrets.add(&format!("{kind} {}", object.name_any()), references);
                }
            }
            ControlFlow::Continue(())
        })
        .await?;
    }
    Ok(())
}

/// Determines with access reviews whether the sidecars may read the Secrets.
pub async fn review_secrets(client: &Client, account: SidecarAccount, secrets: &mut SecretReferences) {
    for question in secrets.questions() {
        if !secrets.is_answered(&question) {
            let access = review(client, &account, &question).await;
            secrets.record(&question, access);
        }
    }
    secrets.account = account;
}

async fn review(client: &Client, account: &SidecarAccount, scope: &SecretScope) -> SecretAccess {
    let (namespace, secret) = match scope {
        SecretScope::Cluster => (None, None),
        SecretScope::Namespace(namespace) => (Some(namespace), None),
        SecretScope::Secret(secret) => (Some(&secret.namespace), Some(&secret.name)),
    };
    let right = ResourceAttributes {
        resource: Some("secrets".to_owned()),
        verb: Some("get".to_owned()),
        version: Some("v1".to_owned()),
        namespace: namespace.cloned(),
        name: secret.cloned(),
        ..ResourceAttributes::default()
    };
    match is_account_allowed(client, &account.namespace, &account.name, right).await {
        Ok(true) => SecretAccess::Allowed,
        Ok(false) => SecretAccess::Denied,
        Err(error) => SecretAccess::Unknown(answer(&error)),
    }
}
