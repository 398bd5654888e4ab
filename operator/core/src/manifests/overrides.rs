// SPDX-License-Identifier: Apache-2.0
//! Applies the administrator's own patches as the last step of rendering.
//!
//! If a patch fails, the operator does not apply its object without the patch.

use std::collections::BTreeSet;

use cinder_cloud::config::refuse_yaml;
use cinder_csi_crds::{INSTANCE_LABEL, OWNER_UID_ANNOTATION, Override, OverrideType};
use json_patch::PatchOperation;
use serde_json::Value;

use super::operand::Operand;
use crate::cluster::{Key, MANAGED_BY_LABEL};
use crate::restrictions::Restrictions;
use guarded_fields::changed_field;

mod guarded_fields;

/// Result of the administrator's patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overridden {
    /// Objects that differ from the operator's rendering, as in `Deployment cinder-csi-controller`, each once.
    pub changed: Vec<String>,
    /// Failed patches, each with the reason.
    pub failed: Vec<String>,
    /// Objects of the failed patches.
    pub held: BTreeSet<Key>,
    /// Whether a patch targets a missing object. It may be intended for any object.
    pub has_unknown_target: bool,
}

/// The maximum size of a patched object. etcd accepts 1.5 MiB.
const MAX_OBJECT_BYTES: usize = 1 << 20;

/// Kinds that cannot be patched. Only the operator determines their rights and contents.
const PROTECTED: [&str; 6] = [
    "Secret",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// Applies the patches in order. A failed patch changes nothing, and its object is held.
pub(super) fn apply(overrides: &[Override], restrictions: &Restrictions, operands: &mut [Operand]) -> Overridden {
    let mut result = Overridden::default();
    for (index, patch) in overrides.iter().enumerate() {
        let target = format!("{} {}", patch.target.kind, patch.target.name);
        let outcome = if PROTECTED.contains(&patch.target.kind.as_str()) {
            result.has_unknown_target = true;
            Err("objects of this kind cannot be overridden".to_owned())
        } else {
            let operand = operands
                .iter_mut()
                .find(|operand| operand.kind.kind == patch.target.kind && operand.name() == patch.target.name);
            if let Some(operand) = operand {
                let changed = change(operand, patch, restrictions);
                if changed.is_err() {
                    result.held.insert(Key::from(&*operand));
                }
                changed
            } else {
                result.has_unknown_target = true;
                Err("the operator makes no such object here".to_owned())
            }
        };
        match outcome {
            Ok(()) if !result.changed.contains(&target) => result.changed.push(target),
            Ok(()) => {}
            Err(reason) => result
                .failed
                .push(format!("spec.overrides[{index}] ({target}): {reason}")),
        }
    }
    result
}

/// Applies operations one after the other. After an error, the object is incomplete.
///
/// `json_patch::patch` would undo the first operations and panics if that is impossible.
fn apply_operations(object: &mut Value, operations: &[PatchOperation]) -> Result<(), String> {
    for (index, operation) in operations.iter().enumerate() {
        let applied = json_patch::patch_unsafe(object, std::slice::from_ref(operation));
        applied.map_err(|mut error| {
            error.operation = index;
            error.to_string()
        })?;
        // The other operations add at most their own text. A copy can double the object.
        if matches!(operation, PatchOperation::Copy(_)) && object.to_string().len() > MAX_OBJECT_BYTES {
            return Err(format!("the object is larger than 1 MiB after operation '/{index}'"));
        }
    }
    Ok(())
}

fn change(operand: &mut Operand, patch: &Override, restrictions: &Restrictions) -> Result<(), String> {
    let before = serde_json::to_value(&operand.object).map_err(|error| error.to_string())?;
    if let Some(reason) = refuse_yaml(&patch.patch) {
        return Err(format!("the patch is not read: {reason}"));
    }
    let value: Value = serde_yaml::from_str(&patch.patch).map_err(|error| format!("the patch is no YAML: {error}"))?;
    let mut after = before.clone();
    match patch.kind {
        OverrideType::Merge if !value.is_object() => {
            return Err("a merge patch must be an object, as in `spec: {minReadySeconds: 10}`".into());
        }
        OverrideType::Merge => json_patch::merge(&mut after, &value),
        OverrideType::Json => {
            let operations: json_patch::Patch = serde_json::from_value(value)
                .map_err(|error| format!("the patch is no list of operations: {error}"))?;
            apply_operations(&mut after, &operations)?;
        }
    }
    if let Some(path) = PROTECTED_FIELDS
        .iter()
        .find(|path| before.pointer(path) != after.pointer(path))
    {
        return Err(format!(
            "{} cannot be changed",
            path.trim_start_matches('/').replace('/', ".")
        ));
    }
    let names = |object: &Value| -> Vec<String> {
        let containers = object
            .pointer("/spec/template/spec/containers")
            .and_then(Value::as_array);
        let names = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let (wanted, left) = (names(&before), names(&after));
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|name| !left.contains(name))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "containers would be missing: {}; a merge patch replaces the whole list. To add one, use type Json and the operation `{{op: \
             add, path: /spec/template/spec/containers/-, value: …}}`",
            missing.join(", ")
        ));
    }
    if let Some(image) = images_of(&after).into_iter().find(|image| !restrictions.allows(image)) {
        return Err(format!(
            "image {image} is from none of the registries of the operator's --allowed-registries"
        ));
    }
    if let Some(path) = changed_field(&before, &after).filter(|_| restrictions.has_registries()) {
        return Err(format!(
            "{path} cannot be changed, because the operator's --allowed-registries restricts what runs in the pods"
        ));
    }
    for (map, key) in [
        ("labels", INSTANCE_LABEL),
        ("labels", MANAGED_BY_LABEL),
        ("annotations", OWNER_UID_ANNOTATION),
    ] {
        if before["metadata"][map][key] != after["metadata"][map][key] {
            return Err(format!("metadata.{map}[{key:?}] cannot be changed"));
        }
    }
    operand.object = serde_json::from_value(after).map_err(|error| format!("the result is no object: {error}"))?;
    Ok(())
}

