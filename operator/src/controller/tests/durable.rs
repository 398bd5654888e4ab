// SPDX-License-Identifier: Apache-2.0
//! Tables of every string of the operator that outlives a process: names of its objects, metadata that it writes, and
//! names that other programs watch or scrape. An entry changes only together with a migration for existing objects.

use cinder_csi_crds::{GROUP, INSTANCE_LABEL, KIND, OWNER_UID_ANNOTATION, PLURAL};
use cinder_operator_core::{
    cluster::{DEFAULT_CLASS_ANNOTATION, FIELD_MANAGER, MANAGED_BY, MANAGED_BY_LABEL, NOTE},
    manifests::OPERAND_NAMESPACE_ANNOTATION,
    plan::APPLIED_HASH,
    record::PLACES_ANNOTATION,
    releases::COMPONENTS,
    removal::{FORCE_DELETE, UNREGISTERING_SINCE, UPDATES_STOPPED_SINCE},
    resolve::DISABLE_TOPOLOGY,
    rollout::STANDS_FOR,
};
use clap::Parser;

use super::*;
use crate::{
    args::{Args, Command, VERSION},
    commands::render::render,
    controller::namespace::MOVE_NAMESPACE,
    object_leases::lease_name,
    openstack::MOVE_PROJECT,
};

/// Parses a command line.
fn command(words: &[&str]) -> Command {
    let words = ["cinder-csi-operator"].iter().chain(words);
    Args::try_parse_from(words).expect("a command").command
}

/// Renders all objects that a spec can request, with every optional API served.
fn render_all(metadata: &Value, namespace: &str) -> Vec<Value> {
    let driver = json!({
        "apiVersion": format!("{GROUP}/{}", cinder_csi_crds::VERSION),
        "kind": KIND,
        "metadata": metadata,
        "spec": {
            "clouds": [{"credentialsSecretRef": {"name": "openstack-credentials"}}],
            "csiDriver": {"storageCapacity": true},
            "volumeAttributesClasses": {"items": [{"name": "gold", "parameters": {"type": "ssd"}}]},
        },
    });
    let directory = tempfile::tempdir().expect("a directory");
    let (file, conf) = (
        directory.path().join("driver.json"),
        directory.path().join("cloud.conf"),
    );
    std::fs::write(&file, driver.to_string()).expect("written");
    let cloud = "auth-url = https://keystone.example.org/v3\nuser-id = u\npassword = p\ntenant-id = t\nregion = one\n";
    let clouds = format!("[Global \"east\"]\n{cloud}[Global \"west\"]\n{cloud}");
    std::fs::write(&conf, clouds).expect("written");
    let apis = "--apis=snapshots,group-snapshots,monitoring,volume-attributes-classes";
    let namespace = format!("--namespace={namespace}");
    let (file, conf) = (file.display().to_string(), conf.display().to_string());
    let Command::Render(args) = command(&["render", &file, "--cloud-conf", &conf, apis, &namespace]) else {
        panic!("not render");
    };
    let mut out = Vec::new();
    render(&args, &mut out).expect("rendered");
    let text = String::from_utf8(out).expect("text");
    let documents = text.split("---\n").filter(|document| !document.is_empty());
    documents
        .map(|document| serde_yaml::from_str(document).expect("YAML"))
        .collect()
}

/// The objects of an instance. `{name}` is the prefix of their names, and `{class}` is the default name of the class.
const OBJECTS: [&str; 30] = [
    "CSIDriver {driver}",
    "ClusterRole {name}-attacher",
    "ClusterRole {name}-provisioner",
    "ClusterRole {name}-resizer",
    "ClusterRole {name}-snapshotter",
    "ClusterRoleBinding {name}-attacher",
    "ClusterRoleBinding {name}-provisioner",
    "ClusterRoleBinding {name}-resizer",
    "ClusterRoleBinding {name}-snapshotter",
    "ConfigMap {namespace}/{name}-dashboard",
    "DaemonSet {namespace}/{name}-node",
    "Deployment {namespace}/{name}-controller",
    "NetworkPolicy {namespace}/{name}-controller",
    "PodDisruptionBudget {namespace}/{name}-controller",
    "PrometheusRule {namespace}/{name}-alerts",
    "Role {namespace}/{name}-capacity",
    "Role {namespace}/{name}-leader-election",
    "RoleBinding {namespace}/{name}-capacity",
    "RoleBinding {namespace}/{name}-leader-election",
    "Secret {namespace}/{name}-cloud-config",
    "Service {namespace}/{name}-controller-metrics",
    "Service {namespace}/{name}-node-metrics",
    "ServiceAccount {namespace}/{name}-controller",
    "ServiceAccount {namespace}/{name}-node",
    "ServiceMonitor {namespace}/{name}-controller",
    "ServiceMonitor {namespace}/{name}-node",
    "StorageClass {class}",
    "VolumeAttributesClass gold",
    "VolumeGroupSnapshotClass {class}",
    "VolumeSnapshotClass {class}",
];

