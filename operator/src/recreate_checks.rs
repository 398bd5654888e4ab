// SPDX-License-Identifier: Apache-2.0
//! May an object be recreated now? The plan says what should be; this looks up what uses the object, and would miss it.
//!
//! * A CSIDriver must not be missed by an attachment that is under way: the attach-detach controller would take the driver for
//!   one without attachments.
//! * A VolumeAttributesClass must not change under a claim or a volume that refers to it: they would say something else than
//!   what they are.

use std::collections::BTreeMap;

use cinder_operator_core::{
    cluster::{AttachmentObject, ClaimObject, Key, VolumeObject, kind},
    notice::Notice,
    plan::{Action, Plan},
    reasons::Event,
    text::join_truncated,
};
use kube::Client;

use crate::{
    kubernetes::GuardedApi,
    observe::{Cluster, ObserveError, paged},
};

/// The objects that a plan recreates and that are in use, and what uses them. What the watches know to be in the way costs no request: it may
/// be there for days. That nothing is, the API server says.
pub async fn in_use(
    client: &Client,
    cluster: &Cluster,
    driver: &str,
    plan: &Plan,
) -> Result<BTreeMap<Key, String>, ObserveError> {
    let mut in_use = BTreeMap::new();
    for action in &plan.actions {
        let Action::Recreate { desired, .. } = action else {
            continue;
        };
        let key = &desired.key;
        let what = match key.kind {
            kind::CSI_DRIVER => attachments_under_way(client, cluster, driver).await?,
            kind::ATTRIBUTES_CLASS => references(client, cluster, &key.name).await?,
            _ => None,
        };
        in_use.extend(what.map(|what| (key.clone(), what)));
    }
    Ok(in_use)
}

async fn attachments_under_way(
    client: &Client,
    cluster: &Cluster,
    driver: &str,
) -> Result<Option<String>, ObserveError> {
    let mut found = cluster.read(|index| index.attachments_under_way(driver));
    if found.is_empty() {
        let attachments: GuardedApi<AttachmentObject> = GuardedApi::all(client.clone());
        let is_meant = |attachment: &AttachmentObject| attachment.is_under_way_of(driver);
        found = paged(&attachments, "volumeattachments", is_meant).await?;
    }
    Ok((!found.is_empty()).then(|| format!("VolumeAttachments are under way: {}", join_truncated(&found))))
}

async fn references(client: &Client, cluster: &Cluster, class: &str) -> Result<Option<String>, ObserveError> {
    let mut volumes = cluster.read(|index| index.volumes_with_attributes(class));
    if volumes.is_empty() {
        let claims = claims(client, |claim| claim.refers_to(class)).await?;
        if !claims.is_empty() {
            return Ok(Some(format!(
                "PersistentVolumeClaims refer to it: {}",
                join_truncated(&claims)
            )));
        }
        let all: GuardedApi<VolumeObject> = GuardedApi::all(client.clone());
        volumes = paged(&all, "persistentvolumes", |volume: &VolumeObject| {
            volume.refers_to(class)
        })
        .await?;
    }
    Ok((!volumes.is_empty()).then(|| format!("PersistentVolumes refer to it: {}", join_truncated(&volumes))))
}

/// A word about claims that wait for a StorageClass which is about to be removed.
pub async fn pre_delete_events(client: &Client, plan: &Plan) -> Result<Vec<Notice>, ObserveError> {
    let mut notices = Vec::new();
    for action in &plan.actions {
        let Action::Prune {
            key: Key {
                kind: kind::STORAGE_CLASS,
                name,
                ..
            },
            ..
        } = action
        else {
            continue;
        };
        let waiting = claims(client, |claim| claim.waits_for_class(name)).await?;
        if !waiting.is_empty() {
            let note = format!(
                "StorageClass {name} goes, and these claims that wait for it get no volume before there is one of that name again: {}",
                join_truncated(&waiting)
            );
            notices.push(Notice::new(Event::ClaimsWithoutClass, note));
        }
    }
    Ok(notices)
}

async fn claims(client: &Client, is_meant: impl Fn(&ClaimObject) -> bool) -> Result<Vec<String>, ObserveError> {
    let claims: GuardedApi<ClaimObject> = GuardedApi::all(client.clone());
    paged(&claims, "persistentvolumeclaims", is_meant).await
}
