// SPDX-License-Identifier: Apache-2.0
//! Deployments and DaemonSets, as their controllers report on them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    cluster::{Key, VERSION_LABEL, kind},
    releases::{Component, DRIVER_CONTAINER},
};

/// The state of a Deployment or DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// `namespace/name`.
    pub name: String,
    /// The desired number of pods.
    pub desired: i32,
    /// Pods with the current template.
    pub updated: i32,
    /// Available pods, with any template.
    pub available: i32,
    /// Remaining pods with older templates.
    pub outdated: i32,
    /// Whether the counters are about the current spec. Its controller may not have observed that yet.
    pub is_current: bool,
    /// The version of the driver in its label.
    pub version: Option<String>,
    /// The image of the driver's container.
    pub image: Option<String>,
    /// The message of its controller about a rollout that does not progress.
    pub stalled: Option<String>,
    /// Missing containers that its pods need.
    pub lacking: Vec<&'static str>,
}

/// The containers that a pod of the controller needs in every version.
const OF_CONTROLLER: &[Component] = &[Component::Driver, Component::Provisioner, Component::Attacher];
/// The containers that a node pod needs in every version.
const OF_NODE: &[Component] = &[Component::Driver];

impl Workload {
    /// Reads the status of a Deployment. Its numbers about updates are not valid before its controller has observed the spec. The number of
    /// available pods is.
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

    /// Reads the status of a DaemonSet.
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

    /// Removes the sidecars that the spec does not need from the missing containers.
    pub fn wants(&mut self, sidecars: impl Iterator<Item = Component>) {
        let required: Vec<&str> = sidecars.map(|component| component.row().container).collect();
        self.lacking
            .retain(|name| *name == DRIVER_CONTAINER || required.contains(name));
    }

    /// Whether its pods are being replaced, or none of them is available yet.
    pub fn is_replacing(&self) -> bool {
        let is_replaced = self.is_current && self.updated >= self.desired && self.outdated == 0;
        !is_replaced || self.available == 0 && self.desired > 0
    }

    /// Whether all its pods have the current template and are available.
    pub fn is_rolled_out(&self) -> bool {
        self.is_current && self.updated >= self.desired && self.outdated == 0 && self.available >= self.desired
    }
}

/// Whether all pods of the controller have the template of the Deployment.
pub(super) fn is_controller_done(live: &BTreeMap<Key, Value>) -> bool {
    let deployment = live.iter().find(|(key, _)| key.kind == kind::DEPLOYMENT);
    deployment.is_some_and(|(_, object)| Workload::of_deployment(object).is_rolled_out())
}

fn containers(live: &Value) -> impl Iterator<Item = &Value> {
    let containers = live["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten()
}

fn lacking(live: &Value, required: &[Component]) -> Vec<&'static str> {
    let existing: Vec<&str> = containers(live)
        .filter_map(|container| container["name"].as_str())
        .collect();
    let required = required.iter().map(|component| component.row().container);
    required
        .filter(|name| !existing.is_empty() && !existing.contains(name))
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
