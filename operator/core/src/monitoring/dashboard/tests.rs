// SPDX-License-Identifier: Apache-2.0
//! What a person and Grafana need of every panel.

use std::collections::BTreeSet;

use super::*;

fn read() -> Value {
    serde_json::from_str(&dashboard().unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn the_rows_are_those_of_the_parts_and_every_panel_says_what_it_means() {
    let dashboard = read();

    let rows = panels(&dashboard).into_iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<&str> = rows.map(|row| row["title"].as_str().unwrap()).collect();

    assert_eq!(rows, ["Overview", "Controller", "Nodes", "Clouds", "Operator"]);
    let mut titles = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(titles.insert(title), "two panels are called {title}");
        if panel["type"] != "row" {
            assert!(
                panel["description"].as_str().unwrap().len() > 40,
                "{title} says too little"
            );
            assert_ne!(panel["targets"].as_array().unwrap().len(), 0, "{title} shows nothing");
        }
    }
}

#[test]
fn no_panel_covers_another_and_each_has_a_number_of_its_own() {
    let dashboard = read();
    let mut numbers = BTreeSet::new();
    let mut covered = BTreeSet::new();

    for panel in panels(&dashboard) {
        assert!(numbers.insert(number(&panel["id"])), "{}", panel["title"]);
        let place = ["x", "y", "w", "h"].map(|side| number(&panel["gridPos"][side]));
        let [left, top, width, height] = place;
        assert!(left + width <= u64::from(COLUMNS), "{} leaves the page", panel["title"]);
        for cell in (top..top + height).flat_map(|y| (left..left + width).map(move |x| (x, y))) {
            assert!(covered.insert(cell), "{} covers another panel", panel["title"]);
        }
    }
}

/// The steps of all thresholds of a panel, its columns included.
fn thresholds_of(panel: &Value) -> Vec<&Value> {
    let columns = panel["fieldConfig"]["overrides"].as_array().unwrap();
    let properties = columns
        .iter()
        .flat_map(|column| column["properties"].as_array().unwrap());
    let of_columns = properties
        .filter(|property| property["id"] == "thresholds")
        .map(|property| &property["value"]);
    let of_panel = std::iter::once(&panel["fieldConfig"]["defaults"]["thresholds"]);
    of_panel
        .chain(of_columns)
        .map(|thresholds| &thresholds["steps"])
        .collect()
}

#[test]
fn thresholds_rise_from_a_colour_for_all() {
    let dashboard = read();
    let attach = f64::from(AlertThresholds::default().attach_seconds);
    let mut from_alerts = 0;

    for panel in panels(&dashboard).into_iter().filter(|panel| panel["type"] != "row") {
        for steps in thresholds_of(panel) {
            let (first, others) = steps.as_array().unwrap().split_first().unwrap();
            assert!(first["value"].is_null(), "{}: {steps}", panel["title"]);
            let values: Vec<f64> = others.iter().map(|step| step["value"].as_f64().unwrap()).collect();
            assert!(values.is_sorted(), "{}: {steps}", panel["title"]);
            from_alerts += others.iter().filter(|step| step["value"] == json!(attach)).count();
        }
    }

    assert_eq!(from_alerts, 3, "panels with the threshold of CinderCSIAttachSlow");
}

#[test]
fn what_may_be_negative_is_not_cut_off_at_0() {
    let dashboard = read();
    let mut expiries = 0;

    for panel in panels(&dashboard) {
        let targets = panel["targets"].as_array();
        for query in targets.into_iter().flatten() {
            if query["expr"].as_str().unwrap().ends_with("- time()") {
                expiries += 1;
                assert!(
                    panel["fieldConfig"]["defaults"]["min"].is_null(),
                    "{} hides an expiry",
                    panel["title"]
                );
            }
        }
    }

    assert_eq!(expiries, 2);
}

#[test]
fn every_query_asks_the_chosen_source_and_nothing_is_left_to_fill_in() {
    let dashboard = read();
    let targets = panels(&dashboard)
        .into_iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let annotations = annotations.filter(|annotation| annotation["type"] != "dashboard");

    for query in targets.chain(annotations) {
        assert_eq!(query["datasource"]["uid"], "${datasource}", "{query}");
        let expression = query["expr"].as_str().unwrap();
        let words = expression.split(|letter: char| !(letter.is_ascii_alphabetic() || letter == '_'));
        let left = words.filter(|word| word.len() > 2 && *word == word.to_uppercase() && *word != "ALERTS");
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{expression}");
    }
}

#[test]
fn a_table_has_its_columns_in_their_order() {
    let dashboard = read();
    let stuck = panels(&dashboard)
        .into_iter()
        .find(|panel| panel["title"] == "What is stuck")
        .unwrap();

    let [_, filter, organize] = stuck["transformations"].as_array().unwrap().as_slice() else {
        panic!("{stuck}");
    };

    assert_eq!(
        filter["options"]["include"]["names"],
        json!(["operation", "reason", "Value #A", "Value #B"])
    );
    assert_eq!(organize["options"]["renameByName"]["Value #B"], "Oldest waits for");
    assert_eq!(organize["options"]["indexByName"]["Value #B"], 3);
    assert_eq!(stuck["targets"][1]["format"], "table");
    assert_eq!(stuck["targets"][1]["instant"], true);
}
