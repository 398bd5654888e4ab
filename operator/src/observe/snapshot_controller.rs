// SPDX-License-Identifier: Apache-2.0
//! Detects a snapshot-controller in the cluster. It has no API of its own; its Lease, and a Deployment of the usual
//! name, indicate its presence.
//!
//! A tenant can create both under these names. They therefore count in kube-system. In other namespaces they count only
//! with a service account that may create VolumeSnapshotContents, which are cluster-scoped objects.

use std::time::Duration;

use cinder_operator_core::resolve::ControllerSight;
use k8s_openapi::{
    api::{apps::v1::Deployment, authorization::v1::ResourceAttributes, coordination::v1::Lease},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Client, ResourceExt, api::ListParams};

use crate::kubernetes::{GuardedApi, answer, is_account_allowed, remedy};

/// The usual name of the Deployment, in the upstream manifests and in distributions that follow them.
const USUAL_DEPLOYMENT: &str = "snapshot-controller";

/// The namespace of the cluster's own programs.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Maximum number of checked objects per name.
const MOST_CANDIDATES: usize = 10;

/// The default name of the program's Lease.
const LEASE: &str = "snapshot-controller-leader";

/// Maximum duration of one request.
const LIMIT: Duration = Duration::from_secs(10);

/// A Lease counts as live for this multiple of its duration, usually 15 s, after its last renewal. The tolerance covers
/// differences between clocks.
const LIVE_FOR: i32 = 4;

/// Detects a snapshot-controller.
pub(crate) async fn look(client: &Client, now: Timestamp) -> ControllerSight {
    let leases: GuardedApi<Lease> = GuardedApi::all(client.clone());
    let deployments: GuardedApi<Deployment> = GuardedApi::all(client.clone());
    // The requests select by name, because the operator may list no other objects in all namespaces.
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let (of_leases, of_deployments) = (named(LEASE), named(USUAL_DEPLOYMENT));
    let sight = async {
        let (leases, deployments) = tokio::try_join!(leases.list(&of_leases), deployments.list(&of_deployments))?;
        let live: Vec<Lease> = leases.into_iter().filter(|lease| is_live(lease, now)).collect();
        let (deployments, unchecked_deployments) = first_candidates(deployments, "Deployments");
        let (leases, unchecked_leases) = first_candidates(live, "Leases");
        let deployments = trusted_deployments(client, deployments).await?;
        let (leases, doubtful) = trusted_leases(client, leases).await?;
        let doubtful = doubtful.map(|place| {
            format!(
                "Lease {place} is renewed, and no service account of the usual names in its namespace may create VolumeSnapshotContents"
            )
        });
        let doubt = doubtful.or(unchecked_deployments).or(unchecked_leases);
        Ok(match (judge(&leases, &deployments, now), doubt) {
            (ControllerSight::Missing, Some(doubt)) => ControllerSight::Unknown(doubt),
            (sight, _) => sight,
        })
    };
    match tokio::time::timeout(LIMIT, sight).await {
        Ok(Ok(sight)) => sight,
        Ok(Err(error)) => ControllerSight::Unknown(format!("{}{}", answer(&error), remedy(&error))),
        Err(_) => ControllerSight::Unknown(format!("the API server did not answer within {LIMIT:?}")),
    }
}

/// Returns the first objects, and a sentence about the others. Tenants determine the number of objects.
fn first_candidates<K: ResourceExt>(mut all: Vec<K>, kinds: &str) -> (Vec<K>, Option<String>) {
    let count = all.len();
    all.sort_by_key(|object| (!is_of_system(object), object.creation_timestamp()));
    all.truncate(MOST_CANDIDATES);
    let unchecked = (count > MOST_CANDIDATES).then(|| {
        format!(
            "{count} {kinds} have the name of a snapshot-controller, and only the first {MOST_CANDIDATES} were checked"
        )
    });
    (all, unchecked)
}

/// Returns the Deployments that are snapshot-controllers.
async fn trusted_deployments(client: &Client, candidates: Vec<Deployment>) -> kube::Result<Vec<Deployment>> {
    let mut trusted = Vec::new();
    for deployment in candidates {
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let account = pod
            .and_then(|pod| pod.service_account_name.as_deref())
            .unwrap_or("default");
        if is_of_system(&deployment) || is_controller(client, &deployment, account).await? {
            trusted.push(deployment);
        }
    }
    Ok(trusted)
}

