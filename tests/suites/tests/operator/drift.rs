// SPDX-License-Identifier: Apache-2.0
//! Tests of changes by other clients.

use anyhow::{Context as _, Result, bail, ensure};
use harness::wait_for;
use serde_json::{Value, json};
use suites::expect::{expect_equal, expect_field};

use crate::api::{Object, PATIENCE};
use crate::world::{CLASS, DAEMON_SET, DEPLOYMENT, World, owned};

/// Number of fields of one object that change at once, which is the number that an event lists.
const AT_ONCE: usize = 5;
/// Minimum share of fields that can be changed; selectors, parameters of classes, and references to roles are
/// immutable.
const LEAST_SHARE: f64 = 0.6;

/// The default-class annotation belongs to the administrator after a change.
const MARK: &str = "storageclass.kubernetes.io~1is-default-class";

/// A field that the operator owns.
#[derive(Debug, Clone)]
struct Leaf {
    pointer: String,
    value: Value,
    /// The JSON patch operation that changes it.
    change: Value,
}

pub(crate) async fn repairs_every_owned_field(world: &World) -> Result<()> {
    let operator = world.installed("drift", &[], json!({})).await?;
    let mut waiting = Vec::new();
    let (mut all, mut fixed) = (0, Vec::new());
    let operands = world.operands().await?;
    for object in &operands {
        let fields = owned(&object.value).context("an object of somebody else")?;
        let mut leaves = Vec::new();
        find_leaves(fields, &object.value, String::new(), &mut leaves);
        ensure!(!leaves.is_empty(), "{} has no owned field", object.label());
        all += leaves.len();
        let mut changeable = Vec::new();
        for (pointer, value) in leaves {
            if pointer.ends_with(MARK) {
                continue;
            }
            match acceptable_change(world, object, &pointer, &value).await? {
                Some(change) => changeable.push(Leaf { pointer, value, change }),
                None => fixed.push(format!("{}{pointer}", object.label())),
            }
        }
        waiting.push((object.clone(), changeable));
    }
    let changed = all - fixed.len();
    println!(
        "    {changed} of {all} owned fields of {} operands can be changed",
        operands.len()
    );
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let share = changed as f64 / all as f64;
    ensure!(share > LEAST_SHARE, "only {changed} of {all}; fixed: {fixed:?}");

    let mut at_once = AT_ONCE;
    while waiting.iter().any(|(_, leaves)| !leaves.is_empty()) {
        let mut wave = Vec::new();
        let mut refused = false;
        for (object, leaves) in &mut waiting {
            let chosen: Vec<Leaf> = leaves.iter().take(at_once).cloned().collect();
            let operations: Vec<Value> = chosen.iter().map(|leaf| leaf.change.clone()).collect();
            if operations.is_empty() {
                continue;
            }
            match world.api.patch(&object.path, &operations, false).await? {
                Ok(_) => {
                    leaves.drain(..chosen.len());
                    wave.push((object.clone(), chosen));
                }
                // Some changes are valid only separately.
                Err(_) if at_once > 1 => refused = true,
                Err(refusal) => bail!("{}: {refusal:?}", object.label()),
            }
        }
        at_once = if refused { 1 } else { AT_ONCE };
        put_right(world, &wave).await?;
    }
    operator.stop().await
}

/// Waits until every field of the wave has its original value.
async fn put_right(world: &World, wave: &[(Object, Vec<Leaf>)]) -> Result<()> {
    wait_for("the repair", PATIENCE, async || {
        // Nodes follow after the controller's pods, because a change of a version label is treated as an update.
        world.everything_runs().await?;
        for (object, leaves) in wave {
            let now = world.api.find(&object.path).await?;
            let now = now.with_context(|| format!("{} is gone", object.label()))?;
            for leaf in leaves {
                let value = now.pointer(&leaf.pointer);
                let field = format!("{}{}", object.label(), leaf.pointer);
                expect_equal(&field, &value, &Some(&leaf.value))?;
            }
        }
        Ok(())
    })
    .await
}

