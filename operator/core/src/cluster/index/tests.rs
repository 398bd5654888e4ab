// SPDX-License-Identifier: Apache-2.0
//! Tests of the index.

use kube::api::ObjectMeta;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::cluster::{
    AttachmentObject, COMPONENT_LABEL, ClaimObject, NODE_COMPONENT, NodeObject, PodObject, RegistrationObject,
    VolumeObject,
};

fn mk<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn mk_volume(name: &str, driver: &str) -> VolumeObject {
    mk(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": "h"}}}))
}

fn affected(names: &[&str]) -> Affected {
    Affected::Drivers(names.iter().map(|name| (*name).to_owned()).collect())
}

fn mk_undecodable(name: &str) -> UndecodableObject {
    UndecodableObject {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        reason: "invalid type: string".to_owned(),
    }
}

#[test]
fn undecodable_objects_count_as_existing_and_in_use() {
    let mut index = Index::default();
    assert_eq!(
        index.put_undecodable::<VolumeObject>(&mk_undecodable("pv")),
        Affected::All
    );
    assert!(index.put_undecodable::<VolumeObject>(&mk_undecodable("pv")).is_empty());
    index.put_undecodable::<AttachmentObject>(&mk_undecodable("va"));
    index.put_undecodable::<ClaimObject>(&mk_undecodable("shop/claim"));
    index.put_undecodable::<NodeObject>(&mk_undecodable("n1"));
    index.put_undecodable::<RegistrationObject>(&mk_undecodable("n1"));

    for driver in ["a", "b"] {
        let blockers = index.blockers(driver, true);
        assert_eq!(blockers.volumes, ["pv (it cannot be decoded)"]);
        assert_eq!(blockers.attachments, ["va (it cannot be decoded)"]);
        assert_eq!(blockers.claims, ["shop/claim (it cannot be decoded)"]);
        assert_eq!(index.attachments_under_way(driver), ["va (it cannot be decoded)"]);
        let count = index.count_of(driver);
        assert_eq!((count.volumes, count.attachments), (1, 1));
        assert_eq!(index.registered_by_readiness(driver).0, ["n1"]);
        assert!(index.registered_on(driver).is_empty(), "a registration is not known");
    }
    assert_eq!(index.volumes_with_attributes("gold"), ["pv (it cannot be decoded)"]);
    assert!(index.is_ready("n1") && index.is_unknown_node("n1"));
    assert_eq!((index.node_count(), index.nodes().len()), (1, 0));
    assert_eq!(index.undecodable().count(), 5);
}

#[test]
fn undecodable_version_retains_earlier_facts() {
    let mut index = Index::default();
    index.put(&mk_volume("pv", "a"));
    index.put_undecodable::<VolumeObject>(&mk_undecodable("pv"));
    assert_eq!((index.count_of("a").volumes, index.count_of("b").volumes), (1, 0));
    assert_eq!(index.blockers("a", false).volumes, ["pv"]);
    assert!(
        index.blockers("b", false).volumes.is_empty(),
        "its driver cannot change"
    );

    assert_eq!(index.put(&mk_volume("pv", "a")), Affected::All);
    assert_eq!(index.undecodable().count(), 0);
}

#[test]
fn undecodable_entry_is_removed_with_object() {
    let mut index = Index::default();
    index.put_undecodable::<NodeObject>(&mk_undecodable("deleted"));
    assert_eq!(index.remove::<NodeObject>("deleted"), Affected::All);
    index.put_undecodable::<NodeObject>(&mk_undecodable("listed"));
    index.put_undecodable::<NodeObject>(&mk_undecodable("missing"));
    index.retain::<NodeObject>(&["listed".to_owned()].into(), None);
    let left: Vec<_> = index.undecodable().map(|(kind, name, _)| (kind, name)).collect();
    assert_eq!(left, [("nodes", "listed")]);
}

#[test]
fn volume_affects_driver_when_created_and_deleted() {
    let mut index = Index::default();
    assert_eq!(index.put(&mk_volume("pv1", "a")), affected(&["a"]));
    assert!(index.put(&mk_volume("pv1", "a")).is_empty());
    assert_eq!(index.count_of("a").volumes, 1);
    assert_eq!(index.remove::<VolumeObject>("pv1"), affected(&["a"]));
    assert_eq!(index.count_of("a").volumes, 0);
}

#[test]
fn volumes_of_other_plugins_are_ignored() {
    let mut index = Index::default();
    let local: VolumeObject = mk(json!({"metadata": {"name": "pv1"}, "spec": {"hostPath": {"path": "/x"}}}));
    assert!(index.put(&local).is_empty());
    assert_eq!(index.volumes.len(), 0);
}

#[test]
fn objects_missing_from_new_list_are_removed() {
    let mut index = Index::default();
    index.put(&mk_volume("pv1", "a"));
    index.put(&mk_volume("pv2", "b"));
    assert_eq!(
        index.retain::<VolumeObject>(&["pv2".to_owned()].into(), None),
        affected(&["a"])
    );
    assert_eq!((index.count_of("a").volumes, index.count_of("b").volumes), (0, 1));
}

#[test]
fn namespaced_list_retains_objects_of_other_namespaces() {
    let mut index = Index::default();
    let pod = |namespace: &str, driver: &str| -> PodObject {
        let labels = json!({(cinder_csi_crds::INSTANCE_LABEL): driver, (COMPONENT_LABEL): NODE_COMPONENT});
        let metadata = json!({"name": "p", "namespace": namespace, "uid": driver, "labels": labels});
        mk(json!({"metadata": metadata, "spec": {"nodeName": "n1"}}))
    };
    index.put(&pod("one", "a"));
    index.put(&pod("one-more", "b"));
    assert_eq!(
        index.retain::<PodObject>(&BTreeSet::new(), Some("one")),
        affected(&["a"])
    );
    assert!(index.node_pods_of("a").is_empty());
    assert_eq!(index.node_pods_of("b").len(), 1);
}

#[test]
fn removed_registration_affects_its_driver() {
    let mut index = Index::default();
    let both: RegistrationObject =
        mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}, {"name": "b"}]}}));
    let one: RegistrationObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "b"}]}}));
    index.put(&both);
    assert_eq!(index.registered_on("a"), ["n1".to_owned()].into());
    assert_eq!(index.put(&one), affected(&["a", "b"]));
    assert!(index.registered_on("a").is_empty());
}

