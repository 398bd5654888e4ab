// SPDX-License-Identifier: Apache-2.0
//! One node: a server's machine, the driver's node process on it, and how its kubelet is.

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
use crate::watched::Watched;

/// How long the kubelet waits for an answer of a CSI driver.
const LIMIT: Duration = Duration::from_mins(2);
/// What went wrong may have its effect for so long.
const CALM: Duration = Duration::from_mins(20);
/// kube-controller-manager detaches from a node that does not report after so long.
const FORCED: Duration = Duration::from_mins(6);

/// A node. Cheap to clone; clones are the same one.
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
    condition: Watched<Condition>,
    /// How often the kubelet has called the driver.
    calls: Watched<u64>,
    /// Who has a volume on this node: the kubelet does one thing to it at a time.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.machine.name())
            .finish_non_exhaustive()
    }
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It does.
    On,
    /// It does not.
    Off,
    /// Its server was deleted.
    Gone,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which run of the kubelet this is, the last or the present one.
    pub run: u64,
    /// How often the machine has booted.
    pub boot: u64,
    /// Whether the machine runs.
    pub power: Power,
    /// The kubelet runs.
    pub is_up: bool,
    /// It reaches the API server.
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

    /// Whether pods can be started on it.
    pub fn is_ready(&self) -> bool {
        self.is_up && self.reports
    }
}

impl Node {
    /// A node whose machine has power, and whose driver and kubelet run.
    pub fn new(name: String, server: String, backend: Backend, violations: Violations, schedule: Schedule) -> Self {
        let hardware = schedule.one_of(&Hardware::ALL);
        Self::on(hardware, name, server, backend, violations, schedule)
    }

    /// The same on a machine of this kind.
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
            condition: Watched::new(condition),
            calls: Watched::default(),
            turns: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Nova's id of it.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Its name in the trace.
    pub fn name(&self) -> &str {
        self.inner.machine.name()
    }

    /// The machine, from outside.
    pub fn machine(&self) -> &SimMachine {
        &self.inner.machine
    }

    /// The driver's process.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// How it is now.
    pub fn condition(&self) -> Condition {
        self.inner.condition.get()
    }

    /// The kubelet calls the driver, once it runs. Its end is the end of the call.
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

    /// Waits until the kubelet runs and hears of what is wanted.
    pub async fn ready(&self) {
        self.wait_for(Condition::is_ready).await;
    }

    /// Waits for another run of the kubelet than this one.
    pub async fn restarted(&self, run: u64) {
        self.wait_for(|condition| condition.run != run).await;
    }

    /// Waits until the node is deleted.
    pub async fn gone(&self) {
        self.wait_for(Condition::is_gone).await;
    }

    /// Waits until its volumes are detached whatever it has mounted: it has not reported for six minutes, or is deleted.
    pub async fn lost(&self) {
        let is_silent = |condition: &Condition| condition.is_gone() || !condition.is_ready();
        loop {
            self.wait_for(is_silent).await;
            let long = tokio::time::timeout(FORCED, self.wait_for(|condition| !is_silent(condition)));
            tokio::select! {
                biased;
                () = self.gone() => return,
                reported = long => if reported.is_err() {
                    return;
                },
            }
        }
    }

    /// Waits until no other pod has this volume on this node.
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

    /// Ends the kubelet: what it was calling is left alone.
    pub fn stop_kubelet(&self) {
        self.change("the kubelet ends", |condition| {
            condition.is_up = false;
            condition.run += 1;
        });
    }

    /// Starts the kubelet. One that runs is fine, and a machine without power starts none.
    pub fn start_kubelet(&self) {
        if self.condition().is_on() && !self.condition().is_up {
            self.change("the kubelet starts", |condition| condition.is_up = true);
        }
    }

    /// Starts the driver. One that runs is fine, and a machine without power starts none.
    pub fn start_driver(&self) {
        if self.condition().is_on() && !self.inner.driver.is_running() {
            self.inner.driver.start();
        }
    }

    /// Reports what no pod uses any more and is still there.
    pub fn check_at_rest(&self) {
        let mut leftovers = self.inner.machine.leftovers();
        let operations = self.inner.driver.running_operations();
        leftovers.extend((operations > 0).then(|| format!("{operations} operations of the driver")));
        if !leftovers.is_empty() {
            let what = format!("{}: no pod is left, and {leftovers:?} are", self.name());
            self.inner.schedule.violation(&what);
        }
    }

    /// Cuts the way between the kubelet and the API server, or opens it again. Pods go on.
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

    /// Takes its power: nothing of it runs, nothing is mounted, and it has no disks. One without power is fine.
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

    /// Boots it, and starts what runs on it; its disks come with the next look at the cloud. What runs already is fine.
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

    /// It is no more.
    pub fn delete(&self) {
        self.power_off();
        self.change("it is deleted", |condition| condition.power = Power::Gone);
    }
}

/// Flags of a driver on this server.
fn args(server: &str) -> Args {
    Args {
        // No file of this machine keeps the identity of a simulated one.
        endpoint: "tcp://127.0.0.1:1".into(),
        provide_controller_service: false,
        instance_id: Some(server.to_owned()),
        availability_zone: Some("nova".into()),
        ..Args::default()
    }
}

/// Writes into the trace what happens on nodes.
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
