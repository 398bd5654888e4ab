// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: functions that eat any bytes and panic when a promise is broken.
//!
//! cargo-fuzz needs a nightly compiler, and this repository is built with a pinned stable one. So a target is a plain function: the
//! mutator here runs it a fixed number of times in `cargo test`, `fuzz TARGET --runs N` for as long as one likes, and
//! `fuzz TARGET FILE…` (or standard input) gives it the bytes of an outside fuzzer such as AFL or honggfuzz.

mod cloud_conf;
mod fault;
mod mountinfo;
mod mutate;
mod request;

pub use mutate::{Mutator, Random};

/// A target with what mutations start from.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Good inputs.
    pub seeds: &'static [&'static str],
    /// Words that mean something in the format.
    pub words: &'static [&'static str],
    /// Eats an input; panics when a promise is broken.
    pub eat: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[cloud_conf::TARGET, fault::TARGET, mountinfo::TARGET, request::TARGET];

/// Gives a target `runs` mutated inputs. The same seed gives the same inputs.
pub fn run(target: &Target, runs: u32, seed: u64) {
    let mut mutator = Mutator::new(target.seeds, target.words, seed);
    for _ in 0..runs {
        (target.eat)(&mutator.input());
    }
}
