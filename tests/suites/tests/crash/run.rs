// SPDX-License-Identifier: Apache-2.0
//! One run of a scenario: its steps, their disturbances, and the expected states.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use harness::wait_for_some;
use serde_json::Value;
use suites::drivers::Role;
use suites::host_commands::When;
use suites::life::Life;

use crate::state;
use crate::steps::{AsyncState, Step};
use crate::world::{KillPoint, RPC_LIMIT, World};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_hours(1);

/// A volume and its use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// File system type; `None` for a raw device.
    pub(crate) fs_type: Option<&'static str>,
}

impl Subject {
    pub(crate) const fn mounted(name: &'static str, fs_type: &'static str) -> Self {
        Self {
            name,
            fs_type: Some(fs_type),
        }
    }

    pub(crate) const fn block(name: &'static str) -> Self {
        Self { name, fs_type: None }
    }
}

/// A disturbance of the process that executes a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disturbance {
    Nothing,
    /// It is killed at the point with this index among those of the step.
    At(usize, When),
    /// It is killed while the cloud is in the asynchronous state with this index among those of the step. The repeated
    /// call must wait for the end of that state.
    While(usize),
}

/// Observations of a step in the undisturbed run.
#[derive(Debug)]
pub(crate) struct StepObservation {
    name: &'static str,
    /// State after the step.
    state: Value,
    /// Points at which its process can be killed; none in a step without disturbance.
    pub(crate) places: Vec<KillPoint>,
    /// Number of its asynchronous states.
    pub(crate) lasting: usize,
}

/// One run.
pub(crate) struct Run<'w> {
    pub(crate) world: &'w mut World,
    disturbance: Disturbance,
    /// Whether steps are currently undisturbed.
    spared: bool,
    /// Default latencies.
    latencies: BTreeMap<String, Duration>,
    /// Observations of the undisturbed run; empty in that run itself.
    expected: &'w [StepObservation],
    seen: Vec<StepObservation>,
    /// Points at which processes were killed.
    pub(crate) points: Vec<String>,
    /// Polls that a step did not need in this run.
    pub(crate) missed: Vec<String>,
}

impl<'w> Run<'w> {
    pub(crate) async fn new(
        world: &'w mut World,
        disturbance: Disturbance,
        expected: &'w [StepObservation],
    ) -> Result<Self> {
        let latencies = world.simulator.latencies().await?;
        Ok(Self {
            world,
            disturbance,
            spared: false,
            latencies,
            expected,
            seen: Vec::new(),
            points: Vec::new(),
            missed: Vec::new(),
        })
    }

    /// Disables disturbance for the following steps, which are preparation, or are disturbed in other scenarios.
    pub(crate) fn spare(&mut self) {
        self.spared = true;
    }

    /// Enables disturbance for the following steps.
    pub(crate) fn disturb(&mut self) {
        self.spared = false;
    }

    /// Ends the scenario. Checks that nothing remains, and that the number of steps equals that of the undisturbed run.
    pub(crate) async fn end(self) -> Result<Vec<StepObservation>> {
        state::nothing_in(&state::collect(self.world).await?)?;
        ensure!(
            self.expected.is_empty() || self.seen.len() == self.expected.len(),
            "{} steps were made, and {} by the undisturbed run",
            self.seen.len(),
            self.expected.len()
        );
        Ok(self.seen)
    }

    /// Returns the default latency of an operation.
    pub(crate) fn latency(&self, name: &str) -> Result<Duration> {
        let latency = self.latencies.get(name);
        latency
            .copied()
            .with_context(|| format!("the simulator has no latency {name}"))
    }

    pub(crate) fn life(&self, subject: &Subject) -> Result<Life> {
        self.world.life(subject.name, subject.fs_type)
    }

    /// Runs one RPC with its disturbance. The state afterwards must equal that of the undisturbed run.
    pub(crate) async fn step<T>(
        &mut self,
        step: &Step,
        subject: &Subject,
        call: impl AsyncFn(&Life) -> Result<T>,
    ) -> Result<T> {
        let expected = self.expected.get(self.seen.len());
        let lasting = if self.spared { &[] } else { step.lasting };
        let places = expected.map(|expected| &expected.places);
        let mut found = Vec::new();
        let done = match self.disturbance {
            Disturbance::At(number, when) if let Some(place) = places.and_then(|places| places.get(number)) => {
                self.killed_at(step, subject, (place, when), call).await
            }
            Disturbance::While(index) if let Some(lasting) = lasting.get(index) => {
                self.killed_while(step, subject, *lasting, call).await
            }
            Disturbance::Nothing if !self.spared => {
                if step.role != Role::Node {
                    // A new process has no cache and sends the most requests, and requests of earlier steps do not
                    // interfere.
                    self.world.replace(step.role).await?;
                }
                let life = self.life(subject)?;
                let since = self.world.watch(step.role, &life).await?;
                let done = call(&life).await;
                found = self.world.watched(step.role, since).await?;
                done
            }
            _ => call(&self.life(subject)?).await,
        };
        let done = done.with_context(|| format!("{} of {}", step.name, subject.name))?;
        let state = state::collect(self.world).await?;
        if let Some(expected) = expected {
            ensure!(
                expected.name == step.name,
                "{} is made, and {} by the undisturbed run",
                step.name,
                expected.name
            );
            state::same(&expected.state, &state).with_context(|| {
                format!(
                    "after {} of {} (killed: {:?})",
                    step.name,
                    subject.name,
                    self.points.last()
                )
            })?;
        }
        self.seen.push(StepObservation {
            name: step.name,
            state,
            places: found,
            lasting: lasting.len(),
        });
        Ok(done)
    }

