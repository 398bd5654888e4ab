// SPDX-License-Identifier: Apache-2.0
//! `status --wait`: waits for a driver by the conventions of kstatus, as `helm --wait` does.

use std::future;

use cinder_csi_crds::{CinderCSIDriver, ConditionType};
use futures::StreamExt as _;
use kube::{
    Client,
    runtime::{WatchStreamExt as _, watcher::watch_object},
};

use super::PluginError;
use crate::kubernetes::GuardedApi;

/// The status that kstatus computes of a driver.
#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    InProgress,
    Ready,
    /// Has the message of the condition.
    Stalled(String),
}

impl Readiness {
    fn of_driver(driver: &CinderCSIDriver) -> Self {
        let status = driver.status.as_ref();
        let is_observed = status.is_some_and(|status| status.observed_generation == driver.metadata.generation);
        let find = |type_| {
            status
                .and_then(|status| status.condition(type_))
                .filter(|_| is_observed)
        };
        let is_true = |type_| find(type_).is_some_and(|condition| condition.status == "True");
        match find(ConditionType::Stalled) {
            Some(stalled) if stalled.status == "True" => Self::Stalled(stalled.message.clone()),
            _ if is_true(ConditionType::Ready) && !is_true(ConditionType::Reconciling) => Self::Ready,
            _ => Self::InProgress,
        }
    }
}

/// Waits until a driver is ready. Fails when an administrator must act first, or when the driver is deleted.
pub(super) async fn wait_until_ready(client: &Client, name: &str) -> Result<(), PluginError> {
    let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let watch = watch_object(api.into_inner(), name).default_backoff();
    let results = watch.filter_map(|event| {
        future::ready(match event {
            // The watch retries.
            Err(_) => None,
            Ok(None) => Some(Err(PluginError::NoDriver(name.to_owned()))),
            Ok(Some(object)) => object.0.ok().and_then(|driver| match Readiness::of_driver(&driver) {
                Readiness::InProgress => None,
                Readiness::Ready => Some(Ok(())),
                Readiness::Stalled(message) => Some(Err(PluginError::Stalled {
                    name: name.to_owned(),
                    message,
                })),
            }),
        })
    });
    std::pin::pin!(results).next().await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The cases whose expected status `tests/suites/tests/kstatus.rs` compares with the library of Helm and Flux.
    const TABLE: &str = include_str!("../../../../tests/suites/expected/kstatus.json");

    #[test]
    fn readiness_agrees_with_table_of_kstatus() {
        let table: Vec<Value> = serde_json::from_str(TABLE).expect("JSON");
        for row in table {
            let mut object = row["object"].clone();
            object["spec"] = json!({"clouds": [{"credentialsSecretRef": {"name": "openstack-credentials"}}]});
            if object["status"]["conditions"].is_null() {
                object["status"]["conditions"] = json!([]);
            }
            let driver: CinderCSIDriver = serde_json::from_value(object).expect("a driver");
            let readiness = match Readiness::of_driver(&driver) {
                Readiness::InProgress => "InProgress",
                Readiness::Ready => "Current",
                Readiness::Stalled(message) => {
                    assert!(!message.is_empty(), "{}", row["case"]);
                    "Failed"
                }
            };
            // A driver that is deleted ends the wait when it does not exist any more.
            let expected = row["expected"].as_str().expect("a status");
            assert_eq!(
                readiness,
                expected.replace("Terminating", "InProgress"),
                "{}",
                row["case"]
            );
        }
    }
}
