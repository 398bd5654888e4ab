// SPDX-License-Identifier: Apache-2.0
//! Runs both drivers through the same volume lifecycles, one after the other.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use jiff::Timestamp;
use rustix::process::Pid;
use suites::drivers::{Driver, Go, Ours, Role};
use suites::lab::Lab;
use suites::life::{Life, Retries};
use suites::programs;

use crate::Kind;
use crate::cloud::MeasuredCloud;
use crate::measure::{Figures, Lives, Requests, Roles, since};
use crate::process::{Memory, Processor, memory, processor_time, processor_time_of_threads};

/// The amount of work of one run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Number of sequential lifecycles.
    pub(crate) lives: u32,
    /// Sizes of the crowds, run one after the other.
    pub(crate) crowds: Vec<u32>,
    /// Observation time of the idle driver; zero skips the measurement.
    pub(crate) idle: Duration,
}

/// Pause after a load, in which idle connections and threads end.
pub(crate) const REST: Duration = Duration::from_secs(2);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// A driver with a process per role.
#[derive(Debug)]
struct Pair {
    controller: Driver,
    node: Driver,
}

/// Measures our driver, then the Go driver, on one cloud.
pub(crate) async fn both(lab: &Lab, kind: Kind, plan: &Plan, program: &Path) -> Result<(Figures, Figures)> {
    let cloud = MeasuredCloud::start(lab, kind).await?;
    let ours = |role| Ours::new(role).json_log().program(program.to_owned());
    let ours = Pair {
        controller: ours(Role::Controller).start(lab, &cloud).await?,
        node: ours(Role::Node).start(lab, &cloud).await?,
    };
    let ours = ours.run(lab, &cloud, plan, "ours").await.context("our driver")?;
    let go = Pair {
        controller: Go::new(Role::Controller).start(lab, &cloud).await?,
        node: Go::new(Role::Node).start(lab, &cloud).await?,
    };
    let go = go.run(lab, &cloud, plan, "go").await.context("the Go driver")?;
    cloud.stop().await?;
    let size = |path: &Path| {
        std::fs::metadata(path)
            .map(|file| file.len())
            .context("cannot read a binary")
    };
    Ok((
        Figures {
            binary: size(program)?,
            ..ours
        },
        Figures {
            binary: size(&programs::go_driver()?)?,
            ..go
        },
    ))
}

impl Pair {
    async fn run(self, lab: &Lab, cloud: &MeasuredCloud, plan: &Plan, name: &str) -> Result<Figures> {
        let idle = self.memory()?;
        let minute = self.minute(plan.idle).await?;
        // Logins and version discovery belong to the process, not to a volume, so they happen before the measurement.
        self.alone(lab, cloud, 1, &format!("{name}-first")).await?;
        let alone = self.alone(lab, cloud, plan.lives, &format!("{name}-alone")).await?;
        let mut crowds = Vec::new();
        for (number, size) in plan.crowds.iter().enumerate() {
            let name = format!("{name}-crowd-{number}");
            crowds.push(self.crowd(lab, cloud, *size, &name).await?);
        }
        let loaded = self.memory()?;
        self.controller.stop().await?;
        self.node.stop().await?;
        Ok(Figures {
            idle,
            loaded,
            alone,
            crowds,
            minute,
            binary: 0,
        })
    }

    fn roles<T>(&self, of: impl Fn(Pid) -> Result<T>) -> Result<Roles<T>> {
        Ok(Roles {
            controller: of(self.controller.pid()?)?,
            node: of(self.node.pid()?)?,
        })
    }

    fn memory(&self) -> Result<Roles<Memory>> {
        self.roles(memory)
    }

    /// Returns the processor time of an idle minute, extrapolated from a shorter observation.
    async fn minute(&self, watched: Duration) -> Result<Option<Roles<Duration>>> {
        if watched.is_zero() {
            return Ok(None);
        }
        tokio::time::sleep(REST).await;
        let (since, before) = (Instant::now(), self.roles(processor_time_of_threads)?);
        tokio::time::sleep(watched).await;
        let after = self.roles(processor_time_of_threads)?;
        let share = MINUTE.as_secs_f64() / since.elapsed().as_secs_f64();
        Ok(Some(Roles {
            controller: after.controller.saturating_sub(before.controller).mul_f64(share),
            node: after.node.saturating_sub(before.node).mul_f64(share),
        }))
    }

