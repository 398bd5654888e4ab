// SPDX-License-Identifier: Apache-2.0
//! CSI calls of these situations.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume};
use csi_proto::csi::v1::{
    CapacityRange, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, VolumeCapability,
};
use suites::life::GIB;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Limit of a call that is expected to be refused eventually.
const REFUSAL: Duration = Duration::from_mins(1);

/// Sends CSI calls once, without retries.
pub(crate) struct Calls {
    controller: ControllerClient<Channel>,
}

impl Calls {
    pub(crate) fn from_channel(channel: Channel) -> Self {
        Self {
            controller: ControllerClient::new(channel),
        }
    }

    pub(crate) async fn create(&self, name: &str, volume_type: &str, mode: Mode) -> Result<String, Status> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: GIB,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![block(mode)],
            parameters: BTreeMap::from([("type".to_owned(), volume_type.to_owned())]),
            ..CreateVolumeRequest::default()
        };
        let answer = self.controller.clone().create_volume(within(request)).await?;
        let volume = answer.into_inner().volume;
        let volume = volume.ok_or_else(|| Status::internal("no volume"))?;
        Ok(volume.volume_id)
    }

    pub(crate) async fn publish(&self, volume: &str, server: &str, capability: VolumeCapability) -> Result<(), Status> {
        self.publish_as(volume, server, capability, false).await
    }

    pub(crate) async fn publish_as(
        &self,
        volume: &str,
        server: &str,
        capability: VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            volume_capability: Some(capability),
            readonly,
            ..ControllerPublishVolumeRequest::default()
        };
        let mut controller = self.controller.clone();
        controller.controller_publish_volume(within(request)).await.map(drop)
    }

    pub(crate) async fn unpublish(&self, volume: &str, server: &str) -> Result<(), Status> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let mut controller = self.controller.clone();
        controller.controller_unpublish_volume(within(request)).await.map(drop)
    }

    pub(crate) async fn modify(&self, volume: &str, parameters: &[(&str, &str)]) -> Result<(), Status> {
        let parameters = parameters.iter();
        let parameters = parameters.map(|&(key, value)| (key.to_owned(), value.to_owned()));
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.to_owned(),
            mutable_parameters: parameters.collect(),
            ..ControllerModifyVolumeRequest::default()
        };
        let mut controller = self.controller.clone();
        controller.controller_modify_volume(within(request)).await.map(drop)
    }

    pub(crate) async fn delete(&self, volume: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest {
            volume_id: volume.to_owned(),
            ..DeleteVolumeRequest::default()
        };
        self.controller.clone().delete_volume(within(request)).await.map(drop)
    }
}

pub(crate) fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(REFUSAL);
    request
}

fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

pub(crate) fn single() -> VolumeCapability {
    block(Mode::SingleNodeWriter)
}

pub(crate) fn several() -> VolumeCapability {
    block(Mode::MultiNodeMultiWriter)
}
