// SPDX-License-Identifier: Apache-2.0
//! Reads lists item by item, with limits on their pages, items and memory.
//!
//! The body of one page and one decoded item are in memory at a time, and the results that a caller retains.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{CloudError, Failure};
use crate::http::transport::Answer;
use crate::memory_size::{MemorySize, total_size};

/// The maximum number of pages in a list.
const MAX_PAGES: usize = 2_000;
/// The maximum number of items in a list. A cluster of 100,000 volumes has at most one project for all of them.
const MAX_ITEMS: usize = 200_000;
/// The maximum size of all responses of a list, in bytes. Only one of them is in memory at a time.
const MAX_TRANSFER: usize = 512 << 20;
/// The maximum size of one item in a response, in bytes. It is that of a response with this item alone.
const MAX_ITEM: usize = 1 << 20;
/// The maximum size of the results that a list retains, in bytes. A list of 100,000 attached volumes needs 24 MiB, and
/// the container of the controller has 128 MiB by default.
const MAX_RETAINED: usize = 32 << 20;

/// An item of a list.
pub(crate) trait Item: DeserializeOwned {
    /// The key of the list in a body.
    const KEY: &'static str;

    /// The marker of the page that follows this item; empty for lists without pages.
    #[expect(clippy::unnecessary_literal_bound, reason = "other items have theirs in a field")]
    fn marker(&self) -> &str {
        ""
    }
}

/// The counted content of one page and its link to the next one.
#[derive(Debug, Default)]
struct PageFacts {
    items: usize,
    /// Whether the service reports a next page.
    has_next: bool,
    /// The marker of the last item.
    last: String,
}

/// The results of a list, page by page.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    results: Vec<T>,
    pages: usize,
    items: usize,
    transferred: usize,
    retained: usize,
    marker: Option<String>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            results: Vec::new(),
            pages: 0,
            items: 0,
            transferred: 0,
            retained: 0,
            marker: None,
        }
    }
}

/// Decodes a list without pages, and returns the results of `map`. Items for which `map` returns `None` are omitted.
pub(crate) fn decode_list<R: Item, T: MemorySize>(
    answer: Answer,
    mut map: impl FnMut(R) -> Option<T>,
) -> Result<Vec<T>, CloudError> {
    let mut listing = Listing::default();
    listing.decode(answer, &mut map)?;
    Ok(listing.results)
}

impl<T: MemorySize> Listing<T> {
    /// The marker of the page to request; `None` for the first page.
    pub(crate) fn marker(&self) -> Option<&str> {
        self.marker.as_deref()
    }

    pub(crate) fn into_results(self) -> Vec<T> {
        self.results
    }

    /// Decodes a page, and adds the results of `map`. Items for which `map` returns `None` are omitted. Returns whether
    /// another page follows. A list is never truncated, because the driver regards an item that is not listed as
    /// deleted.
    pub(crate) fn add_page<R: Item>(
        &mut self,
        answer: Answer,
        map: &mut impl FnMut(R) -> Option<T>,
    ) -> Result<bool, CloudError> {
        let (bytes, failure) = (answer.size(), answer.failure().clone());
        let page = self.decode(answer, map)?;
        self.advance(page, bytes, failure)
    }

    fn decode<R: Item>(
        &mut self,
        answer: Answer,
        map: &mut impl FnMut(R) -> Option<T>,
    ) -> Result<PageFacts, CloudError> {
        let mut page = PageReader {
            listing: self,
            map,
            facts: PageFacts::default(),
            exceeded: None,
            kind: PhantomData,
        };
        let decoded = answer.decode_with(&mut page);
        match page.exceeded {
            Some(limit) => Err(incomplete(answer.into_failure(), limit)),
            None => decoded.map(|()| page.facts),
        }
    }

