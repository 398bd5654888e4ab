// SPDX-License-Identifier: Apache-2.0
//! One run of a scenario: every step of it, with what disturbs it, and what must be there afterwards.

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
use crate::steps::{Lasting, Step};
use crate::world::{Place, RPC_LIMIT, World};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_hours(1);

/// A volume and how it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// Its file system; a raw device has none.
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

/// What happens to the process whose step it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disturbance {
    Nothing,
    /// It is killed at the place of this index among those of the step.
    At(usize, When),
    /// It is killed while the cloud is in the state of this index among those of the step, and the call that is repeated has to
    /// wait for the end of that.
    While(usize),
}

/// What the undisturbed run saw of a step.
#[derive(Debug)]
pub(crate) struct Seen {
    name: &'static str,
    /// What there was afterwards.
    state: Value,
    /// Where its process can be killed; in a step that is spared, nowhere.
    pub(crate) places: Vec<Place>,
    /// How many states of it last.
    pub(crate) lasting: usize,
}

/// One run.
pub(crate) struct Run<'w> {
    pub(crate) world: &'w mut World,
    disturbance: Disturbance,
    /// Steps are left alone for now.
    spared: bool,
    /// The usual latencies.
    latencies: BTreeMap<String, Duration>,
    /// What an undisturbed run saw; empty in that run itself.
    expected: &'w [Seen],
    seen: Vec<Seen>,
    /// Where processes were killed.
    pub(crate) points: Vec<String>,
    /// Looks that a step did not need this time.
    pub(crate) missed: Vec<String>,
}

impl<'w> Run<'w> {
    pub(crate) async fn new(world: &'w mut World, disturbance: Disturbance, expected: &'w [Seen]) -> Result<Self> {
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

    /// Disturbs no step from now on: those that only prepare, and those that other scenarios disturb.
    pub(crate) fn spare(&mut self) {
        self.spared = true;
    }

    /// Disturbs the steps from now on.
    pub(crate) fn disturb(&mut self) {
        self.spared = false;
    }

    /// The scenario is over: nothing may be left, and as many steps as ever were made.
    pub(crate) async fn end(self) -> Result<Vec<Seen>> {
        state::nothing_in(&state::of(self.world).await?)?;
        ensure!(
            self.expected.is_empty() || self.seen.len() == self.expected.len(),
            "{} steps were made, and {} by the undisturbed run",
            self.seen.len(),
            self.expected.len()
        );
        Ok(self.seen)
    }

    /// How long something takes usually.
    pub(crate) fn latency(&self, name: &str) -> Result<Duration> {
        let latency = self.latencies.get(name);
        latency
            .copied()
            .with_context(|| format!("the simulator has no latency {name}"))
    }

    pub(crate) fn life(&self, subject: &Subject) -> Result<Life> {
        self.world.life(subject.name, subject.fs_type)
    }

    /// Runs one RPC to its end, with whatever disturbs it. Afterwards all must be as it was in the undisturbed run.
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
                    // One that knows nothing yet asks the most, and nothing is left of earlier steps that asks beside it.
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
        let state = state::of(self.world).await?;
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
        self.seen.push(Seen {
            name: step.name,
            state,
            places: found,
            lasting: lasting.len(),
        });
        Ok(done)
    }

    /// The call comes by the place, its process is killed there, and the call is repeated.
    async fn killed_at<T>(
        &mut self,
        step: &Step,
        subject: &Subject,
        (place, when): (&Place, When),
        call: impl AsyncFn(&Life) -> Result<T>,
    ) -> Result<T> {
        if step.role != Role::Node {
            // As in the run that told of the places.
            self.world.replace(step.role).await?;
        }
        let life = self.life(subject)?;
        if when == When::Before && matches!(place, Place::SystemCall(_)) {
            return call(&life).await;
        }
        self.world.hold(place, when, &life).await?;
        let ended = {
            let call = pin!(call(&life));
            tokio::select! {
                done = call => Ok(done),
                held = self.world.held(place) => Err(held?),
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
        let told = format!("{}: {} {held}", step.name, when.name());
        let again = call(&self.life(subject)?).await;
        let again = again.with_context(|| format!("repeated after a kill, {told}"))?;
        self.points.push(told);
        Ok(again)
    }

    /// The state lasts until the repeated call has seen it: then it ends, and the call with it, at its first try.
    async fn killed_while<T>(
        &mut self,
        step: &Step,
        subject: &Subject,
        lasting: Lasting,
        call: impl AsyncFn(&Life) -> Result<T>,
    ) -> Result<T> {
        let Lasting { latency, list, status } = lasting;
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
        let told = format!("{}: while one of the {list} is {status}", step.name);
        let requests = self.world.simulator.log().await?.len();
        let life = self.life(subject)?;
        let mut again = pin!(call(&life));
        tokio::select! {
            done = &mut again => {
                let error = done.err().unwrap_or_else(|| anyhow!("the repeated call did not wait"));
                return Err(error.context(told));
            }
            looked = self.looks_again(requests) => looked?,
        }
        if !self.is_in(lasting).await? {
            bail!("{told}: it is not any more, although nothing ended it");
        }
        self.world.simulator.set_latency(latency, usual).await?;
        let done = again.await.with_context(|| told.clone())?;
        ensure!(
            life.failures() == 0,
            "{told}: the repeated call failed {} times before it went well",
            life.failures()
        );
        self.points.push(told);
        Ok(done)
    }

    async fn is_in(&self, Lasting { list, status, .. }: Lasting) -> Result<bool> {
        let state = self.world.simulator.state().await?;
        let list = state[list].as_array().context("the simulator has no such list")?;
        Ok(list.iter().any(|one| one["status"] == status))
    }

    async fn comes_to(&self, lasting: Lasting) -> Result<()> {
        let what = format!("one of the {} to be {}", lasting.list, lasting.status);
        wait_for_some(&what, RPC_LIMIT, async || Ok(self.is_in(lasting).await?.then_some(()))).await
    }

    /// Waits until the driver has asked Cinder or Nova something.
    async fn looks_again(&self, before: usize) -> Result<()> {
        wait_for_some("a look at the cloud", RPC_LIMIT, async || {
            let log = self.world.simulator.log().await?;
            let looked = log.iter().skip(before).any(|request| request.service != "keystone");
            Ok(looked.then_some(()))
        })
        .await
    }
}
