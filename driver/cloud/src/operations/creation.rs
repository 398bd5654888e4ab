// SPDX-License-Identifier: Apache-2.0
//! The common parts of the creations of volumes, snapshots and backups.
//!
//! A creation is never repeated blindly. Its name and metadata identify the resource that an earlier attempt created.

use std::collections::BTreeMap;

use tokio::time::sleep;

use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::timing::TIMING;

type Metadata = BTreeMap<String, String>;

/// Whether a request, or an earlier attempt at it, created a resource. The name and all of the requested metadata must
/// match, including the cluster.
pub(super) fn is_from_request(found: (&str, &Metadata), requested: (&str, &Metadata)) -> bool {
    let ((name, metadata), (requested_name, requested_metadata)) = (found, requested);
    name == requested_name
        && !requested_metadata.is_empty()
        && (requested_metadata.iter()).all(|(key, value)| metadata.get(key) == Some(value))
}

/// Searches for a resource by name after an uncertain response to its creation. `find` returns only a resource of this
/// request. Creates nothing: if the name is not found, the caller gets the error, and its next attempt searches for the
/// name first.
pub(super) async fn find_after_uncertain_creation<T, L: Future<Output = Result<Option<T>, CloudError>>>(
    cx: &Context,
    kind: ObjectKind,
    name: &str,
    error: CloudError,
    find: impl Fn() -> L,
) -> Result<T, CloudError> {
    tracing::warn!(%error, %name, "looking for the {kind} by name after an uncertain creation");
    for pause in TIMING.name_lookups {
        sleep(jitter(pause, &cx.options.sources)).await;
        match find().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(lookup) => tracing::warn!(error = %lookup, %name, "the look by name failed"),
        }
    }
    Err(error)
}
