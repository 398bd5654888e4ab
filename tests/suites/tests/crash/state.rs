// SPDX-License-Identifier: Apache-2.0
//! The state of cloud and node after a step.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use suites::simulator::SERVER_ID;

use crate::world::World;

/// Resources of the cloud. The state includes loop devices according to the simulator and to the machine.
const LISTS: [&str; 8] = [
    "volumes",
    "snapshots",
    "backups",
    "groups",
    "group_snapshots",
    "attachments",
    "mappings",
    "loop_devices",
];
/// Fields that differ between runs, or are internal to the simulator.
const PASSING: [&str; 6] = [
    "created_at",
    "updated_at",
    "attached_at",
    "data_timestamp",
    "previous_status",
    // The path of a backup's data contains its id.
    "container",
];
/// Length of the volume id in a device link.
const SERIAL: usize = 20;

/// Returns the whole state, comparable between runs: names replace ids.
pub(crate) async fn collect(world: &World) -> Result<Value> {
    let mut cloud = world.simulator.state().await?;
    let state = cloud.as_object_mut().context("the simulator's state is no object")?;
    state.retain(|name, _| LISTS.contains(&name.as_str()));
    let names = names(state);
    let mut text = serde_json::to_string(&state).context("the state cannot be written")?;
    for (id, name) in &names {
        text = text.replace(id, name);
    }
    for (id, name) in &names {
        let serial = id.get(..SERIAL).context("an id is short")?;
        text = text.replace(serial, name);
    }
    let mut cloud: Value = serde_json::from_str(&text).context("the state cannot be read again")?;
    simplify(&mut cloud);
    Ok(json!({
        "cloud": cloud,
        "mounts": world.lab.mount_table()?,
        "loop devices": world.lab.loop_devices().await?.len(),
        "places": places(world)?,
    }))
}

/// Returns the ids and their replacements such as `<snapshot one>`, which are unique.
fn names(state: &Map<String, Value>) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for list in LISTS {
        for item in state[list].as_array().into_iter().flatten() {
            let Some(id) = item["id"].as_str() else { continue };
            let volume = item["volume_id"].as_str().and_then(|volume| {
                let known = names.iter().find(|(id, _)| id == volume);
                known.map(|(_, name)| name.clone())
            });
            let own = item["name"].as_str().map(str::to_owned);
            let mut called = [own, volume].into_iter().flatten().collect::<Vec<_>>().join(" of ");
            for (id, name) in &names {
                called = called.replace(id, name);
            }
            let mut name = format!("<{} {called}>", list.trim_end_matches('s'));
            while names.iter().any(|(_, other)| *other == name) {
                name.push('+');
            }
            names.push((id.to_owned(), name));
        }
    }
    names
}

/// Removes times, device numbers and ids of deleted resources, and sorts lists.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !PASSING.contains(&key.as_str()));
            map.values_mut().for_each(simplify);
        }
        Value::Array(list) => {
            list.iter_mut().for_each(simplify);
            list.sort_by_key(ToString::to_string);
        }
        Value::String(text) if text.starts_with("/dev/loop") => "/dev/loop".clone_into(text),
        Value::String(text) if is_id(text) && text != SERVER_ID => "<gone>".clone_into(text),
        _ => {}
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Returns directories and device files that kubelet and driver have created for volumes.
fn places(world: &World) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for entry in world
        .lab
        .path("")
        .read_dir()
        .context("cannot list the test's directory")?
    {
        let entry = entry.context("cannot list the test's directory")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The kubelet's own directory may remain, because only the kubelet removes it.
        if name.ends_with("-target") {
            let kind = entry.file_type().with_context(|| format!("cannot look at {name}"))?;
            places.push(format!("{name} {}", if kind.is_dir() { "directory" } else { "file" }));
        }
    }
    places.sort();
    Ok(places)
}

/// Fails if anything remains.
pub(crate) fn nothing_in(state: &Value) -> Result<()> {
    for list in LISTS {
        let remaining = &state["cloud"][list];
        ensure!(remaining == &json!([]), "{list} are left: {remaining:#}");
    }
    for what in ["mounts", "places"] {
        ensure!(state[what] == json!([]), "{what} are left: {:#}", state[what]);
    }
    ensure!(state["loop devices"] == json!(0), "loop devices are left");
    Ok(())
}

/// Fails if two states differ, and names the differences.
pub(crate) fn same(expected: &Value, found: &Value) -> Result<()> {
    let mut differences = Vec::new();
    compare("", expected, found, &mut differences);
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

fn compare(place: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => {
            for (key, expected) in one {
                compare(&format!("{place}/{key}"), expected, &other[key], differences);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (expected, found)) in one.iter().zip(other).enumerate() {
                compare(&format!("{place}/{index}"), expected, found, differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push(format!("{place} is {found} and not {expected}")),
    }
}
