// SPDX-License-Identifier: Apache-2.0
//! Programs with more output than fits into a pipe, a message or the memory of this process.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot do its part fails the test"
)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use csi_host::tool::{ToolExit, ToolTask};
use csi_host::{Linux, Machine, ToolError};
use rstest::rstest;

const LIMIT: Duration = Duration::from_mins(2);
const MIB: u64 = 1 << 20;
/// Limit of this process's growth. It runs other cases of this file at the same time.
const MOST_GROWTH: u64 = 16 * MIB;

async fn run(script: &str, limit: Duration) -> Result<ToolExit, ToolError> {
    let machine = Linux::default();
    let place = Path::new("/nonexistent");
    machine
        .run(Path::new("sh"), &["-c", script], place, limit, ToolTask::Probe)
        .await
}

/// Reads a line of `/proc/self/status` in bytes.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the line");
    let number = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse::<u64>().ok());
    number.expect("a number of KiB") * 1024
}

#[rstest]
#[case::nothing("true", 0, 0)]
#[case::stdout("head -c 10G /dev/zero", 10 << 30, 0)]
#[case::stderr("head -c 1G /dev/zero >&2", 0, 1 << 30)]
#[case::half_characters(r"yes $(printf '\303') | head -c 300M", 300 << 20, 0)]
#[case::both_at_once("head -c 400M /dev/zero & head -c 400M /dev/zero >&2; wait", 400 << 20, 400 << 20)]
#[case::one_after_the_other("for i in 1 2 3; do head -c 1M /dev/zero >&2; head -c 1M /dev/zero; done", 3 << 20, 3 << 20)]
#[tokio::test]
async fn long_output_ends_in_bounded_memory(#[case] script: &str, #[case] stdout: u64, #[case] stderr: u64) {
    let before = memory("VmHWM:");
    let ended = run(script, LIMIT).await.expect("the program runs");
    let growth = memory("VmHWM:") - before;
    assert_eq!(ended.code, Some(0), "{}", ended.how);
    assert_eq!((ended.stdout.length(), ended.stderr.length()), (stdout, stderr));
    assert!(growth < MOST_GROWTH, "the process grew by {growth} bytes");
    for output in [ended.stdout, ended.stderr] {
        let message = output.message();
        assert!(message.chars().count() <= 2_000);
        assert!(!message.contains(char::is_control));
    }
}

#[tokio::test]
async fn endless_output_ends_with_the_limit() {
    let limit = Duration::from_millis(200);
    let error = run("exec yes", limit).await.expect_err("it never ends");
    assert!(
        matches!(
            error,
            ToolError::TimedOut {
                left_running: false,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn closed_pipes_do_not_block_call() {
    let ended = run("exec >&- 2>&-; exit 3", LIMIT).await.expect("the program runs");
    assert_eq!(ended.code, Some(3));
    assert!(ended.stdout.is_blank() && ended.stderr.is_blank());
}
