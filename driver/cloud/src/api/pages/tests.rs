// SPDX-License-Identifier: Apache-2.0
//! Pages of hostile services and of large projects.

use std::fmt::Write as _;

use serde::Deserialize;

use super::*;
use crate::api::block_storage::{Pool, Snapshot, Volume};
use crate::api::compute::Server;
use crate::context::list_cache::ListedVolume;

fn failure() -> Failure {
    Answer::with_body("volume_list", "").into_failure()
}

fn page(items: usize, last: &str) -> PageFacts {
    PageFacts {
        items,
        has_next: true,
        last: last.to_owned(),
    }
}

/// Follows pages of this size, each with a new marker, until an error, and returns the page number and the error.
fn follow_until_error(items: usize, bytes: usize) -> (usize, String) {
    let mut listing = Listing::<()>::default();
    for number in 0..=MAX_PAGES {
        if let Err(error) = listing.advance(page(items, &number.to_string()), bytes, failure()) {
            assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
            return (number + 1, error.to_string());
        }
    }
    panic!("the list does not end");
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
    assert_eq!(follow_until_error(1, 16 << 20).0, MAX_TRANSFER / (16 << 20) + 1);
}

#[test]
fn rejects_repeated_and_empty_pages() {
    let mut listing = Listing::<()>::default();
    assert!(matches!(listing.advance(page(1, "7"), 1, failure()), Ok(true)));
    assert!(listing.advance(page(1, "7"), 1, failure()).is_err());
    assert!(Listing::<()>::default().advance(page(0, ""), 1, failure()).is_err());
}

#[test]
fn last_page_ends_list() {
    let last = PageFacts {
        has_next: false,
        ..page(0, "")
    };
    assert!(matches!(
        Listing::<()>::default().advance(last, 1, failure()),
        Ok(false)
    ));
}

/// The id of a resource.
fn id(number: usize) -> String {
    format!("11111111-2222-4333-8444-{number:012}")
}

/// A page of `count` items and a link to the next page.
fn body(key: &str, numbers: std::ops::Range<usize>, item: impl Fn(usize) -> String) -> Answer {
    let items = numbers.map(item).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"{key}":[{items}],"{key}_links":[{{"rel":"next","href":"x"}}]}}"#);
    Answer::with_body("volume_list", body)
}

fn metadata(entries: usize, value: &str) -> String {
    let mut text = String::new();
    for number in 0..entries {
        let comma = if number == 0 { "" } else { "," };
        write!(text, r#"{comma}"{number:05}":"{value}""#).expect("a string");
    }
    text
}

fn volume(number: usize, metadata: &str) -> String {
    format!(
        r#"{{"id":"{id}","name":"pvc-{id}","size":1,"status":"in-use","volume_type":"ssd","availability_zone":"nova",
        "created_at":"2026-01-02T03:04:05.000000","description":"Created by a driver","os-vol-tenant-attr:tenant_id":"0123456789abcdef",
        "attachments":[{{"server_id":"{id}","attachment_id":"{id}","device":"/dev/vdb","attached_at":"2026-01-02T03:04:05.000000",
        "host_name":"compute-{number}","volume_id":"{id}"}}],"metadata":{{{metadata}}}}}"#,
        id = id(number)
    )
}

/// Adds pages of 1,000 items until the end or an error, and returns the listing with the error.
fn list<R: Item, T: MemorySize>(
    total: usize,
    item: impl Fn(usize) -> String,
    mut map: impl FnMut(R) -> Option<T>,
) -> (Listing<T>, Option<CloudError>) {
    let mut listing = Listing::default();
    for first in (0..total).step_by(1_000) {
        let answer = body(R::KEY, first..total.min(first + 1_000), &item);
        match listing.add_page(answer, &mut map) {
            Ok(has_more) => assert!(has_more),
            Err(error) => return (listing, Some(error)),
        }
    }
    (listing, None)
}

