// SPDX-License-Identifier: Apache-2.0
//! `fuzz TARGET [--runs N] [--seed S]` runs mutated inputs. `fuzz TARGET FILE…` repeats inputs of another fuzzer; `-`
//! is standard input. `fuzz --seeds DIRECTORY` writes the valid inputs of all targets into one directory each, and
//! prints the names of the targets.

use std::io::{self, Read};
use std::path::Path;
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
                "{problem}\nusage: fuzz TARGET [--runs N] [--seed S] | fuzz TARGET FILE… | fuzz --seeds DIRECTORY\ntargets: {}",
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
    fuzz::limit_memory()?;
    if let ("--seeds", [directory]) = (name.as_str(), rest) {
        return write_seeds(Path::new(directory)).map_err(|error| format!("{directory}: {error}"));
    }
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

fn write_seeds(directory: &Path) -> io::Result<()> {
    for target in TARGETS {
        println!("{}", target.name);
        let place = directory.join(target.name);
        std::fs::create_dir_all(&place)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(place.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}

fn files(target: &Target, files: &[String]) -> Result<(), String> {
    for file in files {
        let bytes = if file == "-" {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(file)
        };
        (target.eat)(&bytes.map_err(|error| format!("{file}: {error}"))?);
    }
    Ok(())
}
