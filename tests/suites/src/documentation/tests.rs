// SPDX-License-Identifier: Apache-2.0
//! Applies the examples of all pages, in their order, to a map of objects.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use harness::workspace_root;
use serde_json::{Map, Value, json};

use super::commands::COMMANDS;
use super::*;

const KIND: &str = "CinderCSIDriver";
const CRD: &str = "crds/cindercsidrivers.csi.openstack.org.yaml";
/// Changes of fields that a page describes: object, and path of the field.
const DESCRIBED_CHANGES: &[(&str, &str)] = &[("PersistentVolumeClaim/xfs", ".spec.resources.requests.storage")];
/// Fragment of an object of Argo CD.
const OTHER_PROJECTS: &str = "monitoring.md";

/// The objects of a cluster by kind and name, as `kubectl apply` stores them.
#[derive(Default)]
struct Objects {
    live: BTreeMap<String, Value>,
    last_applied: BTreeMap<String, Value>,
}

impl Objects {
    /// Applies an object, or a patch of the driver. Returns fields and list items that changed or disappeared.
    fn apply(&mut self, document: &Value) -> Result<Vec<String>> {
        let (key, desired) = if document.is_array() {
            let key = self.driver_key()?;
            let mut patched = self.live[&key].clone();
            for operation in document.as_array().into_iter().flatten() {
                add(&mut patched, operation)?;
            }
            (key, patched)
        } else {
            let text = |value: &Value| value.as_str().map(str::to_owned).context("no kind or name");
            let key = format!("{}/{}", text(&document["kind"])?, text(&document["metadata"]["name"])?);
            let previous = self.last_applied.insert(key.clone(), document.clone());
            let live = self.live.get(&key).cloned().unwrap_or(Value::Null);
            let merged = merge(&live, &previous.unwrap_or(Value::Null), document);
            (key, merged)
        };
        let mut losses = Vec::new();
        if let Some(before) = self.live.get(&key) {
            compare(before, &desired, "", &mut losses);
            losses.retain(|field| !DESCRIBED_CHANGES.contains(&(&key, field)));
        }
        self.live.insert(key.clone(), desired);
        Ok(losses.into_iter().map(|field| key.clone() + &field).collect())
    }

    fn driver_key(&self) -> Result<String> {
        let mut keys = self.live.keys().filter(|key| key.starts_with(KIND));
        keys.next().cloned().context("there is no driver to patch")
    }

    /// Returns the names of the classes that the driver's spec lists, by kind.
    fn classes_of_driver(&self) -> Vec<String> {
        let spec = self
            .driver_key()
            .map_or(Value::Null, |key| self.live[&key]["spec"].clone());
        [
            ("StorageClass", "/storageClasses/items"),
            ("VolumeSnapshotClass", "/snapshots/classes"),
        ]
        .into_iter()
        .flat_map(|(kind, list)| {
            let items = spec
                .pointer(list)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            items.into_iter().map(move |item| format!("{kind}/{}", name_of(&item)))
        })
        .collect()
    }
}

