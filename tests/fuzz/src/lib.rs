// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: functions that take any bytes and panic when the product breaks a promise.
//!
//! A target is a plain function. `cargo test` runs it a fixed number of times with the mutator of this crate, and `fuzz TARGET --runs N`
//! N times. `make fuzz` runs it under libFuzzer, which measures coverage and keeps inputs that reach new code.
//! `fuzz TARGET FILE…` repeats an input.

#![allow(clippy::panic, reason = "a target reports by a panic")]

mod certificates;
mod cloud_conf;
mod clouds_yaml;
mod config_drive;
mod fault;
mod instance_data;
mod mountinfo;
mod mutate;
mod objects;
mod openstack;
mod options;
mod overrides;
mod probe;
mod request;

pub use mutate::{Mutator, Random};

use rustix::process::{Resource, Rlimit, setrlimit};

/// Memory limit of the process, more than ten times the usage with valid inputs.
const MEMORY: u64 = 512 << 20;

/// A fuzz target and the inputs from which mutations start.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name on the command line.
    pub name: &'static str,
    /// Returns valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Tokens of the format.
    pub words: &'static [&'static str],
    /// Processes an input. Panics when the product breaks a promise.
    pub eat: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    certificates::TARGET,
    cloud_conf::TARGET,
    clouds_yaml::TARGET,
    config_drive::TARGET,
    fault::TARGET,
    instance_data::TARGET,
    mountinfo::TARGET,
    objects::TARGET,
    openstack::TARGET,
    options::MKFS,
    options::MOUNT,
    overrides::TARGET,
    probe::BLKID,
    probe::DISK,
    request::TARGET,
];

/// Runs a target with `runs` mutated inputs. The same seed gives the same inputs.
pub fn run(target: &Target, runs: u32, seed: u64) {
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(&seeds, target.words, seed);
    for _ in 0..runs {
        (target.eat)(&mutator.input());
    }
}

/// Limits the memory of the process, so that an allocation without a bound aborts it.
pub fn limit_memory() -> Result<(), String> {
    let limit = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    setrlimit(Resource::Data, limit).map_err(|error| format!("cannot limit the memory: {error}"))
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
