// SPDX-License-Identifier: Apache-2.0
//! Tests of generic volume groups and their snapshots.

use openstack_sim::{Effect, Fault, GroupStatus, SnapshotStatus, VolumeStatus};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, NEVER, PATIENCE};

const VERSION: Option<&str> = Some("3.60");

async fn call(client: &Client, method: Method, path: &str, body: Option<Value>) -> Answer {
    client.cinder(method, path, VERSION, body).await
}

async fn group(client: &Client) -> String {
    let body = json!({"group": {"name": "g", "group_type": "consistent", "volume_types": ["fast"]}});
    let made = call(client, Method::POST, "/groups", Some(body)).await.expect(202);
    assert_eq!(
        made.body["group"].as_object().unwrap().len(),
        2,
        "id and name: {}",
        made.text
    );
    let id = made.body["group"]["id"].as_str().unwrap().to_owned();
    assert!(client.sim.settled(PATIENCE).await);
    id
}

async fn change(client: &Client, id: &str, change: Value) -> Answer {
    let path = format!("/groups/{id}");
    call(client, Method::PUT, &path, Some(json!({"group": change}))).await
}

async fn delete(client: &Client, id: &str, with_volumes: bool) -> Answer {
    let body = json!({"delete": {"delete-volumes": with_volumes}});
    call(client, Method::POST, &format!("/groups/{id}/action"), Some(body)).await
}

#[tokio::test]
async fn adds_and_removes_group_members() {
    let client = Client::new(|_| {}).await;
    let (id, volume) = (group(&client).await, client.volume("data").await);
    change(&client, &id, json!({"add_volumes": volume})).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let path = format!("/groups/{id}?list_volume=true");
    let shown = call(&client, Method::GET, &path, None).await.expect(200);
    assert_eq!(shown.body["group"]["volumes"], json!([volume]));
    assert_eq!(shown.body["group"]["status"], "available");
    let shown = call(&client, Method::GET, &format!("/volumes/{volume}"), None).await;
    assert_eq!(shown.body["volume"]["group_id"], id.as_str());
    client.delete(&volume).await.expect(400);
    let held = delete(&client, &id, false).await.expect(400);
    assert_eq!(
        held.fault().1,
        format!("Invalid Group: Group {id} still contains volumes. The delete-volumes flag is required to delete it.")
    );
    change(&client, &id, json!({"remove_volumes": volume}))
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    delete(&client, &id, false).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let missing = call(&client, Method::GET, &format!("/groups/{id}"), None)
        .await
        .expect(404);
    assert_eq!(missing.fault().1, format!("Group {id} could not be found."));
    client.delete(&volume).await.expect(202);
    client.is_gone(&volume).await;
}

#[tokio::test]
async fn group_is_deleted_with_its_volumes() {
    let client = Client::new(|_| {}).await;
    let (id, volume) = (group(&client).await, client.volume("data").await);
    change(&client, &id, json!({"add_volumes": volume})).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    delete(&client, &id, true).await.expect(202);
    client.is_gone(&volume).await;
    assert!(client.sim.settled(PATIENCE).await);
    assert!(client.sim.state().groups.is_empty());
}

#[tokio::test]
async fn refuses_invalid_group_changes() {
    let client = Client::new(|_| {}).await;
    let (id, volume) = (group(&client).await, client.volume("data").await);
    let slow = client
        .create(json!({"size": 1, "volume_type": "slow"}))
        .await
        .expect(202);
    let slow = slow.body["volume"]["id"].as_str().unwrap();
    client.reaches(slow, VolumeStatus::Available).await;
    for (wish, reason) in [
        (json!({"add_volumes": "none"}), "volume cannot be found."),
        (json!({"add_volumes": slow}), "is not supported by the group."),
        (json!({"remove_volumes": volume}), "because it is not in the group."),
        (
            json!({"add_volumes": volume, "remove_volumes": volume}),
            "in both add and remove volume list.",
        ),
        (
            json!({"name": "g"}),
            "no valid name, description, add_volumes, or remove_volumes",
        ),
    ] {
        let refused = change(&client, &id, wish).await.expect(400);
        assert!(refused.fault().1.contains(reason), "{}", refused.text);
    }
    client.sim.set_volume_status(&volume, VolumeStatus::Error);
    let refused = change(&client, &id, json!({"add_volumes": volume})).await.expect(400);
    assert!(refused.fault().1.contains("invalid state: error."), "{}", refused.text);
    change(&client, &id, json!({"name": "h"})).await.expect(202);
    let old = client
        .cinder(Method::GET, "/groups", Some("3.12"), None)
        .await
        .expect(404);
    assert_eq!(old.fault().1, "API version 3.12 is not supported on this method.");
}

