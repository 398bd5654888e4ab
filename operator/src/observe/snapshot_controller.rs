// SPDX-License-Identifier: Apache-2.0
//! Does a snapshot-controller work in the cluster? It has no API of its own to ask; what shows it is its lease, and a
//! Deployment of the usual name.

use std::time::Duration;

use cinder_operator_core::resolve::ControllerSight;
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Client, ResourceExt, api::ListParams};

use crate::kubernetes::{GuardedApi, answer, remedy};

/// The usual name of the Deployment: that of the upstream manifests, and of distributions that follow them.
const USUAL_DEPLOYMENT: &str = "snapshot-controller";

/// The program's own name for its lease.
const LEASE: &str = "snapshot-controller-leader";

/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A lease that was renewed within so many times the time that it lasts, 15 s as a rule, is live: clocks differ.
const LIVE_FOR: i32 = 4;

/// Looks for a snapshot-controller.
pub(crate) async fn look(client: &Client, now: Timestamp) -> ControllerSight {
    let leases: GuardedApi<Lease> = GuardedApi::all(client.clone());
    let deployments: GuardedApi<Deployment> = GuardedApi::all(client.clone());
    // By name, because nothing else may be listed in all namespaces.
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let (of_leases, of_deployments) = (named(LEASE), named(USUAL_DEPLOYMENT));
    let lists = async { tokio::try_join!(leases.list(&of_leases), deployments.list(&of_deployments)) };
    match tokio::time::timeout(LIMIT, lists).await {
        Ok(Ok((leases, deployments))) => judge(&leases, &deployments, now),
        Ok(Err(error)) => ControllerSight::Unknown(format!("{}{}", answer(&error), remedy(&error))),
        Err(_) => ControllerSight::Unknown(format!("the API server did not answer within {LIMIT:?}")),
    }
}

/// What the leases and Deployments show.
fn judge(leases: &[Lease], deployments: &[Deployment], now: Timestamp) -> ControllerSight {
    let wants_pods = |deployment: &&Deployment| {
        let spec = deployment.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(1) > 0
    };
    let available = |deployment: &&Deployment| {
        let status = deployment.status.as_ref();
        status.and_then(|status| status.available_replicas).unwrap_or(0)
    };
    let deployment = deployments.iter().filter(wants_pods).max_by_key(available);
    let lease = leases.iter().find(|lease| is_live(lease, now));
    // The Deployment does not come and go with a pod: where both are there, it is the one to name.
    match (deployment, lease) {
        (Some(deployment), None) if available(&deployment) == 0 => ControllerSight::Down(place(deployment)),
        (Some(deployment), _) => ControllerSight::Found(format!("Deployment {}", place(deployment))),
        (None, Some(lease)) => ControllerSight::Found(format!("lease {}", place(lease))),
        (None, None) => ControllerSight::Missing,
    }
}

/// Whether the renewal of a Lease is recent. This decides about a report alone, so that the clocks of two machines are good enough.
fn is_live(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()) * LIVE_FOR;
    let has_holder = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    has_holder && renewed.is_some_and(|renewed| now.duration_since(renewed) < lasts)
}

fn place(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T10:00:00Z".parse().expect("a time")
    }

    fn mk_lease(namespace: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": LEASE, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .expect("a lease")
    }

    fn mk_deployment(replicas: i32, available: i32) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": USUAL_DEPLOYMENT, "namespace": "kube-system"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        }))
        .expect("a Deployment")
    }

    #[rstest]
    #[case::live("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:59:50.000000Z", true)]
    #[case::of_an_older_driver(
        "cinder-csi",
        "cinder-csi-snapshot-controller-5f-x",
        "2026-01-01T09:59:50.000000Z",
        true
    )]
    #[case::left_behind("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:50:00.000000Z", false)]
    #[case::given_up("kube-system", "", "2026-01-01T09:59:50.000000Z", false)]
    fn a_live_lease_shows_a_snapshot_controller(
        #[case] namespace: &str,
        #[case] holder: &str,
        #[case] renewed: &str,
        #[case] is_found: bool,
    ) {
        let sight = judge(&[mk_lease(namespace, holder, renewed)], &[], now());
        let found = ControllerSight::Found(format!("lease {namespace}/{LEASE}"));
        assert_eq!(sight, if is_found { found } else { ControllerSight::Missing });
    }

    #[rstest]
    #[case(2, 1, ControllerSight::Found("Deployment kube-system/snapshot-controller".into()))]
    #[case(1, 0, ControllerSight::Down("kube-system/snapshot-controller".into()))]
    #[case(0, 0, ControllerSight::Missing)]
    fn one_without_a_lease_is_known_by_its_deployment(
        #[case] replicas: i32,
        #[case] available: i32,
        #[case] expected: ControllerSight,
    ) {
        assert_eq!(judge(&[], &[mk_deployment(replicas, available)], now()), expected);
    }

    #[test]
    fn one_that_renews_its_lease_works_before_its_deployment_counts_a_pod_as_available() {
        let lease = mk_lease("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:59:50.000000Z");
        let found = ControllerSight::Found("Deployment kube-system/snapshot-controller".into());
        assert_eq!(judge(&[lease], &[mk_deployment(2, 0)], now()), found);
    }

    #[test]
    fn the_component_of_config_is_known_by_its_deployment_and_its_lease() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/snapshot-controller/");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
        let mut deployment: Deployment = serde_yaml::from_str(&read("deployment.yaml")).unwrap();
        deployment.status = mk_deployment(1, 1).status;
        let found = ControllerSight::Found("Deployment kube-system/snapshot-controller".into());
        assert_eq!(judge(&[], &[deployment], now()), found);
        assert!(read("rbac.yaml").contains(LEASE));
    }
}
