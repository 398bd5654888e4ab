// SPDX-License-Identifier: Apache-2.0
//! Lists: filters, order, pages and counts, common to all resources of Cinder.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Context;
use crate::api::Fault;
use crate::microversion::Version;
use crate::paging::Page;

/// Value of a column for filters and ordering.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Text(Option<String>),
    Number(u64),
    Time(Option<Timestamp>),
}

impl Column {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// Truncates to whole seconds, which is the resolution of the database.
    pub(super) fn time(time: Option<Timestamp>) -> Self {
        Self::Time(time.and_then(|time| Timestamp::from_second(time.as_second()).ok()))
    }

    fn matches(&self, wanted: &str) -> bool {
        match self {
            Self::Text(text) => text.as_deref() == Some(wanted),
            Self::Number(number) => number.to_string() == wanted,
            Self::Time(time) => Comparison::all(wanted).is_ok_and(|all| all.iter().all(|one| one.holds(*time))),
        }
    }

    fn contains(&self, part: &str) -> bool {
        match self {
            Self::Text(text) => text.as_deref().is_some_and(|text| text.contains(part)),
            other => other.matches(part),
        }
    }
}

/// A resource in lists.
pub(super) trait ListItem {
    /// Whether the id is the last sort key. Otherwise, items with equal keys retain their order.
    const BY_ID: bool = true;
    fn id(&self) -> &str;
    /// Returns the value of a column; `None` for an unknown column.
    fn column(&self, name: &str) -> Option<Column>;
    fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
}

/// Parameters of a list: filters and their microversions, sort columns, and the error for an unknown marker.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) name: &'static str,
    pub(super) filters: &'static [(&'static str, Version)],
    pub(super) no_marker: fn(&str) -> Fault,
}

/// Microversions of the generic filters and of inexact filters.
const GENERIC: Version = Version(3, 31);
const LIKE: Version = Version(3, 34);
const COUNTED: Version = Version(3, 45);

/// A comparison of times such as `gte:2026-01-01T00:00:00`.
struct Comparison {
    operator: String,
    time: Timestamp,
}

impl Comparison {
    fn all(text: &str) -> Result<Vec<Self>, Fault> {
        text.split(',').map(Self::one).collect()
    }

    fn one(text: &str) -> Result<Self, Fault> {
        let (operator, time) = text.split_once(':').unwrap_or((text, text));
        if !["gt", "gte", "eq", "neq", "lt", "lte"].contains(&operator) {
            return Err(Fault::bad_request(format!("Invalid {operator} operator")));
        }
        let time = parse_time(time).ok_or_else(|| Fault::bad_request(format!("Invalid {time} value")))?;
        Ok(Self {
            operator: operator.to_owned(),
            time,
        })
    }

    /// A missing time matches no comparison.
    fn holds(&self, time: Option<Timestamp>) -> bool {
        let Some(time) = time else { return false };
        match self.operator.as_str() {
            "gt" => time > self.time,
            "gte" => time >= self.time,
            "eq" => time == self.time,
            "neq" => time != self.time,
            "lt" => time < self.time,
            _ => time <= self.time,
        }
    }
}

/// Parses an ISO time, in UTC unless it contains an offset.
fn parse_time(text: &str) -> Option<Timestamp> {
    // A `+` in a query decodes to a blank unless it is escaped as %2B.
    let text = text.replace(' ', "+");
    Timestamp::from_str(&text)
        .or_else(|_| Timestamp::from_str(&format!("{text}Z")))
        .ok()
        .or_else(|| {
            let date = jiff::civil::Date::from_str(&text).ok()?;
            Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
        })
}

