// SPDX-License-Identifier: Apache-2.0
//! Checks that each value changes exactly the fields in the table `values.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use suites::chart;

use crate::objects;

type Test = fn() -> Result<()>;

/// Values without a row in the table, and the tests that set them.
const ELSEWHERE: [(&str, Test); 3] = [
    ("driver.wait", || {
        crate::server::driver_wait_decides_about_a_hook();
        Ok(())
    }),
    (
        "fullnameOverride",
        crate::name_override_applies_to_objects_and_references,
    ),
    ("monitoring.prometheusRule.disabled", crate::prometheus_accepts_rules),
];

/// A row of the table, which documents its fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    value: String,
    is: Value,
    #[serde(default)]
    beside: Value,
    #[serde(default)]
    changes: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    every: BTreeMap<String, Value>,
    #[serde(default)]
    appears: BTreeMap<String, Value>,
    #[serde(default)]
    disappears: BTreeSet<String>,
}

fn read(name: &str) -> Result<String> {
    let file = chart::directory().join(name);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

fn rows() -> Result<Vec<Row>> {
    let chart: Value = serde_yaml::from_str(&read("Chart.yaml")?).context("Chart.yaml is no YAML")?;
    let version = chart["appVersion"].as_str().context("the chart has no version")?;
    let table = include_str!("values.yaml").replace("VERSION", version);
    serde_yaml::from_str(&table).context("the table is none")
}

/// Returns the default values.
fn defaults() -> Result<Value> {
    serde_yaml::from_str(&read("values.yaml")?).context("values.yaml is no YAML")
}

/// Returns the paths of all scalar values and empty maps.
fn leaves(value: &Value, keys: &[String]) -> Vec<Vec<String>> {
    match value.as_object() {
        Some(map) if !map.is_empty() => map
            .iter()
            .flat_map(|(key, value)| leaves(value, &[keys, std::slice::from_ref(key)].concat()))
            .collect(),
        _ => vec![keys.to_vec()],
    }
}

/// Sets one more value. Its path must be that of a default value or of an element in a map.
fn set_value(values: &Value, path: &str, known: &[Vec<String>], is: &Value) -> Result<Value> {
    let keys = known
        .iter()
        .find(|keys| keys.join(".") == path)
        .cloned()
        .or_else(|| {
            let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
            known.iter().any(|leaf| leaf.starts_with(&keys)).then_some(keys)
        })
        .with_context(|| format!("the chart has no value {path}"))?;
    let mut all = values.clone();
    let mut place = &mut all;
    for key in keys {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = place
            .as_object_mut()
            .context("a value in a value that is no map")?
            .entry(key)
            .or_insert(Value::Null);
    }
    ensure!(place.is_null(), "{path} is among the values beside it");
    *place = is.clone();
    Ok(all)
}

/// Renders the chart with values; returns the objects by kind and name.
fn rendered(values: &Value) -> Result<BTreeMap<String, Value>> {
    let values = values.to_string();
    let arguments = if values == "null" {
        Vec::new()
    } else {
        vec!["--set-json", &values]
    };
    let made = objects(chart::template("cinder-csi", &arguments)?)?;
    let mut named = BTreeMap::new();
    for ((kind, namespace, name), object) in made {
        // The operator's namespaces, and the one of the row that changes it.
        let is_usual = ["", "cinder-csi", "elsewhere"].contains(&namespace.as_str());
        let place = if is_usual {
            String::new()
        } else {
            format!("{namespace}/")
        };
        let label = format!("{kind} {place}{name}");
        ensure!(named.insert(label.clone(), object).is_none(), "{label} is there twice");
    }
    Ok(named)
}

/// Collects the differences between two values: the new value by JSON pointer.
fn differences(before: &Value, after: &Value, at: &str, found: &mut BTreeMap<String, Value>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                let [old, new] = [old, new].map(|map| map.get(key).unwrap_or(&Value::Null));
                differences(old, new, &at, found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() <= new.len() && !old.is_empty() => {
            for (index, new) in new.iter().enumerate() {
                let old = old.get(index).unwrap_or(&Value::Null);
                differences(old, new, &format!("{at}/{index}"), found);
            }
        }
        _ if before != after => {
            found.insert(at.to_owned(), after.clone());
        }
        _ => {}
    }
}

fn check(row: &Row, known: &[Vec<String>], cache: &mut BTreeMap<String, BTreeMap<String, Value>>) -> Result<()> {
    let key = row.beside.to_string();
    if !cache.contains_key(&key) {
        cache.insert(key.clone(), rendered(&row.beside)?);
    }
    let before = &cache[&key];
    let after = rendered(&set_value(&row.beside, &row.value, known, &row.is)?)?;

    let removed: BTreeSet<String> = before
        .keys()
        .filter(|label| !after.contains_key(*label))
        .cloned()
        .collect();
    ensure!(removed == row.disappears, "disappears: {removed:?}");
    let new: BTreeMap<&String, &Value> = after.iter().filter(|(label, _)| !before.contains_key(*label)).collect();
    ensure!(new.keys().copied().eq(row.appears.keys()), "appears: {:?}", new.keys());
    for (label, object) in new {
        let expected = &row.appears[label];
        ensure!(expected.is_null() || expected == object, "{label} is {object}");
    }
    let mut changes = BTreeMap::new();
    let mut expected = row.changes.clone();
    for (label, after) in &after {
        let Some(before) = before.get(label) else { continue };
        let mut differing = BTreeMap::new();
        differences(before, after, "", &mut differing);
        if !differing.is_empty() {
            changes.insert(label.clone(), differing);
        }
        if !row.every.is_empty() {
            expected.entry(label.clone()).or_default().extend(row.every.clone());
        }
    }
    ensure!(changes == expected, "changes: {}", json!(changes));
    ensure!(
        !(removed.is_empty() && changes.is_empty() && row.appears.is_empty()),
        "nothing changes"
    );
    Ok(())
}

#[test]
fn each_value_changes_exactly_its_documented_fields() -> Result<()> {
    let known = leaves(&defaults()?, &[]);
    let mut cache = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows()? {
        if let Err(error) = check(&row, &known, &mut cache) {
            wrong.push(format!("{} = {}: {error:#}", row.value, row.is));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_value_has_a_table_row() -> Result<()> {
    let rows = rows()?;
    let tried: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.value.as_str())
        .chain(ELSEWHERE.map(|it| it.0))
        .collect();
    let known: BTreeSet<String> = leaves(&defaults()?, &[])
        .into_iter()
        .map(|keys| keys.join("."))
        .collect();
    let missing: Vec<&String> = known.iter().filter(|path| !tried.contains(path.as_str())).collect();
    ensure!(missing.is_empty(), "without a row: {missing:?}");
    ensure!(
        ELSEWHERE.iter().all(|(path, _)| known.contains(*path)),
        "the list has more values than the chart"
    );
    Ok(())
}

/// A script generates the schema with its own parser of values.yaml.
#[test]
fn schema_contains_every_default_value() -> Result<()> {
    fn default_of(schema: &Value) -> Option<Value> {
        if let Some(default) = schema.get("default") {
            return Some(default.clone());
        }
        let mut map = Map::new();
        for (key, schema) in schema["properties"].as_object()? {
            if schema["additionalProperties"] == false || schema.get("default").is_some() {
                map.insert(key.clone(), default_of(schema)?);
            }
        }
        Some(Value::Object(map))
    }
    let schema: Value = serde_json::from_str(&read("values.schema.json")?).context("the schema is no JSON")?;
    let (listed, defaults) = (default_of(&schema).context("no properties")?, defaults()?);
    let mut differing = BTreeMap::new();
    differences(&defaults, &listed, "", &mut differing);
    ensure!(differing.is_empty(), "{differing:?}");
    Ok(())
}
