// SPDX-License-Identifier: Apache-2.0
//! The system calls by which a node changes what is mounted where, one of which its process can be stopped after.

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

/// Those that change something. `openat` is there for the file that a device is mounted on.
const CALLS: &str = "openat,mkdir,rmdir,unlink,mount,umount2,move_mount";
const ATTACH_LIMIT: Duration = Duration::from_secs(10);

/// A driver of which strace notes the calls that name certain places. What the driver starts is not followed.
#[derive(Debug)]
pub struct Traced {
    strace: Process,
    driver: Pid,
    trace: PathBuf,
}

impl Traced {
    /// Follows a running driver from now on. Where it is to be stopped, every one of the calls stops it once it is done, until
    /// [`Traced::stopped_after`] lets it go on.
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

    /// Lets the calls before this one pass, counted from 1, and answers the name of that one when it is done and the driver
    /// stands still after it.
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

    /// Lets go of the driver, which may have been killed, and answers the calls that were done, by name.
    pub async fn detach(self) -> Result<Vec<String>> {
        let Self { strace, trace, .. } = self;
        if strace.pid().is_ok() {
            // It may end at this moment, with what it follows.
            drop(strace.stop().await);
        }
        Ok(read(&trace).into_iter().map(|call| call.name).collect())
    }
}

/// A call that is done.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    thread: String,
    name: String,
    stopped: bool,
}

fn read(trace: &Path) -> Vec<Call> {
    parse(&fs::read_to_string(trace).unwrap_or_default())
}

/// Lines such as `12 umount2("/x", 0)    = 0`, `12 <... umount2 resumed>) = 0` and `12 --- stopped by SIGSTOP ---`.
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
    fn calls_count_when_they_are_done_and_stop_their_own_thread() {
        let trace = "7 mkdir(\"/x\", 0750 <unfinished ...>\n8 mount(\"/a\", \"/x\", NULL, MS_BIND, NULL) = 0\n\
                     7 <... mkdir resumed>)              = 0\n7 --- SIGSTOP {si_signo=SIGSTOP} ---\n\
                     9 --- stopped by SIGSTOP ---\n7 --- stopped by SIGSTOP ---\n";
        let names: Vec<_> = parse(trace).into_iter().map(|call| (call.name, call.stopped)).collect();
        assert_eq!(names, [("mount".to_owned(), false), ("mkdir".to_owned(), true)]);
    }
}
