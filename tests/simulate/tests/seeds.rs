// SPDX-License-Identifier: Apache-2.0
//! Fixed seeds for each change of the product, and the proof that a seed decides everything.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::io::Write as _;

use simulate::run::{Plan, Report, run};

/// As many as 15 seconds allow on two cores.
const SEEDS: u64 = 12;
const STEPS: u64 = 4_000;

fn report(seed: u64, whole: bool) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan {
        seed,
        steps: STEPS,
        whole,
    };
    run(plan, folder.path()).expect("a run")
}

#[test]
fn nothing_is_lost_leaked_or_false_under_random_faults() {
    let mut steps = 0;
    for seed in 1..=SEEDS {
        let report = report(seed, false);
        if let Some(violation) = &report.violation {
            panic!("{}\nseed {seed}: {violation}", report.trace.join("\n"));
        }
        steps += report.steps;
    }
    // Not by a macro: what those print of a test that passes is shown to no one.
    drop(writeln!(
        std::io::stderr(),
        "random faults: {steps} steps of {SEEDS} seeds, nothing found"
    ));
}

#[test]
fn a_seed_gives_the_same_trace_to_the_byte_and_another_seed_another_one() {
    let (first, again, other) = (report(7, true), report(7, true), report(8, true));
    for (number, (first, again)) in first.trace.iter().zip(&again.trace).enumerate() {
        assert_eq!(first, again, "line {number}");
    }
    assert_eq!(first, again);
    assert_ne!(first.digest, other.digest);
}