/// The prefix of the names of another driver's objects. It contains the beginning of the hash of that driver's name.
const OF_ANOTHER: &str = "cinder-csi-81785013";

#[rstest]
#[case::of_the_default_driver(json!({"name": NAME}), "cinder-csi", "cinder-csi", "cinder")]
#[case::in_another_namespace(json!({"name": NAME}), "drivers", "cinder-csi", "cinder")]
#[case::of_another_driver(json!({"name": "second.csi.example.org"}), "drivers", OF_ANOTHER, OF_ANOTHER)]
fn object_names_are_stable(#[case] metadata: Value, #[case] namespace: &str, #[case] name: &str, #[case] class: &str) {
    let found: BTreeSet<String> = render_all(&metadata, namespace)
        .iter()
        .map(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let own = &object["metadata"];
            match own["namespace"].as_str() {
                Some(namespace) => format!("{} {namespace}/{}", text(&object["kind"]), text(&own["name"])),
                None => format!("{} {}", text(&object["kind"]), text(&own["name"])),
            }
        })
        .collect();
    let expected: BTreeSet<String> = OBJECTS
        .iter()
        .map(|object| {
            let object = object.replace("{namespace}", namespace).replace("{name}", name);
            let driver = metadata["name"].as_str().unwrap_or_default();
            object.replace("{class}", class).replace("{driver}", driver)
        })
        .collect();
    assert_eq!(found, expected);
}

/// Labels, selectors and annotations of all objects and of their pods.
const MARKS: [&str; 28] = [
    "annotations csi.openstack.org/clouds: east,west",
    "annotations csi.openstack.org/credentials-hash: {hash}",
    "annotations csi.openstack.org/operand-namespace: cinder-csi",
    "annotations csi.openstack.org/owner-uid: driver-uid",
    "annotations csi.openstack.org/regions: east=one,west=one",
    "annotations csi.openstack.org/template-inputs: {\"kubernetes\":null,\"apis\":{\"snapshots\":true,\"groupSnapshots\":true,\"monitoring\":false,\"volumeAttributesClasses\":true},\"topology\":false,\"images\":{}}",
    "annotations storageclass.kubernetes.io/is-default-class: true",
    "labels app.kubernetes.io/component: controller",
    "labels app.kubernetes.io/component: monitoring",
    "labels app.kubernetes.io/component: node",
    "labels app.kubernetes.io/component: storage",
    "labels app.kubernetes.io/instance: cinder-csi",
    "labels app.kubernetes.io/managed-by: cinder-csi-operator",
    "labels app.kubernetes.io/name: cinder-csi",
    "labels app.kubernetes.io/part-of: cinder-csi",
    "labels app.kubernetes.io/version: {version}",
    "labels csi.openstack.org/instance: cinder.csi.openstack.org",
    "labels csi.openstack.org/metrics-of: controller",
    "labels csi.openstack.org/metrics-of: node",
    "labels grafana_dashboard: 1",
    "matchLabels app.kubernetes.io/component: controller",
    "matchLabels app.kubernetes.io/component: node",
    "matchLabels csi.openstack.org/instance: cinder.csi.openstack.org",
    "matchLabels csi.openstack.org/metrics-of: controller",
    "matchLabels csi.openstack.org/metrics-of: node",
    "selector app.kubernetes.io/component: controller",
    "selector app.kubernetes.io/component: node",
    "selector csi.openstack.org/instance: cinder.csi.openstack.org",
];

