// SPDX-License-Identifier: Apache-2.0
//! Finds differences between a live object and the desired one.
//!
//! Only fields of the desired object are compared. Defaults of the API server and fields of other clients are
//! ignored. This comparison cannot detect fields that the operator no longer desires. The hash of the last applied
//! intent, stored in an annotation, covers them (see [`super`]).

use serde_json::Value;

use crate::units::thousandths;

/// Lists whose elements the API server merges by a key. All other lists are compared element by element.
///
/// Source: the `x-kubernetes-list-map-keys` of the built-in types that operands use.
const LIST_KEYS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "protocol"]),
    ("imagePullSecrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("ownerReferences", &["uid"]),
];

/// Maps that the API server replaces as a whole. An added key is a difference.
const ATOMIC_MAPS: &[&str] = &["nodeSelector", "matchLabels"];

/// Default values of key fields, to match an element by its key.
const KEY_DEFAULTS: &[(&str, &str)] = &[("protocol", "TCP")];

/// Maps with quantities as values. `0.1` and `100m` are equal there, and the API server may return either.
const QUANTITY_MAPS: &[&str] = &["requests", "limits"];

/// Returns the paths at which `live` differs from `desired`, in the order of the desired object, at most `limit`.
pub fn differences(desired: &Value, live: &Value, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    compare(desired, Some(live), &mut Vec::new(), &mut |path| {
        if found.len() < limit {
            found.push(path);
        }
    });
    found
}

fn compare(desired: &Value, live: Option<&Value>, path: &mut Vec<String>, differs: &mut dyn FnMut(String)) {
    let Some(live) = live else {
        // The API server does not store empty values.
        if !is_empty(desired) {
            differs(render(path));
        }
        return;
    };
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let atomic = path
                .last()
                .and_then(|name| name.strip_prefix('.'))
                .is_some_and(|name| ATOMIC_MAPS.contains(&name));
            if atomic && desired.len() != live.len() {
                differs(render(path));
                return;
            }
            for (key, value) in desired {
                path.push(format!(".{key}"));
                compare(value, live.get(key), path, differs);
                path.pop();
            }
        }
        (Value::Array(desired), Value::Array(live)) => compare_lists(desired, live, path, differs),
        _ => {
            if !same_scalar(desired, live, path) {
                differs(render(path));
            }
        }
    }
}

fn compare_lists(desired: &[Value], live: &[Value], path: &mut Vec<String>, differs: &mut dyn FnMut(String)) {
    if let Some(keys) = keys_of(path, desired) {
        for element in desired {
            let live_element = live.iter().find(|candidate| same_keys(element, candidate, keys));
            path.push(format!("[{}]", label(element, keys)));
            compare(element, live_element, path, differs);
            path.pop();
        }
        return;
    }
    if desired.len() != live.len() {
        differs(render(path));
        return;
    }
    for (index, (element, live_element)) in desired.iter().zip(live).enumerate() {
        path.push(format!("[{index}]"));
        compare(element, Some(live_element), path, differs);
        path.pop();
    }
}

/// Returns the keys of the list at `path`, if its elements are merged by keys.
fn keys_of(path: &[String], elements: &[Value]) -> Option<&'static [&'static str]> {
    let name = path.last()?.strip_prefix('.')?;
    let (_, keys) = LIST_KEYS.iter().find(|(list, _)| *list == name)?;
    let has_first_key = |element: &Value| keys.first().is_some_and(|key| element.get(key).is_some());
    elements.iter().all(has_first_key).then_some(*keys)
}

fn key_value(element: &Value, key: &str) -> Value {
    let default = || {
        KEY_DEFAULTS
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| Value::from(*value))
    };
    element.get(key).cloned().or_else(default).unwrap_or(Value::Null)
}

fn same_keys(one: &Value, other: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| key_value(one, key) == key_value(other, key))
}

fn label(element: &Value, keys: &[&str]) -> String {
    let first = keys.first().map(|key| key_value(element, key)).unwrap_or_default();
    first.as_str().map_or_else(|| first.to_string(), str::to_owned)
}

