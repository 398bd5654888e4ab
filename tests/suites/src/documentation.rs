// SPDX-License-Identifier: Apache-2.0
//! The pages of `docs/` in their order, with their examples and commands.
//!
//! A scenario of the cluster applies the examples and runs the commands. The tests here need no cluster.

mod commands;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, Result};
use harness::workspace_root;
use serde::Deserialize as _;
use serde_json::Value;

pub use commands::{Proof, proof};

/// Page with the migration, which begins in a cluster with cinder-csi-plugin.
pub const MIGRATION: &str = "migrate-from-cinder-csi-plugin.md";
const SAMPLES: &str = "config/samples/";

/// A page of the documentation.
#[derive(Debug)]
pub struct Page {
    /// Path below `docs/`.
    pub name: String,
    /// Examples and commands in their order.
    pub parts: Vec<Part>,
}

/// An example or a command of a page.
#[derive(Debug)]
pub enum Part {
    Example(Example),
    /// A command without its prompt. It may have several lines.
    Command(String),
}

/// A code block in YAML.
#[derive(Debug)]
pub struct Example {
    /// Name of the file in `config/samples`, if the block shows one.
    pub sample: Option<String>,
    pub text: String,
}

/// Returns all pages in the order of `docs/SUMMARY.md`.
pub fn pages() -> Result<Vec<Page>> {
    let docs = workspace_root().join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).with_context(|| format!("cannot read {name}"));
    let summary = read("SUMMARY.md")?;
    let names = summary
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(name, _)| name);
    names.map(|name| Ok(Page::parse(name, &read(name)?))).collect()
}

impl Page {
    fn parse(name: &str, text: &str) -> Self {
        let mut parts = Vec::new();
        // The last line of text, and the open code block with its language.
        let mut paragraph = "";
        let mut open: Option<(&str, String)> = None;
        for line in text.lines() {
            let fence = line.trim_start().strip_prefix("```");
            match (open.take(), fence) {
                (None, Some(language)) => open = Some((language, String::new())),
                (None, None) if line.is_empty() => {}
                (None, None) => paragraph = line,
                (Some((language, block)), Some(_)) => {
                    let sample = linked_sample(std::mem::take(&mut paragraph)).map(str::to_owned);
                    match language {
                        "yaml" => parts.push(Part::Example(Example { sample, text: block })),
                        "console" => parts.extend(commands_of(&block).into_iter().map(Part::Command)),
                        _ => {}
                    }
                }
                (Some((language, block)), None) => open = Some((language, block + line + "\n")),
            }
        }
        Self {
            name: name.to_owned(),
            parts,
        }
    }

    /// Returns the commands.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Command(command) => Some(command.as_str()),
            Part::Example(_) => None,
        })
    }

    /// Returns the examples.
    pub fn examples(&self) -> impl Iterator<Item = &Example> {
        self.parts.iter().filter_map(|part| match part {
            Part::Example(example) => Some(example),
            Part::Command(_) => None,
        })
    }
}

/// Returns the name of the sample in the link at the end of a line.
fn linked_sample(line: &str) -> Option<&str> {
    let (_, target) = line.strip_suffix("):")?.rsplit_once('(')?;
    Some(target.split_once(SAMPLES)?.1)
}

/// Returns the commands of a code block: the lines after a prompt, with their continuations.
fn commands_of(block: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut continues = false;
    for line in block.lines().map(str::trim) {
        let prompt = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        match (prompt, commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(last)) if continues => {
                last.push('\n');
                last.push_str(line);
            }
            _ => {}
        }
        continues = line.ends_with(['\\', '|']);
    }
    commands
}

impl Example {
    /// Returns the documents.
    pub fn documents(&self) -> Result<Vec<Value>> {
        serde_yaml::Deserializer::from_str(&self.text)
            .map(|document| Value::deserialize(document).with_context(|| format!("cannot parse {}", self.text)))
            .collect()
    }

    /// Whether the example consists of whole objects, which `kubectl apply` accepts. Others are patches and fragments.
    pub fn has_objects(&self) -> Result<bool> {
        let documents = self.documents()?;
        Ok(documents.iter().all(|document| document["apiVersion"].is_string()))
    }

    /// Whether a command names the file of this example.
    pub fn is_named_in(&self, command: &str) -> bool {
        self.sample
            .as_ref()
            .is_some_and(|sample| command.contains(&format!("{SAMPLES}{sample}")))
    }
}
