// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::INSTANCE_LABEL;
use rstest::rstest;

use super::*;
use crate::{cluster::FIELD_MANAGER, manifests::Stage};

fn mk_owner() -> Owner {
    Owner {
        name: "d".to_owned(),
        uid: "owner-uid".to_owned(),
    }
}

/// Returns a fixed reference time.
#[expect(clippy::disallowed_methods, reason = "no clock is looked at again")]
fn mk_now() -> Instant {
    Instant::now()
}

fn mk_key(kind: &'static str, name: &str) -> Key {
    Key::new(kind, None, name)
}

fn mk_object(kind: &'static str, name: &str, fields: &Value) -> Value {
    let mut object = json!({"kind": kind, "metadata": {"name": name, "labels": {(INSTANCE_LABEL): "d"}}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn mk_desired(kind: &'static str, name: &str, fields: &Value) -> Desired {
    Desired::new(mk_key(kind, name), Stage::Base, mk_object(kind, name, fields))
}

/// Returns the object as the API server stores it after an apply.
fn mk_live(desired: &Desired) -> Value {
    let mut live = desired.object.clone();
    live["metadata"]["uid"] = json!("live-uid");
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["managedFields"] = json!([{"manager": "cinder-csi-operator", "operation": "Apply"}]);
    live["status"] = json!({"some": "thing"});
    live
}

fn plan_for(desired: &[Desired], live: impl IntoIterator<Item = (Key, Value)>) -> Plan {
    plan(
        &mk_owner(),
        desired,
        &live.into_iter().collect(),
        &Unapplied::new(),
        &mk_pruning(),
        mk_now(),
    )
}

fn mk_pruning() -> PlanScope {
    PlanScope {
        prune: true,
        ..PlanScope::default()
    }
}

fn mk_class() -> Desired {
    mk_desired(
        kind::STORAGE_CLASS,
        "fast",
        &json!({
            "provisioner": "d", "parameters": {"type": "ssd"}, "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        }),
    )
}

#[test]
fn unchanged_objects_are_not_written() {
    let desired = [
        mk_class(),
        mk_desired(kind::DEPLOYMENT, "controller", &json!({"spec": {"replicas": 2}})),
        mk_desired(kind::SECRET, "cloud", &json!({"data": {"cloud.conf": "eA=="}})),
    ];
    let live = desired.iter().map(|desired| (desired.key.clone(), mk_live(desired)));
    assert_eq!(plan_for(&desired, live), Plan::default());
}

#[test]
fn restored_object_is_applied_once() {
    let desired = mk_class();
    let mut live = mk_live(&desired);
    live["metadata"]["managedFields"] = json!([{"manager": "velero-server", "operation": "Update"}]);
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let uid = "live-uid".to_owned();
    assert_eq!(plan.actions, [Action::Update { desired, uid }]);
}

#[test]
fn missing_object_is_created() {
    let desired = mk_class();
    assert_eq!(
        plan_for(std::slice::from_ref(&desired), []).actions,
        [Action::Create(desired)]
    );
}

#[test]
fn changed_field_is_repaired_and_named() {
    let desired = mk_desired(kind::DEPLOYMENT, "controller", &json!({"spec": {"replicas": 2}}));
    let mut live = mk_live(&desired);
    live["spec"]["replicas"] = json!(0);
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let fields = vec!["spec.replicas".to_owned()];
    assert_eq!(
        plan.actions,
        [Action::Repair {
            desired,
            uid: "live-uid".to_owned(),
            fields
        }]
    );
}

#[test]
fn unresolved_difference_is_retried_after_delay() {
    let desired = mk_desired(kind::DEPLOYMENT, "controller", &json!({"spec": {"replicas": 2}}));
    let mut live = mk_live(&desired);
    live["spec"]["replicas"] = json!(0);
    let live = BTreeMap::from([(desired.key.clone(), live)]);
    let tried = mk_now();
    let known = UnappliedFields {
        hash: desired.hash().to_owned(),
        fields: vec!["spec.replicas".to_owned()],
        tried,
    };
    let unapplied = Unapplied::from([(desired.key.clone(), known)]);
    let planned =
        |desired: &[Desired], live, after| plan(&mk_owner(), desired, live, &unapplied, &mk_pruning(), tried + after);
    let decided = planned(std::slice::from_ref(&desired), &live, Duration::ZERO);
    assert_eq!((decided.actions, decided.left), (Vec::new(), unapplied.clone()));

    let decided = planned(std::slice::from_ref(&desired), &live, TRY_AGAIN_AFTER);
    assert!(matches!(decided.actions[..], [Action::Repair { .. }]), "{decided:?}");
    assert_eq!(decided.left, unapplied, "until it is written it is as it was");

    // Repaired and undesired objects are removed from the record.
    let right = BTreeMap::from([(desired.key.clone(), mk_live(&desired))]);
    assert_eq!(
        planned(std::slice::from_ref(&desired), &right, TRY_AGAIN_AFTER),
        Plan::default()
    );
    assert_eq!(planned(&[], &live, TRY_AGAIN_AFTER).left, Unapplied::new());
}

#[test]
fn removed_field_is_an_update() {
    let old = mk_desired(
        kind::DEPLOYMENT,
        "controller",
        &json!({"spec": {"replicas": 2, "paused": true}}),
    );
    let new = mk_desired(kind::DEPLOYMENT, "controller", &json!({"spec": {"replicas": 2}}));
    let plan = plan_for(std::slice::from_ref(&new), [(old.key.clone(), mk_live(&old))]);
    assert_eq!(
        plan.actions,
        [Action::Update {
            desired: new,
            uid: "live-uid".to_owned()
        }]
    );
}

#[test]
fn foreign_object_blocks_only_itself() {
    let (class, account) = (mk_class(), mk_desired("ServiceAccount", "controller", &json!({})));
    let foreign =
        json!({"metadata": {"name": "fast", "managedFields": [{"manager": "kubectl-create"}]}, "provisioner": "x"});
    let plan = plan_for(&[class.clone(), account.clone()], [(class.key.clone(), foreign)]);
    assert_eq!(
        plan.obstacles,
        [Obstacle::Foreign {
            key: class.key,
            maker: "field manager kubectl-create".to_owned()
        }]
    );
    assert_eq!(plan.actions, [Action::Create(account)]);
}

#[test]
fn foreign_csi_driver_blocks_all_writes() {
    let driver = mk_desired(kind::CSI_DRIVER, "d", &json!({"spec": {"attachRequired": true}}));
    let account = mk_desired("ServiceAccount", "controller", &json!({}));
    let foreign = json!({"metadata": {"name": "d", "annotations": {"meta.helm.sh/release-name": "cinder"}}});
    let plan = plan_for(&[account, driver.clone()], [(driver.key.clone(), foreign)]);
    assert_eq!(
        plan.obstacles,
        [Obstacle::Foreign {
            key: driver.key,
            maker: "the Helm release cinder".to_owned()
        }]
    );
    assert_eq!(plan.actions, []);
}

#[test]
fn only_own_orphans_are_pruned() {
    let (old, foreign) = (mk_class(), mk_key(kind::STORAGE_CLASS, "other"));
    let live = [
        (old.key.clone(), mk_live(&old)),
        (foreign, json!({"metadata": {"name": "other"}})),
    ];
    let prune = Action::Prune {
        key: old.key,
        uid: "live-uid".to_owned(),
    };
    assert_eq!(plan_for(&[], live.clone()).actions, [prune]);
    let incomplete = plan(
        &mk_owner(),
        &[],
        &BTreeMap::from(live),
        &Unapplied::new(),
        &PlanScope::default(),
        mk_now(),
    );
    assert_eq!(incomplete, Plan::default(), "an incomplete intent prunes nothing");
}

#[rstest]
#[case::parameters("parameters", json!({"type": "hdd"}))]
#[case::one_parameter_more("parameters", json!({"type": "ssd", "fs": "xfs"}))]
#[case::reclaim_policy("reclaimPolicy", json!("Retain"))]
#[case::binding_mode("volumeBindingMode", json!("Immediate"))]
fn changed_storage_class_is_recreated(#[case] field: &str, #[case] old: Value) {
    let desired = mk_class();
    let mut live = mk_live(&desired);
    live[field] = old;
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let fields = vec![field.to_owned()];
    assert_eq!(
        plan.actions,
        [Action::Recreate {
            desired,
            uid: "live-uid".to_owned(),
            fields,
            resource_version: "7".to_owned(),
            kept: RetainedMetadata::default(),
        }]
    );
}

#[rstest]
#[case::set_by_a_person(json!({"manager": "kubectl-annotate", "operation": "Update"}), true)]
#[case::set_by_an_earlier_spec(json!({"manager": "cinder-csi-operator", "operation": "Apply"}), false)]
fn recreated_class_retains_default_of_administrator(#[case] manager: Value, #[case] stays: bool) {
    let desired = mk_class();
    let mut live = mk_live(&desired);
    live["reclaimPolicy"] = json!("Retain");
    live["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION] = json!("true");
    let mut manager = manager;
    let path = format!("f:{DEFAULT_CLASS_ANNOTATION}");
    manager["fieldsV1"] = json!({"f:metadata": {"f:annotations": {(path): {}}}});
    live["metadata"]["managedFields"] = json!([manager]);
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let Some(Action::Recreate { kept, .. }) = plan.actions.first() else {
        panic!("{plan:?}")
    };
    assert_eq!(kept.annotations.contains_key(DEFAULT_CLASS_ANNOTATION), stays);
}

#[test]
fn re_creation_retains_only_metadata_of_others() {
    let desired = mk_class();
    let mut live = mk_live(&desired);
    live["reclaimPolicy"] = json!("Retain");
    live["metadata"]["labels"]["team"] = json!("storage");
    live["metadata"]["labels"]["old"] = json!("ours");
    live["metadata"]["annotations"]["note"] = json!("do not touch");
    live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{}");
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:metadata": {"f:labels": {"f:old": {}}}});
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let Some(Action::Recreate { kept, .. }) = plan.actions.first() else {
        panic!("{plan:?}")
    };
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let expected = RetainedMetadata {
        annotations: one("note", "do not touch"),
        labels: one("team", "storage"),
    };
    assert_eq!(*kept, expected);
}

#[test]
fn class_without_re_creation_is_reported() {
    let mut desired = mk_class();
    desired.handling.keeps_immutable = true;
    let mut live = mk_live(&desired);
    live["reclaimPolicy"] = json!("Retain");
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    let expected = Obstacle::Refused {
        key: desired.key,
        fields: vec!["reclaimPolicy".to_owned()],
    };
    assert_eq!((plan.actions, plan.obstacles), (vec![], vec![expected]));
}

#[test]
fn unmanaged_class_is_created_and_never_changed() {
    let mut desired = mk_class();
    desired.handling.create_only = true;
    let mut live = mk_live(&desired);
    live["reclaimPolicy"] = json!("Retain");
    live["allowVolumeExpansion"] = json!(false);
    assert_eq!(
        plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]),
        Plan::default()
    );
    assert_eq!(
        plan_for(std::slice::from_ref(&desired), []).actions,
        [Action::Create(desired)]
    );
}

#[rstest]
#[case::a_person_said_no(Some(("kubectl-annotate", "false")), false, false)]
#[case::a_person_said_yes(Some(("kubectl-annotate", "true")), false, false)]
#[case::a_person_said_no_and_the_spec_insists(Some(("kubectl-annotate", "false")), true, true)]
#[case::a_person_took_it_off(None, false, true)]
#[case::it_is_ours(Some(("cinder-csi-operator", "true")), false, false)]
fn default_annotation_of_administrator_takes_precedence(
    #[case] mark: Option<(&str, &str)>,
    #[case] insists: bool,
    #[case] is_written: bool,
) {
    let mut fields = mk_class().object;
    fields["metadata"]["annotations"] = json!({(DEFAULT_CLASS_ANNOTATION): "true"});
    let mut desired = Desired::new(mk_key(kind::STORAGE_CLASS, "fast"), Stage::Base, fields);
    desired.handling.insists_on_default = insists;
    let mut live = mk_live(&desired);
    let annotations = &mut live["metadata"]["annotations"];
    match mark {
        Some((_, value)) => annotations[DEFAULT_CLASS_ANNOTATION] = json!(value),
        None => drop(
            annotations
                .as_object_mut()
                .and_then(|all| all.remove(DEFAULT_CLASS_ANNOTATION)),
        ),
    }
    if let Some((manager, _)) = mark {
        let path = format!("f:{DEFAULT_CLASS_ANNOTATION}");
        let fields = json!({"f:metadata": {"f:annotations": {(path): {}}}});
        let operation = if manager == FIELD_MANAGER { "Apply" } else { "Update" };
        let entry = json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let managers = live["metadata"]["managedFields"].as_array_mut().expect("managers");
        managers.push(entry);
    }
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    assert_eq!(!plan.actions.is_empty(), is_written, "{plan:?}");
}

#[rstest]
#[case::attributes(kind::ATTRIBUTES_CLASS, json!({"driverName": "d", "parameters": {"type": "ssd"}}), "parameters", json!({"type": "hdd"}))]
#[case::group(kind::GROUP_SNAPSHOT_CLASS, json!({"driver": "d", "deletionPolicy": "Delete"}), "deletionPolicy", json!("Retain"))]
fn immutable_classes_are_recreated(
    #[case] kind: &'static str,
    #[case] wanted: Value,
    #[case] field: &str,
    #[case] there: Value,
) {
    let desired = mk_desired(kind, "gold", &wanted);
    let mut live = mk_live(&desired);
    live[field] = there;
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    assert!(matches!(plan.actions[..], [Action::Recreate { .. }]), "{plan:?}");
}

#[test]
fn csi_driver_with_other_lifecycle_modes_is_recreated() {
    let wanted = json!({"spec": {"attachRequired": true, "volumeLifecycleModes": ["Persistent"]}});
    let desired = mk_desired(kind::CSI_DRIVER, "d", &wanted);
    let mut live = mk_live(&desired);
    live["spec"]["volumeLifecycleModes"] = json!(["Persistent", "Ephemeral"]);
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    assert!(matches!(plan.actions[..], [Action::Recreate { .. }]), "{plan:?}");
}

#[rstest]
#[case::attach_required(kind::CSI_DRIVER, json!({"attachRequired": true}), json!({"attachRequired": false}), "spec.attachRequired")]
#[case::selector(
    kind::DAEMON_SET,
    json!({"selector": {"matchLabels": {"a": "new"}}}),
    json!({"selector": {"matchLabels": {"a": "old"}}}),
    "spec.selector"
)]
fn harmful_re_creation_is_refused(
    #[case] kind: &'static str,
    #[case] wanted: Value,
    #[case] there: Value,
    #[case] field: &str,
) {
    let desired = mk_desired(kind, "x", &json!({"spec": wanted}));
    let mut live = mk_live(&desired);
    live["spec"] = there;
    let plan = plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live)]);
    assert_eq!(plan.actions, []);
    assert_eq!(
        plan.obstacles,
        [Obstacle::Immutable {
            key: desired.key,
            fields: vec![field.to_owned()]
        }]
    );
}

