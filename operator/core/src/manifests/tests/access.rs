// SPDX-License-Identifier: Apache-2.0
//! Compares the operator's own rights, in its installation manifests, with the rights that it grants.

use std::fs;
use std::path::Path;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde_json::Value;

use super::{mk_in_cluster, mk_operands, pod_spec};
use crate::cluster::OptionalApis;
use crate::manifests::{Operand, controller_account_of, operands};
use crate::resolve::{Environment, resolve, tests::mk_environment};

/// Reads every document of a manifest in `config/`.
fn config(path: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn rules_of(object: &Value) -> Vec<PolicyRule> {
    serde_json::from_value(object["rules"].clone()).unwrap()
}

fn rules_in(path: &str, kind: &str) -> Vec<PolicyRule> {
    config(path)
        .iter()
        .filter(|object| object["kind"] == kind)
        .flat_map(rules_of)
        .collect()
}

/// Whether one of `rules` allows this verb on this resource, with this name or any name.
fn allows(rules: &[PolicyRule], group: &str, resource: &str, name: Option<&str>, verb: &str) -> bool {
    let holds = |words: &Option<Vec<String>>, word: &str| words.iter().flatten().any(|held| held == word);
    rules.iter().any(|rule| {
        let named = rule
            .resource_names
            .as_ref()
            .is_none_or(|names| names.iter().any(|held| Some(held.as_str()) == name));
        holds(&rule.api_groups, group)
            && holds(&rule.resources, resource)
            && rule.verbs.iter().any(|held| held == verb)
            && named
    })
}

/// Returns every single right in `rules`: group, resource, name, verb.
fn single_rights(rules: &[PolicyRule]) -> Vec<(String, String, Option<String>, String)> {
    let mut rights = Vec::new();
    for rule in rules {
        let names: Vec<Option<String>> = match &rule.resource_names {
            Some(names) => names.iter().cloned().map(Some).collect(),
            None => vec![None],
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    for verb in &rule.verbs {
                        rights.push((group.clone(), resource.clone(), name.clone(), verb.clone()));
                    }
                }
            }
        }
    }
    rights
}

/// Renders the objects of a driver with everything that grants rights, in a cluster with all APIs.
fn mk_with_every_role() -> Vec<Operand> {
    let mut driver = mk_in_cluster();
    driver.spec.csi_driver.storage_capacity = true;
    driver.spec.controller.cross_namespace_sources = true;
    driver.spec.storage_classes.items =
        serde_json::from_value(serde_json::json!([{ "name": "a", "secretName": "cloud-west" }])).unwrap();
    let environment = Environment {
        apis: OptionalApis {
            snapshots: true,
            group_snapshots: true,
            monitoring: true,
            volume_attributes_classes: true,
            reference_grants: true,
        },
        ..mk_environment()
    };
    operands(&resolve(&driver, &environment).unwrap(), None).unwrap()
}

#[test]
fn operator_has_every_right_that_it_grants() {
    let usual = rules_in("rbac/cluster_role.yaml", "ClusterRole");
    let mut namespace = rules_in("rbac/namespaced/role.yaml", "Role");
    namespace.extend(usual.clone());

    let mut granted = 0;
    for operand in mk_with_every_role() {
        let held = match operand.kind.kind {
            "ClusterRole" => &usual,
            "Role" => &namespace,
            _ => continue,
        };
        for (group, resource, name, verb) in single_rights(&rules_of(&operand.object.data)) {
            assert!(
                allows(held, &group, &resource, name.as_deref(), &verb),
                "{operand} grants {verb} on {resource} of group {group:?}, which the operator does not hold"
            );
            granted += 1;
        }
    }
    assert!(granted > 80, "only {granted} rights were looked at");
}

/// Returns the rights of the driver's roles on ReferenceGrants, and the feature gates of csi-provisioner.
fn source_rights(operands: &[Operand]) -> (Vec<String>, String) {
    let rules = operands.iter().map(|operand| rules_of_any(&operand.object.data));
    let mut rights: Vec<_> = rules.flat_map(|rules| single_rights(&rules)).collect();
    rights.retain(|(group, ..)| group == "gateway.networking.k8s.io");
    let rights = rights
        .into_iter()
        .map(|(_, resource, _, verb)| format!("{verb} {resource}"));
    let deployment = operands
        .iter()
        .find(|operand| operand.kind.kind == "Deployment")
        .unwrap();
    let containers = &deployment.object.data["spec"]["template"]["spec"]["containers"];
    let mut containers = containers.as_array().unwrap().iter();
    let provisioner = containers
        .find(|container| container["name"] == "csi-provisioner")
        .unwrap();
    let mut args = provisioner["args"].as_array().unwrap().iter().filter_map(Value::as_str);
    let gates = args.find_map(|arg| arg.strip_prefix("--feature-gates=")).unwrap();
    (rights.collect(), gates.to_owned())
}

