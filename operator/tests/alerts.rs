// SPDX-License-Identifier: Apache-2.0
//! Checks the alerts with promtool: every rule is well-formed, fires when it should, and only then. Also checks the
//! dashboard, as far as it is possible without data.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cinder_csi_crds::{AlertThresholds, ConditionType, DEFAULT_DRIVER_NAME};
use cinder_operator_core::monitoring::{Alert, DASHBOARD, driver_alerts, groups, operator_alerts};
use serde_json::{Value, json};

/// Cases in the format of promtool, without the name of the file of rules.
const CASES: &str = include_str!("alerts/cases.yaml");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn all() -> Vec<Alert> {
    let mut alerts = operator_alerts().expect("the template");
    alerts.extend(driver_alerts(DEFAULT_DRIVER_NAME, &AlertThresholds::default()).expect("the template"));
    alerts
}

/// Returns the output of a successful program; panics with its output after a failure.
#[expect(clippy::disallowed_methods, reason = "promtool prints little")]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&[output.stderr, output.stdout.clone()].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    String::from_utf8(output.stdout).expect("text")
}

fn promtool(arguments: &[&str], file: &Path) {
    let path = run(&mut Command::new(root().join("tests/tools/promtool")));
    run(Command::new(path.trim()).args(arguments).arg(file));
}

fn write(directory: &Path, name: &str, content: &Value) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content.to_string()).expect("written");
    path
}

#[test]
#[ignore = "needs promtool"]
fn rules_are_well_formed() {
    let directory = tempfile::tempdir().unwrap();
    let rules = write(
        directory.path(),
        "rules.json",
        &json!({"groups": groups("all", &all())}),
    );

    promtool(&["check", "rules", "--lint-fatal"], &rules);
}

#[test]
fn alerts_have_severity_and_no_placeholders() {
    for alert in all() {
        assert!(
            ["critical", "warning", "info"].contains(&alert.labels.severity.as_str()),
            "{alert:?}"
        );
        let words = alert
            .expression
            .split(|letter: char| !(letter.is_ascii_alphabetic() || letter == '_'));
        let words: Vec<&str> = words.filter(|word| word.len() > 2).collect();
        assert!(
            words.iter().all(|word| *word != word.to_uppercase()),
            "a placeholder is left: {alert:?}"
        );
    }
}

#[test]
#[ignore = "needs promtool"]
fn alerts_fire_only_as_expected() {
    let directory = tempfile::tempdir().unwrap();
    let mut groups = groups("all", &all());
    for rule in groups[0]["rules"].as_array_mut().unwrap() {
        // The cases cover only conditions and labels; promtool would also compare the texts.
        rule.as_object_mut().unwrap().remove("annotations");
    }
    write(directory.path(), "rules.json", &json!({"groups": groups}));
    let mut cases: Value = serde_yaml::from_str(CASES).unwrap();
    cases["rule_files"] = json!(["rules.json"]);
    cases["evaluation_interval"] = json!("1m");
    let cases = write(directory.path(), "cases.json", &cases);

    promtool(&["test", "rules"], &cases);
}

#[test]
fn alerts_have_firing_and_silent_cases() {
    let cases: Value = serde_yaml::from_str(CASES).unwrap();
    let mut outcomes: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for case in cases["tests"].as_array().unwrap() {
        for test in case["alert_rule_test"].as_array().unwrap() {
            let fires = test["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
            outcomes
                .entry(test["alertname"].as_str().unwrap())
                .or_default()
                .insert(fires);
        }
    }

    for alert in all() {
        assert_eq!(
            outcomes.get(alert.name.as_str()).map(BTreeSet::len),
            Some(2),
            "{}",
            alert.name
        );
    }
    assert_eq!(
        outcomes.len(),
        all().len(),
        "a case for an alert that does not exist: {outcomes:?}"
    );
}

/// The labels of each metric of the operator, from the generated page.
fn labels_of_metrics() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, rest)| {
        let labels = rest.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2);
        (name.to_owned(), labels.map(str::to_owned).collect())
    })
    .collect()
}

/// Splits `name{label="value",…}` into its name and the names of its labels.
fn parts_of(series: &str) -> (&str, BTreeSet<&str>) {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.split("=\"").filter_map(|part| part.rsplit([',', '"']).next());
    (name, labels.filter(|label| *label != "}").collect())
}