    /// Suspends the call at the point, kills its process there, and repeats the call.
    async fn killed_at<T>(
        &mut self,
        step: &Step,
        subject: &Subject,
        (place, when): (&KillPoint, When),
        call: impl AsyncFn(&Life) -> Result<T>,
    ) -> Result<T> {
        if step.role != Role::Node {
            // As in the run that recorded the points.
            self.world.replace(step.role).await?;
        }
        let life = self.life(subject)?;
        if when == When::Before && matches!(place, KillPoint::SystemCall(_)) {
            return call(&life).await;
        }
        self.world.hold(place, when, &life).await?;
        let ended = {
            let call = pin!(call(&life));
            tokio::select! {
                done = call => Ok(done),
                held = self.world.wait_until_suspended(place) => Err(held?),
            }
        };
        let held = match ended {
            Ok(Ok(done)) if place.is_of_chance() => {
                self.world.let_pass().await?;
                self.missed.push(format!("{}: {place:?}", step.name));
                return Ok(done);
            }
            Ok(done) => {
                let error = done
                    .err()
                    .unwrap_or_else(|| anyhow!("this time it did not come by {place:?}"));
                return Err(error.context("undisturbed"));
            }
            Err(held) => held,
        };
        self.world.replace(step.role).await?;
        let description = format!("{}: {} {held}", step.name, when.name());
        let again = call(&self.life(subject)?).await;
        let again = again.with_context(|| format!("repeated after a kill, {description}"))?;
        self.points.push(description);
        Ok(again)
    }

    /// Extends the state until the repeated call has observed it, and then ends it. The call must succeed at its first
    /// attempt.
    async fn killed_while<T>(
        &mut self,
        step: &Step,
        subject: &Subject,
        lasting: AsyncState,
        call: impl AsyncFn(&Life) -> Result<T>,
    ) -> Result<T> {
        let AsyncState { latency, list, status } = lasting;
        let usual = self.latency(latency)?;
        let life = self.life(subject)?;
        self.world.simulator.set_latency(latency, FOR_EVER).await?;
        {
            let call = pin!(call(&life));
            tokio::select! {
                done = call => {
                    return Err(done.err().unwrap_or_else(|| anyhow!("done before one of the {list} was {status}")));
                }
                there = self.comes_to(lasting) => there?,
            }
        }
        self.world.replace(step.role).await?;
        let description = format!("{}: while one of the {list} is {status}", step.name);
        let requests = self.world.simulator.log().await?.len();
        let life = self.life(subject)?;
        let mut again = pin!(call(&life));
        tokio::select! {
            done = &mut again => {
                let error = done.err().unwrap_or_else(|| anyhow!("the repeated call did not wait"));
                return Err(error.context(description));
            }
            looked = self.looks_again(requests) => looked?,
        }
        if !self.is_in(lasting).await? {
            bail!("{description}: it is not any more, although nothing ended it");
        }
        self.world.simulator.set_latency(latency, usual).await?;
        let done = again.await.with_context(|| description.clone())?;
        ensure!(
            life.failures() == 0,
            "{description}: the repeated call failed {} times before it went well",
            life.failures()
        );
        self.points.push(description);
        Ok(done)
    }

    async fn is_in(&self, AsyncState { list, status, .. }: AsyncState) -> Result<bool> {
        let state = self.world.simulator.state().await?;
        let list = state[list].as_array().context("the simulator has no such list")?;
        Ok(list.iter().any(|one| one["status"] == status))
    }

    async fn comes_to(&self, lasting: AsyncState) -> Result<()> {
        let what = format!("one of the {} to be {}", lasting.list, lasting.status);
        wait_for_some(&what, RPC_LIMIT, async || Ok(self.is_in(lasting).await?.then_some(()))).await
    }

    /// Waits until the driver has sent a request to Cinder or Nova.
    async fn looks_again(&self, before: usize) -> Result<()> {
        wait_for_some("a look at the cloud", RPC_LIMIT, async || {
            let log = self.world.simulator.log().await?;
            let looked = log.iter().skip(before).any(|request| request.service != "keystone");
            Ok(looked.then_some(()))
        })
        .await
    }
}