/// Returns a change of the field that the API server accepts and that is effective.
async fn acceptable_change(world: &World, object: &Object, pointer: &str, value: &Value) -> Result<Option<Value>> {
    let replace = |value: Value| json!({"op": "replace", "path": pointer, "value": value});
    let mut changes: Vec<Value> = other_values(value).into_iter().map(replace).collect();
    changes.push(json!({"op": "remove", "path": pointer}));
    for change in changes {
        let operations = std::slice::from_ref(&change);
        if let Ok(result) = world.api.patch(&object.path, operations, true).await?
            && result.pointer(pointer) != Some(value)
        {
            return Ok(Some(change));
        }
    }
    Ok(None)
}

fn other_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(value) => vec![json!(!value)],
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or_default();
            vec![json!(number + 1), json!(number - 1)]
        }
        Value::String(text) => {
            let words = "Always Never Default None File Unconfined TCP UDP Ignore Cluster ZHJpZnQ= 77m 77Mi 7";
            let mut values = vec![format!("{text}-drift"), format!("{text}drift"), format!("/drift{text}")];
            values.extend(words.split(' ').map(str::to_owned));
            values.retain(|value| value != text);
            values.into_iter().map(Value::from).collect()
        }
        Value::Array(items) => {
            let mut longer = items.clone();
            longer.push(json!("drift"));
            let mut twice = items.clone();
            twice.extend(items.last().cloned());
            vec![json!(longer), json!(twice), json!(items.get(1..).unwrap_or_default())]
        }
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("drift".to_owned(), json!("x"));
            vec![Value::Object(more)]
        }
        Value::Null => Vec::new(),
    }
}

/// Returns the pointers and values of the fields of `value` that `fields`, in the format of `managedFields`, lists.
fn find_leaves(fields: &Value, value: &Value, pointer: String, found: &mut Vec<(String, Value)>) {
    let children: Vec<_> = fields
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != ".")
        .collect();
    if children.is_empty() {
        found.push((pointer, value.clone()));
        return;
    }
    for (name, below) in children {
        if let Some(name) = name.strip_prefix("f:") {
            if let Some(value) = value.get(name) {
                let step = name.replace('~', "~0").replace('/', "~1");
                find_leaves(below, value, format!("{pointer}/{step}"), found);
            }
        } else if let Some(index) = index_of(name, value) {
            let below = without_keys(name, below);
            find_leaves(&below, &value[index], format!("{pointer}/{index}"), found);
        }
    }
}

/// Returns the fields of a list element without its keys. With another key, it would be a separate element of another
/// client.
fn without_keys(name: &str, fields: &Value) -> Value {
    let keys: Value = name
        .strip_prefix("k:")
        .and_then(|keys| serde_json::from_str(keys).ok())
        .unwrap_or_default();
    let mut fields = fields.clone();
    for key in keys.as_object().into_iter().flatten().map(|(key, _)| key) {
        if let Some(fields) = fields.as_object_mut() {
            fields.remove(&format!("f:{key}"));
        }
    }
    fields
}

/// Returns the index of a list element: `k:` with its keys, or `v:` with the whole value.
fn index_of(name: &str, list: &Value) -> Option<usize> {
    let list = list.as_array()?;
    if let Some(keys) = name.strip_prefix("k:") {
        let keys: Value = serde_json::from_str(keys).ok()?;
        let keys = keys.as_object()?;
        let has_keys = |element: &Value| keys.iter().all(|(key, value)| element.get(key) == Some(value));
        return list.iter().position(has_keys);
    }
    let value: Value = serde_json::from_str(name.strip_prefix("v:")?).ok()?;
    list.iter().position(|element| *element == value)
}