/// Returns the Leases of snapshot-controllers, and the name of a Lease that may belong to a different program.
async fn trusted_leases(client: &Client, candidates: Vec<Lease>) -> kube::Result<(Vec<Lease>, Option<String>)> {
    let (mut trusted, mut doubtful) = (Vec::new(), None);
    for lease in candidates {
        // The name of a Deployment's pod consists of the Deployment's name and two more parts.
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_default();
        let of_holder = holder.rsplitn(3, '-').nth(2).unwrap_or(USUAL_DEPLOYMENT);
        let is_trusted = is_of_system(&lease)
            || is_controller(client, &lease, USUAL_DEPLOYMENT).await?
            || of_holder != USUAL_DEPLOYMENT && is_controller(client, &lease, of_holder).await?;
        if is_trusted {
            trusted.push(lease);
        } else {
            doubtful = doubtful.or(Some(place(&lease)));
        }
    }
    Ok((trusted, doubtful))
}

/// Whether only administrators can write in the namespace of the object.
fn is_of_system(object: &impl ResourceExt) -> bool {
    object.namespace().as_deref() == Some(SYSTEM_NAMESPACE)
}

/// Whether a service account in the namespace of the object has the permission that a snapshot-controller needs.
async fn is_controller(client: &Client, object: &impl ResourceExt, account: &str) -> kube::Result<bool> {
    let namespace = object.namespace().unwrap_or_default();
    let right = ResourceAttributes {
        group: Some("snapshot.storage.k8s.io".to_owned()),
        resource: Some("volumesnapshotcontents".to_owned()),
        verb: Some("create".to_owned()),
        ..ResourceAttributes::default()
    };
    is_account_allowed(client, &namespace, account, right).await
}

/// Evaluates the Leases and Deployments.
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
    // A Deployment is more stable than a pod, so the result prefers its name.
    match (deployment, lease) {
        (Some(deployment), None) if available(&deployment) == 0 => ControllerSight::Down(place(deployment)),
        (Some(deployment), _) => ControllerSight::Found(format!("Deployment {}", place(deployment))),
        (None, Some(lease)) => ControllerSight::Found(format!("lease {}", place(lease))),
        (None, None) => ControllerSight::Missing,
    }
}

