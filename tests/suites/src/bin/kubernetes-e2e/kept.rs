// SPDX-License-Identifier: Apache-2.0
//! Results of runs, stored below `target` to compare the drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use harness::workspace_root;
use serde::{Deserialize, Serialize};
use suites::ginkgo::{Outcome, Spec};

use crate::cloud::CloudKind;
use crate::driver::Driver;
use crate::verdict::Count;

/// One run of the suite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The selection of specs; all if absent.
    pub(crate) focus: Option<String>,
    /// Number of parallel specs.
    pub(crate) procs: u8,
    /// Duration.
    pub(crate) seconds: u64,
    /// Number of selected specs.
    pub(crate) specs: usize,
}

/// Results of a driver on a cloud.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredResults {
    /// Runs, oldest first.
    runs: Vec<Run>,
    /// Latest result of each spec, by name.
    specs: BTreeMap<String, Spec>,
}

impl StoredResults {
    /// Reads the results of earlier runs.
    pub(crate) fn read(driver: Driver, cloud: CloudKind) -> Result<Self> {
        let path = path(driver, cloud);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not what this program writes: remove it", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Adds a run. A run of all specs replaces all earlier runs.
    pub(crate) fn add(&mut self, run: Run, specs: &[Spec]) {
        if run.focus.is_none() {
            *self = Self::default();
        }
        self.runs.push(run);
        let named = |spec: &Spec| (spec.name.clone(), spec.clone());
        self.specs.extend(specs.iter().map(named));
    }

    /// Writes the results for later runs.
    pub(crate) fn write(&self, driver: Driver, cloud: CloudKind) -> Result<()> {
        let path = path(driver, cloud);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let text = serde_json::to_vec_pretty(self).context("the results are no JSON")?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn count(&self, group: Option<&str>) -> Count {
        let of_group = |spec: &&Spec| group.is_none_or(|group| suite_of(&spec.name) == group);
        Count::from_specs(self.specs.values().filter(of_group))
    }

    fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.values().filter_map(|spec| match &spec.outcome {
            Outcome::Failed(said) => Some((spec.name.as_str(), said.lines().next().unwrap_or_default())),
            _ => None,
        })
    }
}

fn path(driver: Driver, cloud: CloudKind) -> PathBuf {
    workspace_root().join(format!("target/kubernetes-e2e/{}-{}.json", driver.name(), cloud.name()))
}

/// Returns the test suite of a spec: the first word after its pattern that is not a tag.
fn suite_of(name: &str) -> &str {
    let after = name.split_once("[Testpattern:").map_or(name, |(_, rest)| rest);
    let after = after.split_once(']').map_or(after, |(_, rest)| rest);
    let word = after.split_whitespace().find(|word| !word.starts_with('['));
    word.unwrap_or_default()
}

/// Renders a Markdown table of both drivers, the runs, and the failed specs.
pub(crate) fn table(cloud: CloudKind, drivers: &[(Driver, StoredResults)]) -> String {
    let kept = || drivers.iter().map(|(_, kept)| kept);
    let titles: Vec<_> = drivers.iter().map(|(driver, _)| driver.title()).collect();
    let heads = titles
        .iter()
        .map(|title| format!(" {title}: passed | failed | not run |"));
    let mut lines = vec![
        format!("| specs of | selected |{}", heads.collect::<Vec<_>>().concat()),
        format!("|---|---|{}", "---|---|---|".repeat(drivers.len())),
    ];
    let names: BTreeSet<&str> = kept().flat_map(|kept| kept.specs.keys().map(String::as_str)).collect();
    let suites: BTreeSet<&str> = names.iter().map(|name| suite_of(name)).collect();
    for suite in suites.into_iter().map(Some).chain([None]) {
        let selected = names
            .iter()
            .filter(|name| suite.is_none_or(|suite| suite_of(name) == suite));
        let counts: Vec<_> = kept().map(|kept| kept.count(suite).cells()).collect();
        let title = suite.unwrap_or("**all**");
        lines.push(format!("| {title} | {} |{}", selected.count(), counts.concat()));
    }
    for (title, kept) in titles.iter().zip(kept()) {
        lines.push(String::new());
        if kept.runs.is_empty() {
            lines.push(format!("{title}: not run ({})", cloud.name()));
        }
        for run in &kept.runs {
            let focus = run.focus.as_deref().unwrap_or("everything");
            let Run {
                specs, procs, seconds, ..
            } = run;
            lines.push(format!(
                "{title}: {specs} specs of {focus}, {procs} at a time, {seconds} s ({})",
                cloud.name()
            ));
        }
        lines.extend(
            kept.failed()
                .map(|(name, said)| format!("* {title} fails: {name}: {said}")),
        );
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, outcome: Outcome) -> Spec {
        Spec {
            name: format!("External Storage [Driver: d] [Testpattern: Dynamic PV (xfs)] [Slow] {name}"),
            outcome,
            seconds: 1.0,
        }
    }

    fn run(focus: Option<&str>) -> Run {
        Run {
            focus: focus.map(str::to_owned),
            procs: 4,
            seconds: 9,
            specs: 2,
        }
    }

    #[test]
    fn partial_run_adds_and_full_run_replaces() {
        let mut results = StoredResults::default();
        results.add(
            run(None),
            &[spec("volumes a", Outcome::Passed), spec("volumes b", Outcome::Pending)],
        );
        results.add(run(Some("b")), &[spec("volumes b", Outcome::Passed)]);
        let count = results.count(None);
        assert_eq!((count.selected, count.passed, results.runs.len()), (2, 2, 2));
        results.add(run(None), &[spec("volumes a", Outcome::Passed)]);
        assert_eq!((results.count(None).selected, results.runs.len()), (1, 1));
    }

    #[test]
    fn table_has_one_row_per_suite() {
        let mut ours = StoredResults::default();
        ours.add(
            run(None),
            &[spec("volumes a", Outcome::Passed), spec("subPath b", Outcome::Passed)],
        );
        let mut go = StoredResults::default();
        let skipped = Outcome::Skipped("cannot".into());
        go.add(
            run(Some("x")),
            &[
                spec("volumes a", Outcome::Failed("why\nmore".into())),
                spec("subPath b", skipped),
            ],
        );
        let text = table(CloudKind::Simulator, &[(Driver::Ours, ours), (Driver::Go, go)]);
        assert!(text.contains("| volumes | 1 | 1 | 0 | 0 | 0 | 1 | 0 |\n"), "{text}");
        assert!(text.contains("| subPath | 1 | 1 | 0 | 0 | 0 | 0 | 1 |\n"), "{text}");
        assert!(text.contains("| **all** | 2 | 2 | 0 | 0 | 0 | 1 | 1 |\n"), "{text}");
        assert!(
            text.contains("the Go driver: 2 specs of x, 4 at a time, 9 s") && text.ends_with("volumes a: why"),
            "{text}"
        );
    }

    #[test]
    fn unselected_specs_are_not_counted() {
        let mut ours = StoredResults::default();
        ours.add(run(None), &[spec("volumes a", Outcome::Passed)]);
        let text = table(
            CloudKind::Real,
            &[(Driver::Ours, ours), (Driver::Go, StoredResults::default())],
        );
        assert!(text.contains("| volumes | 1 | 1 | 0 | 0 | – | – | – |\n"), "{text}");
        assert!(text.contains("the Go driver: not run (real)"), "{text}");
    }
}
