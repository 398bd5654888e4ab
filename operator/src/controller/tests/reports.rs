// SPDX-License-Identifier: Apache-2.0
//! Reports of complete reconciles: reasons for rejected credentials, events, and series of metrics.

use cinder_cloud::{CloudConfig, CloudOptions};
use cinder_csi_crds::{AdoptionMode, ClientCertRef, INSTANCE_LABEL};
use cinder_operator_core::{
    clouds::CloudFacts,
    cluster::{COMPONENT_LABEL, ClaimObject, Indexed, NODE_COMPONENT, NodeObject, PodObject, REVISION_LABEL},
    decide::CloudView,
};
use openstack_sim::{Sim, SimConfig};
use prometheus::proto::MetricFamily;

use super::*;
use crate::openstack::{Keystone as _, LoginQueries, RealKeystone};

const TAINT: &str = "example.org/not-ready";

/// A node in a zone that Cinder does not have.
fn mk_mismatch() -> (Facts, Decision, Outcome) {
    let mut cloud = CloudView::default();
    cloud.state.facts = CloudFacts {
        compute_zones: vec!["a".to_owned(), "b".to_owned()],
        volume_zones: vec!["a".to_owned()],
    };
    let (mut facts, mut decision, mut outcome) = (Facts::default(), Decision::default(), Outcome::default());
    facts.clouds = vec![cloud];
    outcome.volumes.node_zones = ["b".to_owned()].into();
    decision.has_topology = true;
    (facts, decision, outcome)
}

fn put<K: Indexed + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
    index.put(&serde_json::from_value::<K>(object).expect("an object"));
}

