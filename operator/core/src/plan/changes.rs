// SPDX-License-Identifier: Apache-2.0
//! Describes the changes of a plan for `status.pendingChanges` under DryRun. It lists field paths and never values,
//! which may be secret.

use std::collections::BTreeMap;

use cinder_csi_crds::{ChangeAction, PendingChange, PendingChanges};
use serde_json::Value;

use crate::{
    cluster::{FIELD_MANAGER, Key, kind},
    plan::{APPLIED_HASH, Action, Desired, Obstacle, Plan, differences},
};

/// Maximum number of changes in the status.
const LISTED: usize = 20;
/// Maximum number of fields per change.
const NAMED: usize = 10;
/// Path of the pod template of a workload.
const TEMPLATE: &str = "spec.template";

/// Returns all changes of the plan in order, and its obstacles.
pub fn changes(plan: &Plan, live: &BTreeMap<Key, Value>) -> Vec<PendingChange> {
    let made = plan.actions.iter().map(|action| change(action, live));
    let blocked = plan.obstacles.iter().map(|obstacle| {
        let (key, fields) = match obstacle {
            Obstacle::Immutable { key, fields, .. } | Obstacle::Refused { key, fields, .. } => (key, fields.clone()),
            Obstacle::Foreign { key, .. } | Obstacle::Waiting { key, .. } | Obstacle::NodesInUse { key, .. } => {
                (key, Vec::new())
            }
        };
        PendingChange {
            resource: key.to_string(),
            action: ChangeAction::Blocked,
            disruptive: false,
            fields,
        }
    });
    made.chain(blocked).collect()
}

/// Summarizes the changes for the status: the total number, and the first changes.
pub fn summary(mut changes: Vec<PendingChange>) -> PendingChanges {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let disruptive = changes.iter().filter(|change| change.disruptive).count();
    let all = changes.len();
    changes.truncate(LISTED);
    for change in &mut changes {
        change.fields.truncate(NAMED);
    }
    PendingChanges {
        count: count(all),
        disruptive: count(disruptive),
        changes,
    }
}

fn change(action: &Action, live: &BTreeMap<Key, Value>) -> PendingChange {
    let (kind, fields) = match action {
        Action::Create(_) => (ChangeAction::Create, Vec::new()),
        Action::Update { desired, .. } => (ChangeAction::Update, changed_fields(desired, live)),
        Action::Repair { desired, .. } => (ChangeAction::Repair, changed_fields(desired, live)),
        Action::Recreate { fields, .. } => (ChangeAction::Recreate, fields.clone()),
        Action::Prune { .. } => (ChangeAction::Delete, Vec::new()),
    };
    let key = action.key();
    let has_pods = matches!(key.kind, kind::DEPLOYMENT | kind::DAEMON_SET);
    let disruptive = match kind {
        ChangeAction::Update | ChangeAction::Repair => {
            has_pods
                && fields
                    .iter()
                    .any(|field| field.trim_start_matches('-').starts_with(TEMPLATE))
        }
        ChangeAction::Recreate | ChangeAction::Delete => true,
        ChangeAction::Create | ChangeAction::Blocked => false,
    };
    PendingChange {
        resource: key.to_string(),
        action: kind,
        disruptive,
        fields,
    }
}

/// Returns the paths of fields to set, and the paths of fields to release with a leading minus sign.
fn changed_fields(desired: &Desired, live: &BTreeMap<Key, Value>) -> Vec<String> {
    let Some(live_object) = live.get(&desired.key) else {
        return Vec::new();
    };
    let mut desired_object = desired.object.clone();
    // The hash annotation differs with every intent and contains no information.
    if let Some(annotations) = desired_object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(APPLIED_HASH);
    }
    let mut fields = differences(&desired_object, live_object, usize::MAX);
    fields.extend(
        released_fields(&desired.object, live_object)
            .into_iter()
            .map(|path| format!("-{path}")),
    );
    fields
}

