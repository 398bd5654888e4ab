// SPDX-License-Identifier: Apache-2.0
//! The product's chart, as helm renders it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use serde_json::Value;

use crate::programs;

/// Where it is.
pub fn directory() -> PathBuf {
    workspace_root().join("config/chart")
}

/// helm, which is looked for once: to find it takes as long as to render the chart.
pub fn helm() -> Result<Command> {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    if let Some(helm) = HELM.get() {
        return Ok(Command::new(helm));
    }
    let helm = programs::helm()?;
    Ok(Command::new(HELM.get_or_init(|| helm)))
}

/// What it makes in a namespace, with these further arguments of `helm template`.
pub fn template(namespace: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = helm()?;
    let command = command
        .args(["template", "release", "--namespace", namespace])
        .arg(directory());
    documents(&said(command.args(arguments))?)
}

/// The objects of a stream of YAML.
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

/// What a program says on standard output when all is well.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {error}");
    String::from_utf8(output.stdout).context("the output is no text")
}
