// SPDX-License-Identifier: Apache-2.0
//! The structure of a response without its values, to compare the responses of two clouds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// JSON types by field path, such as `volume.attachments[].device` → `string`.
pub type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// Returns the structure of a body. Elements of a list are merged. The keys of objects in `open` (by path) are
/// user-defined and ignored.
pub fn describe(body: &Value, open: &[&str]) -> Shape {
    let mut shape = Shape::new();
    add(&mut shape, "", body, open);
    shape
}

fn add(shape: &mut Shape, path: &str, value: &Value, open: &[&str]) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    shape.entry(path.to_owned()).or_default().insert(kind);
    match value {
        Value::Array(items) => {
            for item in items {
                add(shape, &format!("{path}[]"), item, open);
            }
        }
        Value::Object(fields) if !open.contains(&path) => {
            for (name, field) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                add(shape, &path, field, open);
            }
        }
        _ => {}
    }
}

/// Returns the differences between two structures, one line per field.
pub fn differences(first: &Shape, second: &Shape, names: (&str, &str)) -> Vec<String> {
    let fields: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    fields
        .into_iter()
        .filter_map(|field| match (first.get(field), second.get(field)) {
            (Some(a), Some(b)) if a == b => None,
            (Some(a), Some(b)) => Some(format!("{field}: {} {a:?}, {} {b:?}", names.0, names.1)),
            (Some(_), None) => Some(format!("{field}: only {}", names.0)),
            _ => Some(format!("{field}: only {}", names.1)),
        })
        .collect()
}
