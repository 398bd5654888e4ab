// SPDX-License-Identifier: Apache-2.0
//! external-attacher: the lifecycle of a VolumeAttachment.

use std::collections::BTreeMap;

use csi_proto::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
};
use tonic::Code;

use super::Claim;
use crate::call::{Call, Sidecar};
use crate::cluster::{Answer, Cluster, Controller};
use crate::ledger::AttachmentState;

/// Publishes a volume and returns the publish context. Dropping the future deletes the VolumeAttachment: the running
/// call ends, and the caller must call [`detach`].
pub(super) async fn attach(cluster: &Cluster, claim: &Claim, server: &str) -> BTreeMap<String, String> {
    let (volume, limit) = (claim.volume.as_str(), claim.limit);
    let pair = (volume.to_owned(), server.to_owned());
    cluster
        .ledger
        .book()
        .attachments
        .insert(pair.clone(), AttachmentState::Asked);
    let publish = || {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            volume_capability: Some(claim.capability()),
            secrets: claim.secrets.clone(),
            ..ControllerPublishVolumeRequest::default()
        };
        let call = async |mut client: Controller, request| client.controller_publish_volume(request).await;
        cluster.controller(Sidecar::Attacher, limit, request, call)
    };
    let end = |answer: Answer<ControllerPublishVolumeResponse>| match answer {
        Ok(ControllerPublishVolumeResponse { publish_context }) => {
            let schedule = &cluster.schedule;
            schedule.note(&format!("volume {volume} is attached to {server}"));
            cluster.judge.published(volume, server, &publish_context);
            let mut book = cluster.ledger.book();
            book.attachments.insert(pair.clone(), AttachmentState::Made);
            Some(publish_context)
        }
        Err((Code::NotFound, message)) => {
            let judge = &cluster.judge;
            judge.not_found("ControllerPublishVolume", volume, Some(server), &message);
            None
        }
        Err(_) => None,
    };
    let call = Call::Publish {
        volume: volume.to_owned(),
        server: server.to_owned(),
    };
    cluster.repeat(call, publish, end).await
}

/// Unpublishes a volume in any state of its attachment.
pub(super) async fn detach(cluster: &Cluster, claim: &Claim, server: &str) {
    let (volume, limit) = (claim.volume.as_str(), claim.limit);
    let pair = (volume.to_owned(), server.to_owned());
    cluster
        .ledger
        .book()
        .attachments
        .insert(pair.clone(), AttachmentState::Leaving);
    let unpublish = || {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            secrets: claim.secrets.clone(),
        };
        let call = async |mut client: Controller, request| client.controller_unpublish_volume(request).await;
        cluster.controller(Sidecar::Attacher, limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        let schedule = &cluster.schedule;
        schedule.note(&format!("volume {volume} is detached from {server}"));
        cluster.judge.unpublished(volume, server);
        cluster.ledger.book().attachments.remove(&pair);
        Some(())
    };
    let call = Call::Unpublish {
        volume: volume.to_owned(),
        server: server.to_owned(),
    };
    cluster.repeat(call, unpublish, end).await;
}
