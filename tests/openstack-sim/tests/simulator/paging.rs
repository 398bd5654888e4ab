// SPDX-License-Identifier: Apache-2.0
//! Tests of lists: pages, filters, order.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

fn names(body: &Value) -> Vec<String> {
    body["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_list_every_volume_once() {
    let client = Client::new(|config| config.page_limit = 3).await;
    for number in 0..7 {
        client.volume(&format!("v{number}")).await;
    }
    let mut next = Some(client.volume_path("/volumes/detail"));
    let mut seen = Vec::new();
    let mut pages = 0;
    while let Some(path) = next {
        let page = client.send(Method::GET, &path, None, None).await.unwrap().expect(200);
        seen.extend(names(&page.body));
        pages += 1;
        let link = page.body["volumes_links"][0]["href"].as_str();
        next = link.map(|href| {
            href.strip_prefix(client.sim.base_url())
                .expect("links stay in the cloud")
                .to_owned()
        });
    }
    assert_eq!((seen.len(), pages), (7, 3));
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 7);
}

#[tokio::test]
async fn full_last_page_links_to_empty_page() {
    let client = Client::new(|_| {}).await;
    for name in ["a", "b"] {
        client.volume(name).await;
    }
    let page = client.get("/volumes/detail?limit=2&sort=name:asc").await.expect(200);
    assert_eq!(names(&page.body), ["a", "b"]);
    let link = page.body["volumes_links"][0]["href"].as_str().unwrap();
    assert!(
        link.contains("limit=2") && link.contains("sort=name%3Aasc") && link.contains("marker="),
        "{link}"
    );
    let path = link.strip_prefix(client.sim.base_url()).unwrap();
    let empty = client.send(Method::GET, path, None, None).await.unwrap().expect(200);
    assert_eq!(empty.body, json!({"volumes": []}));
}

#[tokio::test]
async fn page_limit_is_capped_and_validated() {
    let client = Client::new(|config| config.page_limit = 1).await;
    for name in ["a", "b"] {
        client.volume(name).await;
    }
    assert_eq!(names(&client.get("/volumes?limit=50").await.body).len(), 1);
    for (query, message) in [
        ("limit=x", "limit param must be an integer"),
        ("limit=-1", "limit param must be positive"),
    ] {
        let refused = client.get(&format!("/volumes?{query}")).await.expect(400);
        assert_eq!(refused.fault(), ("badRequest", message));
    }
    let lost = client.get("/volumes?marker=gone").await.expect(404);
    assert_eq!(lost.fault().1, "Volume gone could not be found.");
}

#[tokio::test]
async fn unknown_filters_are_refused_since_3_31() {
    let client = Client::new(|_| {}).await;
    for name in ["pvc-1", "pvc-2", "data"] {
        client.volume(name).await;
    }
    let list = async |query: &str, version: &str| {
        client
            .cinder(Method::GET, &format!("/volumes/detail?{query}"), Some(version), None)
            .await
    };
    assert_eq!(names(&list("name=data", "3.0").await.body), ["data"]);
    assert_eq!(
        names(&list("status=available&sort=name:asc", "3.34").await.body),
        ["data", "pvc-1", "pvc-2"]
    );
    assert_eq!(names(&list("status=error", "3.34").await.body).len(), 0);
    assert_eq!(names(&list("metadata={'a':'b'}", "3.34").await.body).len(), 0);
    assert_eq!(
        names(&list("nonsense=1", "3.30").await.body).len(),
        3,
        "passed over before 3.31"
    );
    let refused = list("nonsense=1", "3.31").await.expect(400);
    assert_eq!(
        refused.fault().1,
        "Invalid filters nonsense are found in query options."
    );
    let refused = list("name~=pvc", "3.34").await.expect(400);
    assert_eq!(refused.fault().1, "Invalid filters name~ are found in query options.");
    let counted = list("with_count=true&limit=1", "3.45").await.expect(200);
    assert_eq!(counted.body["count"], 3);
}

#[tokio::test]
async fn inexact_filters_need_3_34_and_setting() {
    let client = Client::new(|config| config.like_filters = true).await;
    for name in ["pvc-1", "pvc-2", "data"] {
        client.volume(name).await;
    }
    let list = async |version: &str| {
        client
            .cinder(Method::GET, "/volumes?name~=pvc", Some(version), None)
            .await
    };
    assert_eq!(names(&list("3.34").await.expect(200).body).len(), 2);
    list("3.33").await.expect(400);
    assert_eq!(names(&list("3.30").await.expect(200).body).len(), 3);
}

#[tokio::test]
async fn filters_volumes_by_update_time() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let changed = client.get(&format!("/volumes/{id}")).await.body["volume"]["updated_at"].clone();
    let changed = changed.as_str().unwrap().to_owned();
    for (filter, found) in [
        (format!("gte:{changed}"), 1),
        (format!("gt:{changed}"), 0),
        (format!("gte:{changed},lte:{changed}"), 1),
        ("lt:2020-01-01T00:00:00".to_owned(), 0),
    ] {
        let path = format!("/volumes/detail?updated_at={filter}");
        let listed = client.cinder(Method::GET, &path, Some("3.60"), None).await.expect(200);
        assert_eq!(listed.body["volumes"].as_array().unwrap().len(), found, "{filter}");
    }
    let path = "/volumes/detail?updated_at=after:2020-01-01";
    let refused = client.cinder(Method::GET, path, Some("3.60"), None).await.expect(400);
    assert_eq!(refused.fault().1, "Invalid after operator");
    // Before 3.31, a filter of a later version is ignored.
    let path = "/volumes/detail?updated_at=lt:2020-01-01";
    let listed = client.cinder(Method::GET, path, Some("3.30"), None).await.expect(200);
    assert_eq!(listed.body["volumes"].as_array().unwrap().len(), 1);
    let both = client.get("/volumes?sort=name:asc&sort_key=name").await.expect(400);
    assert!(both.fault().1.contains("are deprecated"), "{}", both.text);
}
