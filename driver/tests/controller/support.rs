// SPDX-License-Identifier: Apache-2.0
//! The driver and the cloud of a test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::Connect;
use cinder_csi_driver::args::Args;
use cinder_csi_driver::{Environment, Process, RunError, serve};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::identity_client::IdentityClient;
use csi_proto::csi::v1::node_client::NodeClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, ProbeRequest, Topology, TopologyRequirement, Volume, VolumeCapability,
};
use csi_sources::Sources;
use openstack_sim::{ServerSpec, Sim, SimConfig};
use sim_network::SimNetwork;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::channel::{Channel, Direct};

pub(crate) const NODE: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const OTHER_NODE: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const UNKNOWN: &str = "99999999-9999-4999-8999-999999999999";
pub(crate) const ZONE: &str = "topology.cinder.csi.openstack.org/zone";
pub(crate) const GIB: i64 = 1 << 30;
/// The timeout of a call that is expected to time out.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// An operation normally takes milliseconds. After this time, it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time, random numbers and ids of a test.
pub(crate) fn sources() -> Sources {
    Sources::seeded(1, "2026-01-02T03:04:05Z".parse().expect("a time"))
}

/// A cloud with two servers in zone `nova`. It is called directly, on the clock of the test.
pub(crate) async fn cloud(change: impl FnOnce(&mut SimConfig)) -> Sim {
    let mut config = SimConfig {
        sources: sources(),
        ..two_servers()
    };
    change(&mut config);
    Sim::direct(config).await.expect("the simulator starts")
}

/// A cloud with two servers, in real time and behind a socket.
pub(crate) async fn listening_cloud(change: impl FnOnce(&mut SimConfig)) -> Sim {
    let mut config = two_servers();
    change(&mut config);
    Sim::start(config).await.expect("the simulator starts")
}

fn two_servers() -> SimConfig {
    SimConfig {
        servers: vec![ServerSpec::new(NODE), ServerSpec::new(OTHER_NODE)],
        ..SimConfig::default()
    }
}

/// A driver, which can be killed together with its tasks.
pub(crate) struct Driver {
    folder: TempDir,
    running: Running,
    shutdown: CancellationToken,
    channel: Channel,
}

enum Running {
    /// In the runtime of the test, on its clock.
    Here {
        _process: Process,
        killed: CancellationToken,
    },
    /// In a separate runtime, on its socket.
    Apart {
        runtime: Option<Runtime>,
        task: Option<JoinHandle<Result<(), RunError>>>,
    },
}

impl Drop for Driver {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Here { killed, .. } => killed.cancel(),
            Running::Apart { runtime, .. } => {
                if let Some(runtime) = runtime.take() {
                    runtime.shutdown_background();
                }
            }
        }
    }
}

impl Driver {
    pub(crate) fn start(sim: &Sim) -> Self {
        Self::start_with(sim, &sim.access().cloud_conf(), |_| {})
    }

    /// A controller for this cloud with this `cloud.conf` and changed flags.
    pub(crate) fn start_with(sim: &Sim, cloud_conf: &str, change: impl FnOnce(&mut Args)) -> Self {
        Self::start_on(SimNetwork::of(sim), sim.sources().clone(), cloud_conf, change)
    }

    /// A controller on this network.
    pub(crate) fn start_on(
        network: impl Connect + 'static,
        sources: Sources,
        cloud_conf: &str,
        change: impl FnOnce(&mut Args),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut args = arguments(&folder, cloud_conf);
        change(&mut args);
        let environment = Environment {
            connector: Arc::new(network),
            sources,
            ..Environment::default()
        };
        let shutdown = CancellationToken::new();
        let process = Process::new(&args, environment, &shutdown).expect("a driver");
        let killed = CancellationToken::new();
        Self {
            folder,
            channel: Channel::Direct(Direct {
                rpcs: process.rpcs(),
                killed: killed.clone(),
            }),
            running: Running::Here {
                _process: process,
                killed,
            },
            shutdown,
        }
    }

