// SPDX-License-Identifier: Apache-2.0
//! Calls that all resources of Cinder have in common: get, list, delete.

use std::fmt;
use std::marker::PhantomData;

use reqwest::Method;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::BlockStorage;
use crate::api::pages::{Item, Listing};
use crate::error::CloudError;
use crate::http::service::MicroVersion;
use crate::http::transport::Answer;
use crate::memory_size::MemorySize;

/// Key and value of a filter.
pub(super) type Filter = (&'static str, String);

/// A resource that Cinder returns by its id.
pub(super) trait Resource: DeserializeOwned {
    /// The name of the request in metrics.
    const GET: &'static str;
    /// The collection in the path of the URL.
    const COLLECTION: &'static str;
    /// The key of the resource in a body.
    const KEY: &'static str;

    fn id(&self) -> &str;
}

/// A resource that Cinder lists.
pub(super) trait ListItem: Item {
    /// The name of the request in metrics.
    const LIST: &'static str;
    /// The path of the list.
    const PATH: &'static [&'static str];
}

impl BlockStorage<'_> {
    /// Gets a resource; `None` when Cinder does not know it. An answer with another id is an error.
    pub(super) async fn get<R: Resource>(
        &self,
        id: &str,
        version: Option<MicroVersion>,
        query: &[Filter],
    ) -> Result<Option<R>, CloudError> {
        let path = [R::COLLECTION, id];
        let object = format!("{} {id}", display_key(R::KEY));
        let mut request = Self::request(R::GET, Method::GET, &path, object);
        request.version = version;
        request.query.extend_from_slice(query);
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            let body = answer.resource(id, |body: &ResourceBody<R>| body.0.id())?;
            Ok(Some(body.0))
        }
    }

    /// Lists all resources that match `filter`, page by page, and returns the results of `map`. Items for which `map`
    /// returns `None` are omitted. One complete resource is in memory at a time. A partial list is an error.
    pub(super) async fn list<R: ListItem, T: MemorySize>(
        &self,
        version: Option<MicroVersion>,
        filter: &[Filter],
        mut map: impl FnMut(R) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let mut listing = Listing::default();
        loop {
            let mut object = display_key(R::KEY);
            if let [(key, value), ..] = filter {
                object = format!("{object} with {key} {value}");
            }
            let mut request = Self::request(R::LIST, Method::GET, R::PATH, object);
            request.version = version;
            request.query.extend_from_slice(filter);
            request
                .query
                .extend(listing.marker().map(|marker| ("marker", marker.to_owned())));
            let answer = self.transport.send(request).await?;
            if !listing.add_page(answer, &mut map)? {
                return Ok(listing.into_results());
            }
        }
    }

    /// Requests the deletion. The answer may be a 404.
    pub(super) async fn remove<R: Resource>(
        &self,
        operation: &'static str,
        id: &str,
        version: Option<MicroVersion>,
    ) -> Result<Answer, CloudError> {
        let path = [R::COLLECTION, id];
        let object = format!("{} {id}", display_key(R::KEY));
        let mut request = Self::request(operation, Method::DELETE, &path, object);
        request.version = version;
        request.may_be_missing = true;
        self.transport.send(request).await
    }
}

/// Formats a key of a body for error messages.
fn display_key(key: &str) -> String {
    key.replace('_', " ")
}

/// Decodes the resource of an answer.
pub(super) fn decode_resource<R: Resource>(answer: Answer) -> Result<R, CloudError> {
    answer.json::<ResourceBody<R>>().map(|body| body.0)
}

/// Decodes the id of the resource of an answer. The answer to a creation may lack the other fields.
pub(super) fn decode_id<R: Resource>(answer: Answer) -> Result<String, CloudError> {
    decode_resource::<ResourceId<R>>(answer).map(|resource| resource.id)
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct ResourceId<R> {
    id: String,
    #[serde(skip)]
    kind: PhantomData<R>,
}

impl<R: Resource> Resource for ResourceId<R> {
    const GET: &'static str = R::GET;
    const COLLECTION: &'static str = R::COLLECTION;
    const KEY: &'static str = R::KEY;

    fn id(&self) -> &str {
        &self.id
    }
}

struct ResourceBody<R>(R);

impl<'de, R: Resource> Deserialize<'de> for ResourceBody<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body<R>(PhantomData<R>);
        impl<'de, R: Resource> Visitor<'de> for Body<R> {
            type Value = R;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an object with {}", R::KEY)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<R, A::Error> {
                let mut resource = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == R::KEY {
                        resource = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                resource.ok_or_else(|| A::Error::missing_field(R::KEY))
            }
        }
        deserializer.deserialize_map(Body(PhantomData)).map(Self)
    }
}
