// SPDX-License-Identifier: Apache-2.0
//! Driver processes: start, call, kill.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cinder_csi_driver::args::Args;
use cinder_csi_driver::{Environment, Process, Rpcs};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::node_client::NodeClient;
use http::{Request, Response};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use crate::clouds::WEST_NAME;
use crate::machine::SimMachine;
use crate::schedule::Schedule;

/// Maximum latency of gRPC over a Unix socket.
const WAY: Duration = Duration::from_millis(5);

/// A driver process of the cluster, across kills and restarts. Clones are the same process.
#[derive(Debug, Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    args: Args,
    environment: Environment,
    /// The node of a node process.
    machine: Option<SimMachine>,
    schedule: Schedule,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

struct Running {
    rpcs: Rpcs,
    killed: CancellationToken,
    process: Process,
}

impl Driver {
    /// Creates a stopped process; `machine` is the node of a node process.
    pub fn new(
        name: String,
        args: Args,
        environment: Environment,
        machine: Option<SimMachine>,
        schedule: Schedule,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                name,
                args,
                environment,
                machine,
                schedule,
                running: Mutex::default(),
            }),
        }
    }

    /// Returns its name in the trace.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Starts the process; kills a running one first.
    pub fn start(&self) {
        self.kill();
        let mut environment = self.inner.environment.clone();
        if let Some(machine) = &self.inner.machine {
            environment.machine = Arc::new(machine.process());
        }
        let shutdown = CancellationToken::new();
        match Process::new(&self.inner.args, environment, &shutdown) {
            Ok(process) => {
                self.inner.schedule.note(&format!("{} starts", self.inner.name));
                *self.running() = Some(Running {
                    rpcs: process.rpcs(),
                    killed: CancellationToken::new(),
                    process,
                });
            }
            Err(error) => self
                .inner
                .schedule
                .violation(&format!("{} does not start: {error}", self.inner.name)),
        }
    }

    /// Ends the process like SIGKILL: all its tasks are dropped, and its clients lose their connection.
    pub fn kill(&self) {
        if let Some(running) = self.running().take() {
            self.inner.schedule.note(&format!("{} is killed", self.inner.name));
            running.killed.cancel();
            if let Some(machine) = &self.inner.machine {
                machine.kill_process();
            }
        }
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        self.running().is_some()
    }

    /// Returns the number of running operations.
    pub fn running_operations(&self) -> usize {
        self.running()
            .as_ref()
            .map_or(0, |running| running.process.running_operations())
    }

    /// Returns a client of its Controller service.
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    /// Returns a client of its GroupController service.
    pub fn group_controller(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel())
    }

    /// Returns a client of its Node service.
    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    fn channel(&self) -> Channel {
        Channel { driver: self.clone() }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.inner.running.lock()
    }

    async fn call(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let schedule = &self.inner.schedule;
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (way, back) = (
            schedule.between(Duration::ZERO, WAY),
            schedule.between(Duration::ZERO, WAY),
        );
        schedule
            .event(way, || format!("{} is called: {name}", self.inner.name))
            .await;
        let running = {
            self.running()
                .as_ref()
                .map(|running| (running.rpcs.clone(), running.killed.clone()))
        };
        let Some((rpcs, killed)) = running else {
            return Err(Status::unavailable("connection refused"));
        };
        // The handler is a task of the process: a disconnected client cancels the call, but not the operation behind
        // it.
        let handler = tokio::spawn(killed.run_until_cancelled_owned(rpcs.oneshot(request)));
        let answer = match AbortOnDropHandle::new(handler).await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(never))) => match never {},
            Ok(None) | Err(_) => Err(Status::unavailable("connection reset by peer")),
        };
        schedule
            .event(back, || format!("{} answers: {name}", self.inner.name))
            .await;
        answer
    }
}

/// A client's channel to a driver in the same runtime.
#[derive(Debug, Clone)]
pub struct Channel {
    driver: Driver,
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.driver.clone().call(request))
    }
}

/// Sends a call with this deadline, which the driver receives.
pub async fn within<M, T, F>(
    limit: Duration,
    message: M,
    call: impl FnOnce(tonic::Request<M>) -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    match tokio::time::timeout(limit, call(request)).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::new(Code::DeadlineExceeded, "context deadline exceeded")),
    }
}

/// Returns the arguments of a controller of this cluster.
pub fn controller_args(folder: &Path, cloud_conf: &Path) -> Args {
    Args {
        endpoint: format!("unix://{}", folder.join("csi.sock").display()),
        cloud_config: vec![cloud_conf.to_owned()],
        // The unnamed cloud and the second one.
        cloud_name: vec![String::new(), WEST_NAME.to_owned()],
        cluster: "net".into(),
        provide_node_service: false,
        ..Args::default()
    }
}