/// Returns the paths of fields that the operator owns in the live object and no longer desires.
fn released_fields(desired: &Value, live: &Value) -> Vec<String> {
    let managers = live["metadata"]["managedFields"].as_array();
    let ours = managers
        .into_iter()
        .flatten()
        .find(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply");
    let mut found = Vec::new();
    if let Some(entry) = ours {
        collect_released_fields(&entry["fieldsV1"], Some(desired), "", &mut found);
    }
    found
}

fn collect_released_fields(owned: &Value, desired: Option<&Value>, path: &str, found: &mut Vec<String>) {
    let Some(desired) = desired else {
        found.push(path.trim_start_matches('.').to_owned());
        return;
    };
    for (name, below) in owned.as_object().into_iter().flatten() {
        if let Some(field) = name.strip_prefix("f:") {
            collect_released_fields(below, desired.get(field), &format!("{path}.{field}"), found);
        } else if let Some(keys) = name.strip_prefix("k:") {
            let Ok(Value::Object(keys)) = serde_json::from_str(keys) else {
                continue;
            };
            // Keys with a default value may be absent.
            let is_same = |element: &&Value| {
                keys.iter()
                    .all(|(key, value)| element.get(key).is_none_or(|live_object| live_object == value))
            };
            let element = desired.as_array().and_then(|elements| elements.iter().find(is_same));
            let label = keys.values().next().map_or_else(String::new, |value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            });
            collect_released_fields(below, element, &format!("{path}[{label}]"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::manifests::Stage;

    fn mk_key(kind: &'static str) -> Key {
        Key::new(kind, Some("ns"), "x")
    }

    fn mk_update(kind: &'static str, object: Value) -> Action {
        Action::Update {
            desired: Desired::new(mk_key(kind), Stage::Base, object),
            uid: "u".to_owned(),
        }
    }

    fn one(action: Action, live: Value) -> PendingChange {
        let live = BTreeMap::from([(action.key().clone(), live)]);
        let plan = Plan {
            actions: vec![action],
            ..Plan::default()
        };
        changes(&plan, &live).remove(0)
    }

    #[rstest]
    #[case::of_pods(kind::DAEMON_SET, json!({"metadata": {}, "spec": {"template": {"x": 1}}}), &["spec.template.x"], true)]
    #[case::beside_pods(kind::DAEMON_SET, json!({"metadata": {"labels": {"a": "b"}}}), &["metadata.labels"], false)]
    #[case::without_pods(kind::STORAGE_CLASS, json!({"metadata": {}, "spec": {"template": {"x": 1}}}),
        &["spec.template.x"], false)]
    fn changes_name_fields_and_disruption(
        #[case] kind: &'static str,
        #[case] desired_object: Value,
        #[case] fields: &[&str],
        #[case] disruptive: bool,
    ) {
        let live_object = json!({"metadata": {"annotations": {(APPLIED_HASH): "old"}}, "spec": {"template": {"x": 2}}});
        let change = one(mk_update(kind, desired_object), live_object);
        assert_eq!(
            (change.fields, change.disruptive),
            (fields.iter().map(|f| (*f).to_owned()).collect(), disruptive)
        );
        assert_eq!(
            (change.resource, change.action),
            (format!("{kind} ns/x"), ChangeAction::Update)
        );
    }

    #[test]
    fn released_fields_are_listed_separately() {
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:image": {}},
            "k:{\"name\":\"b\"}": {"f:image": {}}}}}}});
        let live_object = json!({
            "metadata": {"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}]},
            "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}}},
        });
        let desired_object =
            json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}});
        let change = one(mk_update(kind::DEPLOYMENT, desired_object), live_object);
        assert_eq!(change.fields, ["-spec.template.spec.containers[b]"]);
        assert!(change.disruptive);
    }

    #[test]
    fn secret_changes_show_only_key_names() {
        let desired_object = json!({"metadata": {}, "data": {"cloud.conf": "bmV3LXNlY3JldA=="}});
        let live_object = json!({"metadata": {}, "data": {"cloud.conf": "b2xkLXNlY3JldA=="}});
        let change = one(mk_update(kind::SECRET, desired_object), live_object);
        assert_eq!(change.fields, ["data.cloud.conf"]);
        let text = serde_json::to_string(&change).expect("JSON");
        assert!(!text.contains("bmV3") && !text.contains("b2xk"), "{text}");
    }

    #[test]
    fn status_counts_all_and_lists_twenty_changes() {
        let change = PendingChange {
            disruptive: true,
            fields: vec![String::new(); 12],
            ..PendingChange::default()
        };
        let status = summary(vec![change; 25]);
        assert_eq!((status.count, status.disruptive, status.changes.len()), (25, 25, 20));
        assert_eq!(status.changes[0].fields.len(), 10);
    }

    #[test]
    fn obstacles_are_blocked_changes() {
        let plan = Plan {
            obstacles: vec![Obstacle::Foreign {
                key: mk_key(kind::STORAGE_CLASS),
                maker: "somebody".to_owned(),
            }],
            ..Plan::default()
        };
        assert_eq!(changes(&plan, &BTreeMap::new())[0].action, ChangeAction::Blocked);
    }
}