/// The common node of all tests. The driver's DaemonSet has a pod for it.
fn node() -> Value {
    json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": TAINT, "effect": "PreferNoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

impl World {
    /// A driver with a modified spec, in a cluster with a modified index.
    fn with(spec: impl FnOnce(&mut CinderCSIDriverSpec), index: impl FnOnce(&mut Index)) -> Self {
        let (mut wanted, mut known) = (mk_spec(), mk_index(&[], true));
        spec(&mut wanted);
        put::<NodeObject>(&mut known, node());
        index(&mut known);
        Self::new(wanted, known)
    }

    /// Reconciles, and ignores a failure.
    async fn step(&self) {
        let driver = Arc::new(GuardedObject(Ok(self.driver())));
        if let Err(error) = self.reconcile().await {
            error_policy(driver, &error, Arc::clone(&self.context));
        }
    }

    fn patch_spec(&self, field: &str, value: Value) {
        let mut spec = self.api.get(DRIVER).expect("the driver")["spec"].clone();
        spec[field] = value;
        self.api.change(DRIVER, "/spec", spec);
    }

    fn has_sent(&self, event: &str) {
        let events = self.api.kinds_of_events();
        assert!(events.iter().any(|one| one == event), "no {event} in {events:?}");
    }

    /// A driver with a node pod of an older revision than the DaemonSet's.
    async fn with_old_pod() -> Self {
        let pod = json!({
            "metadata": {"name": "node-1", "namespace": "cinder-csi", "uid": "pod-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): NODE_COMPONENT, (REVISION_LABEL): "old"}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let world = Self::with(|_| {}, |index| put::<PodObject>(index, pod.clone()));
        world.api.put("/api/v1/namespaces/cinder-csi/pods/node-1", pod);
        world.step().await;
        let uid = world.api.get(DAEMON_SET).expect("the DaemonSet")["metadata"]["uid"].clone();
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node", "uid": uid});
        world.api.put(
            "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions/new",
            json!({"metadata": {"name": "new", "labels": {(INSTANCE_LABEL): NAME, (REVISION_LABEL): "new"}, "ownerReferences": [owner]},
                "revision": 2}),
        );
        world.step().await;
        world
    }
}

#[rstest]
#[case("wrong", "True/CredentialsRejected", "False/Unauthorized")]
#[case("forbidden", "True/CredentialsForbidden", "False/Forbidden")]
#[case("unreachable", "True/CloudUnreachable", "Unknown/NotChecked")]
#[case("broken", "True/LoginFailed", "Unknown/NotChecked")]
#[case("misled", "True/EndpointMissing", "False/EndpointMissing")]
#[case("undecided", "True/RegionAmbiguous", "False/RegionAmbiguous")]
#[tokio::test]
async fn rejected_credentials_set_two_conditions(
    #[case] password: &str,
    #[case] degraded: &str,
    #[case] credentials: &str,
) {
    let world = World::managed();
    world.set_password(password);
    world.step().await;
    assert_eq!(world.condition(ConditionType::Degraded).0, degraded);
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, credentials);
}

#[tokio::test]
async fn missing_client_certificate_is_reported() {
    let world = World::with(
        |spec| {
            spec.clouds[0].client_cert_secret_ref = Some(ClientCertRef {
                name: "absent".to_owned(),
            });
        },
        |_| {},
    );
    world.step().await;
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ClientCertificateMissing");
    assert!(message.contains("kubectl create secret tls"), "{message}");
}

#[rstest]
#[case::gone(None, "Normal StartupTaintRemoved")]
#[case::refused(Some("/nodes/"), "Warning StartupTaintLeft")]
#[tokio::test]
async fn removal_of_startup_taint_is_an_event(#[case] broken: Option<&str>, #[case] event: &str) {
    let world = World::with(
        |spec| {
            spec.node.startup_taint.enabled = true;
            spec.node.startup_taint.key = Some(TAINT.to_owned());
        },
        |_| {},
    );
    world.api.put("/api/v1/nodes/n1", node());
    world.api.break_writes_to(broken);
    world.step().await;
    world.has_sent(event);
}

#[tokio::test]
async fn pod_replacement_is_an_event() {
    World::with_old_pod().await.has_sent("Normal ReplacingPods");
}

#[tokio::test]
async fn crd_mismatch_is_reported_once_a_day() {
    let world = World::managed();
    world
        .context
        .cluster
        .set_wrong_definition(Some("apply the definition of this release"));
    world.step().await;
    world.step().await;
    let events = world.api.kinds_of_events();
    let sent = events.iter().filter(|event| *event == "Warning CRDMismatch").count();
    assert_eq!(sent, 1, "{events:?}");
}

#[tokio::test]
async fn crd_mismatch_holds_workloads() {
    let world = World::managed();
    world.step().await;
    let workloads = || [DEPLOYMENT, DAEMON_SET].map(|path| world.api.get(path).expect("a workload")["spec"].clone());
    let before = workloads();
    world
        .context
        .cluster
        .set_wrong_definition(Some("the definition is older"));
    world.api.change(DRIVER, "/spec/logLevel", json!("Debug"));
    world.step().await;
    assert_eq!(workloads(), before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/CRDMismatch");
    assert_eq!(world.condition(ConditionType::Stalled).0, "False/AsExpected");
    world.api.remove(DAEMON_SET);
    world.step().await;
    assert_eq!(workloads(), before, "a held workload is restored");
    world.context.cluster.set_wrong_definition(None);
    world.step().await;
    assert_ne!(workloads(), before);
}

#[tokio::test]
async fn class_changes_and_waiting_claims_are_events() {
    let world = World::managed();
    world.step().await;
    world.api.change(CLASS, "/reclaimPolicy", json!("Retain"));
    world.step().await;
    world.has_sent("Normal Recreated");
    world.api.put(
        "/api/v1/persistentvolumeclaims/c1",
        json!({"metadata": {"name": "c1", "namespace": "ns"}, "spec": {"storageClassName": "cinder"}, "status": {"phase": "Pending"}}),
    );
    world.patch_spec("storageClasses", json!({"items": [{"name": "other"}]}));
    world.step().await;
    world.has_sent("Warning ClaimsWithoutClass");
    world.has_sent("Normal Pruned");
}

#[tokio::test]
async fn migration_step_is_an_event() {
    let world = super::migration::shown_to_start().await;
    world.step().await;
    world.has_sent("Normal AdoptionStepDone");
}

#[tokio::test]
async fn migration_reports_missing_role() {
    let world = World::with(|spec| spec.adoption.mode = AdoptionMode::Migrate, |_| {});
    world.api.put(
        "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin",
        json!({"metadata": {"name": "csi-cinder-controllerplugin", "namespace": "kube-system", "uid": "old"},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [
                {"name": "cinder-csi-plugin", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"}]}}}}),
    );
    world.api.hide("/namespaces/kube-system/deployments");
    world.step().await;
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/AdoptionForbidden");
}

/// Checks credentials. The metrics count its requests and logins.
async fn check_credentials(metrics: &Arc<Metrics>) {
    // A second installation in this process has no effect.
    drop(rustls::crypto::ring::default_provider().install_default());
    let sim = Sim::start(SimConfig::default()).await.expect("the simulator starts");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("good");
    let options = CloudOptions {
        observer: Arc::clone(metrics) as Arc<dyn cinder_cloud::Observer>,
        ..CloudOptions::default()
    };
    let queries = LoginQueries {
        services: true,
        ..LoginQueries::default()
    };
    let login = RealKeystone { options }.check_login(config, queries).await;
    login.expect("the credentials are good");
}

fn is_counted(family: &MetricFamily) -> bool {
    family.get_metric().iter().any(|series| {
        series.get_gauge().get_value() != 0.0
            || series.get_counter().get_value() != 0.0
            || series.get_histogram().get_sample_count() > 0
    })
}

#[tokio::test]
async fn every_metric_gets_a_series() {
    // Drift, and a claim that has waited for long.
    let drifted = World::with(
        |_| {},
        |index| {
            put::<ClaimObject>(
                index,
                json!({"metadata": {"name": "c1", "namespace": "ns", "uid": "claim-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}}, "status": {"phase": "Pending"}}),
            );
            let odd = json!({"metadata": {"name": "odd"}, "provisioner": NAME, "parameters": {"tpye": "fast"}});
            put::<cluster::ClassObject>(index, odd);
        },
    );
    drifted.step().await;
    drifted.step().await;
    drifted.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    drifted.step().await;

    let failing = World::new(mk_spec(), mk_index(&["pv1"], true));
    failing.api.break_writes_to(Some(CSI_DRIVER));
    failing.step().await;

    let blocked = World::with(|_| {}, |_| {});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": NAME}}});
    blocked.api.put("/api/v1/persistentvolumes/pv", volume);
    blocked.step().await;
    blocked.delete();
    blocked.step().await;

    let rolling = World::with_old_pod().await;
    let of_cloud = Arc::new(Metrics::new().expect("metrics"));
    let (facts, decision, outcome) = &mk_mismatch();
    let mismatch = Report {
        facts,
        decision,
        outcome,
    };
    of_cloud.export(NAME, &mismatch);
    check_credentials(&of_cloud).await;

    let worlds = [drifted, failing, blocked, rolling];
    let counters = worlds.iter().map(|world| &world.context.metrics).chain([&of_cloud]);
    let mut counted = BTreeSet::new();
    for metrics in counters {
        let families = metrics.registry().gather();
        let families = families.iter().filter(|family| is_counted(family));
        counted.extend(families.map(|family| family.name().to_owned()));
    }
    // Only a complete program leads. The suite `operator` checks that series.
    counted.insert("cinder_csi_operator_leader".to_owned());
    // The tests of the watches check these series.
    counted.insert("cinder_csi_operator_failing_watches".to_owned());
    counted.insert("cinder_csi_operator_index_age_seconds".to_owned());
    counted.insert("cinder_csi_operator_undecodable_objects".to_owned());
    let all = of_cloud
        .descriptions()
        .iter()
        .map(|description| description.fq_name.clone());
    let all: BTreeSet<String> = all.collect();
    let missing: Vec<&String> = all.difference(&counted).collect();
    assert!(missing.is_empty(), "nothing counts {missing:?}");
}
