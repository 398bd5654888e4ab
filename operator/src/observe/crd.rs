// SPDX-License-Identifier: Apache-2.0
//! Checks whether the CustomResourceDefinition of the cluster is the one of this version of the operator.
//!
//! `kubectl apply` of a release updates the definition; a chart without definitions does not. With an
//! older definition, the API server silently drops unknown fields: fields that an administrator sets, and parts of the
//! status at each write.

use std::time::Duration;

use cinder_csi_crds::{GROUP, PLURAL, SCHEMA_HASH_ANNOTATION, schema_hash};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client,
    api::{ObjectMeta, PartialObjectMeta},
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{args::VERSION, kubernetes::GuardedApi};

/// Maximum duration of one request.
const LIMIT: Duration = Duration::from_secs(10);

/// Compares the definition. Returns the difference with the remedy; `None` for the definition of this release.
pub(super) fn difference(definition: &ObjectMeta) -> Option<String> {
    let annotations = definition.annotations.as_ref();
    let installed = annotations.and_then(|annotations| annotations.get(SCHEMA_HASH_ANNOTATION));
    let own = schema_hash();
    (installed != Some(&own)).then(|| {
        format!(
            "the CustomResourceDefinition {PLURAL}.{GROUP} is not the one of this operator's version {VERSION} (schema {}, and not {own}): \
             the API server drops fields that it does not know. Apply the definition of this release: kubectl apply --server-side -k \
             config/crd, or helm upgrade with the chart of this release",
            installed.map_or("unknown", String::as_str)
        )
    })
}

/// Reads the definition, and returns whether the result has changed. A failed request has no effect.
pub(super) async fn poll_definition(client: &Client, known: &watch::Sender<Option<String>>) -> bool {
    let api: GuardedApi<PartialObjectMeta<CustomResourceDefinition>> = GuardedApi::all(client.clone());
    let name = format!("{PLURAL}.{GROUP}");
    let answer = tokio::time::timeout(LIMIT, api.get(&name)).await;
    let answer = answer.map_err(|error| error.to_string());
    let current = match answer.and_then(|answer| answer.map_err(|error| error.to_string())) {
        Ok(definition) => difference(&definition.metadata),
        Err(error) => {
            warn!(name, %error, "cannot find out whether the CustomResourceDefinition is the one of this release");
            return false;
        }
    };
    let is_news = known.send_if_modified(|known| std::mem::replace(known, current.clone()) != current);
    match current {
        Some(difference) if is_news => warn!("{difference}"),
        None if is_news => info!(name, "the CustomResourceDefinition is the one of this release"),
        _ => {}
    }
    is_news
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_this_release(Some(schema_hash()), None)]
    #[case::of_another(Some("0123456789abcdef".to_owned()), Some("schema 0123456789abcdef"))]
    #[case::of_before_there_was_a_hash(None, Some("schema unknown"))]
    fn crd_of_other_release_is_reported(#[case] hash: Option<String>, #[case] expected: Option<&str>) {
        let metadata = ObjectMeta {
            annotations: hash.map(|hash| BTreeMap::from([(SCHEMA_HASH_ANNOTATION.to_owned(), hash)])),
            ..ObjectMeta::default()
        };

        let difference = difference(&metadata);

        assert_eq!(difference.is_some(), expected.is_some());
        if let (Some(text), Some(part)) = (difference, expected) {
            assert!(text.contains(part) && text.contains("-k config/crd"), "{text}");
        }
    }
}