/// Adds the maps of strings that select and identify objects.
fn note_marks(object: &Value, found: &mut BTreeSet<String>) {
    let Value::Object(fields) = object else {
        object
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|one| note_marks(one, found));
        return;
    };
    for (field, value) in fields {
        match (field.as_str(), value) {
            // Alerts also have labels and annotations.
            ("groups", _) => {}
            ("labels" | "annotations" | "matchLabels" | "selector", Value::Object(pairs))
                if pairs.values().all(Value::is_string) =>
            {
                for (key, value) in pairs {
                    let value = match value.as_str().unwrap_or_default() {
                        VERSION => "{version}",
                        _ if key == APPLIED_HASH || key.ends_with("-hash") => "{hash}",
                        value => value,
                    };
                    found.insert(format!("{field} {key}: {value}"));
                }
            }
            _ => note_marks(value, found),
        }
    }
}

#[test]
fn object_metadata_is_stable() {
    let mut found = BTreeSet::new();
    for object in render_all(&json!({"name": NAME, "uid": "driver-uid"}), "cinder-csi") {
        note_marks(&object, &mut found);
    }
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), MARKS);
}

/// Metadata that users set, and metadata that the operator writes in code that the other tests do not reach.
#[test]
fn metadata_keys_are_stable() {
    assert_eq!(
        [
            INSTANCE_LABEL,
            MANAGED_BY_LABEL,
            MANAGED_BY,
            OWNER_UID_ANNOTATION,
            APPLIED_HASH,
            DEFAULT_CLASS_ANNOTATION,
            MOVE_NAMESPACE,
            MOVE_PROJECT,
            PLACES_ANNOTATION,
            OPERAND_NAMESPACE_ANNOTATION,
            DISABLE_TOPOLOGY,
            STANDS_FOR,
            NOTE,
            UNREGISTERING_SINCE,
            UPDATES_STOPPED_SINCE,
            FORCE_DELETE,
        ],
        [
            "csi.openstack.org/instance",
            "app.kubernetes.io/managed-by",
            "cinder-csi-operator",
            "csi.openstack.org/owner-uid",
            "csi.openstack.org/applied-hash",
            "storageclass.kubernetes.io/is-default-class",
            "csi.openstack.org/move-namespace",
            "csi.openstack.org/move-project",
            "csi.openstack.org/places",
            "csi.openstack.org/operand-namespace",
            "csi.openstack.org/disable-topology",
            "csi.openstack.org/stands-for-version",
            "csi.openstack.org/takeover",
            "csi.openstack.org/unregistering-since",
            "csi.openstack.org/updates-stopped-since",
            "csi.openstack.org/force-delete",
        ]
    );
    assert_eq!(
        (GROUP, KIND, PLURAL),
        ("csi.openstack.org", "CinderCSIDriver", "cindercsidrivers")
    );
}

#[tokio::test(start_paused = true)]
async fn written_metadata_is_compatible_with_other_versions() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.driver().finalizers(), ["csi.openstack.org/volume-safe-teardown"]);
    let secret = world.api.get(OWN_SECRET).expect("the Secret");
    let keys: Vec<&String> = secret["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, ["cloud.conf", "places"]);
    let mut found = BTreeSet::new();
    for path in [OWN_SECRET, DEPLOYMENT] {
        let object = world.api.get(path).expect("the object");
        note_marks(&json!({"annotations": object["metadata"]["annotations"]}), &mut found);
        note_marks(
            &json!({"annotations": object["spec"]["template"]["metadata"]["annotations"]}),
            &mut found,
        );
    }
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        [
            "annotations csi.openstack.org/applied-hash: {hash}",
            "annotations csi.openstack.org/credentials-hash: {hash}",
            "annotations csi.openstack.org/owner-uid: driver-uid",
            "annotations csi.openstack.org/regions: one",
            "annotations csi.openstack.org/template-inputs: {\"kubernetes\":{\"major\":1,\"minor\":36},\"apis\":{\"snapshots\":false,\"groupSnapshots\":false,\"monitoring\":false,\"volumeAttributesClasses\":false},\"topology\":true,\"images\":{}}",
        ]
    );

    // A class with a label of a user is deleted and created.
    let mut class = world.api.get(CLASS).expect("the class");
    class["metadata"]["labels"]["team"] = json!("storage");
    class["reclaimPolicy"] = json!("Retain");
    world.api.put(CLASS, class);
    world.api.cut_writes_to(CLASS, 1);
    assert!(world.reconcile().await.is_err());
    let annotations = world.driver().metadata.annotations.unwrap_or_default();
    assert_eq!(
        annotations.into_iter().collect::<Vec<_>>(),
        [(
            "csi.openstack.org/made-anew".to_owned(),
            r#"{"StorageClass cinder":{"labels":{"team":"storage"}}}"#.to_owned()
        )]
    );
    world.api.cut_writes_to(CLASS, usize::MAX);
    world.reconcile().await.expect("reconciled");
    let managers: Vec<String> = world.api.take_managers().into_iter().collect();
    assert_eq!(managers, ["cinder-csi-operator"]);
    assert_eq!(FIELD_MANAGER, "cinder-csi-operator");
}

