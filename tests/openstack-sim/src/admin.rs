// SPDX-License-Identifier: Apache-2.0
//! The admin interface of the simulator below `/_sim`: log, state, faults, latencies.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::{Fault, Reply, Request, Style};
use crate::cloud::Cloud;
use crate::keystone::Tokens;
use crate::latencies::parse_duration;
use crate::state::{Server, VolumeStatus};
use crate::work;

/// Limit of the wait for the devices of a removed server. In the simulator, their users outlive the server.
const LEAVING: Duration = Duration::from_mins(5);

/// Handles a request; `path` excludes `/_sim`.
pub(crate) fn answer(cloud: &Arc<Cloud>, request: &Request, path: &[&str]) -> Reply {
    let done = |result: Result<(), String>| match result {
        Ok(()) => Reply::empty(204),
        Err(message) => Fault::bad_request(message).render(Style::Compute),
    };
    match (request.method.as_str(), path) {
        ("GET", ["log"]) => Reply::json(200, json!(*cloud.log())),
        ("DELETE", ["log"]) => {
            cloud.log().clear();
            Reply::empty(204)
        }
        ("GET", ["held"]) => Reply::json(200, json!(cloud.held.list())),
        ("GET", ["state"]) => Reply::json(200, state(cloud)),
        ("GET", ["faults"]) => Reply::json(200, json!(cloud.faults().list())),
        ("POST", ["faults"]) => done(add_fault(cloud, request)),
        ("DELETE", ["faults"]) => {
            cloud.faults().clear();
            Reply::empty(204)
        }
        ("GET", ["latency"]) => Reply::json(200, json!(cloud.latencies().as_millis())),
        ("POST", ["latency"]) => done(set_latencies(cloud, request)),
        ("POST", ["tokens", "revoke"]) => {
            cloud.change_tokens(Tokens::revoke_all);
            Reply::empty(204)
        }
        ("POST", ["volumes", id, "status"]) => done(set_status(cloud, request, id)),
        ("POST", ["servers", id, "state"]) => done(set_server(cloud, request, id)),
        ("PUT", ["servers", id]) => done(put_server(cloud, request, id)),
        ("DELETE", ["servers", id]) => {
            let leave = request.param("leave_attachments") == Some("true");
            remove_server(cloud, id, leave);
            Reply::empty(204)
        }
        _ => Fault::not_found("The simulator has no such page.").render(Style::Compute),
    }
}

fn decode<'a, T: Deserialize<'a>>(request: &'a Request) -> Result<T, String> {
    serde_json::from_slice(&request.body).map_err(|error| format!("The body is not understood: {error}"))
}

/// Returns the state, and the loop devices of the attachments.
fn state(cloud: &Cloud) -> Value {
    let state = cloud.read(crate::world::World::state);
    let devices: Vec<_> = state.loop_devices().cloned().collect();
    let mut view = json!(state);
    view["loop_devices"] = json!(devices);
    view
}

fn add_fault(cloud: &Cloud, request: &Request) -> Result<(), String> {
    cloud.faults().add(decode(request)?).map_err(|error| error.to_string())
}

/// Parses `{"create": "800ms", "attach": 1100}`: a text with a unit, or a number of milliseconds.
fn set_latencies(cloud: &Cloud, request: &Request) -> Result<(), String> {
    let requested: Map<String, Value> = decode(request)?;
    let mut latencies = cloud.latencies();
    for (name, value) in requested {
        let latency = match &value {
            Value::String(text) => parse_duration(text),
            other => other.as_u64().map(Duration::from_millis),
        };
        let latency = latency.ok_or_else(|| format!("The latency {value} is no duration."))?;
        latencies.set(&name, latency).map_err(|error| error.to_string())?;
    }
    cloud.set_latencies(latencies);
    Ok(())
}

fn set_status(cloud: &Cloud, request: &Request, id: &str) -> Result<(), String> {
    let fields: Map<String, Value> = decode(request)?;
    let status = fields
        .get("status")
        .and_then(Value::as_str)
        .and_then(VolumeStatus::from_name);
    let status = status.ok_or("The body names no status of a volume.")?;
    if cloud.change(|world| world.set_status(id, status)) {
        Ok(())
    } else {
        Err(format!("There is no volume {id}."))
    }
}

#[derive(Debug, Deserialize)]
struct ServerState {
    vm_state: String,
    task_state: Option<String>,
}

fn set_server(cloud: &Arc<Cloud>, request: &Request, id: &str) -> Result<(), String> {
    let state: ServerState = decode(request)?;
    if set_server_state(cloud, id, &state.vm_state, state.task_state.as_deref()) {
        Ok(())
    } else {
        Err(format!("There is no server {id}."))
    }
}

/// Sets both states of a server, and moves devices in the background. Returns false if the server does not exist.
pub(crate) fn set_server_state(cloud: &Arc<Cloud>, id: &str, vm_state: &str, task_state: Option<&str>) -> bool {
    let changes = cloud.change(|world| world.set_server_state(id, vm_state, task_state));
    changes.is_some_and(|changes| {
        work::move_devices(cloud, changes);
        true
    })
}

/// Creates or replaces a server, in the format of the state.
fn put_server(cloud: &Arc<Cloud>, request: &Request, id: &str) -> Result<(), String> {
    let server: Server = decode(request)?;
    if server.spec.id != id {
        return Err(format!("The body is about server {}.", server.spec.id));
    }
    let (vm_state, task_state) = (server.vm_state.clone(), server.task_state.clone());
    cloud.change(|world| {
        let previous = world.servers.get(id).map(|previous| previous.vm_state.clone());
        let vm_state = previous.unwrap_or_else(|| server.vm_state.clone());
        world.servers.insert(id.to_owned(), Server { vm_state, ..server });
    });
    set_server_state(cloud, id, &vm_state, task_state.as_deref());
    Ok(())
}

/// Removes a server, and its devices in the background.
pub(crate) fn remove_server(cloud: &Arc<Cloud>, id: &str, leave_attachments: bool) {
    let removed = cloud.change(|world| world.remove_server(id, leave_attachments));
    let background = Arc::clone(cloud);
    cloud.spawn(async move {
        for device in removed.into_iter().filter_map(|mapping| mapping.loop_device) {
            if let Some(backing) = &background.backing
                && let Err(error) = backing.detach(&device, LEAVING).await
            {
                tracing::warn!(%error, "a device of a removed server stays behind");
            }
        }
    });
}
