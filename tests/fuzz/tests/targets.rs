// SPDX-License-Identifier: Apache-2.0
//! Runs every target for a few seconds.

use fuzz::{Mutator, TARGETS};

/// The panic message of a failing target contains the seed; `fuzz TARGET --seed` repeats the run.
const SEED: u64 = 20_240_613;
const RUNS: u32 = 3_000;
/// Targets that render all objects of a driver in each run.
const SLOW: &[&str] = &["overrides"];

#[test]
fn targets_survive_mutated_inputs() {
    fuzz::limit_memory().expect("a limit");
    for target in TARGETS {
        let runs = if SLOW.contains(&target.name) { RUNS / 10 } else { RUNS };
        println!("{}: {runs} runs with seed {SEED}", target.name);
        fuzz::run(target, runs, SEED);
    }
}

#[test]
fn targets_accept_valid_and_empty_inputs() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(
            !seeds.is_empty() && seeds.iter().all(|seed| seed.len() <= 4096),
            "{}",
            target.name
        );
        for seed in seeds.iter().chain(&[Vec::new()]) {
            (target.eat)(seed);
        }
    }
}

#[test]
fn inputs_depend_only_on_seed() {
    let inputs = |seed: u64| -> Vec<Vec<u8>> {
        let seeds = [b"one input".to_vec(), b"another".to_vec()];
        let mut mutator = Mutator::new(&seeds, &["word"], seed);
        (0..100).map(|_| mutator.input()).collect()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    let different: std::collections::BTreeSet<Vec<u8>> = inputs(1).into_iter().collect();
    assert!(different.len() > 80, "{} of 100 differ", different.len());
}