#[test]
fn lease_names_are_stable() {
    let Command::Run(args) = command(&["run"]) else {
        panic!("not run");
    };
    let sidecars = COMPONENTS.iter().filter_map(|component| component.lease(NAME));
    let mut leases: Vec<String> = sidecars.chain([args.lease_name, lease_name(NAME)]).collect();
    leases.sort();
    assert_eq!(
        leases,
        [
            "cinder-csi-openstack-org",
            "cinder-csi-operator",
            "cinder-csi-operator.cinder.csi.openstack.org",
            "external-attacher-leader-cinder-csi-openstack-org",
            "external-resizer-cinder-csi-openstack-org",
            "external-snapshotter-leader-cinder-csi-openstack-org",
        ]
    );
    // The names that the roles of these programs permit.
    let objects = render_all(&json!({"name": NAME}), "cinder-csi");
    let rules = objects
        .iter()
        .flat_map(|object| object["rules"].as_array().into_iter().flatten());
    let leases: BTreeSet<&str> = rules
        .filter(|rule| rule["resources"] == json!(["leases"]))
        .flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        leases.into_iter().collect::<Vec<_>>(),
        [
            "cinder-csi-openstack-org",
            "external-attacher-leader-cinder-csi-openstack-org",
            "external-resizer-cinder-csi-openstack-org",
            "external-snapshotter-leader-cinder-csi-openstack-org",
        ]
    );
}

/// The metrics with their labels.
const METRICS: [&str; 22] = [
    "cinder_csi_operator_api_writes_total{kind,verb,result}",
    "cinder_csi_operator_condition{driver,type,status}",
    "cinder_csi_operator_credential_valid{driver,cloud}",
    "cinder_csi_operator_deletion_blockers{driver,kind}",
    "cinder_csi_operator_drift_repaired_total{driver,kind}",
    "cinder_csi_operator_failing_watches{kind}",
    "cinder_csi_operator_index_age_seconds{kind}",
    "cinder_csi_operator_leader{}",
    "cinder_csi_operator_nodes{driver,state}",
    "cinder_csi_operator_openstack_request_duration_seconds{service,operation}",
    "cinder_csi_operator_openstack_requests_total{service,operation,code}",
    "cinder_csi_operator_openstack_tokens_total{result}",
    "cinder_csi_operator_queue_duration_seconds{}",
    "cinder_csi_operator_reconcile_duration_seconds{}",
    "cinder_csi_operator_reconcile_failures{driver}",
    "cinder_csi_operator_reconcile_total{result}",
    "cinder_csi_operator_rollout_state{driver,component,state}",
    "cinder_csi_operator_stuck_volume_oldest_timestamp_seconds{driver,operation}",
    "cinder_csi_operator_stuck_volumes{driver,operation,reason}",
    "cinder_csi_operator_topology_mismatched_zones{driver,side}",
    "cinder_csi_operator_undecodable_objects{kind}",
    "cinder_csi_operator_volumes{driver,kind}",
];

#[test]
fn metric_names_and_labels_are_stable() {
    let metrics = Metrics::new().expect("metrics");
    let found: BTreeSet<String> = metrics
        .descriptions()
        .iter()
        .map(|metric| format!("{}{{{}}}", metric.fq_name, metric.variable_labels.join(",")))
        .collect();
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), METRICS);
}
