// SPDX-License-Identifier: Apache-2.0
//! Kills the driver with SIGKILL during every mutating RPC: at every OpenStack request, at every host command, after
//! every system call that changes a mount, during asynchronous work of the cloud, and inside mkfs.
//!
//! A request or a command is suspended before or after its effect. Then the test kills and restarts the driver's
//! process, and repeats the RPC like a sidecar or the kubelet. After every step, the state of cloud and node must equal
//! that of an undisturbed run. Data must be unchanged, and nothing may remain at the end. `CRASH_SEED=N` repeats the
//! selection of points in mkfs.

mod mkfs;
mod report;
mod run;
mod scenarios;
mod state;
mod steps;
mod world;

use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use suites::host_commands::When;
use suites::lab::{Lab, in_lab};
use suites::simulator::REAL_LATENCIES;

use report::Report;
use run::{Disturbance, Run, StepObservation};
use scenarios::{backups, copies, groups, growth, life};
use world::World;

#[test]
fn mounted_volume_lifecycle_survives_kill() {
    everywhere("a mounted volume", life::mounted);
}

#[test]
fn raw_device_lifecycle_survives_kill() {
    everywhere("a raw device", life::block);
}

#[test]
fn file_system_expansion_survives_kill() {
    everywhere("a file system that grows", growth::mounted);
}

#[test]
fn raw_device_expansion_survives_kill() {
    everywhere("a raw device that grows", growth::block);
}

#[test]
fn volume_modification_survives_kill() {
    everywhere("another type and other metadata", growth::modified);
}

#[test]
fn snapshot_lifecycle_survives_kill() {
    everywhere("a snapshot", copies::snapshot);
}

#[test]
fn clone_survives_kill() {
    everywhere("a clone", copies::clone);
}

#[test]
fn stage_of_larger_clone_survives_kill() {
    everywhere("a larger clone", copies::larger);
}

#[test]
fn backup_and_restore_survive_kill() {
    everywhere("a backup that is restored", backups::restored);
}

#[test]
fn incremental_backup_survives_kill() {
    everywhere("an incremental backup", backups::incremental);
}

#[test]
fn deletion_of_unfinished_backup_survives_kill() {
    everywhere("a backup whose data are frozen", backups::frozen);
}

#[test]
fn group_snapshot_lifecycle_survives_kill() {
    everywhere("a group snapshot", groups::snapshot);
}

/// A share of the runs of a scenario.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// Kills at every [`STRIPES`]-th point, starting with this one.
    At(When, usize),
    /// Kills during asynchronous states.
    Meanwhile,
}

/// Number of shares of each kind of [`Share::At`].
const STRIPES: usize = 2;

/// Runs a scenario repeatedly. The first run is undisturbed and records the points of each step and the state after it.
/// Further runs kill at the first point of every step, then at the second, and so on. [`Share::Meanwhile`] kills in
/// each asynchronous state, with the latencies of real services. The shares run in parallel on separate clouds, because
/// a restarted process mostly waits.
fn everywhere<S>(what: &str, scenario: S)
where
    S: AsyncFn(&mut Run<'_>) -> Result<()> + Copy + Send + 'static,
{
    let report = Arc::new(Report::new(what));
    let stripes = (0..STRIPES).flat_map(|stripe| [Share::At(When::Before, stripe), Share::At(When::After, stripe)]);
    let threads: Vec<_> = stripes
        .chain([Share::Meanwhile])
        .map(|share| {
            let report = Arc::clone(&report);
            thread::spawn(move || in_lab(async move |lab| runs(lab, share, &scenario, &report).await))
        })
        .collect();
    let ends: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    report.print();
    if let Some(panic) = ends.into_iter().find_map(Result::err) {
        resume_unwind(panic);
    }
}

async fn runs(
    lab: Rc<Lab>,
    share: Share,
    scenario: &impl AsyncFn(&mut Run<'_>) -> Result<()>,
    report: &Report,
) -> Result<()> {
    let mut world = World::start(lab).await?;
    let mut run = Run::new(&mut world, Disturbance::Nothing, &[]).await?;
    scenario(&mut run).await.context("undisturbed")?;
    let expected = run.end().await.context("undisturbed")?;
    report.life(Vec::new(), Vec::new());
    match share {
        Share::At(when, stripe) => {
            let most = expected.iter().map(|seen| seen.places.len()).max().unwrap_or_default();
            for number in (stripe..most).step_by(STRIPES) {
                once(&mut world, Disturbance::At(number, when), &expected, scenario, report).await?;
            }
        }
        Share::Meanwhile => {
            world.simulator.set_latencies(REAL_LATENCIES).await?;
            let most = expected.iter().map(|seen| seen.lasting).max().unwrap_or_default();
            for index in 0..most {
                once(&mut world, Disturbance::While(index), &expected, scenario, report).await?;
            }
        }
    }
    world.stop().await
}

async fn once(
    world: &mut World,
    disturbance: Disturbance,
    expected: &[StepObservation],
    scenario: &impl AsyncFn(&mut Run<'_>) -> Result<()>,
    report: &Report,
) -> Result<()> {
    let description = format!("{disturbance:?}");
    let mut run = Run::new(world, disturbance, expected).await?;
    scenario(&mut run).await.with_context(|| description.clone())?;
    let (points, missed) = (std::mem::take(&mut run.points), std::mem::take(&mut run.missed));
    run.end()
        .await
        .with_context(|| format!("{description}, killed at {points:?}"))?;
    report.life(points, missed);
    Ok(())
}
