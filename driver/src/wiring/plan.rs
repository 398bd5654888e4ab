// SPDX-License-Identifier: Apache-2.0
//! Validates flags and files before anything is opened.

use std::path::PathBuf;

use cinder_cloud::Configuration;
use cinder_cloud::config::MetadataOptions;
use csi_kit::endpoint::{Endpoint, TcpAddress};

use super::RunError;
use crate::args::Args;
use crate::parameters::check_templates;
use crate::pvc_annotations::PvcAnnotations;
use crate::registration::{Registration, RegistrationConfig};

/// The validated configuration of the process.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) http_endpoint: Option<TcpAddress>,
    /// The address of the server for probes.
    pub(super) health_endpoint: Option<TcpAddress>,
    /// The clouds of the controller; `None` without that role.
    pub(super) clouds: Option<Configuration>,
    /// The values of cloud.conf for nodes.
    pub(super) node: NodeSettings,
    pub(super) registration: Option<Registration>,
    /// The client for the annotations of claims.
    pub(super) claims: Option<PvcAnnotations>,
}

/// The values of cloud.conf for nodes, none of which is secret.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeSettings {
    /// The maximum number of volumes per node. If clouds differ, it is the minimum, because a node does not know its
    /// cloud.
    pub(super) most_volumes: Option<u32>,
    /// How a node determines its identity.
    pub(super) metadata: MetadataOptions,
}

impl Plan {
    /// Validates flags and reads files.
    pub(super) fn new(args: &Args) -> Result<Self, RunError> {
        let endpoint: Endpoint = args.endpoint.parse().map_err(RunError::Endpoint)?;
        let http_endpoint = tcp_address("--http-endpoint", &args.http_endpoint)?;
        let health_endpoint = tcp_address("--health-endpoint", &args.health_endpoint)?;
        if !args.provide_controller_service && !args.provide_node_service {
            return Err(RunError::NoRole);
        }
        if args.register && args.unregister {
            return Err(RunError::RegisterAndUnregister);
        }
        if (args.register || args.unregister) && !args.provide_node_service {
            return Err(RunError::RegisterWithoutNode);
        }
        check_templates(&args.volume_metadata).map_err(RunError::VolumeMetadata)?;
        let claims = (args.pvc_annotations && args.provide_controller_service)
            .then(|| claims(args))
            .transpose()?;
        let registration = (args.register || args.unregister)
            .then(|| registration(args, &endpoint))
            .transpose()?;
        let (clouds, node) = if args.provide_controller_service {
            let configuration = cloud_config(args)?;
            let settings = NodeSettings::from_configuration(&configuration);
            (Some(configuration), settings)
        } else {
            (None, node_settings(args))
        };
        Ok(Self {
            endpoint,
            http_endpoint,
            health_endpoint,
            clouds,
            node,
            registration,
            claims,
        })
    }
}

fn tcp_address(flag: &'static str, address: &str) -> Result<Option<TcpAddress>, RunError> {
    let address = Some(address).filter(|address| !address.is_empty());
    let parsed = address.map(str::parse).transpose();
    parsed.map_err(|source| RunError::HttpAddress { flag, source })
}

fn claims(args: &Args) -> Result<PvcAnnotations, RunError> {
    if !args.kubeconfig.is_empty() {
        return Err(RunError::Kubeconfig);
    }
    Ok(PvcAnnotations::new(&args.master)?)
}

fn registration(args: &Args, endpoint: &Endpoint) -> Result<Registration, RunError> {
    let csi_socket: Option<PathBuf> = match endpoint {
        Endpoint::Unix(path) => Some(path.clone()),
        Endpoint::Tcp(_) => None,
    };
    let config = RegistrationConfig {
        driver_name: args.driver_name.clone(),
        kubelet_dir: args.kubelet_dir.clone(),
        csi_socket,
    };
    Ok(Registration::new(config)?)
}

fn cloud_config(args: &Args) -> Result<Configuration, RunError> {
    if args.cloud_config.is_empty() {
        return Err(RunError::NoCloudConfig);
    }
    let configuration = Configuration::load(&args.cloud_config, &args.cloud_name)?;
    for (cloud, config) in &configuration.clouds {
        for warning in &config.warnings {
            tracing::warn!(cloud, warning, "cloud.conf");
        }
    }
    Ok(configuration)
}

impl NodeSettings {
    fn from_configuration(configuration: &Configuration) -> Self {
        let clouds = || configuration.clouds.values();
        let limits = clouds().filter_map(|config| config.block_storage.node_volume_attach_limit);
        Self {
            most_volumes: limits.min(),
            // All clouds share this section.
            metadata: clouds()
                .next()
                .map(|config| config.metadata.clone())
                .unwrap_or_default(),
        }
    }
}

/// Loads the values for nodes. A node needs no credentials, but the Go driver's manifests mount cloud.conf, which
/// contains a few of them.
fn node_settings(args: &Args) -> NodeSettings {
    if args.cloud_config.is_empty() {
        return NodeSettings::default();
    }
    match Configuration::load(&args.cloud_config, &args.cloud_name) {
        Ok(configuration) => NodeSettings::from_configuration(&configuration),
        Err(error) => {
            tracing::warn!(
                %error,
                "cloud.conf cannot be read; a node needs only node-volume-attach-limit and the section Metadata of it"
            );
            NodeSettings::default()
        }
    }
}
