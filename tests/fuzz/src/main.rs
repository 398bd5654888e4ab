// SPDX-License-Identifier: Apache-2.0
//! `fuzz TARGET [--runs N] [--seed S]`, or `fuzz TARGET FILE…` with the inputs of an outside fuzzer, `-` for standard input.

use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

use fuzz::{TARGETS, Target};

const RUNS: u32 = 1_000_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match start(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!(
                "{problem}\nusage: fuzz TARGET [--runs N] [--seed S] | fuzz TARGET FILE…\ntargets: {}",
                names.join(", ")
            );
            ExitCode::FAILURE
        }
    }
}

fn start(words: &[String]) -> Result<(), String> {
    let [name, rest @ ..] = words else {
        return Err("which target?".to_owned());
    };
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| format!("there is no target {name}"))?;
    match rest.first() {
        Some(first) if !first.starts_with("--") => files(target, rest),
        _ => {
            let number = |flag: &str, default: u64| match rest.iter().position(|word| word == flag) {
                None => Ok(default),
                Some(at) => {
                    let value = rest.get(at + 1).and_then(|word| word.parse().ok());
                    value.ok_or_else(|| format!("{flag} needs a number"))
                }
            };
            let runs = u32::try_from(number("--runs", RUNS.into())?).map_err(|_| "--runs is too large".to_owned())?;
            let seed = number("--seed", 1)?;
            let started = Instant::now();
            fuzz::run(target, runs, seed);
            println!(
                "{name}: {runs} runs with seed {seed} in {:.1} s",
                started.elapsed().as_secs_f64()
            );
            Ok(())
        }
    }
}

fn files(target: &Target, files: &[String]) -> Result<(), String> {
    for file in files {
        let bytes = if file == "-" {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(file)
        };
        (target.eat)(&bytes.map_err(|error| format!("{file}: {error}"))?);
    }
    Ok(())
}
