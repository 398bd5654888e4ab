// SPDX-License-Identifier: Apache-2.0
//! The CSI Controller service: volumes of Cinder, attached by Nova.
//!
//! Each RPC checks its fields, asks the cloud once and encodes the answer. What changes a volume runs in [`Operations`], so
//! that at most one change of a volume is under way and none is lost with its caller.

use std::future::{Ready, ready};
use std::sync::Arc;

use cinder_cloud::{Cloud, CloudConfig, ListedVolume};
use csi_proto::csi::v1::controller_server::Controller;
use csi_proto::csi::v1::controller_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability, VolumeHealth,
};
use csi_sources::Sources;
use tonic::Status;

use crate::args::Args;
use crate::clouds::Clouds;
use crate::disabled_capabilities::{AlphaCapability, DisabledCapabilities};
use crate::layers::rpcs;
use crate::operations::{Deadline, Operations, Progress};
use crate::pvc_annotations::PvcAnnotations;
use crate::topology::ZoneNames;
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

/// The settings of the controller. They do not change.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The flags of the process.
    pub args: Args,
    /// The capabilities that are turned off.
    pub disabled: DisabledCapabilities,
    /// The reader of claims' annotations; without it they are not read.
    pub claims: Option<PvcAnnotations>,
    /// The source of the numbers of walks through lists.
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
        self.settings.args.protect_other_clusters
    }

    /// The name of the cluster that the driver serves.
    pub(crate) fn cluster(&self) -> &str {
        &self.settings.args.cluster
    }

    /// How a cloud's zones are named.
    fn zone_names(&self, config: &CloudConfig) -> ZoneNames {
        ZoneNames::new(&config.topology, self.settings.args.zone_labels)
    }

    fn disabled(&self) -> &DisabledCapabilities {
        &self.settings.disabled
    }

    /// The working capabilities. They are fixed for the life of the process, because sidecars request them once.
    fn capabilities(
        &self,
        _request: ControllerGetCapabilitiesRequest,
        _deadline: Deadline,
    ) -> Ready<Result<ControllerGetCapabilitiesResponse, Status>> {
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
            rpc::Type::SingleNodeMultiWriter,
        ];
        capabilities.retain(|kind| self.disabled().advertises(kind.as_str_name()));
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })),
        };
        let capabilities = capabilities.into_iter().map(capability).collect();
        ready(Ok(ControllerGetCapabilitiesResponse { capabilities }))
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

rpcs! {
    impl Controller for ControllerService;
    create_volume(CreateVolumeRequest .name) -> CreateVolumeResponse = create::create;
    delete_volume(DeleteVolumeRequest .volume_id) -> DeleteVolumeResponse = delete::delete;
    controller_publish_volume(ControllerPublishVolumeRequest .volume_id) -> ControllerPublishVolumeResponse
        = publish::publish;
    controller_unpublish_volume(ControllerUnpublishVolumeRequest .volume_id) -> ControllerUnpublishVolumeResponse
        = publish::unpublish;
    controller_expand_volume(ControllerExpandVolumeRequest .volume_id) -> ControllerExpandVolumeResponse
        = expand::expand;
    create_snapshot(CreateSnapshotRequest .source_volume_id) -> CreateSnapshotResponse = snapshots::create;
    delete_snapshot(DeleteSnapshotRequest .snapshot_id) -> DeleteSnapshotResponse = snapshots::delete;
    list_snapshots(ListSnapshotsRequest .snapshot_id) -> ListSnapshotsResponse = snapshots::read::list;
    get_snapshot(GetSnapshotRequest .snapshot_id) -> GetSnapshotResponse = snapshots::read::get, if GetSnapshot;
    validate_volume_capabilities(ValidateVolumeCapabilitiesRequest .volume_id) -> ValidateVolumeCapabilitiesResponse
        = read::validate;
    list_volumes(ListVolumesRequest) -> ListVolumesResponse = read::list;
    controller_get_volume(ControllerGetVolumeRequest .volume_id) -> ControllerGetVolumeResponse
        = read::get, if GetVolume;
    get_capacity(GetCapacityRequest) -> GetCapacityResponse = capacity::capacity;
    controller_modify_volume(ControllerModifyVolumeRequest .volume_id) -> ControllerModifyVolumeResponse
        = modify::modify;
    controller_get_volume_health(ControllerGetVolumeHealthRequest .volume_id) -> ControllerGetVolumeHealthResponse
        = health::get, if GetVolumeHealth;
    controller_list_volume_health(ControllerListVolumeHealthRequest) -> ControllerListVolumeHealthResponse
        = health::list, if ListVolumeHealth;
    controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse
        = Self::capabilities;
}
