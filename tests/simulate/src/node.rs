// SPDX-License-Identifier: Apache-2.0
//! A node: a server's machine, the driver's node process, and the state of the kubelet.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cinder_csi_driver::Environment;
use cinder_csi_driver::args::Args;
use csi_proto::csi::v1::node_client::NodeClient;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tonic::{Request, Response, Status};

use crate::backend::Backend;
use crate::machine::{Hardware, Observer, SimMachine, Violation, Violations};
use crate::process::{Channel, Driver, within};
use crate::schedule::Schedule;
use crate::watched::WatchedValue;

/// The kubelet's timeout of CSI calls.
const LIMIT: Duration = Duration::from_mins(2);
/// Time for which past faults may still have effects.
const CALM: Duration = Duration::from_mins(20);
/// Time without reports after which kube-controller-manager detaches volumes by force.
const FORCED: Duration = Duration::from_mins(6);

/// A node. Clones are the same node.
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    server: String,
    machine: SimMachine,
    driver: Driver,
    schedule: Schedule,
    backend: Backend,
    condition: WatchedValue<Condition>,
    /// Number of the kubelet's calls to the driver.
    calls: WatchedValue<u64>,
    /// Locks per volume: the kubelet runs one operation per volume at a time.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.machine.name())
            .finish_non_exhaustive()
    }
}

/// Power state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// Running.
    On,
    /// Stopped.
    Off,
    /// The server was deleted.
    Gone,
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Number of the current or last run of the kubelet.
    pub run: u64,
    /// Number of boots of the machine.
    pub boot: u64,
    /// Power state.
    pub power: Power,
    /// Whether the kubelet runs.
    pub is_up: bool,
    /// Whether the kubelet reaches the API server.
    pub reports: bool,
}

impl Condition {
    /// Whether the machine runs.
    pub fn is_on(&self) -> bool {
        self.power == Power::On
    }

    /// Whether its server was deleted.
    pub fn is_gone(&self) -> bool {
        self.power == Power::Gone
    }

    /// Whether pods can start on it.
    pub fn is_ready(&self) -> bool {
        self.is_up && self.reports
    }
}

impl Node {
    /// Creates a node with a running machine, driver and kubelet.
    pub fn new(name: String, server: String, backend: Backend, violations: Violations, schedule: Schedule) -> Self {
        let hardware = schedule.one_of(&Hardware::ALL);
        Self::on(hardware, name, server, backend, violations, schedule)
    }