    /// A controller on its socket and in real time, with this `cloud.conf` and changed flags.
    pub(crate) async fn serve(cloud_conf: &str, change: impl FnOnce(&mut Args)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut args = arguments(&folder, cloud_conf);
        change(&mut args);
        let endpoint = args.endpoint.clone();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let shutdown = CancellationToken::new();
        let task = runtime.spawn(serve(args, shutdown.clone()));
        let channel = Endpoint::from_shared(endpoint).expect("an address").connect_lazy();
        let driver = Self {
            folder,
            running: Running::Apart {
                runtime: Some(runtime),
                task: Some(task),
            },
            shutdown,
            channel: Channel::Socket(channel),
        };
        tokio::time::timeout(PATIENCE, driver.answers())
            .await
            .expect("the driver answers");
        driver
    }

    async fn answers(&self) {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while self.identity().probe(ProbeRequest {}).await.is_err() {
            tick.tick().await;
        }
    }

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// Ends the driver like SIGKILL: all its tasks are aborted.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Ends the driver like SIGTERM, and returns the result.
    pub(crate) async fn stop(mut self) -> Result<(), RunError> {
        self.shutdown.cancel();
        let Running::Apart { task, .. } = &mut self.running else {
            panic!("it serves nothing")
        };
        let task = task.take().expect("it runs");
        tokio::time::timeout(PATIENCE, task)
            .await
            .expect("it ends in time")
            .expect("it does not panic")
    }

    pub(crate) async fn create(&self, request: CreateVolumeRequest) -> Result<Volume, Status> {
        let answer = self.controller().create_volume(patient(request)).await?;
        Ok(answer.into_inner().volume.expect("a volume"))
    }

    /// Creates a volume of 1 GiB.
    pub(crate) async fn volume(&self, name: &str) -> String {
        self.create(create_request(name)).await.expect("a volume").volume_id
    }

    pub(crate) async fn delete(&self, volume_id: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest {
            volume_id: volume_id.into(),
            ..DeleteVolumeRequest::default()
        };
        self.controller().delete_volume(patient(request)).await.map(drop)
    }

    pub(crate) async fn publish(&self, volume_id: &str, node_id: &str) -> Result<BTreeMap<String, String>, Status> {
        let answer = self
            .controller()
            .controller_publish_volume(patient(publish_request(volume_id, node_id)))
            .await?;
        Ok(answer.into_inner().publish_context)
    }

    pub(crate) async fn unpublish(&self, volume_id: &str, node_id: &str) -> Result<(), Status> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume_id.into(),
            node_id: node_id.into(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        self.controller()
            .controller_unpublish_volume(patient(request))
            .await
            .map(drop)
    }
}

/// Returns the flags of a controller with this `cloud.conf`.
pub(crate) fn arguments(folder: &TempDir, cloud_conf: &str) -> Args {
    // Each test process installs the provider once. Further calls change nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let file = folder.path().join("cloud.conf");
    std::fs::write(&file, cloud_conf).expect("a file");
    Args {
        endpoint: format!("unix://{}", folder.path().join("csi.sock").display()),
        cloud_config: vec![file],
        cluster: "test".into(),
        provide_node_service: false,
        ..Args::default()
    }
}

/// A request with a timeout that is sufficient for everything that does not hang.
pub(crate) fn patient<T>(message: T) -> Request<T> {
    within(message, PATIENCE)
}

pub(crate) fn within<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

pub(crate) fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".into(),
            ..MountVolume::default()
        })),
    }
}

pub(crate) fn create_request(name: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange {
            required_bytes: GIB,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
        ..CreateVolumeRequest::default()
    }
}

pub(crate) fn publish_request(volume_id: &str, node_id: &str) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: volume_id.into(),
        node_id: node_id.into(),
        volume_capability: Some(capability(Mode::SingleNodeWriter)),
        ..ControllerPublishVolumeRequest::default()
    }
}

pub(crate) fn zone(zone: &str) -> Topology {
    Topology {
        segments: BTreeMap::from([(ZONE.into(), zone.into())]),
    }
}

pub(crate) fn zones(preferred: &[&str], requisite: &[&str]) -> TopologyRequirement {
    let topologies = |zones: &[&str]| zones.iter().map(|name| zone(name)).collect();
    TopologyRequirement {
        preferred: topologies(preferred),
        requisite: topologies(requisite),
    }
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code) -> String {
    let status = answer.expect_err("the call is refused");
    assert_eq!(status.code(), code, "{status}");
    status.message().to_owned()
}

/// Waits for a condition that another process causes.
pub(crate) async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let poll = async {
        while !condition() {
            tick.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, poll)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come about"));
}