fn rules_of_any(object: &Value) -> Vec<PolicyRule> {
    serde_json::from_value(object["rules"].clone()).unwrap_or_default()
}

#[test]
fn field_enables_sources_of_other_namespaces() {
    let mut driver = mk_in_cluster();
    let mut environment = Environment {
        apis: OptionalApis {
            reference_grants: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    };
    let resolved = resolve(&driver, &environment).unwrap();
    let (rights, gates) = source_rights(&operands(&resolved, None).unwrap());
    assert!(rights.is_empty(), "the API alone grants nothing: {rights:?}");
    assert!(!gates.contains("CrossNamespace"), "{gates}");

    driver.spec.controller.cross_namespace_sources = true;
    let resolved = resolve(&driver, &environment).unwrap();
    let (rights, gates) = source_rights(&operands(&resolved, None).unwrap());
    assert_eq!(
        rights,
        ["get referencegrants", "list referencegrants", "watch referencegrants"]
    );
    assert!(gates.contains("CrossNamespaceVolumeDataSource=true"), "{gates}");

    environment.apis.reference_grants = false;
    let problems = resolve(&driver, &environment).unwrap_err();
    assert!(
        problems.len() == 1 && problems[0].message.contains("gateway.networking.k8s.io/v1beta1"),
        "{problems:?}"
    );
}

#[test]
fn optional_features_have_separate_roles() {
    let usual = rules_in("rbac/cluster_role.yaml", "ClusterRole");
    assert!(!allows(&usual, "", "nodes", None, "patch"));
    let own = rules_in("rbac/startup-taint/cluster_role.yaml", "ClusterRole");
    assert!(allows(&own, "", "nodes", None, "patch"));
}

#[test]
fn operator_cannot_create_or_delete_snapshots() {
    let usual = rules_in("rbac/cluster_role.yaml", "ClusterRole");
    for resource in ["volumesnapshots", "volumesnapshotcontents"] {
        for verb in ["create", "delete"] {
            assert!(
                !allows(&usual, "snapshot.storage.k8s.io", resource, None, verb),
                "{verb} on {resource}"
            );
        }
    }
}

#[test]
fn operator_has_all_verbs_on_its_kinds() {
    let cluster = rules_in("rbac/cluster_role.yaml", "ClusterRole");
    let namespace = rules_in("rbac/namespaced/role.yaml", "Role");
    for kind in crate::cluster::KINDS {
        let held = if kind.namespaced { &namespace } else { &cluster };
        for verb in ["get", "list", "watch", "create", "patch", "delete"] {
            assert!(
                allows(held, kind.group, kind.plural, None, verb),
                "{verb} on {}",
                kind.plural
            );
        }
    }
}

#[test]
fn operator_cannot_escalate_or_read_cluster_secrets() {
    let cluster = rules_in("rbac/cluster_role.yaml", "ClusterRole");
    let all = rules_in("rbac/namespaced/role.yaml", "Role")
        .into_iter()
        .chain(cluster.clone());

    for (group, resource, _, verb) in single_rights(&all.collect::<Vec<_>>()) {
        assert!(
            !["escalate", "bind", "impersonate", "*"].contains(&verb.as_str()),
            "{verb} on {resource}"
        );
        assert!(group != "*" && resource != "*");
    }
    for (_, resource, _, verb) in single_rights(&cluster) {
        assert!(resource != "secrets", "{verb} on secrets of every namespace");
    }
}

#[test]
fn secrets_are_granted_to_sidecar_account() {
    for instance in [None, Some("west")] {
        let mut driver = mk_in_cluster();
        driver.spec.instance_name = instance.map(str::to_owned);
        let operands = mk_operands(&driver);
        let account = &pod_spec(&operands, "Deployment")["serviceAccountName"];
        assert_eq!(*account, controller_account_of(&driver));
        // No role of the driver includes Secrets of other namespaces.
        let cluster_roles = operands.iter().filter(|operand| operand.kind.kind == "ClusterRole");
        let rules: Vec<PolicyRule> = cluster_roles.flat_map(|role| rules_of(&role.object.data)).collect();
        assert!(!allows(
            &rules,
            "",
            "secrets",
            Some("openstack-config-region-one"),
            "get"
        ));
    }
}
