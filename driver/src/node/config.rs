// SPDX-License-Identifier: Apache-2.0
//! Settings of the node service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cinder_cloud::config::MetadataOptions;
use csi_kit::endpoint::Endpoint;

use crate::args::Args;
use crate::disabled_capabilities::DisabledCapabilities;

/// The constant settings of the node service.
#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// The flags of the process. Unset flags have the values of cloud.conf.
    pub args: Args,
    /// The timeout of one request to the metadata service, if cloud.conf sets it.
    pub metadata_timeout: Option<Duration>,
    /// The directory with cloud-init's data about this instance.
    pub cloud_init_dir: PathBuf,
    /// The disabled capabilities.
    pub disabled: DisabledCapabilities,
    /// The kubelet's directory. If it is set, volumes are staged and published only below it.
    pub kubelet_dir: Option<PathBuf>,
    /// The driver's directory below the kubelet's plugin directory, which persists on the node.
    pub plugin_dir: Option<PathBuf>,
}

impl NodeConfig {
    /// Creates the settings from the flags. `max_volumes` is the value of cloud.conf, if there is one.
    pub fn from_args(args: &Args, max_volumes: Option<u32>) -> Self {
        Self {
            cloud_init_dir: CLOUD_INIT_DIR.into(),
            disabled: DisabledCapabilities::new(args.disable_capability.iter().copied()),
            // Without these flags, the value may be a default that the manifest does not set.
            kubelet_dir: (args.register || args.unregister).then(|| args.kubelet_dir.clone()),
            // Every manifest, including those of the Go driver, has the socket in that directory.
            plugin_dir: match args.endpoint.parse() {
                Ok(Endpoint::Unix(socket)) => socket.parent().map(Path::to_owned),
                Ok(Endpoint::Tcp(_)) | Err(_) => None,
            },
            args: Args {
                max_volumes_per_node: args.max_volumes_per_node.or(max_volumes),
                ..args.clone()
            },
            metadata_timeout: None,
        }
    }

    /// Adds the section `[Metadata]` of cloud.conf, which applies where flags are unset.
    #[must_use]
    pub fn with_metadata_options(mut self, options: &MetadataOptions) -> Self {
        if self.args.search_order.is_empty() {
            self.args.search_order.clone_from(&options.search_order);
        }
        self.metadata_timeout = options.request_timeout;
        self
    }
}

/// The directory of cloud-init's data. The operator mounts it into the node's container at the same path.
pub const CLOUD_INIT_DIR: &str = "/run/cloud-init";