#[test]
fn terminating_object_is_not_changed() {
    let desired = mk_class();
    let mut live = mk_live(&desired);
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    live["parameters"] = json!({});
    assert_eq!(
        plan_for(std::slice::from_ref(&desired), [(desired.key.clone(), live.clone())]),
        Plan::default()
    );
    assert_eq!(
        plan_for(&[], [(desired.key, live)]),
        Plan::default(),
        "an orphan is deleted once"
    );
}

#[test]
fn secret_hash_is_independent_of_values() {
    let one = mk_desired(kind::SECRET, "s", &json!({"data": {"cloud.conf": "b25l"}}));
    let other = mk_desired(kind::SECRET, "s", &json!({"data": {"cloud.conf": "b3RoZXI="}}));
    assert_eq!(one.hash(), other.hash());
    let plan = plan_for(&[other], [(one.key.clone(), mk_live(&one))]);
    assert!(
        matches!(&plan.actions[..], [Action::Repair { fields, .. }] if fields == &["data.cloud.conf"]),
        "{plan:?}"
    );
}

/// Collects the pointers of all scalars below `value`, except empty values and keys of list elements.
fn scalars(value: &Value, pointer: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                scalars(below, &format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(elements) => {
            for (index, below) in elements.iter().enumerate() {
                scalars(below, &format!("{pointer}/{index}"), found);
            }
        }
        _ => found.push(pointer.to_owned()),
    }
}

#[test]
fn change_of_any_operand_field_is_detected() {
    use crate::manifests::operands;
    use crate::resolve::resolve;
    use crate::resolve::tests::{mk_driver, mk_environment};

    let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &mk_environment()).expect("resolved");
    let mut compared = 0;
    for operand in operands(&resolved, None).expect("operands") {
        let wanted = serde_json::to_value(&operand.object).expect("JSON");
        let mut pointers = Vec::new();
        scalars(&wanted, "", &mut pointers);
        for pointer in pointers {
            let mut live = wanted.clone();
            let field = live.pointer_mut(&pointer).expect("a field");
            *field = match field {
                Value::Bool(value) => json!(!*value),
                Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 100),
                Value::String(text) => json!(format!("{text}x")),
                other => panic!("{pointer}: {other}"),
            };
            let found = differences(&wanted, &live, usize::MAX);
            assert_eq!(found.len(), 1, "{operand}{pointer}: {found:?}");
            compared += 1;
        }
    }
    assert!(compared > 300, "only {compared} fields");
}
