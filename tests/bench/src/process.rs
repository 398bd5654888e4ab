// SPDX-License-Identifier: Apache-2.0
//! What the kernel tells about a process: proc(5).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

fn read(pid: Pid, name: &str) -> Result<String> {
    let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// Processor time in user and kernel mode, in whole ticks of the kernel's, which are 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Of all threads, those that have ended included.
    pub(crate) own: Duration,
    /// Of the programs that it started and that have ended: `mkfs`, `mount`, `blkid` …
    pub(crate) programs: Duration,
}

/// Processor time of a process so far.
pub(crate) fn processor_time(pid: Pid) -> Result<Processor> {
    let text = read(pid, "stat")?;
    // The second field is the program's name in parentheses and may hold anything.
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

/// Processor time of the threads that there are now, to the nanosecond: for times in which no thread ends.
pub(crate) fn processor_time_of_threads(pid: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    let mut sum = Duration::ZERO;
    for thread in threads {
        let path = thread.with_context(|| format!("cannot read {path}"))?.path();
        // One that has just ended has nothing more to tell.
        let Ok(text) = fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok());
        sum += Duration::from_nanos(nanoseconds.context("/proc/PID/task/TID/schedstat has no time")?);
    }
    Ok(sum)
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) now: u64,
    /// Resident at most so far.
    pub(crate) most: u64,
    /// The part of `now` that is the process's own: heaps and stacks.
    pub(crate) anonymous: u64,
    /// The part of `now` that is the file of the program, which the kernel may drop and read again.
    pub(crate) file: u64,
    /// The same as `now`, with pages that other processes have too divided among them.
    pub(crate) share: u64,
}

/// Resident memory of a process.
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
