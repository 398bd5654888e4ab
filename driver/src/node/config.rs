// SPDX-License-Identifier: Apache-2.0
//! Settings of the node service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cinder_cloud::config::MetadataOptions;
use csi_kit::endpoint::Endpoint;

use crate::args::Args;
use crate::disabled_capabilities::DisabledCapabilities;

/// The settings of the node service. They do not change.
#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// The flags of the process. Unset ones follow cloud.conf.
    pub args: Args,
    /// The longest time of one request to the metadata service, where cloud.conf names it.
    pub metadata_timeout: Option<Duration>,
    /// The directory with cloud-init's facts about this instance.
    pub cloud_init_dir: PathBuf,
    /// The capabilities that are turned off.
    pub disabled: DisabledCapabilities,
    /// The kubelet's directory. Where it is given, no volume is staged or published outside of it.
    pub kubelet_dir: Option<PathBuf>,
    /// The driver's directory below the kubelet's plugin directory, which persists on the node.
    pub plugin_dir: Option<PathBuf>,
}

impl NodeConfig {
    /// From the flags; `max_volumes` is what cloud.conf says, where there is one.
    pub fn from_args(args: &Args, max_volumes: Option<u32>) -> Self {
        Self {
            cloud_init_dir: CLOUD_INIT_DIR.into(),
            disabled: DisabledCapabilities::of(args.disable_capability.iter().copied()),
            // Without these flags it may be the default of a manifest that does not name it.
            kubelet_dir: (args.register || args.unregister).then(|| args.kubelet_dir.clone()),
            // Every manifest, also of the Go driver, has its socket in that directory.
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

    /// The same with what the section `[Metadata]` of cloud.conf says, where the flags do not say it.
    #[must_use]
    pub fn with_metadata_options(mut self, options: &MetadataOptions) -> Self {
        if self.args.search_order.is_empty() {
            self.args.search_order.clone_from(&options.search_order);
        }
        self.metadata_timeout = options.request_timeout;
        self
    }
}

/// Where cloud-init keeps what it learned; the operator shows it to the node's container at the same place.
pub const CLOUD_INIT_DIR: &str = "/run/cloud-init";