/// Returns the images of a pod template: of its containers and of its image volumes.
fn images_of(object: &Value) -> Vec<&str> {
    let list = |name: &str| {
        let items = object.pointer("/spec/template/spec")?.get(name)?.as_array()?;
        Some(items.iter())
    };
    let containers = ["containers", "initContainers", "ephemeralContainers"]
        .into_iter()
        .filter_map(list)
        .flatten();
    let volumes = list("volumes").into_iter().flatten();
    containers
        .filter_map(|container| container["image"].as_str())
        .chain(volumes.filter_map(|volume| volume["image"]["reference"].as_str()))
        .collect()
}

/// Fields that identify an object or its function.
const PROTECTED_FIELDS: [&str; 9] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/finalizers",
    "/spec/selector",
    "/spec/template/spec/serviceAccountName",
    // Two pods on a node would remove each other's registration.
    "/spec/updateStrategy/rollingUpdate/maxSurge",
];

#[cfg(test)]
mod tests {
    use cinder_csi_crds::{Override, OverrideTarget, OverrideType};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::{Operand, operands};
    use super::apply;
    use crate::resolve::resolve;
    use crate::resolve::tests::{mk_driver, mk_environment};
    use crate::restrictions::Restrictions;

    /// A patch with 1,000 operations, each of which doubles the object.
    fn doubling_patch() -> String {
        let copies = (0..1_000).map(|at| format!(r#"{{"op": "copy", "from": "/spec", "path": "/spec/x{at}"}}"#));
        format!("[{}]", copies.collect::<Vec<_>>().join(","))
    }

    fn mk_operands() -> Vec<Operand> {
        let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &mk_environment()).unwrap();
        operands(&resolved, None).unwrap()
    }

    fn mk_override(kind: &str, name: &str, how: OverrideType, patch: &str) -> Override {
        Override {
            target: OverrideTarget {
                kind: kind.into(),
                name: name.into(),
            },
            kind: how,
            patch: patch.into(),
        }
    }

    fn spec_of(operands: &[Operand], kind: &str) -> Value {
        let operand = operands.iter().find(|operand| operand.kind.kind == kind).unwrap();
        operand.object.data["spec"].clone()
    }

    #[test]
    fn patches_apply_in_order() {
        let mut operands = mk_operands();
        let name = "cinder-csi-controller";
        let overrides = [
            mk_override("Deployment", name, OverrideType::Merge, "spec:\n  minReadySeconds: 5\n"),
            mk_override(
                "Deployment",
                name,
                OverrideType::Json,
                r#"[{"op": "test", "path": "/spec/minReadySeconds", "value": 5},
                    {"op": "replace", "path": "/spec/minReadySeconds", "value": 7}]"#,
            ),
        ];

        let result = apply(&overrides, &Restrictions::default(), &mut operands);

        assert_eq!(result.failed, [] as [String; 0]);
        assert_eq!(result.changed, ["Deployment cinder-csi-controller"]);
        assert_eq!(spec_of(&operands, "Deployment")["minReadySeconds"], json!(7));
    }

