// SPDX-License-Identifier: Apache-2.0
//! Applies each example of docs/overrides.md. The snapshot contains the changed fields.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cinder_csi_crds::CinderCSIDriver;
use serde_json::{Value, json};

use super::{mk_credentials, mk_in_cluster};
use crate::cluster::OptionalApis;
use crate::manifests::{Operand, operands, render};
use crate::resolve::tests::mk_environment;
use crate::{
    cluster::KubernetesVersion,
    resolve::{Environment, Resolved, resolve},
};

const PAGE: &str = include_str!("../../../../../docs/overrides.md");

/// Returns the overrides of the page by their headings.
fn examples() -> Vec<(&'static str, Value)> {
    let sections = PAGE.split("\n### ").skip(1);
    let examples = sections.map(|section| {
        let (heading, rest) = section.split_once('\n').unwrap();
        let block = rest.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        let block = block.unwrap_or_else(|| panic!("no example of {heading}"));
        (heading, serde_yaml::from_str(block).unwrap())
    });
    examples.collect()
}

/// Resolves `spec` in a cluster with every optional API.
fn mk_resolved(spec: &Value) -> Resolved {
    let mut object = serde_json::to_value(mk_in_cluster()).unwrap();
    json_patch::merge(&mut object["spec"], spec);
    let driver: CinderCSIDriver = serde_json::from_value(object).unwrap();
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 37 }),
        apis: OptionalApis {
            monitoring: true,
            snapshots: true,
            volume_attributes_classes: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    };
    resolve(&driver, &environment).unwrap()
}

fn mk_objects(spec: &Value) -> Vec<Operand> {
    operands(&mk_resolved(spec), Some(&mk_credentials())).unwrap()
}

/// Collects the leaves of an object by their paths.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                leaves(&format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(&format!("{path}[{index}]"), value, found);
            }
        }
        leaf => {
            found.insert(path.to_owned(), leaf.to_string());
        }
    }
}

/// Describes the differences in objects that exist on both sides.
fn difference(before: &[Operand], after: &[Operand]) -> String {
    let mut text = String::new();
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(after).filter(|(before, after)| before != after) {
        writeln!(text, "{after}").unwrap();
        let [old, new] = [before, after].map(|operand| {
            let mut found = BTreeMap::new();
            leaves("", &serde_json::to_value(&operand.object).unwrap(), &mut found);
            found
        });
        for (path, value) in old.iter().filter(|(path, value)| new.get(*path) != Some(value)) {
            writeln!(text, "- {path}: {value}").unwrap();
        }
        for (path, value) in new.iter().filter(|(path, value)| old.get(*path) != Some(value)) {
            writeln!(text, "+ {path}: {value}").unwrap();
        }
    }
    text
}

#[test]
fn documented_overrides_change_expected_fields() {
    let usual = mk_objects(&json!({}));
    let mut text = String::new();
    for (heading, example) in examples() {
        let outcome = render(&mk_resolved(&example), Some(&mk_credentials())).unwrap().1;
        assert_eq!(outcome.failed, [] as [String; 0], "{heading}");
        writeln!(text, "# {heading}\n{}", difference(&usual, &mk_objects(&example))).unwrap();
    }
    insta::assert_snapshot!(text);
}
