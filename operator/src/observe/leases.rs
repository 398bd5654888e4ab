// SPDX-License-Identifier: Apache-2.0
//! Determines whether the holder of a foreign Lease can still lead.
//!
//! A Lease contains the time of its last renewal by the clock of the holder's node, and the clocks of nodes differ. As
//! client-go does, the operator compares a Lease with the previous read, and measures the time between them on its own
//! monotonic clock.

use std::{collections::BTreeMap, time::Duration};

use cinder_operator_core::{
    cluster::{Key, Owner},
    releases::COMPONENTS,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::ObserveError;
use crate::kubernetes::GuardedApi;

/// The assumed duration of a Lease without one: longer than that of any sidecar.
const UNKNOWN_DURATION: Duration = Duration::from_mins(5);

/// The last observed content of each Lease, and the time of its first observation.
#[derive(Debug, Default)]
pub struct LeaseRenewals(Mutex<BTreeMap<String, (LeaseSpec, Instant)>>);

impl LeaseRenewals {
    /// Records an observation of a Lease. Returns the time since the first observation of the same content.
    pub fn observe(&self, lease: &Lease) -> Duration {
        let name = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
        let spec = lease.spec.clone().unwrap_or_default();
        let mut observed = self.0.lock();
        let (known, since) = observed.entry(name).or_insert_with(|| (spec.clone(), Instant::now()));
        if *known != spec {
            (*known, *since) = (spec, Instant::now());
        }
        since.elapsed()
    }

    /// Records an observation of a Lease. Returns whether its holder may lead: the holder has not released the Lease,
    /// and the Lease was not observed unchanged for `times` its duration.
    pub fn may_lead(&self, lease: &Lease, times: u32) -> bool {
        let unchanged = self.observe(lease);
        let Some(spec) = &lease.spec else { return false };
        let has_holder = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
        has_holder && unchanged < duration(spec).saturating_mul(times)
    }
}

/// The time after which a Lease without a renewal is free.
fn duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(UNKNOWN_DURATION, Duration::from_secs)
}

/// Whether no sidecar of the driver can lead any more, because none of their Leases was renewed for twice its duration.
pub async fn leases_have_ended(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    renewals: &LeaseRenewals,
) -> Result<bool, ObserveError> {
    let api: GuardedApi<Lease> = GuardedApi::namespaced(client.clone(), namespace);
    let mut may_lead = false;
    for name in sidecar_leases(owner) {
        let lease = api.get_opt(&name).await.map_err(|source| ObserveError::Get {
            key: Key::new("Lease", Some(namespace), &name),
            source: Box::new(source),
        })?;
        may_lead |= lease.is_some_and(|lease| renewals.may_lead(&lease, 2));
    }
    Ok(!may_lead)
}

/// The names of the Leases of the driver's sidecars.
pub(crate) fn sidecar_leases(owner: &Owner) -> impl Iterator<Item = String> {
    COMPONENTS.iter().filter_map(|sidecar| sidecar.lease(&owner.name))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_lease(holder: &str, renewed: &str, seconds: &Value) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed},
        }))
        .expect("a lease")
    }

    const PAST: &str = "2001-01-01T00:00:00.000000Z";
    const FUTURE: &str = "2101-01-01T00:00:00.000000Z";

    #[rstest]
    #[case::first_observation("pod", PAST, json!(15), 0, 1, true)]
    #[case::first_observation_of_fast_clock("pod", FUTURE, json!(15), 0, 1, true)]
    #[case::unchanged("pod", PAST, json!(15), 15, 1, false)]
    #[case::unchanged_with_fast_clock("pod", FUTURE, json!(15), 15, 1, false)]
    #[case::not_unchanged_twice("pod", PAST, json!(15), 29, 2, true)]
    #[case::unchanged_twice("pod", PAST, json!(15), 30, 2, false)]
    #[case::released("", PAST, json!(15), 0, 2, false)]
    #[case::without_duration("pod", PAST, Value::Null, 137, 1, true)]
    #[tokio::test(start_paused = true)]
    async fn lease_is_free_after_unchanged_duration(
        #[case] holder: &str,
        #[case] renewed: &str,
        #[case] seconds: Value,
        #[case] later: u64,
        #[case] times: u32,
        #[case] expected: bool,
    ) {
        let renewals = LeaseRenewals::default();
        let lease = mk_lease(holder, renewed, &seconds);
        renewals.observe(&lease);
        tokio::time::advance(Duration::from_secs(later)).await;
        assert_eq!(renewals.may_lead(&lease, times), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_starts_duration_again() {
        let renewals = LeaseRenewals::default();
        for renewed in [PAST, "2001-01-01T00:00:10.000000Z", FUTURE] {
            assert!(renewals.may_lead(&mk_lease("pod", renewed, &json!(15)), 1), "{renewed}");
            tokio::time::advance(Duration::from_secs(14)).await;
        }
        assert!(renewals.may_lead(&mk_lease("pod", FUTURE, &json!(15)), 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!renewals.may_lead(&mk_lease("pod", FUTURE, &json!(15)), 1));
    }
}
