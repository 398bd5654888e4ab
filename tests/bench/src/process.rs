// SPDX-License-Identifier: Apache-2.0
//! Resource usage of a process from proc(5).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

fn read(pid: Pid, name: &str) -> Result<String> {
    let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// Processor time in user and kernel mode, in units of the kernel's clock tick (10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Time of all threads, including exited ones.
    pub(crate) own: Duration,
    /// Time of exited child processes such as `mkfs`, `mount` and `blkid`.
    pub(crate) programs: Duration,
}

/// Returns the processor time of a process so far.
pub(crate) fn processor_time(pid: Pid) -> Result<Processor> {
    let text = read(pid, "stat")?;
    // The second field is the program name in parentheses, and may contain any character.
    let (_, fields) = text.rsplit_once(')').context("/proc/PID/stat is cut")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let time = |first: usize| -> Result<Duration> {
        let ticks: Option<u64> = (first..first + 2).map(|at| fields.get(at)?.parse::<u64>().ok()).sum();
        let ticks = ticks.context("/proc/PID/stat has no times")?;
        Ok(Duration::from_millis(
            ticks * 1000 / rustix::param::clock_ticks_per_second(),
        ))
    };
    Ok(Processor {
        own: time(11)?,
        programs: time(13)?,
    })
}

/// Returns the processor time of the current threads in nanoseconds. Valid only over periods in which no thread exits.
pub(crate) fn processor_time_of_threads(pid: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    let mut sum = Duration::ZERO;
    for thread in threads {
        let path = thread.with_context(|| format!("cannot read {path}"))?.path();
        // The thread has just exited.
        let Ok(text) = fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok());
        sum += Duration::from_nanos(nanoseconds.context("/proc/PID/task/TID/schedstat has no time")?);
    }
    Ok(sum)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Current resident size in KiB.
    pub(crate) now: u64,
    /// Peak resident size in KiB.
    pub(crate) most: u64,
    /// Anonymous part of `now` in KiB: heaps and stacks.
    pub(crate) anonymous: u64,
    /// File-backed part of `now` in KiB: the program file, which the kernel may drop and read again.
    pub(crate) file: u64,
    /// Proportional set size in KiB: like `now`, but shared pages are divided among their processes.
    pub(crate) share: u64,
}

/// Returns the resident memory of a process.
pub(crate) fn memory(pid: Pid) -> Result<Memory> {
    let texts = [read(pid, "status")?, read(pid, "smaps_rollup")?];
    let field = |name: &str| -> Result<u64> {
        let mut lines = texts.iter().flat_map(|text| text.lines());
        let line = lines.find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .with_context(|| format!("/proc/PID has no {name}"))
    };
    Ok(Memory {
        now: field("VmRSS:")?,
        most: field("VmHWM:")?,
        anonymous: field("RssAnon:")?,
        file: field("RssFile:")?,
        share: field("Pss:")?,
    })
}