fn name_of(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

/// Merges an object like `kubectl apply`: fields that were applied last and are absent now are removed.
fn merge(live: &Value, last: &Value, desired: &Value) -> Value {
    let (Value::Object(live), Value::Object(desired)) = (live, desired) else {
        return desired.clone();
    };
    let removed = |key: &str| last.get(key).is_some() && !desired.contains_key(key);
    let mut merged: Map<String, Value> = live.clone().into_iter().filter(|(key, _)| !removed(key)).collect();
    for (key, value) in desired {
        let merged_value = merge(live.get(key).unwrap_or(&Value::Null), &last[key], value);
        merged.insert(key.clone(), merged_value);
    }
    Value::Object(merged)
}

/// Carries out an operation `add` of a JSON patch.
fn add(object: &mut Value, operation: &Value) -> Result<()> {
    ensure!(operation["op"] == "add", "{operation} removes or replaces something");
    let path = operation["path"].as_str().context("an operation without a path")?;
    let (parent, key) = path.rsplit_once('/').context("a path without a parent")?;
    match object
        .pointer_mut(parent)
        .with_context(|| format!("there is no {parent}"))?
    {
        Value::Array(items) if key == "-" => items.push(operation["value"].clone()),
        Value::Object(fields) if !fields.contains_key(key) => {
            fields.insert(key.to_owned(), operation["value"].clone());
        }
        _ => bail!("{path} exists, or its parent is not a list or an object"),
    }
    Ok(())
}

/// Collects the fields and list items that differ or are missing in `after`. Objects in lists are compared by name.
fn compare(before: &Value, after: &Value, path: &str, losses: &mut Vec<String>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(fields), Value::Object(_)) => {
            for (key, value) in fields {
                compare(value, &after[key], &format!("{path}.{key}"), losses);
            }
        }
        (Value::Array(items), Value::Array(remaining)) if items.iter().all(Value::is_object) => {
            for item in items {
                let same = remaining.iter().find(|other| name_of(other) == name_of(item));
                let path = format!("{path}[{}]", name_of(item));
                compare(item, same.unwrap_or(&Value::Null), &path, losses);
            }
        }
        _ => losses.push(path.to_owned()),
    }
}

#[test]
fn no_example_removes_what_earlier_page_created() -> Result<()> {
    let mut objects = Objects::default();
    let mut count = 0;
    for page in pages()? {
        if page.name == MIGRATION {
            continue;
        }
        for example in page.examples() {
            if !example.has_objects()? && example.sample.is_none() {
                continue;
            }
            count += 1;
            for document in example.documents()? {
                let losses = objects.apply(&document).with_context(|| page.name.clone())?;
                ensure!(
                    losses.is_empty(),
                    "an example of {} changes or removes {losses:?}",
                    page.name
                );
                let owned = objects.classes_of_driver();
                let twice = owned.iter().find(|class| objects.live.contains_key(*class));
                ensure!(
                    twice.is_none(),
                    "{} creates {twice:?}, which the driver's spec lists",
                    page.name
                );
            }
        }
    }
    ensure!(count > 20, "only {count} examples were found");
    Ok(())
}

#[test]
fn one_sample_is_whole_driver() -> Result<()> {
    let mut whole = Vec::new();
    for page in pages()? {
        for example in page.examples() {
            if example.documents()?.iter().any(|document| document["kind"] == KIND) {
                whole.push((page.name.clone(), example.sample.clone()));
            }
        }
    }
    let expected = [
        ("install.md".to_owned(), Some("cindercsidriver.yaml".to_owned())),
        (MIGRATION.to_owned(), None),
    ];
    ensure!(whole == expected, "whole {KIND} objects: {whole:?}");
    Ok(())
}

#[test]
fn whole_driver_after_patch_would_be_noticed() -> Result<()> {
    let driver = |classes: Value| {
        let spec = json!({"clouds": [{}], "storageClasses": {"items": classes}});
        json!({"apiVersion": "v1", "kind": KIND, "metadata": {"name": "a"}, "spec": spec})
    };
    let mut objects = Objects::default();
    objects.apply(&driver(json!([{"name": "one"}, {"name": "two", "fsType": "xfs"}])))?;
    let added =
        objects.apply(&json!([{"op": "add", "path": "/spec/storageClasses/items/-", "value": {"name": "three"}}]))?;
    ensure!(added.is_empty(), "{added:?}");

    let losses = objects.apply(&driver(json!([{"name": "one"}, {"name": "two"}])))?;

    let items = "CinderCSIDriver/a.spec.storageClasses.items";
    ensure!(
        losses == [format!("{items}[two].fsType"), format!("{items}[three]")],
        "{losses:?}"
    );
    Ok(())
}

