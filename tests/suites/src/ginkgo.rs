// SPDX-License-Identifier: Apache-2.0
//! Reports of ginkgo, the test framework of csi-sanity and of Kubernetes.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Result of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Passed,
    /// Failed, with the reason.
    Failed(String),
    /// Skipped itself, with the reason. An empty reason means that it was not selected.
    Skipped(String),
    /// Disabled by its authors.
    Pending,
}

/// A spec of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Full name.
    pub name: String,
    pub outcome: Outcome,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Reads a JSON report (`--json-report`).
pub fn read(path: &Path) -> Result<Vec<Spec>> {
    let text = fs::read(path).with_context(|| format!("there is no report {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not what ginkgo writes", path.display()))
}

fn parse(text: &[u8]) -> Result<Vec<Spec>> {
    let suites: Vec<SuiteReport> = serde_json::from_slice(text)?;
    let specs = suites.into_iter().flat_map(|suite| suite.specs);
    Ok(specs.filter(|spec| spec.kind == "It").map(SpecReport::read).collect())
}

#[derive(Deserialize)]
struct SuiteReport {
    #[serde(rename = "SpecReports")]
    specs: Vec<SpecReport>,
}

#[derive(Deserialize)]
struct SpecReport {
    #[serde(rename = "ContainerHierarchyTexts")]
    containers: Option<Vec<String>>,
    #[serde(rename = "LeafNodeText")]
    text: String,
    #[serde(rename = "LeafNodeType")]
    kind: String,
    #[serde(rename = "State")]
    state: String,
    /// In nanoseconds.
    #[serde(rename = "RunTime", default)]
    time: f64,
    #[serde(rename = "Failure")]
    failure: Option<SpecFailure>,
}

#[derive(Deserialize)]
struct SpecFailure {
    #[serde(rename = "Message")]
    message: String,
}

impl SpecReport {
    fn read(self) -> Spec {
        let mut name = self.containers.unwrap_or_default();
        name.push(self.text);
        // Kubernetes' tests have containers without a name.
        name.retain(|part| !part.is_empty());
        let reason = self.failure.map(|failure| failure.message).unwrap_or_default();
        let outcome = match self.state.as_str() {
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped(reason),
            "pending" => Outcome::Pending,
            other => Outcome::Failed(format!("{other}: {reason}")),
        };
        Spec {
            name: name.join(" "),
            outcome,
            seconds: self.time / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_results_and_times_of_specs() {
        let report = serde_json::json!([{"SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-storage]", "", "volumes"], "LeafNodeText": "store data", "LeafNodeType": "It",
                "State": "passed", "RunTime": 1_500_000_000_u64},
            {"ContainerHierarchyTexts": null, "LeafNodeText": "", "LeafNodeType": "ReportAfterSuite", "State": "passed", "RunTime": 1},
            {"ContainerHierarchyTexts": ["a"], "LeafNodeText": "b", "LeafNodeType": "It", "State": "timedout", "RunTime": 0,
                "Failure": {"Message": "too late"}},
            {"ContainerHierarchyTexts": ["a"], "LeafNodeText": "c", "LeafNodeType": "It", "State": "skipped", "RunTime": 0,
                "Failure": {"Message": "no tape"}},
        ]}]);
        let specs = parse(report.to_string().as_bytes()).unwrap();
        let seen: Vec<_> = specs
            .iter()
            .map(|spec| (spec.name.as_str(), spec.outcome.clone()))
            .collect();
        assert_eq!(
            seen,
            [
                ("[sig-storage] volumes store data", Outcome::Passed),
                ("a b", Outcome::Failed("timedout: too late".into())),
                ("a c", Outcome::Skipped("no tape".into())),
            ]
        );
        assert!((specs[0].seconds - 1.5).abs() < 1e-9);
    }
}
