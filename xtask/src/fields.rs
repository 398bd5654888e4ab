// SPDX-License-Identifier: Apache-2.0

//! The fields of a `CinderCSIDriver`, from the schema of its CustomResourceDefinition.

use std::fmt::Write as _;

use serde_json::Value;

use crate::markdown::cell;

/// Fields whose content is defined by Kubernetes.
const OF_KUBERNETES: [&str; 4] = [
    "affinity",
    "allowedTopologies",
    "tolerations",
    "topologySpreadConstraints",
];
/// The text with which a description introduces the default.
const DEFAULT: &str = "Defaults to ";

/// Generates the page of `spec` or `status`.
pub(crate) fn page(banner: &str, part: &str) -> Result<String, serde_json::Error> {
    let crd = serde_json::to_value(cinder_csi_crds::crd())?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part];
    let mut page = format!(
        "{banner}# Fields: {part}\n\nOf `CinderCSIDriver` in `csi.openstack.org/{}`, as `kubectl explain cindercsidriver.{part}` shows them. \
         [The API](../api.md) says what is promised of them.\n",
        crd["spec"]["versions"][0]["name"].as_str().unwrap_or_default()
    );
    write_section(&mut page, part, schema);
    Ok(page)
}

/// Writes a table of the fields of one object, followed by sections for its nested objects.
fn write_section(page: &mut String, path: &str, schema: &Value) {
    let object = inner(schema);
    let _ = write!(page, "\n## {path}\n");
    for described in [schema, object] {
        if let Some(text) = described["description"].as_str() {
            let _ = write!(page, "\n{}\n", escaped(text));
        }
        if std::ptr::eq(schema, object) {
            break;
        }
    }
    let required: Vec<&str> = object["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    page.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    let mut further = Vec::new();
    for (name, field) in properties(object) {
        let below = place(path, name, field);
        let has_section = !properties(inner(field)).is_empty() && !OF_KUBERNETES.contains(&name.as_str());
        let (meaning, default) = meaning_and_default(field);
        let default = match (&field["default"], default) {
            (Value::Null, _) if required.contains(&name.as_str()) => "required".to_owned(),
            (Value::Null, None) => String::new(),
            (Value::Null, Some(words)) => escaped(&words),
            (value, _) => format!("`{}`", cell(value.as_str().unwrap_or(&value.to_string()))),
        };
        let field_type = if has_section {
            format!("[{}](#{})", type_of(field), anchor(&below))
        } else {
            type_of(field)
        };
        let _ = writeln!(page, "| `{name}` | {field_type} | {default} | {} |", escaped(&meaning));
        if has_section {
            further.push((below, field));
        }
    }
    for (below, field) in further {
        write_section(page, &below, field);
    }
}

/// The schema of the elements of a list, or the schema itself.
fn inner(schema: &Value) -> &Value {
    if schema["items"].is_object() {
        &schema["items"]
    } else {
        schema
    }
}

fn properties(schema: &Value) -> Vec<(&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten().collect()
}

/// The path of a field. A list has `[]` after its name.
fn place(path: &str, name: &str, field: &Value) -> String {
    let list = if field["type"] == "array" { "[]" } else { "" };
    format!("{path}.{name}{list}")
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(char::is_ascii_alphanumeric);
    kept.collect::<String>().to_ascii_lowercase()
}

fn type_of(field: &Value) -> String {
    let name = |schema: &Value| {
        if schema["x-kubernetes-int-or-string"] == true {
            return "integer or string".to_owned();
        }
        schema["type"].as_str().unwrap_or("any").to_owned()
    };
    let values = &field["additionalProperties"];
    if field["type"] == "array" {
        format!("list of {}", name(&field["items"]))
    } else if values.is_object() {
        format!("map to {}", name(values))
    } else {
        name(field)
    }
}

/// Splits the description into its meaning, with the limits of the schema, and the default.
fn meaning_and_default(field: &Value) -> (String, Option<String>) {
    let description = field["description"].as_str().unwrap_or_default();
    let (mut meaning, default) = match description.split_once(DEFAULT) {
        Some((before, rest)) => {
            let (default, after) = rest.split_once(". ").unwrap_or((rest.trim_end_matches('.'), ""));
            (format!("{before}{after}"), Some(default.to_owned()))
        }
        None => (description.to_owned(), None),
    };
    meaning = meaning.trim().to_owned();
    let mut add = |words: &str| {
        if !meaning.is_empty() {
            meaning.push(' ');
        }
        meaning.push_str(words);
    };
    for of in [field, &field["items"]] {
        if let Some(values) = of["enum"].as_array() {
            let values: Vec<String> = values
                .iter()
                .filter_map(Value::as_str)
                .map(|value| format!("`{value}`"))
                .collect();
            add(&format!("One of {}.", values.join(", ")));
        }
    }
    match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => add(&format!("From {least} to {most}.")),
        (Some(least), None) => add(&format!("At least {least}.")),
        (None, Some(most)) => add(&format!("At most {most}.")),
        (None, None) => {}
    }
    for rule in field["x-kubernetes-validations"].as_array().into_iter().flatten() {
        if let Some(message) = rule["message"].as_str() {
            add(&format!("Rule: {message}."));
        }
    }
    (meaning, default)
}

/// Escapes text of the schema for a page, where `<` would begin an element.
fn escaped(text: &str) -> String {
    cell(text).replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The number of fields that a page must contain.
    fn count(schema: &Value) -> usize {
        properties(inner(schema))
            .into_iter()
            .map(|(name, field)| {
                1 + if OF_KUBERNETES.contains(&name.as_str()) {
                    0
                } else {
                    count(field)
                }
            })
            .sum()
    }

    #[test]
    fn page_has_row_for_each_field() {
        let crd = serde_json::to_value(cinder_csi_crds::crd()).expect("JSON");
        let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let page = page("", part).expect("a page");
            let rows = page.lines().filter(|line| line.starts_with("| `")).count();
            assert_eq!(rows, count(&properties[part]), "rows of {part}");
            assert!(rows > 80, "{part} has {rows} fields");
        }
        let spec = page("", "spec").expect("a page");
        for field in OF_KUBERNETES {
            assert!(spec.contains(&format!("| `{field}` |")), "no field {field}");
            assert!(!spec.contains(&format!(".{field}\n")), "{field} has a section");
        }
    }

    #[test]
    fn row_has_type_default_and_limits() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "mode": {"type": "string", "enum": ["Auto", "Off"], "description": "How. Defaults to Auto. It <stays>."},
            "name": {"type": "string"},
            "ports": {"type": "array", "description": "Some.", "items": {"type": "object", "description": "One.", "properties": {
                "number": {"type": "integer", "minimum": 1.0, "maximum": 9.0, "default": 2},
            }}},
        }});
        let mut page = String::new();

        write_section(&mut page, "spec", &schema);

        for line in [
            "| `mode` | string | Auto | How. It &lt;stays>. One of `Auto`, `Off`. |",
            "| `name` | string | required |  |",
            "| `ports` | [list of object](#specports) |  | Some. |",
            "## spec.ports[]",
            "| `number` | integer | `2` | From 1 to 9. |",
        ] {
            assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
        }
    }
}
