// SPDX-License-Identifier: Apache-2.0
//! Tests of snapshots and of volumes from snapshots.

use openstack_sim::{Effect, Fault, SnapshotStatus, VolumeStatus};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, NEVER, NODE, PATIENCE};

async fn snapshot(client: &Client, volume: &str, name: &str) -> String {
    let body = json!({"snapshot": {"volume_id": volume, "name": name, "metadata": {"name": name}}});
    let made = client
        .cinder(Method::POST, "/snapshots", None, Some(body))
        .await
        .expect(202);
    assert_eq!(
        made.body["snapshot"].get("os-extended-snapshot-attributes:progress"),
        None
    );
    made.body["snapshot"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn snapshots_protect_their_volume_and_can_be_cloned() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let body = json!({"snapshot": {"volume_id": id, "name": "s"}});
    let made = client
        .cinder(Method::POST, "/snapshots", None, Some(body))
        .await
        .expect(202);
    assert_eq!(made.body["snapshot"]["status"], "creating");
    let snapshot = made.body["snapshot"]["id"].as_str().unwrap().to_owned();
    assert!(client.sim.settled(PATIENCE).await);
    let held = client.delete(&id).await.expect(400);
    assert!(held.fault().1.contains("have snapshots"), "{}", held.text);
    let copy = client
        .create(json!({"snapshot_id": snapshot, "size": 2}))
        .await
        .expect(202);
    assert_eq!(copy.body["volume"]["snapshot_id"], snapshot.as_str());
    assert_eq!(
        client.get("/snapshots?name=s").await.body["snapshots"][0]["status"],
        "available"
    );
    assert_eq!(client.get("/snapshots?name=none").await.body["snapshots"], json!([]));
    client
        .cinder(Method::DELETE, &format!("/snapshots/{snapshot}"), None, None)
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let missing = client.get(&format!("/snapshots/{snapshot}")).await.expect(404);
    assert_eq!(missing.fault().1, format!("Snapshot {snapshot} could not be found."));
    let backup = client.get("/backups/none").await.expect(404);
    assert_eq!(backup.fault().1, "Backup none could not be found.");
}

#[tokio::test]
async fn lists_snapshots_with_filters_and_pages() {
    let client = Client::new(|_| {}).await;
    let (one, two) = (client.volume("one").await, client.volume("two").await);
    let first = snapshot(&client, &one, "a").await;
    snapshot(&client, &one, "b").await;
    snapshot(&client, &two, "c").await;
    assert!(client.sim.settled(PATIENCE).await);
    let names = |body: &Value| {
        let listed = body["snapshots"].as_array().unwrap().iter();
        listed
            .map(|known| known["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for (query, version, expected) in [
        ("sort=name:asc", None, &["a", "b", "c"][..]),
        ("volume_id=VOLUME&sort=name:desc", None, &["b", "a"]),
        ("metadata={'name': 'c'}", Some("3.22"), &["c"]),
        ("metadata={'name': 'c'}&sort=name:asc", None, &["a", "b", "c"]),
        ("status=error", Some("3.31"), &[]),
        ("sort=name:asc&limit=1&offset=1", None, &["b"]),
    ] {
        let path = format!("/snapshots/detail?{}", query.replace("VOLUME", &one));
        let listed = client.cinder(Method::GET, &path, version, None).await.expect(200);
        assert_eq!(names(&listed.body), expected, "{query}");
    }
    let page = "/snapshots/detail?sort=name:asc&limit=2&with_count=true";
    let page = client
        .cinder(Method::GET, page, Some("3.45"), None)
        .await
        .expect(200)
        .body;
    assert_eq!(page["count"], 3);
    let next = page["snapshots_links"][0]["href"].as_str().unwrap();
    assert!(next.contains("marker="), "{next}");
    let unknown = "/snapshots/detail?volume=x";
    let unknown = client
        .cinder(Method::GET, unknown, Some("3.31"), None)
        .await
        .expect(400);
    assert_eq!(unknown.fault().1, "Invalid filters volume are found in query options.");
    let shown = client.get(&format!("/snapshots/{first}")).await.body;
    assert_eq!(shown["snapshot"]["os-extended-snapshot-attributes:progress"], "100%");
    let path = format!("/snapshots/{first}/metadata");
    let body = Some(json!({"metadata": {"more": "1"}}));
    let merged = client.cinder(Method::POST, &path, None, body).await.expect(200).body;
    assert_eq!(merged["metadata"], json!({"name": "a", "more": "1"}));
}

#[tokio::test]
async fn attached_volume_snapshot_needs_force_before_3_66() {
    let client = Client::new(|config| config.latencies.snapshot = NEVER).await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    for (version, force, status) in [
        (None, None, 400),
        (None, Some(true), 202),
        (Some("3.66"), None, 202),
        (Some("3.66"), Some(true), 202),
        (Some("3.66"), Some(false), 400),
    ] {
        let mut body = json!({"snapshot": {"volume_id": id}});
        if let Some(force) = force {
            body["snapshot"]["force"] = json!(force);
        }
        let answer = client.cinder(Method::POST, "/snapshots", version, Some(body)).await;
        assert_eq!(answer.status, status, "{version:?} {force:?}");
        if status == 202 {
            assert_eq!(answer.body["snapshot"]["status"], "creating");
        }
    }
}

#[tokio::test]
async fn failed_snapshot_has_message_and_can_be_deleted() {
    let client = Client::new(|_| {}).await;
    let volume = client.volume("data").await;
    for operation in ["create_snapshot", "delete_snapshot"] {
        client
            .sim
            .fault(
                Fault::on(operation)
                    .times(1)
                    .effect(Effect::work_fails().message("broken")),
            )
            .unwrap();
    }
    let id = snapshot(&client, &volume, "s").await;
    let path = format!("/snapshots/{id}");
    assert!(client.sim.settled(PATIENCE).await);
    let status = || client.sim.state().snapshot(&id).map(|known| known.status);
    assert_eq!(status(), Some(SnapshotStatus::Error));
    let messages = format!("/messages?resource_uuid={id}");
    let messages = client.cinder(Method::GET, &messages, Some("3.5"), None).await;
    assert_eq!(messages.body["messages"][0]["user_message"], "broken");
    client.create(json!({"snapshot_id": id})).await.expect(400);
    client.cinder(Method::DELETE, &path, None, None).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(status(), Some(SnapshotStatus::ErrorDeleting));
    client.cinder(Method::DELETE, &path, None, None).await.expect(400);
    assert!(client.sim.set_snapshot_status(&id, SnapshotStatus::Error));
    client.cinder(Method::DELETE, &path, None, None).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(status(), None);
}

#[tokio::test]
async fn setting_lets_clones_protect_their_sources() {
    let client = Client::new(|config| config.clones_hold_sources = true).await;
    let volume = client.volume("data").await;
    let id = snapshot(&client, &volume, "s").await;
    assert!(client.sim.settled(PATIENCE).await);
    let copy = client.create(json!({"snapshot_id": id})).await.expect(202);
    let copy = copy.body["volume"]["id"].as_str().unwrap();
    client.reaches(copy, VolumeStatus::Available).await;
    let path = format!("/snapshots/{id}");
    client.cinder(Method::DELETE, &path, None, None).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(client.get(&path).await.body["snapshot"]["status"], "available");
    client.delete(copy).await.expect(202);
    client.is_gone(copy).await;
    client.cinder(Method::DELETE, &path, None, None).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    client.get(&path).await.expect(404);
}
