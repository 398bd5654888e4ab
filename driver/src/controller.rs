// SPDX-License-Identifier: Apache-2.0
//! The CSI Controller service: manages volumes of Cinder and their attachments to servers of Nova.
//!
//! Each RPC validates its fields, calls the cloud once and encodes the response. Changes of a volume run in
//! [`Operations`](crate::operations::Operations): at most one change per volume runs at a time, and it survives its
//! caller.

use csi_proto::csi::v1::controller_server::Controller;

use crate::disabled_capabilities::AlphaCapability;
use crate::layers::rpcs;

mod capacity;
mod create;
mod delete;
mod encode;
mod expand;
mod health;
mod list_cache;
mod modify;
mod publish;
mod read;
mod service;
mod size;
mod snapshots;
mod token;

pub(crate) use encode::timestamp;
use service::follow;
pub use service::{ControllerService, Settings};

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
    create_snapshot(CreateSnapshotRequest .source_volume_id) -> CreateSnapshotResponse = snapshots::create::create;
    delete_snapshot(DeleteSnapshotRequest .snapshot_id) -> DeleteSnapshotResponse = snapshots::delete::delete;
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
