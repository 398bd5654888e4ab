// SPDX-License-Identifier: Apache-2.0
//! Runs fixed seeds for each change of the product, and checks that runs are deterministic.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::io::Write as _;

use simulate::run::{Plan, Report, run};

/// Fits in 15 seconds on two cores.
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
fn random_faults_cause_no_violation() {
    let mut steps = 0;
    for seed in 1..=SEEDS {
        let report = report(seed, false);
        if let Some(violation) = &report.violation {
            panic!("{}\nseed {seed}: {violation}", report.trace.join("\n"));
        }
        steps += report.steps;
    }
    // Not by a macro: the test framework captures the output of macros in a passing test.
    drop(writeln!(
        std::io::stderr(),
        "random faults: {steps} steps of {SEEDS} seeds, nothing found"
    ));
}

#[test]
fn trace_depends_only_on_seed() {
    let (first, again, other) = (report(7, true), report(7, true), report(8, true));
    for (number, (first, again)) in first.trace.iter().zip(&again.trace).enumerate() {
        assert_eq!(first, again, "line {number}");
    }
    assert_eq!(first, again);
    assert_ne!(first.digest, other.digest);
}
