// SPDX-License-Identifier: Apache-2.0
//! Renders the product's Helm chart.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use serde_json::Value;

use crate::programs;

/// Returns the directory of the chart.
pub fn directory() -> PathBuf {
    workspace_root().join("config/chart")
}

/// Returns a helm command. The path is cached, because finding helm takes as long as rendering the chart.
pub fn helm() -> Result<Command> {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    if let Some(helm) = HELM.get() {
        return Ok(Command::new(helm));
    }
    let helm = programs::helm()?;
    Ok(Command::new(HELM.get_or_init(|| helm)))
}

/// Renders the chart for a namespace, with additional arguments of `helm template`.
pub fn template(namespace: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = helm()?;
    let command = command
        .args(["template", "release", "--namespace", namespace])
        .arg(directory());
    documents(&said(command.args(arguments))?)
}

/// Parses a stream of YAML documents.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in text.split("\n---") {
        let object: Value = serde_yaml::from_str(document).with_context(|| format!("is no YAML: {document}"))?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Runs a program and returns its standard output.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {error}");
    String::from_utf8(output.stdout).context("the output is no text")
}