    #[rstest]
    #[case::absent("Deployment", "other", OverrideType::Merge, "spec: {}", "no such object")]
    #[case::secret(
        "Secret",
        "cinder-csi-cloud-config",
        OverrideType::Merge,
        "data: {}",
        "cannot be overridden"
    )]
    #[case::role(
        "ClusterRole",
        "cinder-csi-attacher",
        OverrideType::Merge,
        "rules: []",
        "cannot be overridden"
    )]
    #[case::list("DaemonSet", "cinder-csi-node", OverrideType::Merge, "[]", "must be an object")]
    #[case::yaml("DaemonSet", "cinder-csi-node", OverrideType::Merge, "a: b: c", "no YAML")]
    #[case::deep(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "nested deeper"
    )]
    #[case::path(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        r#"[{"op": "remove", "path": "/spec/nothing"}]"#,
        "path"
    )]
    #[case::irreversible_operations(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        r#"[{"op": "move", "from": "/spec/template/spec/volumes/0/name", "path": "/spec/template/spec/volumes/0"},
            {"op": "remove", "path": "/spec/nothing"}]"#,
        "operation '/1' failed"
    )]
    #[case::growing_object(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        &doubling_patch(),
        "larger than 1 MiB after operation"
    )]
    #[case::operations("DaemonSet", "cinder-csi-node", OverrideType::Json, "{}", "list of operations")]
    #[case::name(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "metadata: {name: x}",
        "metadata.name cannot"
    )]
    #[case::label(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "metadata: {labels: {csi.openstack.org/instance: x}}",
        "csi.openstack.org/instance"
    )]
    #[case::account(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "spec: {template: {spec: {serviceAccountName: other}}}",
        "serviceAccountName cannot"
    )]
    #[case::containers(
        "Deployment",
        "cinder-csi-controller",
        OverrideType::Merge,
        "spec: {template: {spec: {containers: [{name: extra, image: busybox}]}}}",
        "containers would be missing: cinder-csi-driver, csi-provisioner"
    )]
    #[case::image(
        "Deployment",
        "cinder-csi-controller",
        OverrideType::Json,
        r#"[{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "extra", "image": "evil.example.org/x"}}]"#,
        "evil.example.org/x is from none"
    )]
    #[case::image_of_an_init_container(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "spec: {template: {spec: {initContainers: [{name: extra, image: evil.example.org/x}]}}}",
        "evil.example.org/x is from none"
    )]
    #[case::image_volume(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        r#"[{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "extra", "image": {"reference": "evil.example.org/files"}}}]"#,
        "evil.example.org/files is from none"
    )]
    #[case::program_of_an_allowed_image(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        r#"[{"op": "add", "path": "/spec/template/spec/containers/0/command", "value": ["sh"]}]"#,
        "spec.template.spec.containers[cinder-csi-driver].command cannot be changed"
    )]
    #[case::directory_of_the_host(
        "Deployment",
        "cinder-csi-controller",
        OverrideType::Json,
        r#"[{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "extra", "hostPath": {"path": "/"}}}]"#,
        "spec.template.spec.volumes cannot be changed"
    )]
    #[case::renamed(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Json,
        r#"[{"op": "replace", "path": "/spec/template/spec/containers/0/name", "value": "mine"}]"#,
        "containers would be missing: cinder-csi-driver"
    )]
    #[case::surge(
        "DaemonSet",
        "cinder-csi-node",
        OverrideType::Merge,
        "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}",
        "maxSurge cannot"
    )]
    fn failing_patch_is_omitted_and_named(
        #[case] kind: &str,
        #[case] name: &str,
        #[case] how: OverrideType,
        #[case] patch: &str,
        #[case] reason: &str,
    ) {
        let restrictions = Restrictions {
            registries: vec!["ghcr.io".to_owned(), "registry.k8s.io".to_owned()],
            ..Restrictions::default()
        };
        let mut operands = mk_operands();
        let before = operands.clone();

        let result = apply(&[mk_override(kind, name, how, patch)], &restrictions, &mut operands);

        assert_eq!(result.changed, [] as [String; 0]);
        assert!(
            result.failed[0].starts_with("spec.overrides[0]") && result.failed[0].contains(reason),
            "{result:?}"
        );
        assert!(operands == before);
    }
}
