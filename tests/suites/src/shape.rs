// SPDX-License-Identifier: Apache-2.0
//! What an answer is made of, without its values: to compare two clouds' answers to the same request.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Kinds of value by the path of the field, such as `volume.attachments[].device` → `string`.
pub type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// The shape of a body. Elements of a list are taken together; the keys of an object in `open` (by its path) are the user's
/// own and do not count.
pub fn of(body: &Value, open: &[&str]) -> Shape {
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

/// How the second differs from the first, a line for each field.
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
