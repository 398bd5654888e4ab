// SPDX-License-Identifier: Apache-2.0
//! The CustomResourceDefinition.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{conditions::ConditionType, names::SCHEMA_HASH_ANNOTATION, spec::CinderCSIDriver};

/// Fields with a Kubernetes type, whose content `kubectl explain pod.spec.affinity` and others describe. The
/// file without their descriptions is a third as long.
const EXPLAINED_ELSEWHERE: [&str; 5] = ["affinity", "tolerations", "allowedTopologies", "requests", "limits"];

/// Message of the conditions before an operator writes them.
const UNOBSERVED: &str = "no operator has reconciled this object; check that the operator runs";

/// Generates the CustomResourceDefinition of `CinderCSIDriver`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = CinderCSIDriver::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            simplify_schema(schema, true);
            for (part, schema) in schema.properties.iter_mut().flatten() {
                drop_defaults(schema, part == "spec", &[]);
                if part == "status" {
                    mark_unobserved(schema);
                }
            }
        }
    }
    let hash = hash(&serde_json::to_string(&crd.spec).unwrap_or_default());
    crd.annotations_mut().insert(SCHEMA_HASH_ANNOTATION.to_owned(), hash);
    crd
}

/// Value of [`SCHEMA_HASH_ANNOTATION`] in the CustomResourceDefinition of this release.
pub fn schema_hash() -> String {
    crd()
        .annotations_mut()
        .remove(SCHEMA_HASH_ANNOTATION)
        .unwrap_or_default()
}

/// Returns the first 64 bits of the SHA-256 digest, in hexadecimal.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    let bits = digest.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    format!("{bits:016x}")
}

/// Sets the defaults by which the API server marks an unobserved object. Without them, clients of kstatus
/// treat it as ready.
fn mark_unobserved(status: &mut JSONSchemaProps) {
    let generation = status.properties.iter_mut().flatten();
    for (_, generation) in generation.filter(|(name, _)| *name == "observedGeneration") {
        generation.default = Some(JSON(json!(-1)));
    }
    let unknown = |type_: ConditionType| {
        json!({"type": type_.as_str(), "status": "Unknown", "reason": "NotReconciled", "message": UNOBSERVED,
            "lastTransitionTime": "1970-01-01T00:00:00Z"})
    };
    let conditions = [
        ConditionType::Available,
        ConditionType::Progressing,
        ConditionType::Degraded,
    ]
    .map(unknown);
    status.default = Some(JSON(json!({"observedGeneration": -1, "conditions": conditions})));
}

/// Moves the defaults of the schema into the descriptions of the spec. The API server would store schema
/// defaults in objects, and a later default would not apply to them. The code applies the defaults when it
/// reads an object. Only the key of a list retains its default, because the API server requires it.
fn drop_defaults(schema: &mut JSONSchemaProps, is_spec: bool, keys: &[String]) {
    for (name, property) in schema.properties.iter_mut().flatten() {
        let text = match property.default.as_ref() {
            Some(JSON(Value::String(text))) => Some(text.clone()),
            Some(JSON(value @ (Value::Bool(_) | Value::Number(_)))) => Some(value.to_string()),
            _ => None,
        };
        if let (Some(text), Some(description), true) = (text, &mut property.description, is_spec) {
            // Writing to a string cannot fail.
            let _ = write!(description, " Defaults to {text}.");
        }
        if !keys.contains(name) {
            property.default = None;
        }
        drop_defaults(property, is_spec, &[]);
        let keys = property.x_kubernetes_list_map_keys.clone().unwrap_or_default();
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut property.items {
            drop_defaults(items, is_spec, &keys);
        }
    }
}

/// Removes the descriptions inside Kubernetes types, `nullable` (null and absent must not differ), and the
/// number formats of Rust, about which the API server warns.
fn simplify_schema(schema: &mut JSONSchemaProps, explained: bool) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| one_line_per_paragraph(&text));
    schema.format = schema.format.take().filter(|format| !format.starts_with("uint"));
    for (name, property) in schema.properties.iter_mut().flatten() {
        if !explained {
            property.description = None;
        }
        simplify_schema(property, explained && !EXPLAINED_ELSEWHERE.contains(&name.as_str()));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        if !explained {
            items.description = None;
        }
        simplify_schema(items, explained);
    }
}

/// Joins the lines of each paragraph. `kubectl explain` wraps lines itself and would retain ours as well.
fn one_line_per_paragraph(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .collect();
    paragraphs.join("\n\n")
}
