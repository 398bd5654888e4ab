// SPDX-License-Identifier: Apache-2.0
//! Traces the system calls that change mounts on a node, and stops the process after one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::wait_for_some;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::drivers::Driver;
use crate::lab::Lab;
use crate::process::Process;

/// System calls that change mounts or mount points. `openat` creates the file on which a device is mounted.
const CALLS: &str = "openat,mkdir,rmdir,unlink,mount,umount2,move_mount";
const ATTACH_LIMIT: Duration = Duration::from_secs(10);

/// A driver whose system calls on certain paths strace records. Child processes are not traced.
#[derive(Debug)]
pub struct Traced {
    strace: Process,
    driver: Pid,
    trace: PathBuf,
}

impl Traced {
    /// Traces a running driver from now on. With `stop`, the driver stops after every recorded call until
    /// [`Traced::stopped_after`] continues it.
    pub async fn attach(lab: &Lab, driver: &Driver, places: &[&Path], stop: bool) -> Result<Self> {
        let (trace, log) = (lab.path("strace"), lab.path("strace.log"));
        for path in [&trace, &log] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        let driver = driver.pid()?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "strace", "--follow-forks", "--detach-on=execve"]);
        command.arg(format!("--trace={CALLS}"));
        if stop {
            command.arg(format!("--inject={CALLS}:signal=SIGSTOP"));
        }
        for place in places {
            command.arg(format!("--trace-path={}", place.display()));
        }
        command.arg(format!("--output={}", trace.display()));
        command.arg(format!("--attach={}", driver.as_raw_nonzero()));
        let mut strace = Process::spawn("strace", command, &log)?;
        wait_for_some("strace to follow the driver", ATTACH_LIMIT, async || {
            strace.check()?;
            Ok(strace.log()?.contains("attached").then_some(()))
        })
        .await?;
        Ok(Self { strace, driver, trace })
    }

    /// Continues the driver until it has stopped after call `number`, counted from 1. Returns the name of that call.
    pub async fn stopped_after(&self, number: usize, limit: Duration) -> Result<String> {
        let mut passed = 0;
        wait_for_some("the system call", limit, async || {
            let calls = read(&self.trace);
            let Some(call) = calls.into_iter().nth(passed).filter(|call| call.stopped) else {
                return Ok(None);
            };
            passed += 1;
            if passed == number {
                return Ok(Some(call.name));
            }
            kill_process(self.driver, Signal::CONT).context("cannot let the driver go on")?;
            Ok(None)
        })
        .await
    }

    /// Detaches from the driver, which may have been killed. Returns the names of the completed calls.
    pub async fn detach(self) -> Result<Vec<String>> {
        let Self { strace, trace, .. } = self;
        if strace.pid().is_ok() {
            // strace may be ending together with the driver.
            drop(strace.stop().await);
        }
        Ok(read(&trace).into_iter().map(|call| call.name).collect())
    }
}

/// A completed call.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    thread: String,
    name: String,
    stopped: bool,
}

fn read(trace: &Path) -> Vec<Call> {
    parse(&fs::read_to_string(trace).unwrap_or_default())
}

/// Parses lines such as `12 umount2("/x", 0)    = 0`, `12 <... umount2 resumed>) = 0` and `12 --- stopped by SIGSTOP
/// ---`.
fn parse(trace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for line in trace.lines() {
        let Some((thread, event)) = line.split_once(' ') else {
            continue;
        };
        let event = event.trim_start();
        if event.starts_with("--- stopped by SIGSTOP") {
            if let Some(call) = calls.iter_mut().rev().find(|call| call.thread == thread) {
                call.stopped = true;
            }
        } else if event
            .rsplit_once(" = ")
            .is_some_and(|(call, _)| call.trim_end().ends_with(')'))
        {
            let name = event.trim_start_matches("<... ");
            let name = name.split(['(', ' ']).next().unwrap_or_default();
            calls.push(Call {
                thread: thread.to_owned(),
                name: name.to_owned(),
                stopped: false,
            });
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_completed_calls_and_stops_per_thread() {
        let trace = "7 mkdir(\"/x\", 0750 <unfinished ...>\n8 mount(\"/a\", \"/x\", NULL, MS_BIND, NULL) = 0\n\
                     7 <... mkdir resumed>)              = 0\n7 --- SIGSTOP {si_signo=SIGSTOP} ---\n\
                     9 --- stopped by SIGSTOP ---\n7 --- stopped by SIGSTOP ---\n";
        let names: Vec<_> = parse(trace).into_iter().map(|call| (call.name, call.stopped)).collect();
        assert_eq!(names, [("mount".to_owned(), false), ("mkdir".to_owned(), true)]);
    }
}
