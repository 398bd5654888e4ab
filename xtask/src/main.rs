// SPDX-License-Identifier: Apache-2.0
//! Writes the generated files, or compares them with the code with `--check`.

use std::{env, fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result};

mod examples;
mod fields;
mod flags;
mod issues;
mod markdown;
mod pages;
mod paths;
mod settings;

fn main() -> ExitCode {
    let check = env::args().skip(1).any(|argument| argument == "--check");
    match generate(check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the files, or reports whether all of them are up to date.
fn generate(check: bool) -> Result<bool> {
    let mut are_current = true;
    let generated = pages::pages()?;
    let mut pages: Vec<(String, String)> = generated
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text))
        .collect();
    pages.extend(examples::pages()?);
    for (name, text) in pages {
        let path = Path::new(paths::ROOT).join(&name);
        if !check {
            fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        } else if fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))? != text {
            eprintln!("{name} is out of date: run `make generate`");
            are_current = false;
        }
    }
    Ok(are_current)
}
