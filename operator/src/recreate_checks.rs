// SPDX-License-Identifier: Apache-2.0
//! Determines whether an object can be recreated now. The plan contains the desired objects; this module determines the
//! users of the objects to recreate.
//!
//! * A CSIDriver must not be missing while an attachment is in progress: the attach-detach controller would assume a
//!   driver without attachments.
//! * A VolumeAttributesClass must not change while a claim or a volume refers to it: they would refer to parameters
//!   that they do not have.

use std::collections::BTreeMap;

use cinder_operator_core::{
    cluster::{AttachedNodes, AttachmentObject, ClaimObject, Key, VolumeObject, kind},
    notice::Notice,
    plan::{Action, Plan},
    reasons::Event,
    text::join_truncated,
};
use kube::Client;
use tracing::warn;

use crate::{
    kubernetes::{GuardedApi, answer},
    observe::{Cluster, ObserveError, attached_volumes, paged},
};

/// The users of objects that are to be recreated. Users that the watches know cost no request: they may remain for days. Only the API
/// server can confirm that an object has no users. Where they cannot be read, the object counts as in use.
pub async fn uses(client: &Client, cluster: &Cluster, driver: &str, keys: &[Key]) -> BTreeMap<Key, Option<String>> {
    let mut uses = BTreeMap::new();
    for key in keys {
        let found = match key.kind {
            kind::CSI_DRIVER => attachments_under_way(client, cluster, driver).await,
            kind::ATTRIBUTES_CLASS => references(client, cluster, &key.name).await,
            _ => Ok(None),
        };
        uses.insert(key.clone(), found.unwrap_or_else(|error| Some(unknown(&error))));
    }
    uses
}

/// The message about objects that cannot be read.
fn unknown(error: &ObserveError) -> String {
    match error {
        ObserveError::List { plural, source } => format!("{plural} cannot be listed ({})", answer(source)),
        other => other.to_string(),
    }
}

/// The nodes with attached volumes. The index is sufficient if it contains a node that the plan would exclude;
/// otherwise the API server is read.
pub async fn attached_nodes(
    client: &Client,
    cluster: &Cluster,
    driver: &str,
    is_lost: impl Fn(&AttachedNodes) -> bool,
) -> AttachedNodes {
    let known = cluster.read(|index| index.attached_nodes(driver, index.attached_volumes(driver)));
    let known = AttachedNodes::Known(known);
    if is_lost(&known) {
        return known;
    }
    match attached_volumes(client, driver).await {
        Ok(attached) => AttachedNodes::Known(cluster.read(|index| index.attached_nodes(driver, attached))),
        Err(error) => AttachedNodes::Unknown(unknown(&error)),
    }
}

async fn attachments_under_way(
    client: &Client,
    cluster: &Cluster,
    driver: &str,
) -> Result<Option<String>, ObserveError> {
    let mut names = cluster.read(|index| index.attachments_under_way(driver));
    if names.is_empty() {
        let attachments: GuardedApi<AttachmentObject> = GuardedApi::all(client.clone());
        let is_match = |attachment: &AttachmentObject| attachment.is_under_way_of(driver);
        names = paged(&attachments, "volumeattachments", is_match).await?;
    }
    Ok((!names.is_empty()).then(|| format!("VolumeAttachments are under way: {}", join_truncated(&names))))
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

/// Reports claims that wait for a StorageClass that the plan removes. The result is only an event: a failed list of
/// claims does not prevent a write.
pub async fn pre_delete_events(client: &Client, plan: &Plan) -> Vec<Notice> {
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
        let waiting = match claims(client, |claim| claim.waits_for_class(name)).await {
            Ok(waiting) => waiting,
            Err(error) => {
                warn!(class = name, %error, "cannot list the claims that wait for a StorageClass");
                continue;
            }
        };
        if !waiting.is_empty() {
            let note = format!(
                "StorageClass {name} goes, and these claims that wait for it get no volume before there is one of that name again: {}",
                join_truncated(&waiting)
            );
            notices.push(Notice::new(Event::ClaimsWithoutClass, note));
        }
    }
    notices
}

async fn claims(client: &Client, is_match: impl Fn(&ClaimObject) -> bool) -> Result<Vec<String>, ObserveError> {
    let claims: GuardedApi<ClaimObject> = GuardedApi::all(client.clone());
    paged(&claims, "persistentvolumeclaims", is_match).await
}
