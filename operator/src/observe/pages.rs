// SPDX-License-Identifier: Apache-2.0
//! Lists objects page by page, in a bounded number of pages.

use std::{fmt::Debug, ops::ControlFlow};

use cinder_operator_core::cluster::{GuardedObject, key_of, unknown_object};
use kube::{Resource, api::ListParams};
use serde::de::DeserializeOwned;

use super::error::{MOST_PAGES, ObserveError, PAGE};
use crate::kubernetes::{GuardedApi, undecodable_error};

/// Returns the sorted names of matching objects on the first page with a match, each with its namespace if it has one.
/// An undecodable object counts as a match, because it may be one.
pub(crate) async fn paged<K>(
    api: &GuardedApi<K>,
    plural: &str,
    is_match: impl Fn(&K) -> bool,
) -> Result<Vec<String>, ObserveError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut names = Vec::new();
    for_each_page(api, plural, |page| {
        names.extend(page.iter().filter_map(|object| match &object.0 {
            Ok(object) => is_match(object).then(|| key_of(object.meta())),
            Err(undecodable) => Some(unknown_object(&undecodable.key())),
        }));
        if names.is_empty() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .await?;
    names.sort();
    Ok(names)
}

/// Passes all objects of a kind to `take`, page by page, until `take` breaks.
pub(crate) async fn for_each_page<K>(
    api: &GuardedApi<K>,
    plural: &str,
    take: impl FnMut(Vec<GuardedObject<K>>) -> ControlFlow<()>,
) -> Result<(), ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    matching_pages(api, plural, ListParams::default(), take).await
}

/// Lists the objects that match the parameters.
pub(crate) async fn list_matching<K>(
    api: &GuardedApi<K>,
    plural: &str,
    params: ListParams,
) -> Result<Vec<GuardedObject<K>>, ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut items = Vec::new();
    matching_pages(api, plural, params, |page| {
        items.extend(page);
        ControlFlow::Continue(())
    })
    .await?;
    Ok(items)
}

async fn matching_pages<K>(
    api: &GuardedApi<K>,
    plural: &str,
    params: ListParams,
    mut take: impl FnMut(Vec<GuardedObject<K>>) -> ControlFlow<()>,
) -> Result<(), ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    for _ in 0..MOST_PAGES {
        let failed = |source| ObserveError::List {
            plural: plural.to_owned(),
            source: Box::new(source),
        };
        let page = api.list_guarded(&params).await.map_err(failed)?;
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        match (take(page.items), next) {
            (ControlFlow::Continue(()), Some(token)) => params = params.continue_token(&token),
            _ => return Ok(()),
        }
    }
    Err(ObserveError::Endless {
        plural: plural.to_owned(),
    })
}

/// Returns the objects of a page. An undecodable object is an error.
pub(crate) fn decoded<K>(page: Vec<GuardedObject<K>>, plural: &str) -> Result<Vec<K>, ObserveError> {
    let decoded = page.into_iter().map(|object| object.0);
    decoded
        .collect::<Result<_, _>>()
        .map_err(|undecodable| ObserveError::List {
            plural: plural.to_owned(),
            source: Box::new(undecodable_error(&undecodable)),
        })
}
