// SPDX-License-Identifier: Apache-2.0
//! The CSI Node service: provides an attached volume to pods as a directory or a device file.
//!
//! Each RPC validates its fields in the order of the specification: id, path, capability, then whether the volume is
//! staged. It calls [`csi_host`] and encodes the response. Each call reads the kernel's mount table and compares it
//! with the volume's device. No state of mounts is stored. Changes run in [`Operations`](crate::operations::Operations).

use csi_proto::csi::v1::node_server::Node;

use crate::disabled_capabilities::AlphaCapability;
use crate::layers::rpcs;

mod config;
mod expand;
mod fields;
mod health;
mod identity;
pub(crate) mod info;
mod mounts;
mod publish;
mod service;
mod stage;
mod stats;
mod unstage;
mod volumes;

pub use crate::node_error::{InstanceError, NodeError};
pub use config::{CLOUD_INIT_DIR, NodeConfig};
use mounts::{make_writable, unmount};
pub use service::NodeService;
use service::{device_mounts, failure_status};

rpcs! {
    impl Node for NodeService;
    node_stage_volume(NodeStageVolumeRequest .volume_id) -> NodeStageVolumeResponse = stage::stage;
    node_unstage_volume(NodeUnstageVolumeRequest .volume_id) -> NodeUnstageVolumeResponse = unstage::unstage;
    node_publish_volume(NodePublishVolumeRequest .volume_id) -> NodePublishVolumeResponse = publish::publish;
    node_unpublish_volume(NodeUnpublishVolumeRequest .volume_id) -> NodeUnpublishVolumeResponse = publish::unpublish;
    node_get_volume_stats(NodeGetVolumeStatsRequest .volume_id) -> NodeGetVolumeStatsResponse = stats::stats;
    node_expand_volume(NodeExpandVolumeRequest .volume_id) -> NodeExpandVolumeResponse = expand::expand;
    node_get_volume_health(NodeGetVolumeHealthRequest .volume_id) -> NodeGetVolumeHealthResponse
        = health::volume, if GetVolumeHealth;
    node_get_storage_health(NodeGetStorageHealthRequest) -> NodeGetStorageHealthResponse
        = health::storage, if GetStorageHealth;
    node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse = Self::capabilities;
    node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse = Self::answer_info;
}

#[cfg(test)]
mod tests;
