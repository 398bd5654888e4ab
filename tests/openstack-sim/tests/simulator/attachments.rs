// SPDX-License-Identifier: Apache-2.0
//! Tests of Cinder's attachments.

use openstack_sim::VolumeStatus;
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, NODE, OTHER_NODE};

#[tokio::test]
async fn cinder_refuses_deletion_of_nova_attachment() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    let list = client
        .cinder(Method::GET, &format!("/attachments?volume_id={id}"), Some("3.27"), None)
        .await
        .expect(200);
    let attachment = list.body["attachments"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/attachments/{attachment}");
    let refused = client
        .cinder(Method::DELETE, &path, Some("3.27"), None)
        .await
        .expect(409);
    assert_eq!(
        refused.fault(),
        (
            "conflictingRequest",
            format!("ConflictNovaUsingAttachment: Detach volume from instance {NODE} using the Compute API").as_str()
        )
    );
    // After the deletion of the server, only Cinder can delete the attachment.
    client.sim.remove_server(NODE, true);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "in-use"
    );
    client
        .cinder(Method::DELETE, &path, Some("3.27"), None)
        .await
        .expect(200);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "available"
    );
    client.cinder(Method::GET, &path, Some("3.27"), None).await.expect(404);
}

#[tokio::test]
async fn creator_completes_and_deletes_reservation() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let body = json!({"attachment": {"volume_uuid": id, "instance_uuid": OTHER_NODE}});
    let made = client
        .cinder(Method::POST, "/attachments", Some("3.44"), Some(body))
        .await
        .expect(200);
    assert_eq!(made.body["attachment"]["status"], "reserved");
    let volume = client.get(&format!("/volumes/{id}")).await;
    assert_eq!(volume.body["volume"]["status"], "reserved");
    assert_eq!(
        volume.body["volume"]["attachments"],
        json!([]),
        "only what is attached is shown"
    );
    let path = format!("/attachments/{}", made.body["attachment"]["id"].as_str().unwrap());
    let connector = json!({"attachment": {"connector": {"host": "here"}}});
    client
        .cinder(Method::PUT, &path, Some("3.44"), Some(connector))
        .await
        .expect(200);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "attaching"
    );
    let complete = Some(json!({"os-complete": null}));
    client
        .cinder(Method::POST, &format!("{path}/action"), Some("3.44"), complete)
        .await
        .expect(204);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["attachments"][0]["server_id"],
        OTHER_NODE
    );
    client
        .cinder(Method::DELETE, &path, Some("3.44"), None)
        .await
        .expect(200);
    client.reaches(&id, VolumeStatus::Available).await;
}