    /// Creates a node with this hardware.
    pub fn on(
        hardware: Hardware,
        name: String,
        server: String,
        backend: Backend,
        violations: Violations,
        schedule: Schedule,
    ) -> Self {
        schedule.note(&format!("{name} is {hardware:?}"));
        let machine = SimMachine::new(name.clone(), hardware, schedule.sources().clone(), violations);
        let environment = Environment {
            sources: schedule.sources().clone(),
            ..Environment::default()
        };
        let driver = Driver::new(
            name,
            args(&server),
            environment,
            Some(machine.clone()),
            schedule.clone(),
        );
        backend.power_on(&server, machine.clone());
        driver.start();
        let condition = Condition {
            run: 0,
            boot: 0,
            power: Power::On,
            is_up: true,
            reports: true,
        };
        let inner = Inner {
            server,
            machine,
            driver,
            schedule,
            backend,
            condition: WatchedValue::new(condition),
            calls: WatchedValue::default(),
            turns: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the id of its server.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Returns its name in the trace.
    pub fn name(&self) -> &str {
        self.inner.machine.name()
    }

    /// Returns the outside view of the machine.
    pub fn machine(&self) -> &SimMachine {
        &self.inner.machine
    }

    /// Returns the driver's process.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Returns the current state.
    pub fn condition(&self) -> Condition {
        self.inner.condition.get()
    }

    /// Calls the driver as the kubelet, once the driver runs. Dropping the future cancels the call.
    pub async fn call<M, T, F>(
        &self,
        message: M,
        call: impl FnOnce(NodeClient<Channel>, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.wait_for(|condition| condition.is_up).await;
        let run = self.condition().run;
        self.inner.calls.change(|calls| *calls += 1);
        let is_calm = self.inner.schedule.calm().is_some_and(|calm| calm > CALM);
        let mut is_answered = true;
        let answer = within(LIMIT, message, |request| async {
            is_answered = false;
            let answer = call(self.inner.driver.node(), request).await;
            is_answered = true;
            answer
        });
        let answer = tokio::select! {
            biased;
            () = self.restarted(run) => return Err(Status::cancelled("the kubelet has ended")),
            answer = answer => answer,
        };
        if is_calm && !is_answered {
            let name = self.name();
            let what = format!(
                "{name}: a call is not answered within {} s although nothing goes wrong",
                LIMIT.as_secs()
            );
            self.inner.schedule.violation(&what);
        }
        answer
    }

    /// Waits for the kubelet's next call of the driver.
    pub async fn called(&self) {
        let before = self.inner.calls.get();
        self.inner.calls.wait_for(|calls| *calls != before).await;
    }

    /// Waits until the kubelet runs and reaches the API server.
    pub async fn ready(&self) {
        self.wait_for(Condition::is_ready).await;
    }

    /// Waits for a later run of the kubelet.
    pub async fn restarted(&self, run: u64) {
        self.wait_for(|condition| condition.run != run).await;
    }

    /// Waits until the node is deleted.
    pub async fn wait_until_deleted(&self) {
        self.wait_for(Condition::is_gone).await;
    }

    /// Waits until its volumes are detached by force: it has not reported for six minutes, or is deleted.
    pub async fn wait_until_lost(&self) {
        let is_silent = |condition: &Condition| condition.is_gone() || !condition.is_ready();
        loop {
            self.wait_for(is_silent).await;
            let long = tokio::time::timeout(FORCED, self.wait_for(|condition| !is_silent(condition)));
            tokio::select! {
                biased;
                () = self.wait_until_deleted() => return,
                reported = long => if reported.is_err() {
                    return;
                },
            }
        }
    }

    /// Waits until no other pod uses this volume on this node.
    pub async fn turn(&self, volume: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.inner.turns.lock();
            turns.entry(volume.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }

    async fn wait_for(&self, is_so: impl Fn(&Condition) -> bool) {
        self.inner.condition.wait_for(is_so).await;
    }

    fn change(&self, what: &str, change: impl FnOnce(&mut Condition)) {
        self.inner.schedule.note(&format!("{}: {what}", self.name()));
        self.inner.condition.change(change);
    }

    /// Stops the kubelet, including its running calls.
    pub fn stop_kubelet(&self) {
        self.change("the kubelet ends", |condition| {
            condition.is_up = false;
            condition.run += 1;
        });
    }

    /// Starts the kubelet, unless it runs or the machine is off.
    pub fn start_kubelet(&self) {
        if self.condition().is_on() && !self.condition().is_up {
            self.change("the kubelet starts", |condition| condition.is_up = true);
        }
    }

    /// Starts the driver, unless it runs or the machine is off.
    pub fn start_driver(&self) {
        if self.condition().is_on() && !self.inner.driver.is_running() {
            self.inner.driver.start();
        }
    }

    /// Reports remains of volumes that no pod uses.
    pub fn check_at_rest(&self) {
        let mut leftovers = self.inner.machine.leftovers();
        let operations = self.inner.driver.running_operations();
        leftovers.extend((operations > 0).then(|| format!("{operations} operations of the driver")));
        if !leftovers.is_empty() {
            let what = format!("{}: no pod is left, and {leftovers:?} are", self.name());
            self.inner.schedule.violation(&what);
        }
    }

    /// Disconnects the kubelet from the API server, or reconnects it. Pods continue to run.
    pub fn set_reports(&self, reports: bool) {
        if self.condition().reports != reports {
            let what = if reports {
                "it reports again"
            } else {
                "it does not report any more"
            };
            self.change(what, |condition| condition.reports = reports);
        }
    }

    /// Powers the machine off: programs and mounts end, and its disks are detached.
    pub fn power_off(&self) {
        if !self.condition().is_on() {
            return;
        }
        self.stop_kubelet();
        self.inner.driver.kill();
        self.inner.machine.reboot();
        self.inner.backend.power_off(self.server());
        self.change("it has no power", |condition| {
            condition.power = Power::Off;
            condition.boot += 1;
        });
    }

    /// Boots the machine and starts its programs; the next update of the backend adds its disks.
    pub fn power_on(&self) {
        if self.condition().is_gone() {
            return;
        }
        if !self.condition().is_on() {
            self.change("it boots", |condition| condition.power = Power::On);
            self.inner.backend.power_on(self.server(), self.inner.machine.clone());
        }
        self.start_driver();
        self.start_kubelet();
    }

    /// Deletes the node.
    pub fn delete(&self) {
        self.power_off();
        self.change("it is deleted", |condition| condition.power = Power::Gone);
    }
}

/// Returns the arguments of a node driver on this server.
fn args(server: &str) -> Args {
    Args {
        // Prevents that files of the real machine identify a simulated one.
        endpoint: "tcp://127.0.0.1:1".into(),
        provide_controller_service: false,
        instance_id: Some(server.to_owned()),
        availability_zone: Some("nova".into()),
        ..Args::default()
    }
}

/// Writes events of nodes to the trace.
#[derive(Debug)]
pub struct Trace(pub Schedule);

impl Observer for Trace {
    fn note(&self, node: &str, what: &str) {
        self.0.note(&format!("{node}: {what}"));
    }

    fn violation(&self, violation: &Violation) {
        let Violation { node, volume, what, .. } = violation;
        self.0.violation(&format!("{node}, volume {volume}: {what}"));
    }
}
