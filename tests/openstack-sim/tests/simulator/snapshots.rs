//! Snapshots, and volumes made of them.

use reqwest::Method;
use serde_json::json;

use crate::client::{Client, PATIENCE};

#[tokio::test]
async fn snapshots_hold_their_volume_and_give_new_ones() {
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
    let gone = client.get(&format!("/snapshots/{snapshot}")).await.expect(404);
    assert_eq!(gone.fault().1, format!("Snapshot {snapshot} could not be found."));
    let backup = client.get("/backups/none").await.expect(404);
    assert_eq!(backup.fault().1, "Backup none could not be found.");
}
