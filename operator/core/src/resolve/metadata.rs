// SPDX-License-Identifier: Apache-2.0
//! Labels and annotations in the spec for classes.

use std::collections::BTreeMap;

use cinder_csi_crds::CinderCSIDriverSpec;

use super::hold::{HoldScope, SpecHold};
use super::topology::is_label;
use crate::cluster::kind;
use crate::problem::Problem;
use crate::reasons::Degraded;

/// Prefixes of the keys that the operator writes on all its objects.
const OWN: [&str; 2] = ["app.kubernetes.io/", "csi.openstack.org/"];
/// Suffix of the keys that mark the default of a kind of classes in Kubernetes.
const DEFAULT_MARK: &str = "/is-default-class";

type Map = BTreeMap<String, String>;

/// Returns the problems with them. The CRD has no cost budget for rules about keys.
pub(super) fn problems(spec: &CinderCSIDriverSpec) -> Vec<SpecHold> {
    let maps = maps(spec).into_iter();
    maps.filter_map(|(field, class, map)| {
        let (key, reason) = map.keys().find_map(|key| Some((key, refusal(key)?)))?;
        let problem = Problem {
            reason: Degraded::InvalidSpec,
            message: format!(
                "spec.{field} has the key {key:?}: {reason}. {} {} keeps its last applied content",
                class.0, class.1
            ),
        };
        Some(SpecHold::new(problem, HoldScope::Objects(vec![class])))
    })
    .collect()
}

/// Returns the labels and annotations of every class by their path in the spec, with kind and name of the class.
fn maps(spec: &CinderCSIDriverSpec) -> Vec<(String, (String, String), &Map)> {
    let mut maps = Vec::new();
    let mut add = |list: &str, kind: &str, name: &str, labels, annotations| {
        let class = (kind.to_owned(), name.to_owned());
        maps.push((format!("{list}[{name}].labels"), class.clone(), labels));
        maps.push((format!("{list}[{name}].annotations"), class, annotations));
    };
    for class in spec.storage_classes.items.iter().flatten() {
        let (labels, annotations) = (&class.labels, &class.annotations);
        add(
            "storageClasses.items",
            kind::STORAGE_CLASS,
            &class.name,
            labels,
            annotations,
        );
    }
    for class in spec.snapshots.classes.iter().flatten() {
        let (labels, annotations) = (&class.labels, &class.annotations);
        add(
            "snapshots.classes",
            kind::SNAPSHOT_CLASS,
            &class.name,
            labels,
            annotations,
        );
    }
    for class in spec.snapshots.group_classes.iter().flatten() {
        let (labels, annotations) = (&class.labels, &class.annotations);
        let kind = kind::GROUP_SNAPSHOT_CLASS;
        add("snapshots.groupClasses", kind, &class.name, labels, annotations);
    }
    for class in &spec.volume_attributes_classes.items {
        let (labels, annotations) = (&class.labels, &class.annotations);
        let kind = kind::ATTRIBUTES_CLASS;
        add("volumeAttributesClasses.items", kind, &class.name, labels, annotations);
    }
    maps
}

fn refusal(key: &str) -> Option<&'static str> {
    if key.ends_with(DEFAULT_MARK) {
        return Some(
            "the operator marks the default class itself; use isDefault, or default.name of spec.storageClasses",
        );
    }
    if OWN.iter().any(|beginning| key.starts_with(beginning)) {
        return Some("the operator finds its objects by keys with this beginning; choose another one");
    }
    let is_key = is_label(key);
    (!is_key).then_some(
        "Kubernetes does not take it; write NAME or example.org/NAME, the name of 63 letters, digits, '-', '_' and '.' at most",
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::resolve::tests::mk_driver;

    fn mk_spec(field: &str, map: &str, key: &str) -> CinderCSIDriverSpec {
        let mut spec = serde_json::to_value(mk_driver("cinder.csi.openstack.org").spec).unwrap();
        let mut class = json!({"name": "a", map: {key: "x"}});
        if field.starts_with("/volumeAttributesClasses") {
            class["parameters"] = json!({"type": "ssd"});
        }
        let (group, list) = field.trim_start_matches('/').split_once('/').unwrap();
        spec[group][list] = json!([class]);
        serde_json::from_value(spec).unwrap()
    }

    #[rstest]
    fn classes_reject_reserved_metadata_keys(
        #[values(
            "/storageClasses/items",
            "/snapshots/classes",
            "/snapshots/groupClasses",
            "/volumeAttributesClasses/items"
        )]
        field: &str,
        #[values("labels", "annotations")] map: &str,
    ) {
        let path = format!("spec.{}[a].{map}", field.trim_start_matches('/').replace('/', "."));
        for (key, reason) in [
            ("app.kubernetes.io/managed-by", "finds its objects"),
            ("csi.openstack.org/owner-uid", "finds its objects"),
            ("storageclass.kubernetes.io/is-default-class", "isDefault"),
            ("no key", "63 letters"),
        ] {
            let problems = problems(&mk_spec(field, map, key));
            assert_eq!(problems.len(), 1, "{problems:?}");
            let message = &problems[0].problem.message;
            assert!(
                message.contains(&path) && message.contains(key) && message.contains(reason),
                "{message}"
            );
        }
        assert_eq!(problems(&mk_spec(field, map, "velero.io/csi-volumesnapshot-class")), []);
    }
}