impl Context<'_> {
    /// Returns the requested part of all items as `{NAME: […], NAME_links: […], count: N}`.
    pub(super) fn list<'a, T: ListItem + 'a>(
        &self,
        rules: &Rules,
        all: impl Iterator<Item = &'a T>,
        view: impl Fn(&T) -> Value,
    ) -> Result<Value, Fault> {
        let page = Page::parse(self.request, self.cloud.settings.page_limit)?;
        let filters = self.filters(rules)?;
        let mut items_found: Vec<&T> = all
            .filter(|item| filters.iter().all(|filter| matches(*item, filter)))
            .collect();
        self.sort(&mut items_found)?;
        let count = items_found.len();
        let shown = page
            .cut(&items_found, |item| item.id())
            .map_err(|marker| (rules.no_marker)(&marker))?;
        let mut body = json!({rules.name: shown.iter().map(|item| view(item)).collect::<Vec<_>>()});
        let last = shown.last().map(|item| item.id());
        if let Some(links) = page.links(self.request, &self.cloud.settings.base_url, shown.len(), last) {
            body[format!("{}_links", rules.name)] = links;
        }
        if self.version >= COUNTED && self.request.param("with_count").is_some_and(is_true) {
            body["count"] = json!(count);
        }
        Ok(body)
    }

    /// Returns the filters of the request. Unknown filters are ignored before 3.31 and refused since.
    fn filters(&self, rules: &Rules) -> Result<Vec<(String, String)>, Fault> {
        let generic = self.version >= GENERIC;
        let like = self.version >= LIKE && self.cloud.settings.like_filters;
        let known = |key: &str| {
            let key = if like {
                key.strip_suffix('~').unwrap_or(key)
            } else {
                key
            };
            let filter = rules.filters.iter().find(|(name, _)| *name == key);
            filter.is_some_and(|(_, since)| generic || self.version >= *since)
        };
        let others = [
            "limit",
            "marker",
            "offset",
            "sort",
            "sort_key",
            "sort_dir",
            "with_count",
            "list_volume",
        ];
        let parameters = self
            .request
            .query
            .iter()
            .filter(|(key, _)| !others.contains(&key.as_str()));
        let (good, bad): (Vec<_>, Vec<_>) = parameters.cloned().partition(|(key, _)| known(key));
        let bad: Vec<_> = bad
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| key != "all_tenants")
            .collect();
        if generic && !bad.is_empty() && !self.token.admin {
            return Err(Fault::bad_request(format!(
                "Invalid filters {} are found in query options.",
                bad.join(",")
            )));
        }
        for (_, value) in good
            .iter()
            .filter(|(key, _)| key == "created_at" || key == "updated_at")
        {
            Comparison::all(value)?;
        }
        Ok(good)
    }

    /// Sorts by `sort=key:dir,…` or `sort_key` and `sort_dir`; by default, the newest item is first.
    fn sort<T: ListItem>(&self, items: &mut [&T]) -> Result<(), Fault> {
        let (sort, key, direction) = (
            self.request.param("sort"),
            self.request.param("sort_key"),
            self.request.param("sort_dir"),
        );
        let keys: Vec<(&str, bool)> = match sort {
            Some(_) if key.is_some() || direction.is_some() => {
                return Err(Fault::bad_request(
                    "The 'sort_key' and 'sort_dir' parameters are deprecated and cannot be used with the 'sort' \
                     parameter.",
                ));
            }
            Some(sort) => sort
                .split(',')
                .map(|part| part.split_once(':').unwrap_or((part, "desc")))
                .map(|(key, direction)| (key, direction == "asc"))
                .collect(),
            None => vec![(key.unwrap_or("created_at"), direction == Some("asc"))],
        };
        let unknown = |key: &str| key != "id" && items.iter().any(|item| item.column(key).is_none());
        if let Some((key, _)) = keys.iter().find(|(key, _)| unknown(key)) {
            return Err(Fault::bad_request(format!(
                "Invalid input received: Sort key is invalid: {key}"
            )));
        }
        items.sort_by(|left, right| {
            let mut order = std::cmp::Ordering::Equal;
            for (key, ascending) in &keys {
                let by_key = if *key == "id" {
                    left.id().cmp(right.id())
                } else {
                    left.column(key).cmp(&right.column(key))
                };
                order = order.then(if *ascending { by_key } else { by_key.reverse() });
            }
            if T::BY_ID {
                order = order.then_with(|| right.id().cmp(left.id()));
            }
            order
        });
        Ok(())
    }
}

pub(super) fn is_true(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "1" | "t" | "true" | "on" | "y" | "yes"
    )
}

fn matches<T: ListItem>(item: &T, (key, value): &(String, String)) -> bool {
    if let Some(key) = key.strip_suffix('~') {
        return item.column(key).is_some_and(|actual| actual.contains(value));
    }
    if key == "metadata" {
        // A Python dictionary, which is JSON except for its quotes.
        let pairs: Option<BTreeMap<String, String>> = serde_json::from_str(&value.replace('\'', "\"")).ok();
        return pairs.is_some_and(|pairs| {
            item.metadata()
                .is_some_and(|metadata| pairs.iter().all(|(key, value)| metadata.get(key) == Some(value)))
        });
    }
    item.column(key).is_some_and(|actual| actual.matches(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_compare_in_seconds_and_utc() {
        let time = Column::time("2026-11-21T10:00:00.9Z".parse().ok());
        for (filter, holds) in [
            ("gte:2026-11-21T10:00:00", true),
            ("gt:2026-11-21T10:00:00", false),
            ("eq:2026-11-21T10:00:00.000000", true),
            ("neq:2026-11-21T10:00:00", false),
            ("gte:2026-11-21T10:00:00Z,lt:2026-11-21T10:00:01Z", true),
            ("lt:2026-11-21T12:00:00+03:00", false),
            ("gt:2026-11-21", true),
            ("lte:2026-11-21T09:59:59", false),
        ] {
            assert_eq!(time.matches(filter), holds, "{filter}");
        }
        assert!(
            !Column::time(None).matches("neq:2026-11-21"),
            "never is not another time"
        );
        for (filter, message) in [
            ("after:2026-11-21", "Invalid after operator"),
            ("gt:yesterday", "Invalid yesterday value"),
        ] {
            assert_eq!(Comparison::all(filter).err().expect(filter).message, message);
        }
    }
}