    /// Runs whole lifecycles with a file system, one after the other.
    async fn alone(&self, lab: &Lab, cloud: &MeasuredCloud, count: u32, name: &str) -> Result<Lives> {
        let retries = Retries::as_sidecars();
        let new = |name: &str| Life::mounted(lab, self.controller.channel(), self.node.channel(), name, "ext4");
        let node = new(name)?.node_info().await?;
        let start = Start::now(self, cloud).await?;
        let mut lateness = Vec::new();
        for number in 0..count {
            let life = new(&format!("{name}-{number}"))?.retries(&retries).on(&node);
            let volume = life.create().await?;
            let context = life.attach(&volume).await?;
            let answered = SystemTime::now();
            lateness.extend(late(cloud, &[(volume.volume_id.clone(), answered)]).await?);
            life.stage(&volume, &context).await?;
            life.publish(&volume, &context).await?;
            life.unpublish(&volume).await?;
            life.unstage(&volume).await?;
            life.detach(&volume).await?;
            life.delete(&volume).await?;
        }
        let lives = Lives {
            count,
            failures: retries.failures(),
            lateness,
            ..Lives::default()
        };
        start.end(self, cloud, lives).await
    }

    /// Runs the controller's part of many lifecycles, each step for all of them at once.
    async fn crowd(&self, lab: &Lab, cloud: &MeasuredCloud, count: u32, name: &str) -> Result<Lives> {
        let retries = Retries::as_sidecars();
        let new = |name: &str| Life::block(lab, self.controller.channel(), self.node.channel(), name);
        let node = new(name)?.node_info().await?;
        let lives: Vec<Life> = (0..count)
            .map(|number| Ok(new(&format!("{name}-{number}"))?.retries(&retries).on(&node)))
            .collect::<Result<_>>()?;
        let start = Start::now(self, cloud).await?;
        let volumes = try_join_all(lives.iter().map(Life::create)).await?;
        let before = Instant::now();
        let answers = try_join_all(lives.iter().zip(&volumes).map(async |(life, volume)| -> Result<_> {
            life.attach(volume).await?;
            Ok((volume.volume_id.clone(), SystemTime::now()))
        }))
        .await?;
        let attach = before.elapsed();
        let lateness = late(cloud, &answers).await?;
        try_join_all(lives.iter().zip(&volumes).map(|(life, volume)| life.detach(volume))).await?;
        try_join_all(lives.iter().zip(&volumes).map(|(life, volume)| life.delete(volume))).await?;
        let lives = Lives {
            count,
            failures: retries.failures(),
            lateness,
            attach,
            ..Lives::default()
        };
        start.end(self, cloud, lives).await
    }
}

/// Returns the delays between the attach in the cloud and the driver's response, sorted.
async fn late(cloud: &MeasuredCloud, answers: &[(String, SystemTime)]) -> Result<Vec<Duration>> {
    let attached = cloud.attached_at().await?;
    let mut lateness = Vec::new();
    for (volume, answered) in answers {
        let Some(at) = attached.get(volume) else { continue };
        let answered = Timestamp::try_from(*answered).context("this machine's clock is out of range")?;
        // A response before the event counts as zero: the two clocks may differ by their resolution.
        lateness.push(Duration::try_from(answered.duration_since(*at)).unwrap_or_default());
    }
    lateness.sort();
    Ok(lateness)
}

/// Counters at the start of a measurement.
struct Start {
    at: Instant,
    requests: Requests,
    processor: Roles<Processor>,
}

impl Start {
    async fn now(pair: &Pair, cloud: &MeasuredCloud) -> Result<Self> {
        Ok(Self {
            requests: cloud.requests().await?,
            processor: pair.roles(processor_time)?,
            at: Instant::now(),
        })
    }

    /// Adds the growth of the counters since the start to `lives`.
    async fn end(self, pair: &Pair, cloud: &MeasuredCloud, mut lives: Lives) -> Result<Lives> {
        lives.wall = self.at.elapsed();
        let processor = pair.roles(processor_time)?;
        lives.processor = growth(processor, self.processor);
        lives.requests = since(cloud.requests().await?, &self.requests);
        lives.lateness.sort();
        Ok(lives)
    }
}

/// Returns the processor time that both roles used between two samples.
pub(crate) fn growth(after: Roles<Processor>, before: Roles<Processor>) -> Roles<Processor> {
    let of = |after: Processor, before: Processor| Processor {
        own: after.own.saturating_sub(before.own),
        programs: after.programs.saturating_sub(before.programs),
    };
    Roles {
        controller: of(after.controller, before.controller),
        node: of(after.node, before.node),
    }
}
