// SPDX-License-Identifier: Apache-2.0
//! Determines whether an operator runs, from the Lease that its leader renews.

use std::fmt;

use cinder_csi_crds::CinderCSIDriver;
use cinder_csi_operator::{
    args::DEFAULT_LEASE,
    kubernetes::{GuardedApi, answer},
};
use csi_sources::UntrustedText;
use k8s_openapi::{
    api::coordination::v1::Lease,
    jiff::{SignedDuration, Timestamp},
};
use kube::Client;
use serde::Serialize;

/// Duration of a Lease without a duration, in seconds.
const DEFAULT_VALIDITY: i32 = 60;

/// The state of the operator, according to its Lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Heartbeat {
    state: OperatorState,
    /// The Lease, as namespace/name.
    lease: String,
    /// The time of the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<Timestamp>,
    /// The state in a sentence, with the remedy.
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum OperatorState {
    /// The Lease was renewed within twice its duration.
    Running,
    /// No operator renews the Lease.
    Stopped,
    /// The Lease cannot be read or compared.
    Unknown,
}

/// Reads the operator's Lease from the first of the namespaces that contains it.
pub(crate) async fn heartbeat(client: &Client, namespaces: &[String], now: Timestamp) -> Heartbeat {
    for namespace in namespaces {
        let api: GuardedApi<Lease> = GuardedApi::namespaced(client.clone(), namespace);
        let name = format!("{namespace}/{DEFAULT_LEASE}");
        match api.get_opt(DEFAULT_LEASE).await {
            Ok(Some(lease)) => return judge(&lease, name, now),
            Ok(None) => {}
            Err(error) => {
                let message = format!("Lease {name} cannot be read: {}", answer(&error));
                return Heartbeat::new(OperatorState::Unknown, name, message);
            }
        }
    }
    let message = format!(
        "no Lease {DEFAULT_LEASE} exists in namespace {}, and no operator runs there; if it runs in another namespace, set \
         --operator-namespace",
        namespaces.join(", ")
    );
    let name = namespaces
        .first()
        .map(|namespace| format!("{namespace}/{DEFAULT_LEASE}"));
    Heartbeat::new(OperatorState::Stopped, name.unwrap_or_default(), message)
}

/// Namespaces that may contain the operator's Lease: the operator's namespace, and the namespaces of the drivers.
pub(crate) fn lease_namespaces(operators: &str, drivers: &[CinderCSIDriver]) -> Vec<String> {
    let mut namespaces = vec![operators.to_owned()];
    for namespace in drivers
        .iter()
        .filter_map(|driver| driver.status.as_ref()?.operand_namespace.clone())
    {
        if !namespaces.contains(&namespace) {
            namespaces.push(namespace);
        }
    }
    namespaces
}

fn judge(lease: &Lease, name: String, now: Timestamp) -> Heartbeat {
    let spec = lease.spec.clone().unwrap_or_default();
    let duration = spec.lease_duration_seconds.unwrap_or(DEFAULT_VALIDITY);
    let validity = SignedDuration::from_secs(i64::from(duration) * 2);
    // The identity consists of the pod's name and a random suffix.
    let holder = spec.holder_identity.unwrap_or_default();
    let holder = holder.split('_').next().filter(|holder| !holder.is_empty());
    let namespace = name.split('/').next().unwrap_or_default();
    let remedy = format!(
        "the states below are the last that it reported; `kubectl -n {namespace} get pods -l \
         app.kubernetes.io/name=cinder-csi-operator` lists its pods"
    );
    let (Some(renewed), Some(holder)) = (spec.renew_time.map(|time| time.0), holder) else {
        let message = format!("the operator has released Lease {name}, and none leads; {remedy}");
        return Heartbeat::new(OperatorState::Stopped, name, message);
    };
    let age = now.duration_since(renewed);
    let (state, message) = if age > validity {
        let age = SignedDuration::from_secs(age.as_secs());
        let message = format!("{holder} has not renewed Lease {name} for {age:#}, and no operator leads; {remedy}");
        (OperatorState::Stopped, message)
    } else if age < -validity {
        let message = format!(
            "the last renewal of Lease {name}, {renewed:.0}, is in the future: the clocks of this machine and of the operator differ"
        );
        (OperatorState::Unknown, message)
    } else {
        (OperatorState::Running, format!("{holder} leads"))
    };
    Heartbeat {
        renewed: Some(renewed),
        ..Heartbeat::new(state, name, message)
    }
}

impl Heartbeat {
    pub(crate) fn is_running(&self) -> bool {
        self.state == OperatorState::Running
    }

    fn new(state: OperatorState, lease: String, message: String) -> Self {
        Self {
            state,
            lease,
            renewed: None,
            message,
        }
    }
}

impl fmt::Display for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.state == OperatorState::Running { "" } else { "! " };
        let state = match self.state {
            OperatorState::Running => "running",
            OperatorState::Stopped => "NOT RUNNING",
            OperatorState::Unknown => "unknown",
        };
        write!(f, "{mark}Operator: {state}: {}", UntrustedText::new(&self.message))?;
        match self.renewed {
            Some(renewed) if self.state == OperatorState::Running => writeln!(f, ", last renewal {renewed:.0}"),
            _ => writeln!(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-06-01T10:00:00Z";

    fn mk_heartbeat(holder: &str, renewed: &Value) -> Heartbeat {
        let lease = json!({"metadata": {"name": "cinder-csi-operator"}, "spec": {"holderIdentity": holder,
            "leaseDurationSeconds": 60, "renewTime": renewed}});
        let lease = serde_json::from_value(lease).expect("a Lease");
        judge(&lease, "n/cinder-csi-operator".to_owned(), NOW.parse().expect("a time"))
    }

    #[rstest]
    #[case::fresh("pod", json!("2026-06-01T09:59:55.000000Z"), "Operator: running: pod leads, last renewal 2026-06-01T09:59:55Z")]
    #[case::late("pod", json!("2026-06-01T09:58:10.000000Z"), "Operator: running: pod leads")]
    #[case::expired(
        "pod",
        json!("2026-06-01T09:30:00.000000Z"),
        "! Operator: NOT RUNNING: pod has not renewed Lease n/cinder-csi-operator for 30m, and no operator leads; the states below"
    )]
    #[case::released("", json!("2026-06-01T09:59:55.000000Z"), "! Operator: NOT RUNNING: the operator has released Lease")]
    #[case::no_time("pod", json!(null), "! Operator: NOT RUNNING: ")]
    #[case::skewed("pod", json!("2026-06-01T10:30:00.000000Z"), "! Operator: unknown: the last renewal of Lease n/cinder-csi-operator, 2026-06-01T10:30:00Z, is in the future")]
    #[case::slightly_skewed("pod", json!("2026-06-01T10:00:30.000000Z"), "Operator: running")]
    fn lease_is_compared_with_the_present_time(#[case] holder: &str, #[case] renewed: Value, #[case] expected: &str) {
        let text = mk_heartbeat(holder, &renewed).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}
