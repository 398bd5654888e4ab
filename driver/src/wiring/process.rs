// SPDX-License-Identifier: Apache-2.0
//! Assembles the services of a driver with their layers, and its background tasks. Opens no sockets.

use std::convert::Infallible;
use std::sync::Arc;

use csi_host::{Host, HostPaths, Machine, Tools};
use csi_kit::metrics::{BuildInfo, Metrics};
use csi_proto::csi::v1::controller_server::ControllerServer;
use csi_proto::csi::v1::group_controller_server::GroupControllerServer;
use csi_proto::csi::v1::identity_server::IdentityServer;
use csi_proto::csi::v1::node_server::NodeServer;
use csi_sources::Sources;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use super::RunError;
use super::connector::Connector;
use super::connector::Environment;
use super::login::Logins;
use super::plan::{NodeSettings, Plan};
use super::reload::{ConfigSource, Reload, ReloadMetrics};
use crate::args::Args;
use crate::clouds::Clouds;
use crate::controller::{ControllerService, Settings};
use crate::disabled_capabilities::DisabledCapabilities;
use crate::group_controller::GroupControllerService;
use crate::identity::IdentityService;
use crate::layers::{self, RpcLayer};
use crate::metrics::DriverMetrics;
use crate::node::{NodeConfig, NodeService};
use crate::observation::Observation;
use crate::operations::{Limits, Operations};
use crate::pvc_annotations::PvcAnnotations;

/// The service that handles all RPCs, with all layers.
pub type Rpcs = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// The services of a driver and all their tasks.
///
/// Dropping it aborts the tasks, as SIGKILL does. Running calls are tasks of their callers and are not aborted.
#[derive(Debug)]
pub struct Process {
    rpcs: Rpcs,
    pub(super) operations: Operations,
    pub(super) beside: JoinSet<()>,
    pub(super) registry: Metrics,
    pub(super) logins: Logins,
    pub(super) node: Option<NodeService>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The task set aborts its tasks when it is dropped.
        self.operations.abort();
    }
}

impl Process {
    /// Creates a driver that does not listen: its RPCs are called directly. It neither serves HTTP nor registers with a
    /// kubelet.
    pub fn new(args: &Args, environment: Environment, shutdown: &CancellationToken) -> Result<Self, RunError> {
        Self::assemble(args, &Plan::new(args)?, environment, shutdown)
    }

    /// Assembles a driver and starts its background tasks: the logins, and the reload of the configuration.
    pub(super) fn assemble(
        args: &Args,
        plan: &Plan,
        environment: Environment,
        shutdown: &CancellationToken,
    ) -> Result<Self, RunError> {
        let build = BuildInfo {
            program: "cinder_csi_driver",
            version: env!("CARGO_PKG_VERSION"),
            revision: "",
        };
        let registry = Metrics::new(build)?;
        let metrics = DriverMetrics::new(&registry, &args.driver_name)?;
        let operations = Operations::new(Limits::default());
        DriverMetrics::watch_operations(&registry, &operations)?;
        let sources = environment.sources.clone();
        let machine = environment.machine.clone();
        let connector = Connector::new(args, &metrics, environment);
        let clouds = plan.clouds.as_ref();
        let clouds = clouds
            .map(|configuration| connector.clouds(configuration))
            .transpose()?;
        let controller = clouds
            .clone()
            .map(|clouds| controller(args, clouds, plan.claims.clone(), operations.clone(), sources.clone()));
        let node = args
            .provide_node_service
            .then(|| node(args, &plan.node, machine, operations.clone(), metrics.clone()));
        let identity = IdentityService::new(
            &args.driver_name,
            args.with_topology,
            &DisabledCapabilities::new(args.disable_capability.iter().copied()),
        );
        let mut routes = Routes::builder();
        routes.add_service(IdentityServer::new(identity));
        if let Some(controller) = controller {
            routes.add_service(GroupControllerServer::new(GroupControllerService::new(
                controller.clone(),
            )));
            routes.add_service(ControllerServer::new(controller));
        }
        if let Some(node) = node.clone() {
            routes.add_service(NodeServer::new(node));
        }
        let rpcs = ServiceBuilder::new()
            .map_response(|answer: http::Response<_>| answer.map(Body::new))
            .layer(RpcLayer::new(metrics, sources))
            .layer(layers::catch_panic())
            .service(routes.routes().prepare());

        let mut beside = JoinSet::new();
        let all = clouds.as_ref().map(Clouds::configured).unwrap_or_default();
        let logins = Logins::pending(all.iter().map(|(name, _)| name.clone()));
        for (name, cloud) in all {
            beside.spawn(logins.clone().run(name, cloud, shutdown.clone()));
        }
        if let (Some(clouds), Some(configuration)) = (clouds, &plan.clouds) {
            let source = ConfigSource {
                files: args.cloud_config.clone(),
                names: args.cloud_name.clone(),
            };
            let metrics = ReloadMetrics::new(&registry)?;
            if plan.http_endpoint.is_some() {
                let observation = Observation::new(clouds.clone(), &registry)?;
                beside.spawn(observation.run(Arc::clone(&metrics.changed), shutdown.clone()));
            }
            let reload = Reload::new(source, connector, configuration, clouds, logins.clone(), metrics);
            beside.spawn(reload.run(shutdown.clone()));
        }
        Ok(Self {
            rpcs: BoxCloneSyncService::new(rpcs),
            operations,
            beside,
            registry,
            logins,
            node,
        })
    }

    pub fn rpcs(&self) -> Rpcs {
        self.rpcs.clone()
    }

    /// The number of running operations.
    pub fn running_operations(&self) -> usize {
        self.operations.running()
    }
}

fn controller(
    args: &Args,
    clouds: Clouds,
    claims: Option<PvcAnnotations>,
    operations: Operations,
    sources: Sources,
) -> ControllerService {
    let settings = Settings {
        args: args.clone(),
        disabled: DisabledCapabilities::new(args.disable_capability.iter().copied()),
        claims,
        sources,
    };
    ControllerService::new(clouds, operations, settings)
}

fn node(
    args: &Args,
    settings: &NodeSettings,
    machine: Arc<dyn Machine>,
    operations: Operations,
    metrics: DriverMetrics,
) -> NodeService {
    let paths = HostPaths {
        sys: args.sys_dir.clone(),
        dev: args.dev_dir.clone(),
        proc: args.proc_dir.clone(),
    };
    let host = Host::with_machine(machine, paths, Tools::default()).with_default_fs_type(args.default_fs_type);
    let config = NodeConfig::from_args(args, settings.most_volumes).with_metadata_options(&settings.metadata);
    NodeService::new(config, host, operations).with_metrics(metrics)
}
