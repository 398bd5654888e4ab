// SPDX-License-Identifier: Apache-2.0
//! A change of `spec.node` that excludes nodes with attached volumes.

use cinder_csi_crds::{INSTANCE_LABEL, Override, OverrideTarget, OverrideType};
use cinder_operator_core::{
    cluster::{AttachmentObject, COMPONENT_LABEL, NODE_COMPONENT, NodeObject, PodObject, RegistrationObject},
    decide::NARROW_NODES,
};

use super::*;

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn mk<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}

fn mk_node(name: &str, labels: &Value) -> NodeObject {
    let mut all = json!({"kubernetes.io/os": "linux"});
    json_patch::merge(&mut all, labels);
    mk(json!({"metadata": {"name": name, "labels": all},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
}

fn mk_attachment(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"attacher": NAME, "nodeName": node,
        "source": {"persistentVolumeName": format!("pv-{name}")}}, "status": {"attached": true}})
}

fn mk_pod(node: &str) -> PodObject {
    let labels = json!({(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): NODE_COMPONENT});
    mk(
        json!({"metadata": {"name": node, "namespace": "cinder-csi", "uid": node, "labels": labels},
        "spec": {"nodeName": node, "containers": []}}),
    )
}

/// A driver at rest on two nodes. The second node has an attached volume.
async fn mk_attached() -> World {
    let mut index = mk_index(&["pv-va"], true);
    index.put(&mk_node("n1", &json!({"pool": "a"})));
    index.put(&mk_node("n2", &json!({"pool": "b"})));
    for node in ["n1", "n2"] {
        index.put(&mk::<RegistrationObject>(
            json!({"metadata": {"name": node}, "spec": {"drivers": [{"name": NAME}]}}),
        ));
        index.put(&mk_pod(node));
    }
    index.put(&mk::<AttachmentObject>(mk_attachment("va", "n2")));
    let mut spec = mk_spec();
    spec.node.tolerations = Some(vec![mk(json!({"key": "dedicated", "operator": "Exists"}))]);
    let world = World::new(spec, index);
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    world.start_controller();
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    world.api.take_writes();
    world
}

impl World {
    fn merge_spec(&self, patch: &Value) {
        let mut spec = self.api.get(DRIVER).expect("the driver")["spec"].clone();
        json_patch::merge(&mut spec, patch);
        self.api.change(DRIVER, "/spec", spec);
    }

    fn narrow(&self) {
        self.merge_spec(&json!({"node": {"nodeSelector": {"pool": "a"}}}));
    }

    fn detach(&self) {
        self.context
            .cluster
            .change(|index| drop(index.remove::<AttachmentObject>("va")));
    }

    fn selector(&self) -> Value {
        let daemon_set = self.api.get(DAEMON_SET).expect("the DaemonSet");
        daemon_set["spec"]["template"]["spec"]["nodeSelector"]["pool"].clone()
    }

    fn annotate(&self, name: &str, value: &str) {
        let mut metadata = self.api.get(DRIVER).expect("the driver")["metadata"].clone();
        metadata["annotations"][name] = json!(value);
        self.api.change(DRIVER, "/metadata", metadata);
    }
}

fn override_of(patch: &str) -> Value {
    json!([Override {
        target: OverrideTarget {
            kind: "DaemonSet".to_owned(),
            name: "cinder-csi-node".to_owned(),
        },
        kind: OverrideType::Merge,
        patch: patch.to_owned(),
    }])
}

#[rstest]
#[case::selector(json!({"node": {"nodeSelector": {"pool": "a"}}}))]
#[case::affinity(json!({"node": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
    {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]}}}}}))]
#[case::node_names(json!({"node": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
    {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}}}))]
