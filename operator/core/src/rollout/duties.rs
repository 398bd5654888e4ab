// SPDX-License-Identifier: Apache-2.0
//! Order of updates to the CSIDriver object and the node pods. A field that adds a duty to the node plugin is updated
//! after the node pods. A field that removes a duty is updated before them.

use serde_json::Value;

use crate::plan::Desired;

/// Whether a change of a field of the CSIDriver's spec adds a duty.
fn adds_duty(field: &str, before: &Value, after: &Value) -> bool {
    match field {
        // The first two fields are immutable, so the object is recreated. With the third, the scheduler requires the
        // registration of the driver, which all its nodes have.
        "attachRequired" | "volumeLifecycleModes" | "preventPodSchedulingIfMissing" => false,
        // The kubelet repeats NodePublishVolume for volumes in use. NodePublishVolume receives the pod's name and
        // account. NodeStageVolume mounts with the SELinux label of the pod. The scheduler requires capacity objects,
        // which the new controller publishes.
        "requiresRepublish" | "podInfoOnMount" | "seLinuxMount" | "storageCapacity" => *after == true,
        // The kubelet changes the owner of files in more types of volumes.
        "fsGroupPolicy" => ownership_rank(after) > ownership_rank(before),
        // The kubelet calls NodeGetInfo, or calls it more often.
        "nodeAllocatableUpdatePeriodSeconds" => before.as_i64().is_none_or(|before| after.as_i64() < Some(before)),
        // NodePublishVolume receives tokens (tokenRequests). The duties of fields of later versions are unknown.
        _ => true,
    }
}

/// The number of volume types with a change of file ownership.
fn ownership_rank(policy: &Value) -> usize {
    let ranks = ["None", "ReadWriteOnceWithFSType", "File"];
    ranks.iter().position(|rank| policy == rank).unwrap_or_default()
}

/// Returns the CSIDriver object without new duties. `None` if it adds none, or was already applied.
pub fn without_new_duties(desired: &Desired, live: &Value) -> Option<Desired> {
    if desired.is_applied_to(live) {
        return None;
    }
    let mut object = desired.object.clone();
    let (fields, before) = (object["spec"].as_object_mut()?, &live["spec"]);
    let is_new = |field: &str, after: &Value| before[field] != *after && adds_duty(field, &before[field], after);
    let new: Vec<String> = fields
        .iter()
        .filter(|(field, after)| is_new(field, after))
        .map(|(field, _)| field.clone())
        .collect();
    for field in &new {
        match &before[field] {
            Value::Null => drop(fields.remove(field)),
            value => drop(fields.insert(field.clone(), value.clone())),
        }
    }
    (!new.is_empty()).then(|| desired.with(object))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        cluster::{Key, kind},
        manifests::Stage,
    };

    #[rstest]
    #[case::republish(json!({"requiresRepublish": true}), json!({"requiresRepublish": false}), true)]
    #[case::no_republish(json!({"requiresRepublish": false}), json!({"requiresRepublish": true}), false)]
    #[case::pod_info(json!({"podInfoOnMount": true}), json!({}), true)]
    #[case::label(json!({"seLinuxMount": true}), json!({"seLinuxMount": false}), true)]
    #[case::no_label(json!({"seLinuxMount": false}), json!({"seLinuxMount": true}), false)]
    #[case::tokens(json!({"tokenRequests": [{"audience": "a"}]}), json!({}), true)]
    #[case::capacity(json!({"storageCapacity": true}), json!({"storageCapacity": false}), true)]
    #[case::more_owners(json!({"fsGroupPolicy": "File"}), json!({"fsGroupPolicy": "None"}), true)]
    #[case::fewer_owners(json!({"fsGroupPolicy": "None"}), json!({"fsGroupPolicy": "File"}), false)]
    #[case::first_period(json!({"nodeAllocatableUpdatePeriodSeconds": 60}), json!({}), true)]
    #[case::shorter_period(json!({"nodeAllocatableUpdatePeriodSeconds": 30}), json!({"nodeAllocatableUpdatePeriodSeconds": 60}), true)]
    #[case::longer_period(json!({"nodeAllocatableUpdatePeriodSeconds": 90}), json!({"nodeAllocatableUpdatePeriodSeconds": 60}), false)]
    #[case::immutable(json!({"attachRequired": false}), json!({"attachRequired": true}), false)]
    #[case::field_of_later_version(json!({"future": 1}), json!({}), true)]
    fn only_new_duties_wait(#[case] after: Value, #[case] before: Value, #[case] waits: bool) {
        let object = |spec: &Value| json!({"metadata": {"name": "d"}, "spec": spec});
        let desired = Desired::new(Key::new(kind::CSI_DRIVER, None, "d"), Stage::CsiDriver, object(&after));
        let early = without_new_duties(&desired, &object(&before));
        assert_eq!(early.is_some(), waits);
        if let Some(early) = early {
            assert_eq!(early.object["spec"], before);
            assert_eq!(
                without_new_duties(&desired, &early.object),
                Some(early),
                "nothing else changes"
            );
        }
        assert_eq!(without_new_duties(&desired, &desired.object), None);
    }
}