#[tokio::test]
async fn group_snapshot_contains_and_protects_all_members() {
    let client = Client::new(|_| {}).await;
    let (id, one, two) = (
        group(&client).await,
        client.volume("one").await,
        client.volume("two").await,
    );
    change(&client, &id, json!({"add_volumes": format!("{one},{two}")}))
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    client.latency(|latencies| latencies.snapshot = NEVER);
    let body = json!({"group_snapshot": {"group_id": id, "name": "gs"}});
    let made = call(&client, Method::POST, "/group_snapshots", Some(body.clone()))
        .await
        .expect(202);
    let stuck = made.body["group_snapshot"]["id"].as_str().unwrap();
    let members = |id: &str| {
        let state = client.sim.state();
        let ours = state.snapshots.into_iter();
        ours.filter(|snapshot| snapshot.group_snapshot_id.as_deref() == Some(id))
            .collect::<Vec<_>>()
    };
    assert_eq!(members(stuck).len(), 2, "there at once");
    assert!(
        members(stuck)
            .iter()
            .all(|snapshot| snapshot.status == SnapshotStatus::Creating)
    );

    client.latency(|_| {});
    let made = call(&client, Method::POST, "/group_snapshots", Some(body))
        .await
        .expect(202);
    let snapshot = made.body["group_snapshot"]["id"].as_str().unwrap();
    let is_so = |state: &openstack_sim::CloudState| {
        state
            .group_snapshot(snapshot)
            .is_some_and(|known| known.status == GroupStatus::Available)
    };
    assert!(client.sim.wait_until(PATIENCE, is_so).await);
    let path = format!("/group_snapshots/{snapshot}");
    let shown = call(&client, Method::GET, &path, None).await;
    assert_eq!(shown.body["group_snapshot"]["group_id"], id.as_str());
    let member = members(snapshot)[0].id.clone();
    let shown = call(&client, Method::GET, &format!("/snapshots/{member}"), None).await;
    assert_eq!(shown.body["snapshot"]["group_snapshot_id"], snapshot);
    assert_eq!(shown.body["snapshot"]["name"], "gs");
    call(&client, Method::DELETE, &format!("/snapshots/{member}"), None)
        .await
        .expect(400);
    let held = delete(&client, &id, true).await.expect(400);
    assert_eq!(held.fault().1, "Invalid Group: Group has existing snapshots.");
    call(&client, Method::DELETE, &path, None).await.expect(202);
    let is_gone = |state: &openstack_sim::CloudState| state.group_snapshot(snapshot).is_none();
    assert!(client.sim.wait_until(PATIENCE, is_gone).await);
    assert!(members(snapshot).is_empty());
}

#[tokio::test]
async fn fault_rule_fails_group_and_group_snapshot() {
    let client = Client::new(|_| {}).await;
    for operation in ["create_group", "create_group_snapshot"] {
        client
            .sim
            .fault(Fault::on(operation).times(1).effect(Effect::work_fails()))
            .unwrap();
    }
    let failed = group(&client).await;
    assert_eq!(client.sim.state().group(&failed).unwrap().status, GroupStatus::Error);
    let (id, volume) = (group(&client).await, client.volume("data").await);
    change(&client, &id, json!({"add_volumes": volume})).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let body = json!({"group_snapshot": {"group_id": id}});
    let made = call(&client, Method::POST, "/group_snapshots", Some(body))
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let state = client.sim.state();
    let snapshot = state.group_snapshot(made.body["group_snapshot"]["id"].as_str().unwrap());
    assert_eq!(snapshot.unwrap().status, GroupStatus::Error);
    assert_eq!(state.snapshots[0].status, SnapshotStatus::Error);
}

#[tokio::test]
async fn only_administrators_see_group_specs() {
    let mut client = Client::new(|_| {}).await;
    let look = async |client: &Client| call(client, Method::GET, "/group_types", None).await.expect(200).body;
    let seen = look(&client).await;
    assert_eq!(seen["group_types"][0]["name"], "consistent");
    assert_eq!(seen["group_types"][0].get("group_specs"), None);
    client.login_as("admin", "secret-of-admin").await;
    assert_eq!(
        look(&client).await["group_types"][0]["group_specs"],
        json!({"consistent_group_snapshot_enabled": "<is> True"})
    );
}
