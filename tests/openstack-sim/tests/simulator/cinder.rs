// SPDX-License-Identifier: Apache-2.0
//! Tests of volumes in Cinder's states and formats.

use openstack_sim::{Effect, Fault, Quota, VolumeStatus, VolumeType};
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, NEVER, NODE};

#[tokio::test]
async fn volume_passes_states_from_creation_to_deletion() {
    let client = Client::new(|config| config.latencies.create = NEVER).await;
    let answer = client
        .create(json!({"name": "data", "size": 2, "metadata": {"a": "b"}}))
        .await
        .expect(202);
    let volume = &answer.body["volume"];
    assert_eq!(volume["status"], "creating");
    assert_eq!(volume["size"], 2);
    assert_eq!(volume["volume_type"], "fast");
    assert_eq!(volume["availability_zone"], "nova");
    assert_eq!(volume["metadata"], json!({"a": "b"}));
    assert_eq!(volume["attachments"], json!([]));
    assert_eq!(volume["bootable"], "false");
    assert_eq!(volume["multiattach"], false);
    assert_eq!(
        volume["created_at"].as_str().unwrap().len(),
        "2026-01-01T00:00:00.000000".len()
    );

    client.latency(|latencies| latencies.delete = NEVER);
    let id = client.volume("other").await;
    client.delete(&id).await.expect(202);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "deleting"
    );
    let again = client.delete(&id).await.expect(400);
    assert!(
        again
            .fault()
            .1
            .starts_with("Invalid volume: Volume status must be available or error"),
        "{}",
        again.text
    );

    client.latency(|_| {});
    let id = client.volume("third").await;
    client.delete(&id).await.expect(202);
    client.is_gone(&id).await;
    let missing = client.get(&format!("/volumes/{id}")).await.expect(404);
    assert_eq!(
        missing.fault(),
        ("itemNotFound", format!("Volume {id} could not be found.").as_str())
    );
}

#[tokio::test]
async fn volume_without_backend_is_deleted_immediately() {
    let client = Client::new(|config| config.latencies.create = NEVER).await;
    let id = client.create(json!({"size": 1})).await.expect(202).body["volume"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    client.delete(&id).await.expect(202);
    client.get(&format!("/volumes/{id}")).await.expect(404);
}

#[tokio::test]
async fn refuses_invalid_requests_with_cinder_messages() {
    let client = Client::new(|config| config.volume_types.push(VolumeType::new("third"))).await;
    for (body, version, status, name, message) in [
        (
            json!({"size": 1, "volume_type": "no"}),
            None,
            404,
            "itemNotFound",
            "Volume type with name no could not be found.",
        ),
        (
            json!({"size": 1, "availability_zone": "mars"}),
            None,
            400,
            "badRequest",
            "Availability zone 'mars' is invalid.",
        ),
        (
            json!({"size": 0}),
            None,
            400,
            "badRequest",
            "Invalid input received: Volume size '0' must be an integer and greater than 0",
        ),
        (
            json!({"size": 1, "nonsense": 1}),
            Some("3.53"),
            400,
            "badRequest",
            "Invalid input for field/attribute volume. Additional properties are not allowed ('nonsense' was unexpected)",
        ),
        (
            json!({"size": 1, "snapshot_id": "no"}),
            None,
            404,
            "itemNotFound",
            "Snapshot no could not be found.",
        ),
        (
            json!({"size": 1, "source_volid": "no"}),
            None,
            404,
            "itemNotFound",
            "Volume no could not be found.",
        ),
    ] {
        let answer = client
            .cinder(Method::POST, "/volumes", version, Some(json!({"volume": body})))
            .await
            .expect(status);
        assert_eq!(answer.fault(), (name, message));
    }
    // Before 3.53, unknown keys are ignored.
    client
        .create(json!({"size": 1, "nonsense": 1, "volume_type": "third"}))
        .await
        .expect(202);
}

#[tokio::test]
async fn exceeded_quota_returns_413_with_usage() {
    let client = Client::new(|config| {
        config.quota = Quota {
            volumes: 2,
            gigabytes: 10,
            snapshots: 5,
            per_volume_gigabytes: 8,
            ..Quota::default()
        };
    })
    .await;
    let big = client.create(json!({"size": 9})).await.expect(413);
    assert_eq!(big.fault().0, "overLimit");
    assert_eq!(
        big.fault().1,
        "VolumeSizeExceedsLimit: Requested volume size 9G is larger than maximum allowed limit 8G."
    );
    client.create(json!({"size": 6})).await.expect(202);
    let full = client.create(json!({"size": 5})).await.expect(413);
    assert_eq!(
        full.fault().1,
        "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota. Requested 5G, quota is 10G and 6G has been consumed."
    );
    assert_eq!(
        (full.header("retry-after"), &full.body["overLimit"]["retryAfter"]),
        ("0", &json!("0"))
    );
    client.create(json!({"size": 1})).await.expect(202);
    let many = client.create(json!({"size": 1})).await.expect(413);
    assert_eq!(
        many.fault().1,
        "VolumeLimitExceeded: Maximum number of volumes allowed (2) exceeded for quota 'volumes'."
    );
    let limits = client.get("/limits").await;
    assert_eq!(limits.body["limits"]["absolute"]["totalGigabytesUsed"], 7);
    let quota = client.get("/os-quota-sets/any?usage=True").await;
    assert_eq!(
        quota.body["quota_set"]["volumes"],
        json!({"limit": 2, "in_use": 2, "reserved": 0})
    );
}

#[tokio::test]
async fn extends_attached_volume_only_since_3_42() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let extend = |size: u64| Some(json!({"os-extend": {"new_size": size}}));
    let action = format!("/volumes/{id}/action");
    let same = client.cinder(Method::POST, &action, None, extend(1)).await.expect(400);
    assert_eq!(
        same.fault().1,
        "Invalid input received: New size for extend must be greater than current size. (current: 1, extended: 1)."
    );
    client.cinder(Method::POST, &action, None, extend(2)).await.expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
    client.attached(NODE, &id).await;
    let refused = client
        .cinder(Method::POST, &action, Some("3.41"), extend(3))
        .await
        .expect(400);
    assert!(
        refused.fault().1.contains("to extend, currently in-use"),
        "{}",
        refused.text
    );
    client
        .cinder(Method::POST, &action, Some("3.42"), extend(3))
        .await
        .expect(202);
    client.reaches(&id, VolumeStatus::InUse).await;
    assert_eq!(client.get(&format!("/volumes/{id}")).await.body["volume"]["size"], 3);
}

