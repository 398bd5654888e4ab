// SPDX-License-Identifier: Apache-2.0
//! What all kinds of things in Cinder have in common: one is shown by its id, all are listed page by page.

use std::fmt;
use std::marker::PhantomData;

use reqwest::Method;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::BlockStorage;
use crate::api::pages::{PageFacts, Pages};
use crate::error::CloudError;
use crate::http::service::MicroVersion;
use crate::http::transport::Answer;

/// A filter of a list: key and value.
pub(super) type Filter = (&'static str, String);

/// A kind of thing that Cinder shows by its id.
pub(super) trait Resource: DeserializeOwned {
    /// The name of the request in metrics.
    const GET: &'static str;
    /// Where they are, in the path of a request.
    const COLLECTION: &'static str;
    /// Its key in a body.
    const KEY: &'static str;

    fn id(&self) -> &str;
}

/// A kind of thing that Cinder lists.
pub(super) trait ListItem: DeserializeOwned {
    /// The name of the request in metrics.
    const LIST: &'static str;
    /// The path of the list.
    const PATH: &'static [&'static str];
    /// Their key in a body.
    const KEY: &'static str;

    /// The marker of the page that comes after it.
    fn marker(&self) -> String;
}

impl BlockStorage<'_> {
    /// One of them; `None`: Cinder does not know it. An answer with another one is an error.
    pub(super) async fn get<R: Resource>(
        &self,
        id: &str,
        version: Option<MicroVersion>,
        query: &[Filter],
    ) -> Result<Option<R>, CloudError> {
        let path = [R::COLLECTION, id];
        let object = format!("{} {id}", in_words(R::KEY));
        let mut request = Self::request(R::GET, Method::GET, &path, object);
        request.version = version;
        request.query.extend_from_slice(query);
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            let found = answer.resource(id, |one: &One<R>| one.0.id())?;
            Ok(Some(found.0))
        }
    }

    /// All that match `filter`, page by page, each as `map` makes of it, which leaves out what it makes nothing of. No more than a
    /// page of whole ones is held. A list is complete or an error.
    pub(super) async fn list<R: ListItem, T>(
        &self,
        version: Option<MicroVersion>,
        filter: &[Filter],
        mut map: impl FnMut(R) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let (mut found, mut pages) = (Vec::new(), Pages::default());
        loop {
            let mut object = in_words(R::KEY);
            if let [(key, value), ..] = filter {
                object = format!("{object} with {key} {value}");
            }
            let mut request = Self::request(R::LIST, Method::GET, R::PATH, object);
            request.version = version;
            request.query.extend_from_slice(filter);
            request
                .query
                .extend(pages.marker().map(|marker| ("marker", marker.to_owned())));
            let answer = self.transport.send(request).await?;
            let (page, has_more) = pages.read(answer, |page: &Page<R>| PageFacts {
                items: page.items.len(),
                has_next: page.more,
                last: page.items.last().map(R::marker),
            })?;
            found.extend(page.items.into_iter().filter_map(&mut map));
            if !has_more {
                return Ok(found);
            }
        }
    }

    /// Asks for the deletion; the answer may be a 404.
    pub(super) async fn remove<R: Resource>(
        &self,
        operation: &'static str,
        id: &str,
        version: Option<MicroVersion>,
    ) -> Result<Answer, CloudError> {
        let path = [R::COLLECTION, id];
        let object = format!("{} {id}", in_words(R::KEY));
        let mut request = Self::request(operation, Method::DELETE, &path, object);
        request.version = version;
        request.may_be_missing = true;
        self.transport.send(request).await
    }
}

/// A key of a body as it stands in errors.
fn in_words(key: &str) -> String {
    key.replace('_', " ")
}

/// The one that an answer holds.
pub(super) fn one<R: Resource>(answer: Answer) -> Result<R, CloudError> {
    answer.json::<One<R>>().map(|one| one.0)
}

/// The id of the one that an answer holds: an answer to a creation may lack the rest.
pub(super) fn id_of<R: Resource>(answer: Answer) -> Result<String, CloudError> {
    one::<Id<R>>(answer).map(|one| one.id)
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct Id<R> {
    id: String,
    #[serde(skip)]
    kind: PhantomData<R>,
}

impl<R: Resource> Resource for Id<R> {
    const GET: &'static str = R::GET;
    const COLLECTION: &'static str = R::COLLECTION;
    const KEY: &'static str = R::KEY;

    fn id(&self) -> &str {
        &self.id
    }
}

struct One<R>(R);

impl<'de, R: Resource> Deserialize<'de> for One<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body<R>(PhantomData<R>);
        impl<'de, R: Resource> Visitor<'de> for Body<R> {
            type Value = R;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an object with {}", R::KEY)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<R, A::Error> {
                let mut found = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == R::KEY {
                        found = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                found.ok_or_else(|| A::Error::missing_field(R::KEY))
            }
        }
        deserializer.deserialize_map(Body(PhantomData)).map(Self)
    }
}

struct Page<R> {
    items: Vec<R>,
    more: bool,
}

impl<'de, R: ListItem> Deserialize<'de> for Page<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Link {
            rel: String,
        }
        struct Body<R>(PhantomData<R>);
        impl<'de, R: ListItem> Visitor<'de> for Body<R> {
            type Value = Page<R>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an object with {}", R::KEY)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page<R>, A::Error> {
                let (mut items, mut more) = (None, false);
                while let Some(key) = map.next_key::<String>()? {
                    if key == R::KEY {
                        items = Some(map.next_value()?);
                    } else if key.ends_with("_links") {
                        // `volumes_links` here, `group_links` there, both for backups.
                        more |= map.next_value::<Vec<Link>>()?.iter().any(|link| link.rel == "next");
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                let items = items.ok_or_else(|| A::Error::missing_field(R::KEY))?;
                Ok(Page { items, more })
            }
        }
        deserializer.deserialize_map(Body(PhantomData))
    }
}
