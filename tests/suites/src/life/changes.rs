// SPDX-License-Identifier: Apache-2.0
//! Changes of an existing volume: size, type, metadata.

use anyhow::Result;
use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, NodeExpandVolumeRequest, Volume,
};

use super::copies::map;
use super::{GIB, Life};

impl Life {
    /// Calls ControllerExpandVolume with the resizer's retries; returns whether the node must expand it too.
    pub async fn expand(&self, volume: &Volume, gib: i64) -> Result<bool> {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: Some(range(gib)),
            volume_capability: Some(self.capability.clone()),
            ..ControllerExpandVolumeRequest::default()
        };
        let call = async || self.controller.clone().controller_expand_volume(request.clone()).await;
        let answer = self.retries.repeat("ControllerExpandVolume", call).await?;
        Ok(answer.node_expansion_required)
    }

    /// Calls NodeExpandVolume with the kubelet's retries; returns the bytes of the device.
    pub async fn expand_on_node(&self, volume: &Volume, gib: i64) -> Result<i64> {
        let request = NodeExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: self.target.display().to_string(),
            capacity_range: Some(range(gib)),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            ..NodeExpandVolumeRequest::default()
        };
        let call = async || self.node.clone().node_expand_volume(request.clone()).await;
        let answer = self.retries.repeat("NodeExpandVolume", call).await?;
        Ok(answer.capacity_bytes)
    }

    /// Calls ControllerModifyVolume with the resizer's retries.
    pub async fn modify(&self, volume: &Volume, parameters: &[(&str, &str)]) -> Result<()> {
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.volume_id.clone(),
            mutable_parameters: map(parameters),
            ..ControllerModifyVolumeRequest::default()
        };
        let call = async || self.controller.clone().controller_modify_volume(request.clone()).await;
        self.retries.repeat("ControllerModifyVolume", call).await.map(drop)
    }
}

fn range(gib: i64) -> CapacityRange {
    CapacityRange {
        required_bytes: gib * GIB,
        limit_bytes: 0,
    }
}
