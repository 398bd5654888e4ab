// SPDX-License-Identifier: Apache-2.0
//! Tests of volume types and retype.

use openstack_sim::{CloudState, Effect, Fault, VolumeStatus, VolumeType};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, NEVER, NODE, PATIENCE};

async fn client() -> Client {
    Client::new(|config| {
        config.volume_types = vec![
            VolumeType::new("fast").spec("secret:key", "1"),
            VolumeType {
                qos_specs_id: Some("q1".to_owned()),
                ..VolumeType::new("limited")
            },
            VolumeType {
                multiattach: true,
                ..VolumeType::new("shared")
            },
            VolumeType::new("far").on_backend("other"),
            VolumeType {
                encrypted: true,
                ..VolumeType::new("locked")
            },
        ];
    })
    .await
}

async fn retype(client: &Client, id: &str, wish: Value) -> Answer {
    let path = format!("/volumes/{id}/action");
    client
        .cinder(Method::POST, &path, None, Some(json!({"os-retype": wish})))
        .await
}

#[tokio::test]
async fn retype_within_backend_changes_type() {
    let client = client().await;
    let id = client.volume("data").await;
    client.latency(|latencies| latencies.retype = NEVER);
    retype(&client, &id, json!({"new_type": "limited"})).await.expect(202);
    assert_eq!(client.sim.state().volume(&id).unwrap().status, VolumeStatus::Retyping);
    let again = retype(&client, &id, json!({"new_type": "limited"})).await.expect(400);
    assert!(
        again
            .fault()
            .1
            .starts_with("Invalid volume: Retype needs volume to be in available"),
        "{}",
        again.text
    );

    client.latency(|_| {});
    let id = client.volume("other").await;
    retype(&client, &id, json!({"new_type": "shared", "migration_policy": "never"}))
        .await
        .expect(202);
    let is_new = |state: &CloudState| state.volume(&id).unwrap().volume_type == "shared";
    assert!(client.sim.wait_until(PATIENCE, is_new).await);
    let shown = client.get(&format!("/volumes/{id}")).await;
    let shown = &shown.body["volume"];
    assert_eq!(
        (&shown["status"], &shown["volume_type"], &shown["multiattach"]),
        (&json!("available"), &json!("shared"), &json!(true))
    );
}

#[tokio::test]
async fn refuses_invalid_retypes() {
    let client = client().await;
    let id = client.volume("data").await;
    retype(&client, &id, json!({"new_type": "fast"})).await.expect(400);
    let unknown = retype(&client, &id, json!({"new_type": "no"})).await.expect(404);
    assert_eq!(unknown.fault().1, "Volume type with name no could not be found.");
    retype(&client, &id, json!({"new_type": "far", "migration_policy": "maybe"}))
        .await
        .expect(400);
    client.attached(NODE, &id).await;
    let shared = retype(&client, &id, json!({"new_type": "shared"})).await.expect(400);
    assert!(
        shared.fault().1.contains("only allowed on available volumes"),
        "{}",
        shared.text
    );
    retype(&client, &id, json!({"new_type": "limited"})).await.expect(400);
}

#[tokio::test]
async fn retype_to_other_backend_needs_migration() {
    let mut client = client().await;
    let id = client.volume("data").await;
    let look = |client: &Client| {
        let state = client.sim.state();
        let volume = state.volume(&id).unwrap().clone();
        (volume.status.to_string(), volume.volume_type, volume.migration_status)
    };
    retype(&client, &id, json!({"new_type": "far"})).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(look(&client), ("available".to_owned(), "fast".to_owned(), None));
    client
        .sim
        .fault(Fault::on("retype_volume").times(1).effect(Effect::work_fails()))
        .unwrap();
    for (status, volume_type) in [("error", "fast"), ("success", "far")] {
        retype(
            &client,
            &id,
            json!({"new_type": "far", "migration_policy": "on-demand"}),
        )
        .await
        .expect(202);
        assert!(client.sim.settled(PATIENCE).await);
        let expected = ("available".to_owned(), volume_type.to_owned(), Some(status.to_owned()));
        assert_eq!(look(&client), expected);
    }
    let path = format!("/volumes/{id}");
    assert_eq!(client.get(&path).await.body["volume"].get("migration_status"), None);
    client.login_as("admin", "secret-of-admin").await;
    assert_eq!(client.get(&path).await.body["volume"]["migration_status"], "success");
}

#[tokio::test]
async fn members_see_only_visible_extra_specs() {
    let mut client = client().await;
    let specs = async |client: &Client| {
        let listed = client.get("/types").await.body;
        let specs: Vec<Value> = listed["volume_types"].as_array().unwrap().clone();
        (
            specs[0]["extra_specs"].clone(),
            specs[2]["extra_specs"].clone(),
            specs[1].get("qos_specs_id").cloned(),
        )
    };
    let shared = json!({"multiattach": "<is> True"});
    assert_eq!(specs(&client).await, (json!({}), shared.clone(), None));
    client.login_as("admin", "secret-of-admin").await;
    assert_eq!(
        specs(&client).await,
        (json!({"secret:key": "1"}), shared, Some(json!("q1")))
    );
}

#[tokio::test]
async fn copy_requires_type_of_same_backend() {
    let client = client().await;
    let wish = json!({"size": 1, "volume_type": "limited"});
    let id = client.create(wish).await.expect(202).body["volume"]["id"].clone();
    client.reaches(id.as_str().unwrap(), VolumeStatus::Available).await;
    let copy = client.create(json!({"source_volid": id})).await.expect(202);
    assert_eq!(copy.body["volume"]["volume_type"], "limited");
    assert_eq!(copy.body["volume"]["source_volid"], id);
    let wrong = client
        .create(json!({"source_volid": id, "volume_type": "far"}))
        .await
        .expect(400);
    assert!(
        wrong.fault().1.contains("requested type is not compatible"),
        "{}",
        wrong.text
    );
    let small = client.create(json!({"source_volid": id, "size": 0})).await.expect(400);
    assert!(small.fault().1.contains("must be an integer"), "{}", small.text);
}

#[tokio::test]
async fn only_migration_changes_volume_encryption() {
    let client = client().await;
    let plain = client.volume("plain").await;
    let made = client.create(json!({"name": "secret", "size": 1, "volume_type": "locked"}));
    assert_eq!(made.await.expect(202).body["volume"]["encrypted"], true);

    for (policy, expected) in [("never", false), ("on-demand", true)] {
        let wish = json!({"new_type": "locked", "migration_policy": policy});
        retype(&client, &plain, wish).await.expect(202);
        let settled = |state: &CloudState| state.volume(&plain).unwrap().status == VolumeStatus::Available;
        assert!(client.sim.wait_until(PATIENCE, settled).await);
        let shown = client.get(&format!("/volumes/{plain}")).await;
        assert_eq!(shown.body["volume"]["encrypted"], expected, "{policy}");
    }
}
