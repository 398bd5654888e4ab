// SPDX-License-Identifier: Apache-2.0
//! Tests of servers in states in which Nova refuses, and of interrupted attachments.

use openstack_sim::{AttachmentStatus, ServerSpec, VolumeStatus, VolumeType};
use reqwest::Method;
use serde_json::json;

use crate::client::{Answer, Client, NODE, OTHER_NODE, PATIENCE};

async fn attach_at(client: &Client, version: &str, volume: &str) -> Answer {
    let path = format!("/servers/{NODE}/os-volume_attachments");
    let body = json!({"volumeAttachment": {"volumeId": volume}});
    client.nova(Method::POST, &path, Some(version), Some(body)).await
}

async fn detach_at(client: &Client, version: &str, volume: &str) -> Answer {
    let path = format!("/servers/{NODE}/os-volume_attachments/{volume}");
    client.nova(Method::DELETE, &path, Some(version), None).await
}

#[tokio::test]
async fn nova_refuses_attach_in_some_server_states() {
    let client = Client::new(|_| {}).await;
    for (vm_state, task_state, shown, refusal) in [
        ("stopped", None, "SHUTOFF", None),
        ("resized", None, "VERIFY_RESIZE", None),
        ("paused", None, "PAUSED", None),
        ("active", Some("migrating"), "MIGRATING", Some("task_state migrating")),
        ("error", None, "ERROR", Some("vm_state error")),
        ("building", None, "BUILD", Some("vm_state building")),
        ("suspended", None, "SUSPENDED", Some("vm_state suspended")),
        ("rescued", None, "RESCUE", Some("vm_state rescued")),
    ] {
        client.sim.set_server_state(NODE, vm_state, task_state);
        let server = client.nova(Method::GET, &format!("/servers/{NODE}"), None, None).await;
        assert_eq!(server.body["server"]["status"], shown);
        let id = client.volume("data").await;
        let Some(why) = refusal else {
            client.attached(NODE, &id).await;
            client.detach(NODE, &id).await.expect(202);
            client.reaches(&id, VolumeStatus::Available).await;
            continue;
        };
        let refused = client.attach(NODE, &id).await.expect(409);
        assert_eq!(
            refused.fault().1,
            format!("Cannot 'attach_volume' instance {NODE} while it is in {why}")
        );
        client.sim.set_server_state(NODE, "active", None);
        client.attached(NODE, &id).await;
        client.sim.set_server_state(NODE, vm_state, task_state);
        let refused = client.detach(NODE, &id).await.expect(409);
        assert_eq!(
            refused.fault().1,
            format!("Cannot 'detach_volume' instance {NODE} while it is in {why}")
        );
    }
}

#[tokio::test]
async fn removed_server_can_be_recreated() {
    let client = Client::new(|_| {}).await;
    let before = client.nova(Method::GET, &format!("/servers/{NODE}"), None, None).await;
    let state = client.send(Method::GET, "/_sim/state", None, None).await.unwrap();
    let servers = state.body["servers"].as_array().unwrap();
    let server = servers.iter().find(|server| server["id"] == NODE).unwrap();
    let path = format!("/_sim/servers/{NODE}");
    client
        .send(Method::DELETE, &path, None, None)
        .await
        .unwrap()
        .expect(204);
    let looked = client.nova(Method::GET, &format!("/servers/{NODE}"), None, None).await;
    looked.expect(404);

    let other = format!("/_sim/servers/{OTHER_NODE}");
    let refused = client.send(Method::PUT, &other, None, Some(server)).await.unwrap();
    refused.expect(400);
    client
        .send(Method::PUT, &path, None, Some(server))
        .await
        .unwrap()
        .expect(204);
    let after = client.nova(Method::GET, &format!("/servers/{NODE}"), None, None).await;
    assert_eq!(after.body, before.body);
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
}

#[tokio::test]
async fn locked_server_refuses_members() {
    let mut client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    assert!(client.sim.set_server_locked(NODE, true));
    let refused = client.attach(NODE, &id).await.expect(409);
    assert_eq!(refused.fault().1, format!("Instance {NODE} is locked"));
    let server = client
        .nova(Method::GET, &format!("/servers/{NODE}"), Some("2.9"), None)
        .await;
    assert_eq!(server.body["server"]["locked"], true);
    client.login_as("admin", "secret-of-admin").await;
    client.attached(NODE, &id).await;
    client.login().await;
    client.detach(NODE, &id).await.expect(409);
}

#[tokio::test]
async fn host_down_blocks_attach_and_detach() {
    let client = Client::new(|_| {}).await;
    let (id, other) = (client.volume("data").await, client.volume("other").await);
    client.attached(NODE, &id).await;
    assert!(client.sim.set_server_down(NODE, true));
    let refused = client.detach(NODE, &id).await.expect(409);
    assert_eq!(refused.fault().1, "Service is unavailable at this time.");
    let refused = client.attach(NODE, &other).await.expect(500);
    assert!(
        refused.fault().1.starts_with("Unexpected API Error."),
        "{}",
        refused.text
    );
    let state = client.sim.state();
    assert_eq!(state.volume(&id).unwrap().status, VolumeStatus::InUse);
    assert_eq!(state.volume(&other).unwrap().status, VolumeStatus::Available);
}

