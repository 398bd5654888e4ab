//! Deployments and DaemonSets, as their controllers report on them.

use serde_json::Value;

/// A Deployment or DaemonSet as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// `namespace/name`.
    pub name: String,
    /// Pods wanted.
    pub desired: i32,
    /// Pods of the wanted version.
    pub updated: i32,
    /// Pods that serve.
    pub available: i32,
    /// Why its controller gave up, when it did.
    pub stalled: Option<String>,
}

impl Workload {
    /// Reads the status of a live Deployment; its counters mean nothing before its controller has seen the spec.
    pub fn of_deployment(live: &Value) -> Self {
        let status = current_status(live);
        let stalled = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Progressing" && condition["status"] == "False");
        Self {
            name: name_of(live),
            desired: live["spec"]["replicas"].as_i64().map_or(1, saturating),
            updated: count(status, "updatedReplicas"),
            available: count(status, "availableReplicas"),
            stalled: stalled.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()),
        }
    }

    /// Reads the status of a live DaemonSet.
    pub fn of_daemon_set(live: &Value) -> Self {
        let status = current_status(live);
        Self {
            name: name_of(live),
            desired: count(status, "desiredNumberScheduled"),
            updated: count(status, "updatedNumberScheduled"),
            available: count(status, "numberAvailable"),
            stalled: None,
        }
    }

    pub(super) fn is_rolled_out(&self) -> bool {
        self.updated >= self.desired && self.available >= self.desired
    }
}

fn name_of(live: &Value) -> String {
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

fn current_status(live: &Value) -> &Value {
    let seen = live["status"]["observedGeneration"].as_i64().unwrap_or_default();
    if seen >= live["metadata"]["generation"].as_i64().unwrap_or_default() {
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
