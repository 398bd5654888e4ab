// SPDX-License-Identifier: Apache-2.0
//! Tests of attachments in Nova and Cinder.

use openstack_sim::{Effect, Fault, VolumeStatus, VolumeType};
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, NEVER, NODE, OK, OTHER_NODE, PATIENCE};

#[tokio::test]
async fn nova_lists_attachment_before_cinder() {
    let client = Client::new(|config| config.latencies.attach = NEVER).await;
    let id = client.volume("data").await;
    let answer = client.attach(NODE, &id).await.expect(OK);
    assert_eq!(
        answer.body,
        json!({"volumeAttachment": {"id": id, "serverId": NODE, "volumeId": id, "device": "/dev/vdb"}})
    );
    let volume = client.get(&format!("/volumes/{id}")).await;
    assert_eq!(volume.body["volume"]["status"], "reserved");
    assert_eq!(volume.body["volume"]["attachments"], json!([]));
    let list = client
        .nova(
            Method::GET,
            &format!("/servers/{NODE}/os-volume_attachments"),
            None,
            None,
        )
        .await;
    assert_eq!(list.body["volumeAttachments"][0]["volumeId"], id.as_str());
    let early = client.detach(NODE, &id).await.expect(400);
    assert!(
        early
            .fault()
            .1
            .starts_with("Invalid volume: Invalid input received: Invalid volume: Unable to detach volume."),
        "{}",
        early.text
    );

    client.latency(|_| {});
    let id = client.volume("other").await;
    client.attached(NODE, &id).await;
    let volume = client.get(&format!("/volumes/{id}")).await;
    let attachment = &volume.body["volume"]["attachments"][0];
    assert_eq!(
        (&attachment["server_id"], &attachment["device"]),
        (&json!(NODE), &json!("/dev/vdc"))
    );
    let server = client
        .nova(Method::GET, &format!("/servers/{NODE}"), None, None)
        .await
        .expect(OK);
    assert_eq!(server.body["server"]["status"], "ACTIVE");
    assert_eq!(
        server.body["server"]["os-extended-volumes:volumes_attached"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn detach_ends_in_cinder_before_nova() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    client.latency(|latencies| latencies.settle = NEVER);
    client.detach(NODE, &id).await.expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
    let path = format!("/servers/{NODE}/os-volume_attachments/{id}");
    client.nova(Method::GET, &path, None, None).await.expect(OK);
    let early = client.attach(OTHER_NODE, &id).await.expect(400);
    assert_eq!(
        early.fault().1,
        format!("Invalid volume: volume {id} is already attached to instances: {NODE}")
    );
}

#[tokio::test]
async fn missing_attachment_is_not_found() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let message = format!("Instance {NODE} is not attached to volume {id}");
    assert_eq!(
        client.detach(NODE, &id).await.expect(404).fault(),
        ("itemNotFound", message.as_str())
    );
    let path = format!("/servers/{NODE}/os-volume_attachments/{id}");
    assert_eq!(
        client.nova(Method::GET, &path, None, None).await.expect(404).fault().1,
        message
    );
    let none = "99999999-9999-4999-8999-999999999999";
    let unknown = client.attach(none, &id).await.expect(404);
    assert_eq!(unknown.fault().1, format!("Instance {none} could not be found."));
    let unknown = client.attach(NODE, none).await.expect(404);
    assert_eq!(unknown.fault().1, format!("Volume {none} could not be found."));
}

#[tokio::test]
async fn attach_error_of_nova_contains_cinder_message() {
    let client = Client::new(|config| config.latencies.create = NEVER).await;
    let id = client.create(json!({"size": 1})).await.body["volume"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let refused = client.attach(NODE, &id).await.expect(400);
    let start = format!(
        "Invalid input received: Invalid volume: Volume {id} status must be available or downloading to reserve, but the current status is creating. (HTTP 400) (Request-ID: req-"
    );
    assert!(refused.fault().1.starts_with(&start), "{}", refused.text);
    let state = client.sim.state();
    assert!(
        state.mappings.is_empty() && state.attachments.is_empty(),
        "nothing is left of it"
    );
}

#[tokio::test]
async fn busy_or_full_server_refuses_attach() {
    let client = Client::new(|config| config.volumes_per_server = 1).await;
    let (first, second) = (client.volume("first").await, client.volume("second").await);
    client.sim.set_server_state(NODE, "active", Some("rebooting"));
    let busy = client.attach(NODE, &first).await.expect(409);
    assert_eq!(
        busy.fault(),
        (
            "conflictingRequest",
            format!("Cannot 'attach_volume' instance {NODE} while it is in task_state rebooting").as_str()
        )
    );
    client.sim.set_server_state(NODE, "error", None);
    let broken = client.attach(NODE, &first).await.expect(409);
    assert_eq!(
        broken.fault().1,
        format!("Cannot 'attach_volume' instance {NODE} while it is in vm_state error")
    );
    client.sim.set_server_state(NODE, "active", None);
    client.attached(NODE, &first).await;
    let full = client.attach(NODE, &second).await.expect(403);
    assert_eq!(
        full.fault().1,
        "The maximum allowed number of disk devices (1) to attach to a single instance has been exceeded."
    );
}

#[tokio::test]
async fn multiattach_to_two_servers_needs_2_60() {
    let client = Client::new(|config| {
        config.volume_types.push(VolumeType {
            multiattach: true,
            ..VolumeType::new("shared")
        });
    })
    .await;
    let made = client
        .create(json!({"size": 1, "volume_type": "shared"}))
        .await
        .expect(202);
    assert_eq!(made.body["volume"]["multiattach"], true);
    let id = made.body["volume"]["id"].as_str().unwrap().to_owned();
    client.reaches(&id, VolumeStatus::Available).await;
    let old = client.attach(NODE, &id).await.expect(400);
    assert_eq!(
        old.fault().1,
        "Multiattach volumes are only supported starting with compute API version 2.60."
    );
    for server in [NODE, OTHER_NODE] {
        let path = format!("/servers/{server}/os-volume_attachments");
        let body = json!({"volumeAttachment": {"volumeId": id}});
        client
            .nova(Method::POST, &path, Some("2.60"), Some(body))
            .await
            .expect(OK);
        client.reaches(&id, VolumeStatus::InUse).await;
    }
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["attachments"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    client.detach(NODE, &id).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let volume = client.get(&format!("/volumes/{id}")).await;
    assert_eq!(volume.body["volume"]["status"], "in-use");
    assert_eq!(volume.body["volume"]["attachments"][0]["server_id"], OTHER_NODE);
}

#[tokio::test]
async fn microversion_selects_attachment_fields() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    let path = format!("/servers/{NODE}/os-volume_attachments/{id}");
    let fields = async |version: &str| {
        let answer = client.nova(Method::GET, &path, Some(version), None).await.expect(OK);
        assert_eq!(answer.header("openstack-api-version"), format!("compute {version}"));
        assert_eq!(answer.header("x-openstack-nova-api-version"), version);
        let attachment = answer.body["volumeAttachment"].as_object().unwrap().clone();
        attachment.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(fields("2.1").await, ["device", "id", "serverId", "volumeId"]);
    assert_eq!(fields("2.70").await, ["device", "id", "serverId", "tag", "volumeId"]);
    assert_eq!(
        fields("2.79").await,
        ["delete_on_termination", "device", "id", "serverId", "tag", "volumeId"]
    );
    assert_eq!(
        fields("2.89").await,
        [
            "attachment_id",
            "bdm_uuid",
            "delete_on_termination",
            "device",
            "serverId",
            "tag",
            "volumeId"
        ]
    );
    let high = client.nova(Method::GET, &path, Some("2.91"), None).await.expect(406);
    assert_eq!(
        high.fault(),
        (
            "computeFault",
            "Version 2.91 is not supported by the API. Minimum is 2.1 and maximum is 2.90."
        )
    );
    let tag = json!({"volumeAttachment": {"volumeId": id, "tag": "x"}});
    let list = format!("/servers/{NODE}/os-volume_attachments");
    let early = client
        .nova(Method::POST, &list, Some("2.48"), Some(tag))
        .await
        .expect(400);
    assert!(early.fault().1.contains("('tag' was unexpected)"), "{}", early.text);
}

#[tokio::test]
async fn failed_attach_and_detach_are_undone() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    client
        .sim
        .fault(Fault::on("attach_volume").times(1).effect(Effect::work_fails()))
        .unwrap();
    client.attach(NODE, &id).await.expect(OK);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "available"
    );
    assert!(client.sim.state().mappings.is_empty());

    client.attached(NODE, &id).await;
    client
        .sim
        .fault(Fault::on("detach_volume").times(1).effect(Effect::work_fails()))
        .unwrap();
    client.detach(NODE, &id).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "in-use"
    );
    client.detach(NODE, &id).await.expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
}

#[tokio::test]
async fn metadata_service_serves_every_server() {
    let client = Client::new(|_| {}).await;
    let path = format!("/metadata/{NODE}/openstack/latest/meta_data.json");
    let document = client.send(Method::GET, &path, None, None).await.unwrap().expect(OK);
    assert_eq!(
        (&document.body["uuid"], &document.body["availability_zone"]),
        (&json!(NODE), &json!("nova"))
    );
    let none = "/metadata/none/openstack/latest/meta_data.json";
    client.send(Method::GET, none, None, None).await.unwrap().expect(404);
}