#[tokio::test]
async fn microversion_selects_response_fields() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let path = format!("/volumes/{id}");
    for (version, status, message) in [
        (
            "3.72",
            406,
            "Version 3.72 is not supported by the API. Minimum is 3.0 and maximum is 3.71.",
        ),
        (
            "2.0",
            406,
            "Version 2.0 is not supported by the API. Minimum is 3.0 and maximum is 3.71.",
        ),
        (
            "3.x",
            400,
            "API Version String 3.x is of invalid format. Must be of format MajorNum.MinorNum.",
        ),
    ] {
        assert_eq!(
            client
                .cinder(Method::GET, &path, Some(version), None)
                .await
                .expect(status)
                .fault()
                .1,
            message
        );
    }
    for (version, field) in [
        ("3.13", "group_id"),
        ("3.48", "service_uuid"),
        ("3.63", "volume_type_id"),
        ("3.65", "consumes_quota"),
    ] {
        let (_, minor) = version.split_once('.').unwrap();
        let before = format!("3.{}", minor.parse::<u32>().unwrap() - 1);
        let old = client.cinder(Method::GET, &path, Some(&before), None).await.expect(200);
        let new = client.cinder(Method::GET, &path, Some(version), None).await.expect(200);
        assert!(old.body["volume"].get(field).is_none(), "{field} before {version}");
        assert!(new.body["volume"].get(field).is_some(), "{field} since {version}");
        assert_eq!(new.header("openstack-api-version"), format!("volume {version}"));
        assert!(new.header("x-openstack-request-id").starts_with("req-"));
        assert_eq!(new.header("x-openstack-request-id"), new.header("x-compute-request-id"));
    }
    let latest = client
        .cinder(Method::GET, &path, Some("latest"), None)
        .await
        .expect(200);
    assert_eq!(latest.header("openstack-api-version"), "volume 3.71");
    let too_old = client
        .cinder(Method::GET, "/attachments", Some("3.26"), None)
        .await
        .expect(404);
    assert_eq!(too_old.fault().1, "API version 3.26 is not supported on this method.");
}