pub(crate) async fn fields_of_other_clients_are_retained(world: &World) -> Result<()> {
    let operator = world.installed("foreign", &[], json!({})).await?;
    let mine =
        json!({"metadata": {"labels": {"example.org/team": "storage"}, "annotations": {"example.org/note": "ours"}}});
    let operands = world.operands().await?;
    for object in &operands {
        world.api.merge(&object.path, &mine).await?;
    }
    // As `kubectl rollout restart` and a sidecar injector write them.
    let restarted =
        json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
    let sidecar =
        json!({"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "mesh", "image": "mesh:1"}});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.merge(path, &restarted).await?;
        world.api.change(path, &sidecar).await?;
    }
    // Every object is applied again, because a part of it differs.
    for object in &operands {
        let spoilt = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}});
        world.api.merge(&object.path, &spoilt).await?;
    }
    wait_for("the repair", PATIENCE, async || {
        for object in &operands {
            let metadata = &world.api.get(&object.path).await?["metadata"];
            let expected = [
                ("/labels/app.kubernetes.io~1managed-by", "cinder-csi-operator"),
                ("/labels/example.org~1team", "storage"),
                ("/annotations/example.org~1note", "ours"),
            ];
            for (pointer, value) in expected {
                expect_field(metadata, pointer, value).with_context(|| object.label())?;
            }
        }
        Ok(())
    })
    .await?;
    for path in [DEPLOYMENT, DAEMON_SET] {
        let template = &world.api.get(path).await?["spec"]["template"];
        expect_field(
            template,
            "/metadata/annotations/kubectl.kubernetes.io~1restartedAt",
            "now",
        )?;
        let containers = template["spec"]["containers"].as_array().context("no containers")?;
        let has_sidecar = containers.iter().any(|container| container["name"] == "mesh");
        ensure!(has_sidecar, "{path} lost a container");
    }
    operator.stop().await
}

/// A class is recreated when an immutable field changes; metadata of other clients are retained.
pub(crate) async fn recreated_class_retains_foreign_metadata(world: &World) -> Result<()> {
    let operator = world.installed("anew", &[], json!({})).await?;
    let mark = MARK.replace("~1", "/");
    let mine = json!({"metadata": {"labels": {"example.org/team": "storage"}, "annotations": {(&mark): "false"}}});
    world.api.merge(CLASS, &mine).await?;
    let is_as_it_should_be = async |policy: &str| {
        let class = world.api.get(CLASS).await?;
        let metadata = &class["metadata"];
        expect_field(&class, "/reclaimPolicy", policy)?;
        expect_field(&class, "/metadata/labels/example.org~1team", "storage")?;
        ensure!(metadata["annotations"][&mark] == "false", "{metadata}");
        // The next apply of the operator must not remove the fields of other clients.
        let fields = &owned(&class).context("no record of the apply")?["f:metadata"];
        let (label, annotation) = ("f:example.org/team", format!("f:{mark}"));
        ensure!(fields["f:labels"][label].is_null(), "{fields}");
        ensure!(fields["f:annotations"][annotation].is_null(), "{fields}");
        Ok(())
    };
    let items = json!([{"name": "cinder", "reclaimPolicy": "Retain"}]);
    world.patch_spec(&json!({"storageClasses": {"items": items}})).await?;
    wait_for("the recreated class", PATIENCE, async || {
        is_as_it_should_be("Retain").await
    })
    .await?;
    operator.stop().await
}

/// Like External Storage, copies a class with all its metadata except the default-class annotation, soon after the
/// operator has applied it. The API server then retains the managed fields of the apply only for the annotation.
pub(crate) async fn copy_of_default_class_is_retained(world: &World) -> Result<()> {
    const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
    let operator = world.installed("copy", &[], json!({})).await?;
    let mut class = world.api.get(CLASS).await?;
    class["metadata"]["name"] = json!("copy");
    class["metadata"]["resourceVersion"] = json!("");
    let marks = class["metadata"]["annotations"].as_object_mut();
    let mark = marks.and_then(|marks| marks.remove(&MARK.replace("~1", "/")));
    ensure!(mark.is_some(), "{CLASS} is not the default");
    let copy = world.api.create(CLASSES, &class).await?;
    let managers = &copy["metadata"]["managedFields"];
    ensure!(owned(&copy).is_some(), "no record of the apply is left: {managers}");
    // A later repair proves that the operator has seen the copy.
    let spoilt = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}});
    world.api.merge(CLASS, &spoilt).await?;
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    world.api.wait_for_field(CLASS, label, "cinder-csi-operator").await?;
    operator.stop().await?;
    let path = format!("{CLASSES}/copy");
    ensure!(world.api.find(&path).await?.is_some(), "the operator deleted the copy");
    world.api.delete(&path).await
}
