// SPDX-License-Identifier: Apache-2.0
//! The CSI Identity service: who this is and what it can do. It never asks anybody and never fails.

use std::collections::BTreeMap;

use csi_proto::csi::v1::identity_server::Identity;
use csi_proto::csi::v1::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use csi_proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use tonic::{Request, Response, Status};

use crate::disabled_capabilities::{AlphaCapability, DisabledCapabilities};

/// The service of one process.
#[derive(Debug, Clone)]
pub struct IdentityService {
    driver_name: String,
    topology: bool,
    snapshot_topology: bool,
}

impl IdentityService {
    /// `topology` tells whether zones are told; of snapshots, too, unless that is turned off.
    pub fn new(driver_name: impl Into<String>, topology: bool, disabled: &DisabledCapabilities) -> Self {
        Self {
            driver_name: driver_name.into(),
            topology,
            snapshot_topology: topology && disabled.allows(AlphaCapability::SnapshotAccessibilityConstraints),
        }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: BTreeMap::new(),
        }))
    }

    /// What the plugin as a whole can do. The specification wants the same answer from every process of one version, whichever
    /// services it serves itself: a node, too, tells of the Controller service.
    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let capabilities = [
            (true, service::Type::ControllerService),
            (true, service::Type::GroupControllerService),
            (self.topology, service::Type::VolumeAccessibilityConstraints),
            (self.snapshot_topology, service::Type::SnapshotAccessibilityConstraints),
        ]
        .into_iter()
        .filter(|(claimed, _)| *claimed)
        .map(|(_, kind)| Type::Service(Service { r#type: kind as i32 }));
        // What is attached and what is not can both grow.
        let expansion = [volume_expansion::Type::Online, volume_expansion::Type::Offline]
            .map(|kind| Type::VolumeExpansion(VolumeExpansion { r#type: kind as i32 }));
        let capabilities = capabilities
            .chain(expansion)
            .map(|kind| PluginCapability { r#type: Some(kind) })
            .collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Answers as soon as the process can serve. A cloud that refuses our credentials shows in readiness, metrics and the log:
    /// no restart mends a password.
    async fn probe(&self, _request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
