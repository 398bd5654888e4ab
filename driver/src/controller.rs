// SPDX-License-Identifier: Apache-2.0
//! The CSI Controller service: volumes of Cinder, attached by Nova.
//!
//! Each RPC checks its fields, asks the cloud once and encodes the answer. What changes a volume runs in [`Operations`], so
//! that at most one change of a volume is under way and none is lost with its caller.

use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, ListedVolume};
use csi_proto::csi::v1::controller_server::Controller;
use csi_proto::csi::v1::controller_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeHealth,
};
use csi_sources::Sources;
use tonic::{Request, Response, Status};

use crate::clouds::Clouds;
use crate::disabled_capabilities::{AlphaCapability, DisabledCapabilities};
use crate::layers::traced_rpc;
use crate::operations::{Operations, Progress};
use crate::pvc_annotations::PvcAnnotations;
use crate::topology::{ZoneLabels, ZoneNames};
use walk::Walks;

mod capacity;
mod create;
mod delete;
mod encode;
mod expand;
mod health;
mod modify;
mod publish;
mod read;
mod size;
mod snapshots;
mod token;
mod walk;

pub(crate) use snapshots::creation_time;

/// What the controller is told at its start and does not change.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The value of the volumes' cluster metadata.
    pub cluster: String,
    /// Whether Kubernetes is told about zones.
    pub topology: bool,
    /// The most volumes of CSI drivers that a server may have, 0 for no limit; what the cloud's configuration says when absent.
    pub volumes_per_node: Option<u32>,
    /// Metadata of every volume, by templates.
    pub volume_metadata: Vec<(String, String)>,
    /// Where claims are read for their annotations; they are not read when absent.
    pub claims: Option<PvcAnnotations>,
    /// How nodes name their zones.
    pub zone_labels: ZoneLabels,
    /// What is turned off.
    pub disabled: DisabledCapabilities,
    /// Whether volumes and snapshots that bear the mark of another cluster are refused to be deleted.
    pub protect_other_clusters: bool,
    /// How long a call waits for a volume to be attached; as long as its caller when absent.
    pub attach_timeout: Option<Duration>,
    /// Whether the node service knows the access modes with a single writer.
    pub single_node_multi_writer: bool,
    /// Where the numbers of walks through lists come from.
    pub sources: Sources,
}

/// The service. Cheap to clone; clones share the clouds' sessions and the running operations.
#[derive(Debug, Clone)]
pub struct ControllerService {
    clouds: Clouds,
    operations: Operations,
    settings: Arc<Settings>,
    volume_walks: Walks<ListedVolume>,
    health_walks: Walks<VolumeHealth>,
    snapshot_walks: Walks<snapshots::read::ListedSnapshot>,
}

impl ControllerService {
    /// A service on these clouds.
    pub fn new(clouds: Clouds, operations: Operations, settings: Settings) -> Self {
        Self {
            clouds,
            operations,
            settings: Arc::new(settings),
            volume_walks: Walks::default(),
            health_walks: Walks::default(),
            snapshot_walks: Walks::default(),
        }
    }

    pub(crate) fn clouds(&self) -> &Clouds {
        &self.clouds
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Whether what bears the mark of another cluster is left alone.
    pub(crate) fn protects_other_clusters(&self) -> bool {
        self.settings.protect_other_clusters
    }

    /// How a cloud's zones are named.
    fn zone_names(&self, config: &CloudConfig) -> ZoneNames {
        ZoneNames::new(&config.topology, self.settings.zone_labels)
    }

    /// Exactly what works. Fixed for the life of the process: sidecars ask once.
    fn capabilities(&self) -> Vec<rpc::Type> {
        let mut capabilities = vec![
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::ListVolumesPublishedNodes,
            rpc::Type::GetVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::CloneVolume,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::ListSnapshots,
            rpc::Type::GetSnapshot,
            rpc::Type::GetCapacity,
            rpc::Type::PublishReadonly,
            rpc::Type::ModifyVolume,
            rpc::Type::GetVolumeHealth,
            rpc::Type::ListVolumeHealth,
        ];
        if self.settings.single_node_multi_writer {
            capabilities.push(rpc::Type::SingleNodeMultiWriter);
        }
        capabilities.retain(|kind| self.settings.disabled.advertises(kind.as_str_name()));
        capabilities
    }
}

/// Lets those who wait for an operation read what the cloud was last seen doing with `volume`, an id or a new volume's name.
fn follow(progress: &Progress, cloud: &Cloud, volume: impl Into<String>) {
    let (cloud, volume) = (cloud.clone(), volume.into());
    progress.follow(move || {
        let wait = cloud.progress(&volume)?;
        Some(format!(
            "volume {} was last seen {}, {:.1} s after the request",
            wait.id,
            wait.status,
            wait.waited.as_secs_f64()
        ))
    });
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let handler = |request, deadline| create::create(self, request, deadline);
        traced_rpc(&self.operations, "CreateVolume", request, |of| &of.name, handler).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let handler = |request, deadline| delete::delete(self, request, deadline);
        traced_rpc(&self.operations, "DeleteVolume", request, |of| &of.volume_id, handler).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let handler = |request, deadline| publish::publish(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerPublishVolume",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let handler = |request, deadline| publish::unpublish(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerUnpublishVolume",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let handler = |request, deadline| expand::expand(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerExpandVolume",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let handler = |request, deadline| snapshots::create(self, request, deadline);
        traced_rpc(
            &self.operations,
            "CreateSnapshot",
            request,
            |of| &of.source_volume_id,
            handler,
        )
        .await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let handler = |request, deadline| snapshots::delete(self, request, deadline);
        traced_rpc(
            &self.operations,
            "DeleteSnapshot",
            request,
            |of| &of.snapshot_id,
            handler,
        )
        .await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let handler = |request, deadline| snapshots::read::list(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ListSnapshots",
            request,
            |of| &of.snapshot_id,
            handler,
        )
        .await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        self.settings.disabled.check(AlphaCapability::GetSnapshot)?;
        let handler = |request, deadline| snapshots::read::get(self, request, deadline);
        traced_rpc(&self.operations, "GetSnapshot", request, |of| &of.snapshot_id, handler).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let handler = |request, deadline| read::validate(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ValidateVolumeCapabilities",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let handler = |request, deadline| read::list(self, request, deadline);
        traced_rpc(&self.operations, "ListVolumes", request, |_| "", handler).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        self.settings.disabled.check(AlphaCapability::GetVolume)?;
        let handler = |request, deadline| read::get(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerGetVolume",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let handler = |request, deadline| capacity::capacity(self, request, deadline);
        traced_rpc(&self.operations, "GetCapacity", request, |_| "", handler).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let handler = |request, deadline| modify::modify(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerModifyVolume",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        self.settings.disabled.check(AlphaCapability::GetVolumeHealth)?;
        let handler = |request, deadline| health::get(self, request, deadline);
        traced_rpc(
            &self.operations,
            "ControllerGetVolumeHealth",
            request,
            |of| &of.volume_id,
            handler,
        )
        .await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        self.settings.disabled.check(AlphaCapability::ListVolumeHealth)?;
        let handler = |request, deadline| health::list(self, request, deadline);
        traced_rpc(&self.operations, "ControllerListVolumeHealth", request, |_| "", handler).await
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })),
        };
        let capabilities = self.capabilities().into_iter().map(capability).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }
}
