// SPDX-License-Identifier: Apache-2.0
//! Compares a run with the expectations: every selected spec passes, or is listed with a reason in
//! `expected/kubernetes-e2e.json`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use suites::ginkgo::{Outcome, Spec};

use crate::driver::Driver;

/// Expectations for one driver.
#[derive(Debug, Deserialize)]
pub(crate) struct Expected {
    /// Specs that skip themselves.
    not_run: Vec<SkippedSpecs>,
    /// Specs that cannot pass.
    failing: Vec<FailingSpec>,
}

/// Specs that are skipped for the same reason.
#[derive(Debug, Deserialize)]
struct SkippedSpecs {
    /// Part of the message.
    message: String,
    /// Number of specs with this message.
    specs: usize,
}

#[derive(Debug, Deserialize)]
struct FailingSpec {
    /// Part of the name.
    spec: String,
    /// Part of the message.
    message: String,
    /// Whether it sometimes passes.
    #[serde(default)]
    by_chance: bool,
}

/// Numbers of specs by result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) selected: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) not_run: usize,
}

impl Expected {
    /// Reads the expectations for a driver.
    pub(crate) fn read(driver: Driver) -> Result<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/kubernetes-e2e.json");
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let mut drivers: BTreeMap<String, Self> =
            serde_json::from_str(&text).with_context(|| format!("{path} is not what this program reads"))?;
        drivers
            .remove(driver.name())
            .with_context(|| format!("{path} has no driver {}", driver.name()))
    }

    /// Compares a run with the expectations. With `whole`, every listed exception must occur.
    pub(crate) fn compare(&self, specs: &[Spec], whole: bool) -> Result<()> {
        let mut wrong = Vec::new();
        let mut counted = vec![0; self.not_run.len()];
        let mut failed = BTreeSet::new();
        for Spec { name, outcome, .. } in specs {
            match outcome {
                Outcome::Passed => {}
                Outcome::Failed(said) => {
                    let listed = |one: &FailingSpec| name.contains(&one.spec) && said.contains(&one.message);
                    match self.failing.iter().position(listed) {
                        Some(index) => {
                            failed.insert(index);
                        }
                        // Only the first line, because the rest is often a whole object that has been printed.
                        None => wrong.push(format!(
                            "fails: {name}\n    {}",
                            said.lines().next().unwrap_or_default()
                        )),
                    }
                }
                Outcome::Skipped(said) => match self.not_run.iter().position(|one| said.contains(&one.message)) {
                    Some(index) => counted[index] += 1,
                    None => wrong.push(format!("is not run: {name}\n    {said}")),
                },
                Outcome::Pending => wrong.push(format!("is pending: {name}")),
            }
        }
        if whole {
            for (index, one) in self.failing.iter().enumerate() {
                if !one.by_chance && !failed.contains(&index) {
                    wrong.push(format!("is listed as failing and does not: {}", one.spec));
                }
            }
            for (one, count) in self.not_run.iter().zip(counted) {
                if count != one.specs {
                    wrong.push(format!("{count} specs and not {} say `{}`", one.specs, one.message));
                }
            }
        }
        ensure!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
        Ok(())
    }
}

/// Removes the specs that were not selected, which ginkgo reports as skipped without a reason.
pub(crate) fn chosen(mut specs: Vec<Spec>) -> Vec<Spec> {
    specs.retain(|spec| spec.outcome != Outcome::Skipped(String::new()));
    specs
}

impl Count {
    pub(crate) fn from_specs<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Self {
        let mut count = Self::default();
        for spec in specs {
            count.selected += 1;
            match spec.outcome {
                Outcome::Passed => count.passed += 1,
                Outcome::Failed(_) => count.failed += 1,
                Outcome::Skipped(_) | Outcome::Pending => count.not_run += 1,
            }
        }
        count
    }

    /// Renders the cells of a Markdown table.
    pub(crate) fn cells(&self) -> String {
        if self.selected == 0 {
            return " – | – | – |".to_owned();
        }
        format!(" {} | {} | {} |", self.passed, self.failed, self.not_run)
    }
}

/// Prints failures, skipped specs by reason, the slowest specs, and totals.
pub(crate) fn report(specs: &[Spec]) {
    let mut reasons = BTreeMap::<&str, usize>::new();
    for spec in specs {
        match &spec.outcome {
            Outcome::Failed(said) => println!("FAILED {} ({:.0} s)\n    {said}", spec.name, spec.seconds),
            Outcome::Skipped(said) => *reasons.entry(said).or_default() += 1,
            Outcome::Passed | Outcome::Pending => {}
        }
    }
    for (reason, count) in reasons {
        println!("not run: {count} × {reason}");
    }
    let mut slowest: Vec<_> = specs.iter().collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for spec in slowest.iter().take(10) {
        println!("{:6.0} s {}", spec.seconds, spec.name);
    }
    let count = Count::from_specs(specs);
    println!(
        "{} selected: {} passed, {} failed, {} not run",
        count.selected, count.passed, count.failed, count.not_run
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, outcome: Outcome) -> Spec {
        Spec {
            name: name.into(),
            outcome,
            seconds: 1.0,
        }
    }

    fn expected() -> Expected {
        let text = serde_json::json!({
            "not_run": [{"message": "no tape", "specs": 1}],
            "failing": [{"spec": "moon", "message": "too far"}],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn listed_exceptions_must_occur_in_full_run() {
        let specs = [
            spec("stores", Outcome::Passed),
            spec("flies to the moon", Outcome::Failed("failed: too far".into())),
            spec("winds", Outcome::Skipped("no tape here".into())),
            spec("of another suite", Outcome::Skipped(String::new())),
        ];
        let specs = chosen(specs.into());
        expected().compare(&specs, true).unwrap();
        let count = Count::from_specs(&specs);
        assert_eq!(
            (count.selected, count.passed, count.failed, count.not_run),
            (3, 1, 1, 1)
        );
        expected().compare(&specs[..1], false).unwrap();
        let error = expected().compare(&specs[..1], true).unwrap_err().to_string();
        assert!(error.contains("moon") && error.contains("0 specs and not 1"), "{error}");
    }

    #[test]
    fn unlisted_failure_is_reported_with_message() {
        let specs = [
            spec("flies to the moon", Outcome::Failed("failed: no fuel".into())),
            spec("winds", Outcome::Skipped("no key".into())),
        ];
        let error = expected().compare(&specs, false).unwrap_err().to_string();
        assert!(error.contains("no fuel") && error.contains("no key"), "{error}");
    }

    #[test]
    fn expectations_of_repository_parse() {
        for driver in Driver::ALL {
            Expected::read(driver).unwrap();
        }
    }
}