    fn advance(&mut self, page: PageFacts, bytes: usize, failure: Failure) -> Result<bool, CloudError> {
        self.pages += 1;
        self.items += page.items;
        self.transferred += bytes;
        if self.items > MAX_ITEMS || self.transferred > MAX_TRANSFER {
            let limit = format!("the list has more than {MAX_ITEMS} items or {} MiB", MAX_TRANSFER >> 20);
            return Err(incomplete(failure, limit));
        }
        if !page.has_next {
            return Ok(false);
        }
        if self.pages >= MAX_PAGES {
            let limit = format!("the list does not end within {MAX_PAGES} pages");
            return Err(incomplete(failure, limit));
        }
        if page.items == 0 || self.marker.as_ref() == Some(&page.last) {
            let fault = format!(
                "page {} has a link to a next page, which no new marker leads to",
                self.pages
            );
            return Err(incomplete(failure, fault));
        }
        self.marker = Some(page.last);
        Ok(true)
    }
}

fn incomplete(failure: Failure, fault: String) -> CloudError {
    CloudError::ListIncomplete(Failure { fault, ..failure })
}

/// Decodes a page into a list.
struct PageReader<'l, R, T, F> {
    listing: &'l mut Listing<T>,
    map: &'l mut F,
    facts: PageFacts,
    /// The limit that the page exceeds.
    exceeded: Option<String>,
    kind: PhantomData<R>,
}

impl<R: Item, T: MemorySize, F: FnMut(R) -> Option<T>> PageReader<'_, R, T, F> {
    fn add<E: Error>(&mut self, item: &RawValue) -> Result<(), E> {
        self.facts.items += 1;
        let number = self.facts.items;
        if item.get().len() > MAX_ITEM {
            let page = self.listing.pages + 1;
            return Err(self.refuse(format!("item {number} of page {page} is larger than {MAX_ITEM} bytes")));
        }
        let item: R = serde_json::from_str(item.get())
            .map_err(|error| E::custom(format_args!("item {number} of {}: {error}", R::KEY)))?;
        self.facts.last.clear();
        self.facts.last.push_str(item.marker());
        if let Some(result) = (self.map)(item) {
            self.listing.retained += total_size(&result);
            if self.listing.retained > MAX_RETAINED {
                let limit = format!(
                    "the items of the list need more than {} MiB of memory",
                    MAX_RETAINED >> 20
                );
                return Err(self.refuse(limit));
            }
            self.listing.results.push(result);
        }
        Ok(())
    }

    /// Records the limit, which the error of a deserializer cannot contain.
    fn refuse<E: Error>(&mut self, limit: String) -> E {
        E::custom(&*self.exceeded.insert(limit))
    }
}

impl<'de, R: Item, T: MemorySize, F: FnMut(R) -> Option<T>> DeserializeSeed<'de> for &mut PageReader<'_, R, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: Item, T: MemorySize, F: FnMut(R) -> Option<T>> Visitor<'de> for &mut PageReader<'_, R, T, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object with {}", R::KEY)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_items = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == R::KEY {
                if has_items {
                    return Err(A::Error::duplicate_field(R::KEY));
                }
                has_items = true;
                map.next_value_seed(Items(&mut *self))?;
            } else if key.ends_with("_links") {
                // The key is `volumes_links` for volumes and `group_links` for groups; backups have both.
                map.next_value_seed(Links(&mut self.facts.has_next))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if has_items {
            Ok(())
        } else {
            Err(A::Error::missing_field(R::KEY))
        }
    }
}

/// The items of a page.
struct Items<'p, P>(&'p mut P);

impl<'de, R: Item, T: MemorySize, F: FnMut(R) -> Option<T>> DeserializeSeed<'de>
    for Items<'_, PageReader<'_, R, T, F>>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, R: Item, T: MemorySize, F: FnMut(R) -> Option<T>> Visitor<'de> for Items<'_, PageReader<'_, R, T, F>> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of {}", R::KEY)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.0.add(item)?;
        }
        Ok(())
    }
}

/// The links of a page, of which one may lead to the next page.
struct Links<'p>(&'p mut bool);

#[derive(Deserialize)]
struct Link {
    rel: String,
}

impl<'de> DeserializeSeed<'de> for Links<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Links<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of links")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut links: A) -> Result<(), A::Error> {
        while let Some(link) = links.next_element::<Link>()? {
            *self.0 |= link.rel == "next";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
