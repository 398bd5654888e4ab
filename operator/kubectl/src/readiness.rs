// SPDX-License-Identifier: Apache-2.0
//! `status --wait`: waits for a driver by the conventions of kstatus, as `helm --wait` does.

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriver, ConditionType};
use cinder_csi_operator::kubernetes::GuardedApi;
use cinder_operator_core::cluster::GuardedObject;
use futures::StreamExt as _;
use kube::{
    Client,
    runtime::{WatchStreamExt as _, watcher::watch_object},
};

use crate::error::PluginError;

/// The status of a driver according to kstatus.
#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    InProgress,
    Ready,
    /// Contains the message of the condition.
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

/// Waits until a driver is ready. Fails when the driver is stalled, when it is deleted, and after `limit`.
pub(crate) async fn wait_until_ready(client: &Client, name: &str, limit: Duration) -> Result<(), PluginError> {
    let mut cause = "the API server has not answered".to_owned();
    let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let mut watch = std::pin::pin!(watch_object(api.into_inner(), name).default_backoff());
    let ready = async {
        while let Some(event) = watch.next().await {
            match event {
                // The watch retries.
                Err(error) => cause = error.to_string(),
                Ok(None) => return Err(PluginError::NoDriver(name.to_owned())),
                Ok(Some(GuardedObject(Err(undecodable)))) => cause = undecodable.to_string(),
                Ok(Some(GuardedObject(Ok(driver)))) => match Readiness::of_driver(&driver) {
                    Readiness::InProgress => cause = progress(&driver),
                    Readiness::Ready => return Ok(()),
                    Readiness::Stalled(message) => {
                        let name = name.to_owned();
                        return Err(PluginError::Stalled { name, message });
                    }
                },
            }
        }
        std::future::pending().await
    };
    let ended = tokio::time::timeout(limit, ready).await;
    ended.unwrap_or_else(|_| {
        Err(PluginError::NotReady {
            name: name.to_owned(),
            seconds: limit.as_secs(),
            cause,
        })
    })
}

/// The message of condition Ready.
fn progress(driver: &CinderCSIDriver) -> String {
    let status = driver.status.as_ref();
    let ready = status.and_then(|status| status.condition(ConditionType::Ready));
    let message = ready.map(|ready| ready.message.clone());
    message.unwrap_or_else(|| "no operator has observed it".to_owned())
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// The cases with their expected status. `tests/suites/tests/kstatus.rs` compares the status with the library of
    /// Helm and Flux.
    const TABLE: &str = include_str!("../../../tests/suites/expected/kstatus.json");

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
            // The wait for a deleted driver ends only when the driver does not exist any more.
            let expected = row["expected"].as_str().expect("a status");
            assert_eq!(
                readiness,
                expected.replace("Terminating", "InProgress"),
                "{}",
                row["case"]
            );
        }
    }
    #[tokio::test(start_paused = true)]
    async fn wait_ends_without_an_answer() {
        let (silent, _server) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let client = Client::new(silent, "default");
        let error = wait_until_ready(&client, "d", Duration::from_secs(5)).await;
        assert_eq!(
            error.expect_err("a failure").to_string(),
            "CinderCSIDriver d is not ready after 5 s: the API server has not answered"
        );
    }
}