/// Asserts that the list ended at the limit of memory, and that its results are within it.
fn assert_limited<T: MemorySize>((listing, error): (Listing<T>, Option<CloudError>)) {
    let error = error.expect("an error");
    assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
    let text = error.to_string();
    for expected in [
        "volume_list of volumes",
        "32 MiB of memory",
        "req-1",
        "clean up the project",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let retained: usize = listing.results.iter().map(total_size).sum();
    assert!(retained <= MAX_RETAINED, "{retained} bytes");
    assert!(!listing.results.is_empty());
}

#[test]
fn hostile_pages_stay_within_memory_limit() {
    // In memory, an entry of metadata with few characters is many times as large.
    let short = metadata(10_000, "");
    assert_limited(list(1_000, |number| volume(number, &short), Some::<Volume>));
    let long = metadata(1, &"x".repeat(60_000));
    assert_limited(list(1_000, |number| volume(number, &long), Some::<Volume>));
    // Each page is small, and there are many.
    let few = metadata(100, "x");
    assert_limited(list(MAX_ITEMS, |number| volume(number, &few), Some::<Volume>));
    let server = |_| {
        format!(
            r#"{{"id":"","os-extended-volumes:volumes_attached":[{}]}}"#,
            [r#"{"id":""}"#; 1_000].join(",")
        )
    };
    assert_limited(list(10_000, server, Some::<Server>));
}

#[test]
fn hostile_list_without_pages_stays_within_limit() {
    // Less than the limit of a body.
    let body = format!(r#"{{"pools":[{}]}}"#, vec![r#"{"name":""}"#; 1_000_000].join(","));
    let error = decode_list(Answer::with_body("pool_list", body), Some::<Pool>).expect_err("too large");
    assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
    assert!(error.to_string().contains("pool_list"), "{error}");
}

#[test]
fn large_item_is_not_decoded() {
    let large = metadata(1, &"x".repeat(MAX_ITEM));
    let mut decoded = 0;
    let (listing, error) = list(
        3,
        |number| volume(number, if number == 1 { &large } else { "" }),
        |volume: Volume| {
            decoded += 1;
            Some(volume)
        },
    );
    let error = error.expect("an error");
    assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("item 2 of page 1 is larger than 1048576 bytes"),
        "{error}"
    );
    assert_eq!((decoded, listing.results.len()), (1, 1));
}

#[test]
fn results_alone_count_as_retained() {
    // The pages exceed the limit of memory, and the few results do not.
    let long = metadata(1, &"x".repeat(10_000));
    let (listing, error) = list(
        10_000,
        |number| volume(number, &long),
        |volume: Volume| volume.id.as_str().ends_with("000").then_some(volume.id),
    );
    assert!(error.is_none(), "{error:?}");
    assert_eq!(listing.results.len(), 10);
    assert!(listing.transferred > 2 * MAX_RETAINED && listing.retained < 10_000);
}

#[test]
fn large_projects_are_listed_completely() {
    let entries = metadata(20, &"x".repeat(60));
    let zone: std::sync::Arc<str> = "nova".into();
    let slim = |volume: Volume| Some(ListedVolume::from_volume(&volume, |_| zone.clone()));
    let (volumes, error) = list(10_000, |number| volume(number, &entries), slim);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(volumes.results.len(), 10_000);
    // A list of 100,000 volumes fits, too.
    assert!(volumes.retained * 10 <= MAX_RETAINED, "{} bytes", volumes.retained);

    let entries = metadata(5, &"x".repeat(60));
    let snapshot = |number| {
        format!(
            r#"{{"id":"{id}","name":"snapshot-{id}","volume_id":"{id}","size":1,"status":"available","metadata":{{{entries}}},
            "created_at":"2026-01-02T03:04:05.000000","group_snapshot_id":null}}"#,
            id = id(number)
        )
    };
    let (snapshots, error) = list(10_000, snapshot, Some::<Snapshot>);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(snapshots.results.len(), 10_000);
    assert_eq!(snapshots.results[9_999].id.as_str(), id(9_999));
}

#[derive(Debug, Deserialize)]
struct Thing {
    #[serde(default)]
    id: String,
}

impl Item for Thing {
    const KEY: &'static str = "things";

    fn marker(&self) -> &str {
        &self.id
    }
}

#[test]
fn pages_are_read_in_documented_form_only() {
    let read = |body: &str| {
        let mut listing = Listing::default();
        let more = listing.add_page(Answer::with_body("thing_list", body.to_owned()), &mut |thing: Thing| {
            Some(thing.id)
        });
        (more, listing.into_results())
    };
    let (more, things) =
        read(r#"{"thing_links":[{"rel":"self"},{"rel":"next"}],"other":[1],"things":[{"id":"a"},{}]}"#);
    assert!(matches!(more, Ok(true)) && things == ["a", ""]);
    let (more, things) = read(r#"{"things":[],"thing_links":[{"rel":"self"}]}"#);
    assert!(matches!(more, Ok(false)) && things.is_empty());
    for (body, expected) in [
        (r#"{"thing_links":[]}"#, "missing field `things`"),
        (r#"{"things":[],"things":[]}"#, "duplicate field `things`"),
        (r#"{"things":[{"id":"a"},{"id":7}]}"#, "item 2 of things"),
        (r#"{"things":null}"#, "a list of things"),
        (r#"{"things":[]}{}"#, "trailing characters"),
        (r#"{"things":[{}"#, "EOF"),
    ] {
        let error = read(body).0.expect_err(body);
        assert!(matches!(error, CloudError::Decode(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
