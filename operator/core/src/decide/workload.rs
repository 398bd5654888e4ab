// SPDX-License-Identifier: Apache-2.0
//! Deployments and DaemonSets, as their controllers report on them.

use serde_json::Value;

use crate::{
    cluster::VERSION_LABEL,
    releases::{Component, DRIVER_CONTAINER},
};

/// A Deployment or DaemonSet as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// `namespace/name`.
    pub name: String,
    /// Pods wanted.
    pub desired: i32,
    /// Pods of the wanted version.
    pub updated: i32,
    /// Pods that serve, of whatever version.
    pub available: i32,
    /// Pods of older versions that have not gone yet.
    pub outdated: i32,
    /// Whether the counters are about the spec as it is now; its controller may not have seen it yet.
    pub is_current: bool,
    /// The version of the driver that it was made for.
    pub version: Option<String>,
    /// The image of the driver's container.
    pub image: Option<String>,
    /// Why its controller gave up, when it did.
    pub stalled: Option<String>,
    /// Containers that its pods lack and cannot serve without.
    pub lacking: Vec<&'static str>,
}

/// Containers without which a pod of the controller serves nothing, in whatever version.
const OF_CONTROLLER: &[Component] = &[Component::Driver, Component::Provisioner, Component::Attacher];
/// The same of a node pod.
const OF_NODE: &[Component] = &[Component::Driver];

impl Workload {
    /// Reads the status of a live Deployment. What it says of updates means nothing before its controller has seen the spec;
    /// pods that serve go on serving.
    pub fn of_deployment(live: &Value) -> Self {
        let status = current_status(live);
        let updated = count(status, "updatedReplicas");
        let stalled = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Progressing" && condition["status"] == "False");
        Self {
            name: name_of(live),
            desired: live["spec"]["replicas"].as_i64().map_or(1, saturating),
            updated,
            available: count(&live["status"], "availableReplicas"),
            outdated: count(status, "replicas").saturating_sub(updated).max(0),
            is_current: is_current(live),
            version: version_of(live),
            image: image_of(live),
            stalled: stalled.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()),
            lacking: lacking(live, OF_CONTROLLER),
        }
    }

    /// Reads the status of a live DaemonSet.
    pub fn of_daemon_set(live: &Value) -> Self {
        let status = current_status(live);
        Self {
            name: name_of(live),
            desired: count(&live["status"], "desiredNumberScheduled"),
            updated: count(status, "updatedNumberScheduled"),
            available: count(&live["status"], "numberAvailable"),
            outdated: 0,
            is_current: is_current(live),
            version: version_of(live),
            image: image_of(live),
            stalled: None,
            lacking: lacking(live, OF_NODE),
        }
    }

    /// Does not miss sidecars that the spec does not want.
    pub fn wants(&mut self, sidecars: impl Iterator<Item = Component>) {
        let wanted: Vec<&str> = sidecars.map(|component| component.row().container).collect();
        self.lacking
            .retain(|name| *name == DRIVER_CONTAINER || wanted.contains(name));
    }

    /// Whether its pods are being replaced, or none of them serves yet.
    pub fn is_replacing(&self) -> bool {
        let is_replaced = self.is_current && self.updated >= self.desired && self.outdated == 0;
        !is_replaced || self.available == 0 && self.desired > 0
    }

    /// Whether all its pods are of the wanted template and serve.
    pub fn is_rolled_out(&self) -> bool {
        self.is_current && self.updated >= self.desired && self.outdated == 0 && self.available >= self.desired
    }
}

fn containers(live: &Value) -> impl Iterator<Item = &Value> {
    let containers = live["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten()
}

fn lacking(live: &Value, wanted: &[Component]) -> Vec<&'static str> {
    let there: Vec<&str> = containers(live)
        .filter_map(|container| container["name"].as_str())
        .collect();
    let wanted = wanted.iter().map(|component| component.row().container);
    wanted
        .filter(|name| !there.is_empty() && !there.contains(name))
        .collect()
}

fn name_of(live: &Value) -> String {
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

fn version_of(live: &Value) -> Option<String> {
    live["metadata"]["labels"][VERSION_LABEL].as_str().map(str::to_owned)
}

fn image_of(live: &Value) -> Option<String> {
    let driver = containers(live).find(|container| container["name"] == DRIVER_CONTAINER)?;
    driver["image"].as_str().map(str::to_owned)
}

fn is_current(live: &Value) -> bool {
    let observed = live["status"]["observedGeneration"].as_i64().unwrap_or_default();
    observed >= live["metadata"]["generation"].as_i64().unwrap_or_default()
}

fn current_status(live: &Value) -> &Value {
    if is_current(live) {
        &live["status"]
    } else {
        &Value::Null
    }
}

fn count(status: &Value, field: &str) -> i32 {
    status[field].as_i64().map_or(0, saturating)
}

fn saturating(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
