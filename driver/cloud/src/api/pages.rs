// SPDX-License-Identifier: Apache-2.0
//! Limits and markers of a paged list.

use serde::de::DeserializeOwned;

use crate::error::{CloudError, Failure};
use crate::http::transport::Answer;

/// The maximum number of pages in a list.
const MAX_PAGES: usize = 2_000;
/// The maximum number of items in a list. A cluster of 100,000 volumes has at most one project for all of them.
const MAX_ITEMS: usize = 200_000;
/// The maximum size of all pages of a list, in bytes.
const MAX_BYTES: usize = 512 << 20;

/// The counted content of one page and its link to the next one.
#[derive(Debug)]
pub(crate) struct PageFacts {
    pub(crate) items: usize,
    /// Whether the service reports a next page.
    pub(crate) has_next: bool,
    /// The marker of the last item.
    pub(crate) last: Option<String>,
}

/// Counts the pages of a list and determines the marker of the next page.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    count: usize,
    items: usize,
    bytes: usize,
    marker: Option<String>,
}

impl Pages {
    /// The marker of the page to request; `None` for the first page.
    pub(crate) fn marker(&self) -> Option<&str> {
        self.marker.as_deref()
    }

    /// Decodes and counts a page. Also returns whether another page follows. A list is never truncated, because the
    /// driver regards an item that is not listed as deleted.
    pub(crate) fn decode_page<P: DeserializeOwned>(
        &mut self,
        answer: Answer,
        facts: impl FnOnce(&P) -> PageFacts,
    ) -> Result<(P, bool), CloudError> {
        let (bytes, failure) = (answer.size(), answer.failure().clone());
        let page: P = answer.json()?;
        let has_more = self.advance(facts(&page), bytes, failure)?;
        Ok((page, has_more))
    }

    fn advance(&mut self, page: PageFacts, bytes: usize, failure: Failure) -> Result<bool, CloudError> {
        self.count += 1;
        self.items += page.items;
        self.bytes += bytes;
        let incomplete = |fault: String| Err(CloudError::ListIncomplete(Failure { fault, ..failure }));
        if self.items > MAX_ITEMS || self.bytes > MAX_BYTES {
            return incomplete(format!(
                "the list has more than {MAX_ITEMS} items or {} MiB",
                MAX_BYTES >> 20
            ));
        }
        if !page.has_next {
            return Ok(false);
        }
        if self.count >= MAX_PAGES {
            return incomplete(format!("the list does not end within {MAX_PAGES} pages"));
        }
        if page.last.is_none() || page.last == self.marker {
            return incomplete(format!(
                "page {} has a link to a next page, which no new marker leads to",
                self.count
            ));
        }
        self.marker = page.last;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failure() -> Failure {
        Failure {
            operation: "volume_list",
            object: "volumes".to_owned(),
            status: Some(200),
            fault: String::new(),
            request_id: Some("req-1".to_owned()),
            elapsed: Duration::ZERO,
        }
    }

    fn page(items: usize, last: Option<usize>) -> PageFacts {
        PageFacts {
            items,
            has_next: true,
            last: last.map(|number| number.to_string()),
        }
    }

    /// Follows pages of this size, each with a new marker, until an error, and returns the page number and the error.
    fn follow_until_error(items: usize, bytes: usize) -> (usize, String) {
        let mut pages = Pages::default();
        for number in 0..=MAX_PAGES {
            if let Err(error) = pages.advance(page(items, Some(number)), bytes, failure()) {
                assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
                return (number + 1, error.to_string());
            }
        }
        panic!("the list goes on");
    }

    #[test]
    fn rejects_endless_lists() {
        let (pages, error) = follow_until_error(1, 100);
        assert_eq!(pages, MAX_PAGES);
        assert!(
            error.contains("volume_list of volumes") && error.contains("2000 pages"),
            "{error}"
        );
        assert_eq!(follow_until_error(1_000, 100).0, MAX_ITEMS / 1_000 + 1);
        assert_eq!(follow_until_error(1, 16 << 20).0, MAX_BYTES / (16 << 20) + 1);
    }

    #[test]
    fn rejects_repeated_and_empty_pages() {
        let mut pages = Pages::default();
        assert!(matches!(pages.advance(page(1, Some(7)), 1, failure()), Ok(true)));
        assert!(pages.advance(page(1, Some(7)), 1, failure()).is_err());
        assert!(Pages::default().advance(page(0, None), 1, failure()).is_err());
    }

    #[test]
    fn last_page_ends_list() {
        let mut pages = Pages::default();
        let last = PageFacts {
            has_next: false,
            ..page(0, None)
        };
        assert!(matches!(pages.advance(last, 1, failure()), Ok(false)));
    }
}
