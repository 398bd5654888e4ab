//! What the kernel tells about a process: proc(5).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

/// Processor time of all threads, those that have ended included, in user and kernel mode.
pub(crate) fn processor_time(pid: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field is the program's name in parentheses and may hold anything.
    let (_, fields) = text.rsplit_once(')').with_context(|| format!("{path} is cut"))?;
    let ticks: Option<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().ok())
        .sum();
    let ticks = ticks.with_context(|| format!("{path} has no times"))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1000 / per_second))
}

/// Resident memory in KiB, now and at most so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// `VmRSS`.
    pub(crate) now: u64,
    /// `VmHWM`.
    pub(crate) most: u64,
}

/// Resident memory of a process.
pub(crate) fn memory(pid: Pid) -> Result<Memory> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .with_context(|| format!("{path} has no {name}"))
    };
    Ok(Memory {
        now: field("VmRSS:")?,
        most: field("VmHWM:")?,
    })
}