#[tokio::test]
async fn shelved_server_has_attachments_without_connection() {
    let client = Client::new(|config| {
        config.volume_types.push(VolumeType {
            multiattach: true,
            ..VolumeType::new("shared")
        });
    })
    .await;
    let id = client.volume("data").await;
    client.sim.set_server_state(NODE, "shelved_offloaded", None);
    attach_at(&client, "2.19", &id).await.expect(409);
    attach_at(&client, "2.20", &id).await.expect(200);
    let state = client.sim.state();
    assert_eq!(state.volume(&id).unwrap().status, VolumeStatus::InUse);
    assert!(!state.attachments[0].connected);
    detach_at(&client, "2.19", &id).await.expect(409);
    detach_at(&client, "2.20", &id).await.expect(202);
    let state = client.sim.state();
    assert_eq!(state.volume(&id).unwrap().status, VolumeStatus::Available);
    assert!(state.mappings.is_empty());
    let shared = client
        .create(json!({"size": 1, "volume_type": "shared"}))
        .await
        .expect(202);
    let shared = shared.body["volume"]["id"].as_str().unwrap();
    client.reaches(shared, VolumeStatus::Available).await;
    let refused = attach_at(&client, "2.60", shared).await.expect(400);
    assert!(refused.fault().1.contains("shelved-offloaded"), "{}", refused.text);
}

#[tokio::test]
async fn incomplete_attachments_can_be_deleted() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let attachment = client
        .sim
        .add_attachment(&id, Some(OTHER_NODE), AttachmentStatus::Attaching)
        .unwrap();
    assert_eq!(client.sim.state().volume(&id).unwrap().status, VolumeStatus::Attaching);
    let listed = format!("/attachments?volume_id={id}&instance_id={OTHER_NODE}&status=attaching");
    let listed = client
        .cinder(Method::GET, &listed, Some("3.44"), None)
        .await
        .expect(200);
    assert_eq!(listed.body["attachments"][0]["id"], attachment.as_str());
    let path = format!("/attachments/{attachment}");
    client
        .cinder(Method::DELETE, &path, Some("3.44"), None)
        .await
        .expect(200);
    client.reaches(&id, VolumeStatus::Available).await;
    assert!(client.sim.add_mapping(&id, NODE));
    let path = format!("/servers/{NODE}/os-volume_attachments/{id}");
    client.nova(Method::GET, &path, None, None).await.expect(200);
    client.detach(NODE, &id).await.expect(400);
    let refused = client.attach(OTHER_NODE, &id).await.expect(400);
    assert!(
        refused.fault().1.contains("is already attached to instances"),
        "{}",
        refused.text
    );
    client.sim.set_volume_status(&id, VolumeStatus::Error);
    assert!(client.sim.settled(PATIENCE).await);
}

#[tokio::test]
async fn volume_is_reserved_before_server_is_built() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let spec = ServerSpec::new(client.sim.sources().uuid());
    let server = spec.id.clone();
    let attachment = client.sim.reserve(&id, &server).unwrap();
    assert_eq!(client.sim.reserve(&id, NODE), None);
    assert_eq!(client.sim.state().volume(&id).unwrap().status, VolumeStatus::Reserved);
    assert!(!client.sim.build_with(&attachment), "there is no server yet");
    client.sim.add_server(spec.clone());
    client.sim.set_server_state(&server, "building", Some("scheduling"));
    let path = format!("/servers/{server}/os-volume_attachments/{id}");
    client.nova(Method::GET, &path, None, None).await.expect(404);
    assert!(client.sim.build_with(&attachment));
    client.nova(Method::GET, &path, None, None).await.expect(200);
    client.reaches(&id, VolumeStatus::InUse).await;
    client.sim.remove_server(&server, false);
    client.reaches(&id, VolumeStatus::Available).await;

    client.sim.reserve(&id, &server).unwrap();
    client.sim.add_server(spec);
    client.sim.remove_server(&server, false);
    client.reaches(&id, VolumeStatus::Available).await;
    assert!(client.sim.state().attachments.is_empty());
}

#[tokio::test]
async fn nova_has_its_own_zones() {
    let client = Client::new(|config| config.compute_zones = vec!["east".to_owned()]).await;
    let zones = client
        .nova(Method::GET, "/os-availability-zone", None, None)
        .await
        .expect(200);
    assert_eq!(
        zones.body["availabilityZoneInfo"],
        json!([{"zoneName": "east", "zoneState": {"available": true}, "hosts": null}])
    );
    let client = Client::new(|_| {}).await;
    let zones = client.nova(Method::GET, "/os-availability-zone", None, None).await;
    assert_eq!(zones.body["availabilityZoneInfo"][0]["zoneName"], "nova");
}
