// SPDX-License-Identifier: Apache-2.0
//! Pages of lists in Cinder and Nova.

use form_urlencoded::Serializer;
use serde_json::{Value, json};

use crate::api::{Fault, Request};

/// The page parameters of a list call.
#[derive(Debug)]
pub(crate) struct Page {
    limit: usize,
    marker: Option<String>,
    offset: usize,
}

impl Page {
    /// Parses `limit`, `marker` and `offset`.
    pub(crate) fn parse(request: &Request, largest: usize) -> Result<Self, Fault> {
        let limit = match request.param("limit") {
            None => largest,
            Some(text) => match text.parse::<i64>() {
                Err(_) => return Err(Fault::bad_request("limit param must be an integer")),
                Ok(number) => usize::try_from(number)
                    .map_err(|_| Fault::bad_request("limit param must be positive"))?
                    .min(largest),
            },
        };
        let offset = request.param("offset").unwrap_or("0");
        let offset = offset
            .parse()
            .map_err(|_| Fault::bad_request("offset must be an integer"))?;
        Ok(Self {
            limit,
            marker: request.param("marker").map(str::to_owned),
            offset,
        })
    }

    /// Returns the items of this page. Fails with the marker if it is unknown.
    pub(crate) fn cut<'a, T>(&self, all: &'a [T], id: impl Fn(&T) -> &str) -> Result<&'a [T], String> {
        let after = match &self.marker {
            None => 0,
            Some(marker) => {
                1 + all
                    .iter()
                    .position(|item| id(item) == marker)
                    .ok_or_else(|| marker.clone())?
            }
        };
        let start = (after + self.offset).min(all.len());
        let end = start.saturating_add(self.limit).min(all.len());
        Ok(&all[start..end])
    }

    /// Returns the link to the next page. It is present whenever the page is full, even if no item follows.
    pub(crate) fn links(&self, request: &Request, base_url: &str, count: usize, last: Option<&str>) -> Option<Value> {
        let last = last.filter(|_| count >= self.limit)?;
        let mut query = Serializer::new(String::new());
        for (key, value) in request.query.iter().filter(|(key, _)| key != "marker") {
            query.append_pair(key, value);
        }
        query.append_pair("marker", last);
        Some(json!([{"rel": "next", "href": format!("{base_url}{}?{}", request.path, query.finish())}]))
    }
}
