// SPDX-License-Identifier: Apache-2.0
//! What the flags ask for, checked before anything is opened.

use std::path::PathBuf;

use cinder_cloud::Configuration;
use cinder_cloud::config::MetadataOptions;
use csi_kit::endpoint::{Endpoint, TcpAddress};

use super::RunError;
use crate::args::Args;
use crate::parameters::check_templates;
use crate::pvc_annotations::PvcAnnotations;
use crate::registration::{Registration, RegistrationConfig};

/// A plan that can be carried out.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) http_endpoint: Option<TcpAddress>,
    /// Address of the server for probes.
    pub(super) health_endpoint: Option<TcpAddress>,
    /// The controller's clouds; `None` without that role.
    pub(super) clouds: Option<Configuration>,
    /// What cloud.conf says to nodes.
    pub(super) node: NodeShare,
    pub(super) registration: Option<Registration>,
    /// Where claims are read for their annotations.
    pub(super) claims: Option<PvcAnnotations>,
}

/// The values of cloud.conf that are for nodes. None of them is secret.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeShare {
    /// Most volumes of a node; the least where clouds differ, for a node does not know which one is its own.
    pub(super) most_volumes: Option<u32>,
    /// How a node learns who it is.
    pub(super) metadata: MetadataOptions,
}

impl Plan {
    /// Reads flags and files.
    pub(super) fn of(args: &Args) -> Result<Self, RunError> {
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
            let share = NodeShare::of(&configuration);
            (Some(configuration), share)
        } else {
            (None, node_share(args))
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

impl NodeShare {
    fn of(configuration: &Configuration) -> Self {
        let clouds = || configuration.clouds.values();
        let limits = clouds().filter_map(|config| config.block_storage.node_volume_attach_limit);
        Self {
            most_volumes: limits.min(),
            // The section is one for all clouds.
            metadata: clouds()
                .next()
                .map(|config| config.metadata.clone())
                .unwrap_or_default(),
        }
    }
}

/// A node needs no credentials. The Go driver's manifests give it cloud.conf all the same, and a few values in it are for
/// nodes.
fn node_share(args: &Args) -> NodeShare {
    if args.cloud_config.is_empty() {
        return NodeShare::default();
    }
    match Configuration::load(&args.cloud_config, &args.cloud_name) {
        Ok(configuration) => NodeShare::of(&configuration),
        Err(error) => {
            tracing::warn!(
                %error,
                "cloud.conf cannot be read; a node needs only node-volume-attach-limit and the section Metadata of it"
            );
            NodeShare::default()
        }
    }
}
