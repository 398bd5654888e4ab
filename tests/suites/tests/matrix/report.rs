// SPDX-License-Identifier: Apache-2.0
//! The report of a run: programs of the cluster, and result of each step.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use suites::cluster::{NAMESPACE, World};

/// Result of a step. A step without a result did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// This version of Kubernetes lacks the API of the step.
    NotInThisVersion,
    /// With the reason.
    Failed(String),
}

impl Outcome {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::NotInThisVersion => "not in this version",
            Self::Failed(_) => "failed",
        }
    }
}

/// The report of a run.
#[derive(Debug)]
pub(crate) struct Report {
    order: Vec<&'static str>,
    steps: Map<String, Value>,
    kubernetes: Option<String>,
    images: Vec<String>,
}

impl Report {
    /// Creates a report in which no step has run.
    pub(crate) fn of_steps(names: &[&'static str]) -> Self {
        let not_run = |name: &&str| ((*name).to_owned(), json!({"outcome": "not run"}));
        Self {
            order: names.to_vec(),
            steps: names.iter().map(not_run).collect(),
            kubernetes: None,
            images: Vec::new(),
        }
    }

    /// Adds the version of the API server and the images of the controller.
    pub(crate) async fn describe(&mut self, world: &World) -> Result<()> {
        let answer = world.kubectl(&["get", "--raw", "/version"]).await?;
        let version: Value = serde_json::from_str(&answer).context("/version is not JSON")?;
        let version = version["gitVersion"].as_str().context("/version has no gitVersion")?;
        self.kubernetes = Some(version.trim_start_matches('v').to_owned());
        let words = ["deployment", "cinder-csi-controller", "-n", NAMESPACE];
        let controller = world.get(&words).await?;
        let containers = controller["spec"]["template"]["spec"]["containers"].as_array();
        let images = containers.context("a controller without containers")?.iter();
        let images = images.filter_map(|container| container["image"].as_str());
        let sidecars = images.filter(|image| image.contains("/sig-storage/"));
        self.images = sidecars
            .filter_map(|image| image.rsplit('/').next().map(str::to_owned))
            .collect();
        Ok(())
    }

    /// Records the result of a step.
    pub(crate) fn record(&mut self, name: &str, outcome: &Outcome, taken: Duration) {
        let seconds = (taken.as_secs_f64() * 10.0).round() / 10.0;
        println!("test {name} ... {} ({seconds:.1} s)", outcome.as_str());
        let mut step = json!({"outcome": outcome.as_str(), "seconds": seconds});
        if let Outcome::Failed(reason) = outcome {
            println!("    {reason}");
            step["reason"] = json!(reason);
        }
        self.steps.insert(name.to_owned(), step);
    }

    /// Whether a step ran and passed.
    pub(crate) fn has_passed(&self, name: &str) -> bool {
        self.steps.get(name).is_some_and(|step| step["outcome"] == "ok")
    }

    /// Whether a step failed, or did not run.
    pub(crate) fn has_failed(&self) -> bool {
        let is_bad = |step: &Value| step["outcome"] == "failed" || step["outcome"] == "not run";
        self.steps.values().any(is_bad)
    }

    /// Prints one line per step.
    pub(crate) fn print(&self) {
        println!("\nKubernetes {}", self.kubernetes.as_deref().unwrap_or("unknown"));
        for name in &self.order {
            let outcome = self.steps.get(*name).map(|step| &step["outcome"]);
            println!("  {name:12} {}", outcome.and_then(Value::as_str).unwrap_or("not run"));
        }
    }

    /// Writes the report to the file in `MATRIX_REPORT`.
    pub(crate) fn write(&self) -> Result<()> {
        let Some(file) = std::env::var_os("MATRIX_REPORT") else {
            return Ok(());
        };
        let report = json!({"kubernetes": self.kubernetes, "sidecars": self.images, "steps": self.steps});
        fs::write(&file, report.to_string()).context("cannot write the report")
    }
}
