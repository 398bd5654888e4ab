// SPDX-License-Identifier: Apache-2.0
//! The CSI Identity service: the name and the capabilities of the plugin. It sends no requests and never fails.

use std::collections::BTreeMap;

use csi_proto::csi::v1::identity_server::Identity;
use csi_proto::csi::v1::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use csi_proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use tonic::{Request, Response, Status};

use crate::disabled_capabilities::{AlphaCapability, DisabledCapabilities};

/// The Identity service of one process.
#[derive(Debug, Clone)]
pub struct IdentityService {
    driver_name: String,
    topology: bool,
    snapshot_topology: bool,
}

impl IdentityService {
    /// Creates the service. With `topology` the plugin reports zones of volumes, and of snapshots unless that
    /// capability is disabled.
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

    /// Returns the capabilities of the plugin as a whole.
    ///
    /// The specification requires the same response from every process of one version. A node therefore reports the
    /// Controller service too.
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
        // Attached and detached volumes can both be expanded.
        let expansion = [volume_expansion::Type::Online, volume_expansion::Type::Offline]
            .map(|kind| Type::VolumeExpansion(VolumeExpansion { r#type: kind as i32 }));
        let capabilities = capabilities
            .chain(expansion)
            .map(|kind| PluginCapability { r#type: Some(kind) })
            .collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Responds as soon as the process can serve.
    ///
    /// Refused credentials appear in readiness, metrics and the log, because a restart does not fix a password.
    async fn probe(&self, _request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