fn same_scalar(desired: &Value, live: &Value, path: &[String]) -> bool {
    if desired == live || (is_empty(desired) && is_empty(live)) {
        return true;
    }
    let parent = path
        .len()
        .checked_sub(2)
        .and_then(|at| path.get(at))
        .and_then(|name| name.strip_prefix('.'));
    if !parent.is_some_and(|name| QUANTITY_MAPS.contains(&name)) {
        return false;
    }
    let quantity = |value: &Value| match value {
        Value::String(text) => thousandths(text),
        Value::Number(number) => thousandths(&number.to_string()),
        _ => None,
    };
    matches!((quantity(desired), quantity(live)), (Some(one), Some(other)) if one == other)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.values().all(is_empty),
    }
}

fn render(path: &[String]) -> String {
    path.concat().trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::defaults_of_the_api_server(
        json!({"spec": {"replicas": 1}}),
        json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10}, "status": {"replicas": 1}})
    )]
    #[case::an_injected_container(
        json!({"containers": [{"name": "driver", "image": "a"}]}),
        json!({"containers": [{"name": "mesh", "image": "x"}, {"name": "driver", "image": "a", "tty": false}]})
    )]
    #[case::zero_values_that_are_not_stored(json!({"hostNetwork": false, "env": [], "x": {}, "n": 0}), json!({}))]
    #[case::an_empty_env_value(
        json!({"env": [{"name": "A", "value": ""}]}),
        json!({"env": [{"name": "A"}]})
    )]
    #[case::the_same_quantity(
        json!({"resources": {"requests": {"cpu": "0.1", "memory": "1024Mi"}}}),
        json!({"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}})
    )]
    #[case::a_port_whose_protocol_was_defaulted(
        json!({"ports": [{"containerPort": 9808, "name": "http"}]}),
        json!({"ports": [{"containerPort": 9808, "name": "http", "protocol": "TCP"}]})
    )]
    fn fields_of_other_clients_are_ignored(#[case] desired: Value, #[case] live: Value) {
        assert_eq!(differences(&desired, &live, 10), Vec::<String>::new());
    }

    #[rstest]
    #[case::a_changed_scalar(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 0}}), "spec.replicas")]
    #[case::a_changed_image(
        json!({"containers": [{"name": "driver", "image": "a"}]}),
        json!({"containers": [{"name": "driver", "image": "b"}]}),
        "containers[driver].image"
    )]
    #[case::a_removed_container(
        json!({"containers": [{"name": "driver", "image": "a"}]}), json!({"containers": []}), "containers[driver]"
    )]
    #[case::one_more_rule(json!({"rules": [{"verbs": ["get"]}]}),
        json!({"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]}), "rules")]
    #[case::one_more_verb(json!({"rules": [{"verbs": ["get"]}]}),
        json!({"rules": [{"verbs": ["get", "delete"]}]}), "rules[0].verbs")]
    #[case::a_lost_label(json!({"metadata": {"labels": {"a": "b"}}}), json!({"metadata": {}}), "metadata.labels")]
    #[case::another_quantity(
        json!({"limits": {"memory": "64Mi"}}), json!({"limits": {"memory": "65Mi"}}), "limits.memory"
    )]
    #[case::parameters_are_no_quantities(
        json!({"parameters": {"size": "1"}}), json!({"parameters": {"size": "1000m"}}), "parameters.size"
    )]
    #[case::a_node_selector_that_somebody_narrowed(
        json!({"nodeSelector": {"a": "b"}}), json!({"nodeSelector": {"a": "b", "no": "where"}}), "nodeSelector"
    )]
    #[case::a_boolean_that_became_true(json!({"hostNetwork": false}), json!({"hostNetwork": true}), "hostNetwork")]
    fn changed_owned_field_is_named_by_path(#[case] desired: Value, #[case] live: Value, #[case] path: &str) {
        assert_eq!(differences(&desired, &live, 10), [path]);
    }

    #[test]
    fn paths_are_limited() {
        let desired = json!({"a": 1, "b": 1, "c": 1});
        assert_eq!(differences(&desired, &json!({}), 2), ["a", "b"]);
    }
}
