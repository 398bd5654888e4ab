// SPDX-License-Identifier: Apache-2.0
//! ControllerPublishVolume and ControllerUnpublishVolume: attach and detach a volume, and wait until Nova and Cinder
//! agree.

use cinder_cloud::{AttachOptions, Cloud, CloudError, ServerId, VolumeId};
use csi_proto::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{ControllerService, follow};
use crate::capability::{Access, ONE_WRITER};
use crate::clouds::CloudObject;
use crate::operations::{Deadline, Target};
use crate::parameters::{PUBLISH_DEVICE_PATH, PUBLISH_READONLY, PUBLISH_SIZE};
use crate::status::CloudAction;
use crate::{fields, status};

const PUBLISH: &str = "ControllerPublishVolume";

/// The parameters of a publish that its repetitions share: server, access, and whether it is read-only.
type AttachRequest = (ServerId, Access, bool);

/// Attaches a volume to a node.
pub(super) async fn publish(
    service: &ControllerService,
    request: ControllerPublishVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerPublishVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let server = ServerId::new(fields::required_node("node_id", &request.node_id)?);
    let capability = request
        .volume_capability
        .as_ref()
        .ok_or_else(|| status::invalid("volume_capability", "it is required and missing"))?;
    let access = Access::decode_existing("volume_capability", capability)?;
    let read_only = request.readonly;
    let deadline = deadline.at_most(service.settings.args.attach_timeout);
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    if !server.is_uuid() {
        return Err(status::not_found("node", server.as_str()));
    }
    service
        .operations
        .run(
            PUBLISH,
            Target::Volume(volume.to_string()),
            (server.clone(), access, read_only),
            deadline,
            |progress| {
                let service = service.clone();
                async move {
                    let cloud = service.clouds.cloud_of_volume(&volume, &request.secrets).await?;
                    let cloud = cloud.ok_or_else(|| status::not_found("volume", volume.as_str()))?;
                    progress.set(format!(
                        "attaching to server {server} and waiting until Nova and Cinder agree"
                    ));
                    follow(&progress, &cloud, volume.as_str());
                    let access = (access, read_only);
                    attach(&service, &cloud, (&volume, &server), access, progress.withdrawn()).await
                }
            },
        )
        .await
}

/// Detaches a volume from a node, or from all nodes if the request has none. Succeeds if the volume is not attached.
pub(super) async fn unpublish(
    service: &ControllerService,
    request: ControllerUnpublishVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerUnpublishVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let server = match request.node_id.as_str() {
        "" => None,
        node => Some(ServerId::new(fields::required_node("node_id", node)?)),
    };
    if !volume.is_uuid() || server.as_ref().is_some_and(|server| !server.is_uuid()) {
        return Ok(ControllerUnpublishVolumeResponse {});
    }
    let target = Target::Volume(volume.to_string());
    let is_meant = |publish: &AttachRequest| server.as_ref().is_none_or(|server| publish.0 == *server);
    service
        .operations
        .withdraw::<AttachRequest, ControllerPublishVolumeResponse>(PUBLISH, &target, is_meant)
        .await;
    service
        .operations
        .run(
            "ControllerUnpublishVolume",
            target,
            server.clone(),
            deadline,
            |progress| {
                let (clouds, secrets) = (service.clouds.clone(), request.secrets);
                async move {
                    let holder = clouds.confirmed_cloud(CloudObject::Volume(&volume), &secrets).await?;
                    let Some(cloud) = holder else {
                        return Ok(ControllerUnpublishVolumeResponse {});
                    };
                    let from = server
                        .as_ref()
                        .map_or_else(|| "all servers".into(), |server| format!("server {server}"));
                    progress.set(format!("detaching from {from} and waiting until Nova and Cinder agree"));
                    follow(&progress, &cloud, volume.as_str());
                    let detached = cloud.detach(&volume, server.as_ref()).await;
                    detached.map_err(|error| status::from_cloud(CloudAction::Detach, &error))?;
                    Ok(ControllerUnpublishVolumeResponse {})
                }
            },
        )
        .await
}

async fn attach(
    service: &ControllerService,
    cloud: &Cloud,
    (volume, server): (&VolumeId, &ServerId),
    (access, read_only): (Access, bool),
    withdrawn: CancellationToken,
) -> Result<ControllerPublishVolumeResponse, Status> {
    let limit = service.settings.args.max_volumes_per_node;
    let limit = limit.or(cloud.config().block_storage.node_volume_attach_limit);
    let options = AttachOptions {
        // A single-node mode is exclusive even if the type of the volume allows multiattach.
        exclusive: !access.multi_node,
        // 0 means no limit, as in CSI.
        server_limit: limit.filter(|&limit| limit > 0),
        read_only,
        withdrawn,
    };
    let attached = cloud.attach(volume, server, options).await;
    let attached = attached.map_err(|error| match &error {
        CloudError::AttachedElsewhere { .. } if access.single_node_only => {
            status::attached_elsewhere(&error, ONE_WRITER)
        }
        _ => status::from_cloud(CloudAction::Attach, &error),
    })?;
    let device = attached.device.map(|device| (PUBLISH_DEVICE_PATH.to_owned(), device));
    // Nova attaches the volume writable, and the node enforces the read-only mode.
    let mode = read_only.then(|| (PUBLISH_READONLY.to_owned(), "true".to_owned()));
    // The node compares the size with its device before it writes anything.
    let size = attached.volume.filter(|volume| !volume.encrypted);
    let size = size.map(|volume| (PUBLISH_SIZE.to_owned(), volume.size.least_bytes().to_string()));
    Ok(ControllerPublishVolumeResponse {
        publish_context: device.into_iter().chain(mode).chain(size).collect(),
    })
}
