//! What the flags ask for, checked before anything is opened.

use std::path::PathBuf;

use cinder_cloud::CloudConfig;
use csi_kit::endpoint::{Endpoint, TcpAddress};

use super::RunError;
use crate::args::Args;
use crate::registration::{Registration, RegistrationConfig};

/// A plan that can be carried out.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) http_endpoint: Option<TcpAddress>,
    /// The controller's cloud; `None` without that role.
    pub(super) cloud: Option<CloudConfig>,
    /// What cloud.conf says about the most volumes of a node.
    pub(super) volumes_per_node: Option<u32>,
    pub(super) registration: Option<Registration>,
}

impl Plan {
    /// Reads flags and files.
    pub(super) fn of(args: &Args) -> Result<Self, RunError> {
        let endpoint: Endpoint = args.endpoint.parse().map_err(RunError::Endpoint)?;
        let http_endpoint = match args.http_endpoint.as_str() {
            "" => None,
            address => Some(address.parse().map_err(RunError::HttpEndpoint)?),
        };
        if !args.provide_controller_service && !args.provide_node_service {
            return Err(RunError::NoRole);
        }
        if args.register && args.unregister {
            return Err(RunError::RegisterAndUnregister);
        }
        if (args.register || args.unregister) && !args.provide_node_service {
            return Err(RunError::RegisterWithoutNode);
        }
        if let Some(name) = args.cloud_name.iter().find(|name| !name.is_empty()) {
            return Err(RunError::CloudName(name.clone()));
        }
        let registration = (args.register || args.unregister)
            .then(|| registration(args, &endpoint))
            .transpose()?;
        let (cloud, volumes_per_node) = if args.provide_controller_service {
            let config = cloud_config(args)?;
            let limit = config.block_storage.node_volume_attach_limit;
            (Some(config), limit)
        } else {
            (None, nodes_limit(args))
        };
        Ok(Self {
            endpoint,
            http_endpoint,
            cloud,
            volumes_per_node,
            registration,
        })
    }
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

fn cloud_config(args: &Args) -> Result<CloudConfig, RunError> {
    if args.cloud_config.is_empty() {
        return Err(RunError::NoCloudConfig);
    }
    let config = CloudConfig::load(&args.cloud_config)?;
    for warning in &config.warnings {
        tracing::warn!(warning, "cloud.conf");
    }
    Ok(config)
}

/// A node needs no credentials. The Go driver's manifests give it cloud.conf all the same, and one value in it is for nodes.
fn nodes_limit(args: &Args) -> Option<u32> {
    if args.cloud_config.is_empty() {
        return None;
    }
    match CloudConfig::load(&args.cloud_config) {
        Ok(config) => config.block_storage.node_volume_attach_limit,
        Err(error) => {
            tracing::warn!(%error, "cloud.conf cannot be read; a node needs only node-volume-attach-limit of it");
            None
        }
    }
}
