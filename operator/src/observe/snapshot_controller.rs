//! Does a snapshot-controller work in the cluster? It has no API of its own to ask; what shows it is its lease, and a
//! Deployment of the usual name.

use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::installation::is_held;
use crate::{operands::SNAPSHOT_CONTROLLER_LEASE, resolve::ControllerSight};

/// The usual name of the Deployment: that of the upstream manifests, and of distributions that follow them.
const USUAL_DEPLOYMENT: &str = "snapshot-controller";

/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A lease that was renewed within so many times the time that it lasts, 15 s as a rule, is live: clocks differ.
const LIVE_FOR: i32 = 4;

/// Looks for a snapshot-controller other than the Deployment `own` of `namespace`.
pub(crate) async fn look(client: &Client, namespace: &str, own: &str, now: Timestamp) -> ControllerSight {
    let leases: Api<Lease> = Api::all(client.clone());
    let deployments: Api<Deployment> = Api::all(client.clone());
    // By name, because nothing else may be listed in all namespaces.
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let (of_leases, of_deployments) = (named(SNAPSHOT_CONTROLLER_LEASE), named(USUAL_DEPLOYMENT));
    let lists = async { tokio::try_join!(leases.list(&of_leases), deployments.list(&of_deployments)) };
    match tokio::time::timeout(LIMIT, lists).await {
        Ok(Ok((leases, deployments))) => judge(&leases.items, &deployments.items, (namespace, own), now),
        Ok(Err(error)) => ControllerSight::Unknown(error.to_string()),
        Err(_) => ControllerSight::Unknown(format!("the API server did not answer within {LIMIT:?}")),
    }
}

/// What the leases and Deployments show.
fn judge(leases: &[Lease], deployments: &[Deployment], own: (&str, &str), now: Timestamp) -> ControllerSight {
    let lease = leases
        .iter()
        .find(|lease| is_held(lease, now, LIVE_FOR) && !is_held_by(lease, own))
        .map(|lease| format!("lease {}", place(lease)));
    let wants_pods = |deployment: &&Deployment| {
        let spec = deployment.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(1) > 0
    };
    let deployment = deployments
        .iter()
        .find(wants_pods)
        .map(|deployment| format!("Deployment {}", place(deployment)));
    // The Deployment does not come and go with a pod: where both are there, it is the one to name.
    match deployment.or(lease) {
        Some(found) => ControllerSight::Found(found),
        None => ControllerSight::Missing,
    }
}

fn place(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether a pod of the Deployment `own` holds it: pods are named after their Deployment.
fn is_held_by(lease: &Lease, (namespace, own): (&str, &str)) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    lease.namespace().as_deref() == Some(namespace)
        && holder.is_some_and(|holder| holder.strip_prefix(own).is_some_and(|rest| rest.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const OWN: (&str, &str) = ("cinder-csi", "cinder-csi-snapshot-controller");

    fn now() -> Timestamp {
        "2026-01-01T10:00:00Z".parse().expect("a time")
    }

    fn mk_lease(namespace: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": SNAPSHOT_CONTROLLER_LEASE, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .expect("a lease")
    }

    fn mk_deployment(replicas: i32) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": USUAL_DEPLOYMENT, "namespace": "kube-system"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))
        .expect("a Deployment")
    }

    #[rstest]
    #[case::live("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:59:50.000000Z", true)]
    #[case::of_another_driver(
        "cinder-csi",
        "cinder-csi-0a1b2c3d-snapshot-controller-5f-x",
        "2026-01-01T09:59:50.000000Z",
        true
    )]
    #[case::ours(
        "cinder-csi",
        "cinder-csi-snapshot-controller-5f-x",
        "2026-01-01T09:59:50.000000Z",
        false
    )]
    #[case::of_the_same_name_elsewhere(
        "other",
        "cinder-csi-snapshot-controller-5f-x",
        "2026-01-01T09:59:50.000000Z",
        true
    )]
    #[case::left_behind("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:50:00.000000Z", false)]
    #[case::given_up("kube-system", "", "2026-01-01T09:59:50.000000Z", false)]
    fn a_live_lease_of_somebody_else_shows_a_snapshot_controller(
        #[case] namespace: &str,
        #[case] holder: &str,
        #[case] renewed: &str,
        #[case] is_found: bool,
    ) {
        let sight = judge(&[mk_lease(namespace, holder, renewed)], &[], OWN, now());
        let found = ControllerSight::Found(format!("lease {namespace}/{SNAPSHOT_CONTROLLER_LEASE}"));
        assert_eq!(sight, if is_found { found } else { ControllerSight::Missing });
    }

    #[rstest]
    #[case(1, ControllerSight::Found("Deployment kube-system/snapshot-controller".into()))]
    #[case(0, ControllerSight::Missing)]
    fn one_without_a_lease_is_known_by_its_deployment(#[case] replicas: i32, #[case] expected: ControllerSight) {
        assert_eq!(judge(&[], &[mk_deployment(replicas)], OWN, now()), expected);
    }
}