/// Collects the fields of a value that its schema does not have. The API server would drop them.
fn unknown_fields(value: &Value, schema: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                let field = schema["properties"]
                    .get(key)
                    .or_else(|| schema.get("additionalProperties"));
                match field {
                    Some(field) => unknown_fields(value, field, &path, unknown),
                    None if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                    None => unknown.push(path),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                unknown_fields(item, &schema["items"], path, unknown);
            }
        }
        _ => {}
    }
}

#[test]
fn api_has_every_field_of_examples() -> Result<()> {
    let crd = std::fs::read_to_string(workspace_root().join(CRD)).context("cannot read the definition")?;
    let crd: Value = serde_yaml::from_str(&crd).context("cannot parse the definition")?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields = schema["properties"].as_object().context("the spec has no fields")?;
    let mut unknown = Vec::new();
    let mut count = 0;
    for page in pages()? {
        for example in page.examples() {
            for document in example.documents()? {
                let spec = if document["kind"] == KIND {
                    document["spec"].clone()
                } else if let Some(operations) = document.as_array() {
                    let mut spec = json!({"clouds": [{}], "storageClasses": {"items": []}});
                    for operation in operations {
                        let mut operation = operation.clone();
                        let path = operation["path"].as_str().unwrap_or_default();
                        operation["path"] = json!(path.trim_start_matches("/spec"));
                        add(&mut spec, &operation)?;
                    }
                    spec
                } else if document["apiVersion"].is_string()
                    || page.name == OTHER_PROJECTS && document["data"].is_object()
                {
                    continue;
                } else if document["spec"].is_object() {
                    document["spec"].clone()
                } else {
                    document
                };
                ensure!(spec.is_object(), "an example of {} has no fields", page.name);
                count += 1;
                let before = unknown.len();
                unknown_fields(&spec, schema, "", &mut unknown);
                unknown[before..]
                    .iter_mut()
                    .for_each(|field| field.insert_str(0, &page.name));
            }
        }
    }
    ensure!(
        fields.len() > 10 && count > 20,
        "{} fields, {count} examples",
        fields.len()
    );
    ensure!(unknown.is_empty(), "the API would drop {unknown:?}");
    Ok(())
}

#[test]
fn every_command_of_task_pages_has_test() -> Result<()> {
    let pages: BTreeMap<String, Page> = pages()?.into_iter().map(|page| (page.name.clone(), page)).collect();
    let mut wrong = Vec::new();
    for (name, rows) in COMMANDS {
        let page = pages.get(*name).with_context(|| format!("there is no page {name}"))?;
        let untested = page.commands().filter(|command| proof(name, command).is_none());
        wrong.extend(untested.map(|command| format!("{name}: no test runs `{command}`")));
        for (beginning, proof) in *rows {
            if !page.commands().any(|command| command.starts_with(beginning)) {
                wrong.push(format!("{name} has no command `{beginning}`"));
            }
            if let Proof::Test(file, test) = proof {
                let text = std::fs::read_to_string(workspace_root().join(file)).unwrap_or_default();
                if !text.contains(&format!("fn {test}(")) {
                    wrong.push(format!("{file} has no test {test}"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn page_has_examples_and_commands_in_order() {
    let text = "Text with [a link](../config/samples/a.yaml):\n\n```yaml\nkind: A\n```\n\n   ```console\n   $ one \\\n     two\n   \
                output\n   # three\n   ```\n\n```yaml\nb: 1\n```\n";

    let page = Page::parse("page.md", text);

    let shown: Vec<String> = page
        .parts
        .iter()
        .map(|part| match part {
            Part::Example(example) => format!("{:?} {}", example.sample.as_deref(), example.text),
            Part::Command(command) => command.clone(),
        })
        .collect();
    let expected = ["Some(\"a.yaml\") kind: A\n", "one \\\ntwo", "three", "None b: 1\n"];
    assert_eq!(shown, expected);
}