#[case::override_of_the_selector(json!({"overrides": override_of("spec: {template: {spec: {nodeSelector: {pool: a}}}}")}))]
#[case::override_of_the_node_name(json!({"overrides": override_of("spec: {template: {spec: {nodeName: n1}}}")}))]
#[tokio::test(start_paused = true)]
async fn narrowing_waits_for_attached_volumes(#[case] change: Value) {
    let world = mk_attached().await;
    let before = world.api.get(DAEMON_SET);
    world.merge_spec(&change);
    let action = world.reconcile().await.expect("reconciled");

    assert_eq!(world.api.get(DAEMON_SET), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/NodesInUse");
    for part in ["n2 (pv-va)", NARROW_NODES] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(action, Action::requeue(Duration::from_mins(5) + RECHECK_MARGIN));
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new(), "a hold writes nothing");

    world.detach();
    world.look().await.expect("looked");
    assert_ne!(world.api.get(DAEMON_SET), before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn dropped_toleration_waits_for_attached_volumes() {
    let world = mk_attached().await;
    world.context.cluster.change(|index| {
        let tainted = json!({"metadata": {"name": "n2", "labels": {"kubernetes.io/os": "linux"}},
            "spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        index.put(&mk::<NodeObject>(tainted));
    });
    let before = world.api.get(DAEMON_SET);
    world.merge_spec(&json!({"node": {"tolerations": []}}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET), before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/NodesInUse");
}

#[tokio::test]
async fn region_of_second_cloud_waits_for_attached_volumes() {
    let world = mk_attached().await;
    let before = world.api.get(DAEMON_SET);
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    let mut second = spec["clouds"][0].clone();
    second["name"] = json!("second");
    spec["clouds"][0]["nodeRegion"] = json!("one");
    second["nodeRegion"] = json!("two");
    spec["clouds"].as_array_mut().expect("clouds").push(second);
    world.api.change(DRIVER, "/spec", spec);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/NodesInUse", "{message}");
}

#[rstest]
#[case::of_this_object("driver-uid", true)]
#[case::of_another_object("another-uid", false)]
#[tokio::test]
async fn confirmed_narrowing_is_applied(#[case] uid: &str, #[case] is_applied: bool) {
    let world = mk_attached().await;
    world.narrow();
    world.annotate(NARROW_NODES, uid);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.selector() == "a", is_applied);
    // The DaemonSet controller deletes the pod.
    if is_applied {
        world
            .context
            .cluster
            .change(|index| drop(index.remove::<PodObject>("cinder-csi/n2")));
        world.reconcile().await.expect("reconciled");
        let (verdict, message) = world.condition(ConditionType::Degraded);
        assert_eq!(verdict, "True/NodesWithoutDriver");
        assert!(message.contains("n2 (pv-va)"), "{message}");
    }
}

#[tokio::test]
async fn other_attachments_cause_no_whole_reconcile() {
    let world = mk_attached().await;
    world.narrow();
    world.reconcile().await.expect("reconciled");
    world.look().await.expect("looked");
    world.api.take_reads();
    for name in ["vb", "vc"] {
        world
            .context
            .cluster
            .change(|index| drop(index.put(&mk::<AttachmentObject>(mk_attachment(name, "n1")))));
        world.look().await.expect("looked");
    }
    assert_eq!(world.api.take_reads().len(), 0);
}

#[tokio::test]
async fn held_daemon_set_returns_after_deletion() {
    let world = mk_attached().await;
    world.narrow();
    world.reconcile().await.expect("reconciled");
    let before = world.api.get(DAEMON_SET).expect("the DaemonSet")["spec"].clone();
    world.api.remove(DAEMON_SET);
    // The operator restarts in between.
    world.context.forget(NAME);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET).expect("it is back")["spec"], before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/NodesInUse");

    world.detach();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.selector(), "a");
}

#[tokio::test]
async fn held_daemon_set_is_repaired() {
    let world = mk_attached().await;
    world.narrow();
    world.reconcile().await.expect("reconciled");
    let before = world.api.get(DAEMON_SET).expect("the DaemonSet")["spec"].clone();
    world
        .api
        .change(DAEMON_SET, "/spec/template/spec/containers/0/image", json!("other"));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET).expect("the DaemonSet")["spec"], before);
}

#[tokio::test]
async fn widened_daemon_set_is_not_narrowed_by_repair() {
    let world = mk_attached().await;
    world.context.cluster.change(|index| {
        drop(index.remove::<AttachmentObject>("va"));
        drop(index.remove::<PodObject>("cinder-csi/n2"));
    });
    world.narrow();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.selector(), "a");
    // Another client adds the second node to the DaemonSet, and a volume is then attached there.
    world.api.change(
        DAEMON_SET,
        "/spec/template/spec/nodeSelector",
        json!({"kubernetes.io/os": "linux"}),
    );
    world.context.cluster.change(|index| {
        index.put(&mk::<AttachmentObject>(mk_attachment("va", "n2")));
        index.put(&mk_pod("n2"));
    });
    world.reconcile().await.expect("reconciled");
    assert!(world.selector().is_null());
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/NodesInUse");
}

#[rstest]
#[case::undecodable(json!({"metadata": {"name": "va", "managedFields": [{"time": "9999-12-31T23:59:59Z"}]},
    "spec": {"attacher": NAME, "nodeName": "n2", "source": {}}}), "n2 (va)")]
#[case::of_an_unknown_node(json!({"metadata": {"name": "va"}, "spec": {"attacher": NAME, "nodeName": "n3", "source": {}}}), "n3 (va)")]
#[case::without_a_node(json!({"metadata": {"name": "va"}, "spec": {"attacher": NAME}}), "an unknown node (va)")]
#[tokio::test]
async fn narrowing_reads_the_api_server(#[case] attachment: Value, #[case] what: &str) {
    let world = mk_attached().await;
    world.detach();
    world.api.put(&format!("{ATTACHMENTS}/va"), attachment);
    world.narrow();
    world.reconcile().await.expect("reconciled");
    assert!(world.selector().is_null());
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/NodesInUse");
    assert!(message.contains(what), "{message}");

    world.api.remove(&format!("{ATTACHMENTS}/va"));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.selector(), "a");
}

#[tokio::test]
async fn narrowing_waits_while_attachments_are_unknown() {
    let world = mk_attached().await;
    world.detach();
    world.api.hide("/volumeattachments");
    world.narrow();
    world.reconcile().await.expect("reconciled");
    assert!(world.selector().is_null());
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/NodesInUse");
    assert!(message.contains("volumeattachments cannot be listed"), "{message}");
}

#[tokio::test]
async fn wider_selection_waits_for_nothing() {
    let world = mk_attached().await;
    world.api.hide("/volumeattachments");
    world.merge_spec(&json!({"node": {"tolerations": null}}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn attached_node_without_driver_is_reported() {
    let world = mk_attached().await;
    world.merge_spec(&json!({"node": {"nodeSelector": {"kubernetes.io/os": "linux"}}}));
    world.reconcile().await.expect("reconciled");
    world.context.cluster.change(|index| {
        index.put(&mk::<NodeObject>(json!({"metadata": {"name": "n2", "labels": {}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})));
        drop(index.remove::<PodObject>("cinder-csi/n2"));
    });
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/NodesWithoutDriver");
    assert!(message.contains("n2 (pv-va)"), "{message}");
    let nodes = world.driver().status.and_then(|status| status.nodes).expect("nodes");
    assert_eq!((nodes.desired, nodes.registered), (2, 1));
    assert_eq!(nodes.unregistered, ["n2"]);

    world.detach();
    world.look().await.expect("looked");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}
