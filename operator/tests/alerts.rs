// SPDX-License-Identifier: Apache-2.0
//! The alerts, judged by promtool: every rule is well-formed, fires when it should, and does not when it should not. And the dashboard,
//! as far as it can be judged without data.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cinder_csi_crds::{AlertThresholds, DEFAULT_DRIVER_NAME};
use cinder_operator_core::monitoring::{Alert, dashboard, driver_alerts, groups, operator_alerts};
use serde_json::{Value, json};

/// Cases as promtool reads them, without the name of the file of rules.
const CASES: &str = include_str!("alerts/cases.yaml");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn all() -> Vec<Alert> {
    let mut alerts = operator_alerts().expect("the template");
    alerts.extend(driver_alerts(DEFAULT_DRIVER_NAME, &AlertThresholds::default()).expect("the template"));
    alerts
}

/// What a program says when all is well; panics with what it says otherwise.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&[output.stderr, output.stdout.clone()].concat()).into_owned();
    assert!(output.status.success(), "{said}");
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
fn every_rule_and_its_texts_are_well_formed() {
    let directory = tempfile::tempdir().unwrap();
    let rules = write(
        directory.path(),
        "rules.json",
        &json!({"groups": groups("all", &all())}),
    );

    promtool(&["check", "rules", "--lint-fatal"], &rules);
}

#[test]
fn every_alert_says_how_soon_a_person_should_look_and_nothing_is_left_to_fill_in() {
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
fn every_alert_fires_when_it_should_and_not_when_it_should_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut groups = groups("all", &all());
    for rule in groups[0]["rules"].as_array_mut().unwrap() {
        // The cases are about when; promtool would compare the texts too.
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
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
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

/// The dashboard's panels, rows left out.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&dashboard().expect("the template")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels.filter(|panel| panel["type"] != "row").cloned().collect()
}

/// The sections of the runbooks and of these, by their anchors.
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
fn every_expression_of_the_dashboard_is_well_formed() {
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
fn every_alert_has_a_panel_that_leads_to_its_runbook_and_every_link_leads_to_a_section() {
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
fn every_alert_has_a_runbook_that_says_what_to_do() {
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
