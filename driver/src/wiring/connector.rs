// SPDX-License-Identifier: Apache-2.0
//! Connects clouds with the settings of the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, Configuration, Connect, Reqwest};
use csi_host::{Linux, Machine};
use csi_sources::Sources;

use crate::args::Args;
use crate::clouds::Clouds;
use crate::metrics::DriverMetrics;

/// Creates clouds from configurations, at the start and for sections that are added later.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// The options for clouds with credentials from secrets.
    pub(super) options: CloudOptions,
    pub(super) metrics: DriverMetrics,
    /// The project of each cloud's volumes, by the name of the cloud.
    pub(super) projects: BTreeMap<String, String>,
}

impl Connector {
    pub(super) fn new(args: &Args, metrics: &DriverMetrics, environment: Environment) -> Self {
        let own = CloudOptions::default();
        let user_agent: Vec<&str> = args
            .user_agent
            .iter()
            .map(String::as_str)
            .chain([own.user_agent.as_str()])
            .collect();
        let options = CloudOptions {
            user_agent: user_agent.join(" "),
            request_timeout: args.request_timeout,
            observer: Arc::new(metrics.of_cloud(CLOUD_OF_SECRETS)),
            connector: environment.connector,
            sources: environment.sources,
            ..own
        };
        Self {
            options,
            metrics: metrics.clone(),
            projects: args.project_id.iter().cloned().collect(),
        }
    }

    pub(super) fn clouds(&self, configuration: &Configuration) -> Result<Clouds, CloudError> {
        let clouds = configuration.clouds.iter();
        let clouds: Result<_, CloudError> = clouds
            .map(|(name, config)| Ok((name.clone(), self.cloud(name, config)?)))
            .collect();
        Ok(Clouds::new(clouds?, self.options.clone()))
    }

    pub(super) fn cloud(&self, name: &str, config: &CloudConfig) -> Result<Cloud, CloudError> {
        tracing::info!(
            cloud = name,
            auth_url = config.auth_url,
            region = config.region,
            interface = config.interface.as_str(),
            tls_insecure = config.tls.insecure,
            "using the cloud"
        );
        for insecurity in config.insecurities() {
            tracing::warn!(cloud = name, "the connection to the cloud is insecure: {insecurity}");
        }
        let options = CloudOptions {
            observer: Arc::new(self.metrics.of_cloud(name)),
            project: self.projects.get(name).cloned(),
            ..self.options.clone()
        };
        Cloud::new(config.clone(), options)
    }
}

/// The metric label of all clouds with credentials from secrets.
pub(super) const CLOUD_OF_SECRETS: &str = "(secrets)";

/// The external dependencies of a process, besides flags and files. Tests replace them.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Creates the HTTP clients for OpenStack.
    pub connector: Arc<dyn Connect>,
    /// The source of wall time, random numbers and new ids.
    pub sources: Sources,
    /// The machine that the node service acts on.
    pub machine: Arc<dyn Machine>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            connector: Arc::new(Reqwest),
            sources: Sources::system(),
            machine: Arc::new(Linux::default()),
        }
    }
}
