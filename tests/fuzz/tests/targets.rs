// SPDX-License-Identifier: Apache-2.0
//! Every target, for some seconds.

use fuzz::{Mutator, TARGETS};

/// Printed by a failing run through the panic of the target; `fuzz TARGET --seed` repeats it.
const SEED: u64 = 20_240_613;
const RUNS: u32 = 20_000;

#[test]
fn every_target_keeps_its_promises_on_mutated_inputs() {
    for target in TARGETS {
        println!("{}: {RUNS} runs with seed {SEED}", target.name);
        fuzz::run(target, RUNS, SEED);
    }
}

#[test]
fn every_target_takes_its_good_inputs_and_none_at_all() {
    for target in TARGETS {
        for seed in target.seeds.iter().chain(&[""]) {
            (target.eat)(seed.as_bytes());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_inputs_and_another_seed_others() {
    let inputs = |seed: u64| -> Vec<Vec<u8>> {
        let mut mutator = Mutator::new(&["one input", "another"], &["word"], seed);
        (0..100).map(|_| mutator.input()).collect()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    let different: std::collections::BTreeSet<Vec<u8>> = inputs(1).into_iter().collect();
    assert!(different.len() > 80, "{} of 100 differ", different.len());
}