#[rstest]
#[case::same(
    "openstack:///6c1f2b9e-0000-4000-8000-000000000001",
    "6c1f2b9e-0000-4000-8000-000000000001",
    false
)]
#[case::same_in_capitals(
    "openstack://mars/6C1F2B9E-0000-4000-8000-00000000000A",
    "6c1f2b9e-0000-4000-8000-00000000000a",
    false
)]
#[case::different(
    "openstack:///6c1f2b9e-0000-4000-8000-000000000001",
    "6c1f2b9e-0000-4000-8000-000000000002",
    true
)]
#[case::different_with_region(
    "openstack://mars/6c1f2b9e-0000-4000-8000-000000000001",
    "6c1f2b9e-0000-4000-8000-000000000002",
    true
)]
#[case::other_provider(
    "k3s://6c1f2b9e-0000-4000-8000-000000000001",
    "6c1f2b9e-0000-4000-8000-000000000002",
    false
)]
#[case::no_uuid("openstack:///n1", "6c1f2b9e-0000-4000-8000-000000000002", false)]
#[case::registered_by_name("openstack:///6c1f2b9e-0000-4000-8000-000000000001", "n1", false)]
#[case::unset("", "6c1f2b9e-0000-4000-8000-000000000002", false)]
fn node_identity_matches_provider_id(#[case] provider: &str, #[case] registered: &str, #[case] expected: bool) {
    let mut index = Index::default();
    index.put(&mk::<NodeObject>(
        json!({"metadata": {"name": "n1"}, "spec": {"providerID": provider}}),
    ));
    let drivers =
        json!([{"name": "a", "nodeID": registered}, {"name": "b", "nodeID": "6c1f2b9e-0000-4000-8000-00000000000f"}]);
    index.put(&mk::<RegistrationObject>(
        json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}),
    ));
    index.put(&mk::<NodeObject>(json!({"metadata": {"name": "n2"}, "spec": {}})));
    assert_eq!(
        index.misidentified_nodes("a").len(),
        usize::from(expected),
        "{:?}",
        index.misidentified_nodes("a")
    );
    assert!(index.misidentified_nodes("c").is_empty());
}

#[test]
fn undecodable_node_is_not_misidentified() {
    let mut index = Index::default();
    let provider = "openstack:///6c1f2b9e-0000-4000-8000-000000000001";
    let node: NodeObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"providerID": provider}}));
    let drivers = json!([{"name": "a", "nodeID": "6c1f2b9e-0000-4000-8000-000000000002"}]);
    let registration: RegistrationObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}));
    index.put(&node);
    index.put(&registration);
    assert_eq!(index.misidentified_nodes("a").len(), 1);
    index.put_undecodable::<NodeObject>(&mk_undecodable("n1"));
    assert!(index.misidentified_nodes("a").is_empty());
    index.put(&node);
    assert_eq!(index.misidentified_nodes("a").len(), 1);
    index.put_undecodable::<RegistrationObject>(&mk_undecodable("n1"));
    assert!(index.misidentified_nodes("a").is_empty());
}

#[test]
fn csi_node_with_null_drivers_decodes() {
    let mut index = Index::default();
    index.put(&mk::<RegistrationObject>(
        json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}]}}),
    ));
    let emptied = mk::<RegistrationObject>(json!({"metadata": {"name": "n1"}, "spec": {"drivers": null}}));
    assert_eq!(index.put(&emptied), affected(&["a"]));
    assert!(index.registered_on("a").is_empty());
}

#[test]
fn node_heartbeat_affects_no_driver() {
    let mut index = Index::default();
    let node = |beat: &str, ready: &str| -> NodeObject {
        mk(json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
    };
    assert_eq!(index.put(&node("1", "True")), Affected::All);
    assert!(index.put(&node("2", "True")).is_empty());
    assert_eq!(index.put(&node("3", "False")), Affected::All);
}

#[test]
fn index_lists_pending_attachments_and_attributes() {
    let mut index = Index::default();
    let attachment = |name: &str, attached: bool, deleted: Option<&str>| -> AttachmentObject {
        serde_json::from_value(json!({
            "metadata": {"name": name, "deletionTimestamp": deleted}, "spec": {"attacher": "d"},
            "status": {"attached": attached},
        }))
        .expect("an attachment")
    };
    index.put(&attachment("at-rest", true, None));
    index.put(&attachment("coming", false, None));
    index.put(&attachment("going", true, Some("2026-01-01T00:00:00Z")));
    assert_eq!(index.attachments_under_way("d"), ["coming", "going"]);
    let volume: VolumeObject = serde_json::from_value(json!({
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "d"}, "volumeAttributesClassName": "gold"},
    }))
    .expect("a volume");
    index.put(&volume);
    assert_eq!(index.volumes_with_attributes("gold"), ["pv"]);
    assert!(index.volumes_with_attributes("silver").is_empty());
}