#[tokio::test]
async fn only_administrators_reset_status() {
    let mut client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let reset = || Some(json!({"os-reset_status": {"status": "error"}}));
    let action = format!("/volumes/{id}/action");
    let refused = client.cinder(Method::POST, &action, None, reset()).await.expect(403);
    assert_eq!(refused.fault().0, "forbidden");
    client.login_as("admin", "secret-of-admin").await;
    client.cinder(Method::POST, &action, None, reset()).await.expect(202);
    assert_eq!(
        client.get(&format!("/volumes/{id}")).await.body["volume"]["status"],
        "error"
    );
    let unknown = client
        .cinder(Method::POST, &action, None, Some(json!({"os-nonsense": {}})))
        .await
        .expect(400);
    assert!(
        unknown.fault().1.starts_with("There is no such action: os-nonsense."),
        "{}",
        unknown.text
    );
}

#[tokio::test]
async fn failed_work_sets_error_status_and_message() {
    let client = Client::new(|_| {}).await;
    let fails = |operation: &str| {
        Fault::on(operation)
            .times(1)
            .effect(Effect::work_fails().message("no space left"))
    };
    client.sim.fault(fails("create_volume")).unwrap();
    let id = client.create(json!({"size": 1})).await.expect(202).body["volume"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    client.reaches(&id, VolumeStatus::Error).await;
    let messages = client
        .cinder(Method::GET, &format!("/messages?resource_uuid={id}"), Some("3.5"), None)
        .await
        .expect(200);
    assert_eq!(messages.body["messages"][0]["user_message"], "no space left");
    assert_eq!(messages.body["messages"][0]["message_level"], "ERROR");
    client.delete(&id).await.expect(202);
    client.is_gone(&id).await;

    let id = client.volume("data").await;
    client.sim.fault(fails("extend_volume")).unwrap();
    let extend = Some(json!({"os-extend": {"new_size": 2}}));
    client
        .cinder(Method::POST, &format!("/volumes/{id}/action"), None, extend)
        .await
        .expect(202);
    client.reaches(&id, VolumeStatus::ErrorExtending).await;
    client.sim.fault(fails("delete_volume")).unwrap();
    client.delete(&id).await.expect(202);
    client.reaches(&id, VolumeStatus::ErrorDeleting).await;
}

#[tokio::test]
async fn metadata_are_merged_replaced_and_deleted() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let path = format!("/volumes/{id}/metadata");
    let send =
        |method: Method, body: serde_json::Value| client.cinder(method, &path, None, Some(json!({"metadata": body})));
    send(Method::POST, json!({"a": "1"})).await.expect(200);
    let merged = send(Method::POST, json!({"b": "2"})).await.expect(200);
    assert_eq!(merged.body["metadata"], json!({"a": "1", "b": "2"}));
    let replaced = send(Method::PUT, json!({"c": "3"})).await.expect(200);
    assert_eq!(replaced.body["metadata"], json!({"c": "3"}));
    client
        .cinder(Method::DELETE, &format!("{path}/c"), None, None)
        .await
        .expect(200);
    let missing = client
        .cinder(Method::DELETE, &format!("{path}/c"), None, None)
        .await
        .expect(404);
    assert_eq!(missing.fault().1, format!("Volume {id} has no metadata with key c."));
}

#[tokio::test]
async fn lists_versions_types_and_zones() {
    let client = Client::new(|config| config.zones.push("far".to_owned())).await;
    let versions = client
        .send(Method::GET, "/volume/", None, None)
        .await
        .unwrap()
        .expect(300);
    assert_eq!(versions.body["versions"][0]["version"], "3.71");
    let root = client
        .send(Method::GET, "/volume/v3/", None, None)
        .await
        .unwrap()
        .expect(200);
    assert_eq!(root.body["versions"][0]["min_version"], "3.0");
    let types = client.get("/types").await.expect(200);
    let names: Vec<_> = types.body["volume_types"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| &kind["name"])
        .collect();
    assert_eq!(names, ["fast", "slow"]);
    let zones = client.get("/os-availability-zone").await.expect(200);
    assert_eq!(
        zones.body["availabilityZoneInfo"],
        json!([{"zoneName": "nova", "zoneState": {"available": true}}, {"zoneName": "far", "zoneState": {"available": true}}])
    );
    // Since 3.67, the project is optional in the path; another project is always refused.
    client
        .send(Method::GET, "/volume/v3/volumes", Some("volume 3.67"), None)
        .await
        .unwrap()
        .expect(200);
    let other = format!("/volume/v3/{}/volumes", "0".repeat(32));
    let refused = client.send(Method::GET, &other, None, None).await.unwrap().expect(400);
    assert_eq!(refused.fault(), ("badRequest", "Malformed request url"));
}
