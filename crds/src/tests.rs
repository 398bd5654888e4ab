// SPDX-License-Identifier: Apache-2.0
//! Tests of the whole schema: its rules, its size, and the generated file.

use kube::CustomResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{CinderCSIDriver, CinderCSIDriverSpec, SCHEMA_HASH_ANNOTATION, crd, schema_hash, to_yaml};

mod cases;
mod rules;

/// The CustomResourceDefinition that clusters install.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cindercsidrivers.csi.openstack.org.yaml");

/// Fields that contain a type of Kubernetes.
const KUBERNETES_TYPES: [&str; 5] = [
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "allowedTopologies",
    "conditions",
];

/// Returns the schema of a field of the spec. The step `[]` selects the items of a list.
fn schema_of(path: &str) -> Value {
    let crd = serde_json::to_value(crd()).unwrap();
    let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    for step in path.split('.') {
        schema = if step == "[]" {
            schema["items"].clone()
        } else {
            schema["properties"][step].clone()
        };
        assert!(schema.is_object(), "no {step} in the schema, looking for {path}");
    }
    schema
}

#[test]
fn generated_definition_is_current() {
    let yaml = to_yaml(&crd()).unwrap();

    let file = std::fs::read_to_string(FILE).unwrap_or_default();

    assert!(file == yaml, "{FILE} is out of date: run `make generate`");
}

#[test]
fn definition_fits_kubectl_apply_annotation() {
    // `kubectl apply` stores a copy of the object in one of its annotations. The API server limits the total
    // size of all annotations.
    const LONGEST: usize = 256 << 10;

    let text = serde_json::to_string(&crd()).unwrap();

    assert!(text.len() < LONGEST * 3 / 4, "{} bytes", text.len());
}

#[test]
fn schema_has_no_stored_defaults() {
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        find_defaults(&schema_of(part), part, &mut found);
    }

    // The API server requires the key of a list, and an unobserved object is not ready.
    assert_eq!(found, ["spec.clouds[].name", "status.observedGeneration"]);
}

fn find_defaults(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property.get("default").is_some() {
            found.push(path.clone());
        }
        find_defaults(property, &path, found);
        find_defaults(&property["items"], &format!("{path}[]"), found);
    }
}

#[rstest]
#[case("spec.node.httpPort", "Defaults to 9897.")]
#[case("spec.node.update.maxUnavailable", "Defaults to 10%.")]
#[case("spec.storageClasses.items.[].allowVolumeExpansion", "Defaults to true.")]
#[case("spec.managementState", "Defaults to Managed.")]
fn description_ends_with_default(#[case] path: &str, #[case] text: &str) {
    let description = schema_of(path)["description"].as_str().unwrap().to_owned();

    assert!(description.ends_with(text), "{description}");
}

#[test]
fn defaults_apply_when_object_is_parsed() {
    let driver: CinderCSIDriver = serde_json::from_value(cases::smallest()).unwrap();

    assert_eq!(driver.spec, CinderCSIDriverSpec::new(driver.spec.clouds.clone()));
    assert_eq!(driver.spec.node.http_port, 9897);
}

#[test]
fn definition_has_current_schema_hash() {
    let (hash, crd) = (schema_hash(), crd());

    assert_eq!(hash.len(), 16);
    assert_eq!(crd.metadata.annotations.unwrap()[SCHEMA_HASH_ANNOTATION], hash);
    assert_eq!(hash, schema_hash());
}

/// Maximum number of fields in the spec. Before you add one, check which users need it and whether an
/// override suffices.
const MOST_FIELDS: usize = 200;

#[test]
fn spec_stays_below_field_limit() {
    let mut fields = Vec::new();
    find_fields(&schema_of("spec"), "spec", &mut fields);

    println!("{} fields in the spec", fields.len());
    assert!(fields.len() <= MOST_FIELDS, "{} fields: {fields:#?}", fields.len());
}

/// Collects every property that a user can write. An object counts as one field in addition to its own
/// fields. A list of objects counts as the fields of its items, and a Kubernetes type counts as one field.
fn find_fields(schema: &Value, path: &str, fields: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let items = &property["items"];
        if KUBERNETES_TYPES.contains(&name.as_str()) || items["properties"].is_null() {
            fields.push(path.clone());
        }
        if !KUBERNETES_TYPES.contains(&name.as_str()) {
            find_fields(property, &path, fields);
            find_fields(items, &format!("{path}[]"), fields);
        }
    }
}

#[test]
fn every_own_field_has_description() {
    let mut silent = Vec::new();
    for part in ["spec", "status"] {
        find_silent(&schema_of(part), part, &mut silent);
    }
    assert!(silent.is_empty(), "without a description: {silent:?}");
}

fn find_silent(schema: &Value, path: &str, silent: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"]
            .as_str()
            .is_none_or(|text| text.trim().is_empty())
        {
            silent.push(path.clone());
        }
        if !KUBERNETES_TYPES.contains(&name.as_str()) {
            find_silent(property, &path, silent);
            find_silent(&property["items"], &path, silent);
        }
    }
}

#[rstest]
#[case("spec.clouds", "name")]
#[case("spec.images.pullSecrets", "name")]
#[case("spec.controller.sidecars", "name")]
#[case("spec.storageClasses.items", "name")]
#[case("status.conditions", "type")]
#[case("status.clouds", "name")]
#[case("status.places", "cloud")]
#[case("status.snapshotContents", "kind")]
#[case("status.components", "name")]
#[case("status.rollout.failed", "node")]
#[case("status.deletion.blockers", "kind")]
fn lists_merge_by_key(#[case] path: &str, #[case] key: &str) {
    let schema = schema_of(path);

    assert_eq!(schema["x-kubernetes-list-type"], "map");
    assert_eq!(schema["x-kubernetes-list-map-keys"], json!([key]));
}

#[rstest]
#[case("spec.clouds.[].credentialsSecretRef.name")]
#[case("spec.clouds.[].caBundleRef.name")]
#[case("spec.proxy.caBundleRef.name")]
#[case("spec.images.pullSecrets.[].name")]
#[case("spec.storageClasses.items.[].name")]
fn object_names_match_dns_pattern(#[case] path: &str) {
    let pattern = schema_of(path)["pattern"].clone();

    let class = schema_of("spec.storageClasses.items.[].name")["pattern"].clone();
    assert!(pattern.is_string() && pattern == class, "{pattern}");
}

#[test]
fn object_is_cluster_scoped_with_status_subresource() {
    let crd = serde_json::to_value(CinderCSIDriver::crd()).unwrap();

    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["metadata"]["name"], format!("{}.{}", crate::PLURAL, crate::GROUP));
    assert_eq!(crd["spec"]["versions"][0]["name"], crate::VERSION);
    assert_eq!(crd["spec"]["versions"][0]["subresources"]["status"], json!({}));
}
