//! The CustomResourceDefinition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;

use crate::CinderCSIDriver;

/// Fields whose inside is Kubernetes' own and is explained there, as in `kubectl explain pod.spec.affinity`. Without its
/// text the file is a third as long.
const EXPLAINED_ELSEWHERE: [&str; 5] = ["affinity", "tolerations", "allowedTopologies", "requests", "limits"];

/// The CustomResourceDefinition of `CinderCSIDriver`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = CinderCSIDriver::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            tidy(schema, true);
        }
    }
    crd
}

/// Removes what would only be in the way: the descriptions of Kubernetes' own types; `nullable`, because nobody should
/// have to tell null from absent; and Rust's names of number formats, which the API server warns about.
fn tidy(schema: &mut JSONSchemaProps, explained: bool) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| one_line_per_paragraph(&text));
    schema.format = schema.format.take().filter(|format| !format.starts_with("uint"));
    for (name, property) in schema.properties.iter_mut().flatten() {
        if !explained {
            property.description = None;
        }
        tidy(property, explained && !EXPLAINED_ELSEWHERE.contains(&name.as_str()));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        if !explained {
            items.description = None;
        }
        tidy(items, explained);
    }
}

/// `kubectl explain` wraps lines itself and would keep ours as well.
fn one_line_per_paragraph(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .collect();
    paragraphs.join("\n\n")
}