/// Whether the last renewal of a Lease is recent. The result affects only a report, so a comparison of two machines'
/// clocks is acceptable.
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
    fn live_lease_indicates_snapshot_controller(
        #[case] namespace: &str,
        #[case] holder: &str,
        #[case] renewed: &str,
        #[case] is_found: bool,
    ) {
        let sight = judge(&[mk_lease(namespace, holder, renewed)], &[], now());
        let found = ControllerSight::Found(format!("lease {namespace}/{LEASE}"));
        assert_eq!(sight, if is_found { found } else { ControllerSight::Missing });
    }

    /// Detects a snapshot-controller from these objects, while these service accounts may create
    /// VolumeSnapshotContents.
    async fn mk_sight(
        leases: Vec<Lease>,
        deployments: Vec<Deployment>,
        allowed: &'static [&'static str],
    ) -> ControllerSight {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_review = request.uri().path().ends_with("subjectaccessreviews");
            let is_lease = request.uri().path().ends_with("leases");
            let list = if is_lease { json!(leases) } else { json!(deployments) };
            async move {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let answer = if is_review {
                    let mut review: serde_json::Value = serde_json::from_slice(&body).expect("a review");
                    let user = review["spec"]["user"].as_str().expect("a user").to_owned();
                    review["status"] = json!({"allowed": allowed.contains(&user.as_str())});
                    review
                } else {
                    json!({"metadata": {}, "items": list})
                };
                let answer = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::new(answer))
            }
        });
        look(&Client::new(service, "n"), now()).await
    }

    fn mk_deployment_in(namespace: &str, account: &str) -> Deployment {
        let mut deployment = mk_deployment(1, 1);
        deployment.metadata.namespace = Some(namespace.to_owned());
        let pod = json!({"containers": [], "serviceAccountName": account});
        deployment.spec.as_mut().expect("a spec").template.spec = serde_json::from_value(pod).expect("a pod");
        deployment
    }

    #[rstest]
    #[case::system("kube-system", "any", &[], ControllerSight::Found("Deployment kube-system/snapshot-controller".into()))]
    #[case::with_rights("storage", "sc", &["system:serviceaccount:storage:sc"],
        ControllerSight::Found("Deployment storage/snapshot-controller".into()))]
    #[case::tenant("shop", "default", &["system:serviceaccount:kube-system:snapshot-controller"], ControllerSight::Missing)]
    #[tokio::test]
    async fn deployment_of_tenant_does_not_count(
        #[case] namespace: &str,
        #[case] account: &str,
        #[case] allowed: &'static [&'static str],
        #[case] expected: ControllerSight,
    ) {
        assert_eq!(
            mk_sight(vec![], vec![mk_deployment_in(namespace, account)], allowed).await,
            expected
        );
    }

    #[rstest]
    #[case::system("kube-system", "managed", &[], true)]
    #[case::usual_account("storage", "x", &["system:serviceaccount:storage:snapshot-controller"], true)]
    #[case::account_of_the_holder("cinder-csi", "cinder-csi-snapshot-controller-5f-x",
        &["system:serviceaccount:cinder-csi:cinder-csi-snapshot-controller"], true)]
    #[case::tenant("shop", "snapshot-controller-5f-x", &["system:serviceaccount:storage:snapshot-controller"], false)]
    #[tokio::test]
    async fn lease_of_tenant_does_not_count(
        #[case] namespace: &str,
        #[case] holder: &str,
        #[case] allowed: &'static [&'static str],
        #[case] is_found: bool,
    ) {
        let lease = mk_lease(namespace, holder, "2026-01-01T09:59:50.000000Z");
        let sight = mk_sight(vec![lease], vec![], allowed).await;
        let place = format!("{namespace}/{LEASE}");
        match sight {
            ControllerSight::Found(found) => assert!(is_found && found == format!("lease {place}"), "{found}"),
            ControllerSight::Unknown(why) => assert!(!is_found && why.contains(&place), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn unchecked_deployments_cause_unknown_result() {
        let old = |number: usize| mk_deployment_in(&format!("shop-{number}"), "default");
        let mut deployments: Vec<Deployment> = (0..MOST_CANDIDATES).map(old).collect();
        assert_eq!(
            mk_sight(vec![], deployments.clone(), &[]).await,
            ControllerSight::Missing
        );
        deployments.push(mk_deployment_in("storage", "sc"));
        match mk_sight(vec![], deployments, &["system:serviceaccount:storage:sc"]).await {
            ControllerSight::Unknown(why) => assert!(why.starts_with("11 Deployments have the name"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case(2, 1, ControllerSight::Found("Deployment kube-system/snapshot-controller".into()))]
    #[case(1, 0, ControllerSight::Down("kube-system/snapshot-controller".into()))]
    #[case(0, 0, ControllerSight::Missing)]
    fn deployment_without_lease_is_sufficient(
        #[case] replicas: i32,
        #[case] available: i32,
        #[case] expected: ControllerSight,
    ) {
        assert_eq!(judge(&[], &[mk_deployment(replicas, available)], now()), expected);
    }

    #[test]
    fn live_lease_counts_before_pod_is_available() {
        let lease = mk_lease("kube-system", "snapshot-controller-5f-x", "2026-01-01T09:59:50.000000Z");
        let found = ControllerSight::Found("Deployment kube-system/snapshot-controller".into());
        assert_eq!(judge(&[lease], &[mk_deployment(2, 0)], now()), found);
    }

    #[test]
    fn bundled_snapshot_controller_is_detected() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/snapshot-controller/");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
        let mut deployment: Deployment = serde_yaml::from_str(&read("deployment.yaml")).unwrap();
        deployment.status = mk_deployment(1, 1).status;
        let found = ControllerSight::Found("Deployment kube-system/snapshot-controller".into());
        assert_eq!(judge(&[], &[deployment], now()), found);
        assert!(read("rbac.yaml").contains(LEASE));
    }
}