#[test]
fn cases_use_existing_labels() {
    let (cases, metrics): (Value, _) = (serde_yaml::from_str(CASES).unwrap(), labels_of_metrics());
    assert!(
        metrics["cinder_csi_operator_condition"].contains("status"),
        "{metrics:?}"
    );
    let mut seen = 0;
    for case in cases["tests"].as_array().unwrap() {
        for series in case["input_series"].as_array().unwrap() {
            let series = series["series"].as_str().unwrap();
            let (name, labels) = parts_of(series);
            if !name.starts_with("cinder_csi_operator_") {
                continue;
            }
            let name = name.trim_end_matches("_bucket");
            let known = metrics.get(name).unwrap_or_else(|| panic!("there is no metric {name}"));
            let unknown: Vec<_> = labels
                .iter()
                // Labels that Prometheus adds.
                .filter(|label| !known.contains(**label) && !["pod", "namespace", "le"].contains(*label))
                .collect();
            assert!(unknown.is_empty(), "{series}: {name} has no label {unknown:?}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} series of the operator");
}

#[test]
fn texts_use_labels_of_their_alert() {
    let cases: Value = serde_yaml::from_str(CASES).unwrap();
    let tests = cases["tests"].as_array().unwrap().iter();
    let tests: Vec<&Value> = tests
        .flat_map(|case| case["alert_rule_test"].as_array().unwrap())
        .collect();
    for alert in all() {
        let text = format!("{} {}", alert.annotations.summary, alert.annotations.description);
        let named = text.split("$labels.").skip(1);
        let named: BTreeSet<&str> = named
            .filter_map(|rest| {
                rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
                    .next()
            })
            .collect();
        let fired = tests.iter().filter(|test| test["alertname"] == alert.name.as_str());
        for labels in fired.flat_map(|test| test["exp_alerts"].as_array().into_iter().flatten()) {
            let labels = labels["exp_labels"].as_object().unwrap();
            let asks = |label: &str| text.contains(&format!("if $labels.{label}"));
            let missing: Vec<_> = named
                .iter()
                .filter(|label| !labels.contains_key(**label) && !asks(label))
                .collect();
            assert!(
                missing.is_empty(),
                "{}: {missing:?} would be empty with {labels:?}",
                alert.name
            );
        }
    }
}

/// The dashboard's panels without rows.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels.filter(|panel| panel["type"] != "row").cloned().collect()
}

/// The anchors of all headings of the runbook page.
fn anchors() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/runbooks.md")).expect("the runbooks");
    let headings = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    headings
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect()
}

#[test]
#[ignore = "needs promtool"]
fn dashboard_expressions_are_well_formed() {
    let panels = panels();
    let expressions = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("queries"));
    let rules: Vec<Value> = expressions
        .zip(0..)
        .map(|(query, number)| {
            let expression = query["expr"].as_str().expect("an expression");
            let expression = expression
                .replace("$driver", DEFAULT_DRIVER_NAME)
                .replace("$__rate_interval", "2m");
            json!({"record": format!("panel:{number}"), "expr": expression})
        })
        .collect();
    assert!(rules.len() > 50, "{} expressions", rules.len());
    let directory = tempfile::tempdir().unwrap();
    let rules = write(
        directory.path(),
        "rules.json",
        &json!({"groups": [{"name": "all", "rules": rules}]}),
    );

    promtool(&["check", "rules", "--lint-fatal"], &rules);
}

#[test]
fn dashboard_shows_every_condition() {
    for condition in ConditionType::ALL {
        let is_shown = |query: &Value| {
            let selector = query["expr"].as_str().and_then(|text| text.split_once("type=~\""));
            let Some((types, rest)) = selector.and_then(|(_, rest)| rest.split_once('"')) else {
                return false;
            };
            types.split('|').any(|name| name == condition.as_str())
                && rest.contains(&format!("status=\"{}\"", condition.good_status()))
        };
        let panels = panels();
        let mut queries = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        assert!(queries.any(is_shown), "no panel shows {condition}");
    }
}

#[test]
fn alert_panels_link_to_runbook_sections() {
    let anchors = anchors();
    let mut led_to = BTreeSet::new();
    for panel in panels() {
        for link in panel["links"].as_array().unwrap() {
            let url = link["url"].as_str().unwrap();
            let (page, anchor) = url.split_once('#').unwrap();
            assert!(page.ends_with("/docs/runbooks.md") && anchors.contains(anchor), "{url}");
            led_to.insert(anchor.to_owned());
        }
    }

    for alert in all() {
        assert!(
            led_to.contains(&alert.name.to_lowercase()),
            "no panel is about {}",
            alert.name
        );
    }
}

#[test]
fn alerts_have_runbooks_with_steps() {
    let text = std::fs::read_to_string(root().join("docs/runbooks.md")).unwrap();
    let sections: BTreeMap<&str, &str> = text
        .split("\n## ")
        .skip(1)
        .filter_map(|part| part.split_once('\n'))
        .collect();
    let alerts = all();
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();

    assert_eq!(sections.keys().copied().collect::<BTreeSet<_>>(), names);
    for (name, section) in sections {
        assert!(
            section.contains("\n1. ") && section.trim().len() > 200,
            "{name} says too little"
        );
    }
}
