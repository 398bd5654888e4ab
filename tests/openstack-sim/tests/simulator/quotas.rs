// SPDX-License-Identifier: Apache-2.0
//! Tests of quotas and backend capacities.

use openstack_sim::{Pool, Quota, TypeQuota, VolumeStatus, VolumeType};
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, PATIENCE};

#[tokio::test]
async fn type_quotas_apply_in_addition() {
    let client = Client::new(|config| {
        config.volume_types = vec![VolumeType {
            quota: TypeQuota {
                gigabytes: 3,
                ..TypeQuota::default()
            },
            ..VolumeType::new("gold")
        }];
        config.quota.backups = 0;
    })
    .await;
    let id = client.volume("data").await;
    let refused = client.create(json!({"size": 3})).await.expect(413);
    assert_eq!(
        refused.fault().1,
        "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes_gold quota. Requested \
         3G, quota is 3G and 1G has been consumed."
    );
    assert_eq!(refused.header("retry-after"), "0");
    let body = json!({"backup": {"volume_id": id}});
    let refused = client
        .cinder(Method::POST, "/backups", None, Some(body))
        .await
        .expect(413);
    assert_eq!(
        refused.fault().1,
        "BackupLimitExceeded: Maximum number of backups allowed (0) exceeded"
    );
    let project = client.sim.access().project_id.clone();
    let set = client.get(&format!("/os-quota-sets/{project}?usage=true")).await.body;
    assert_eq!(
        set["quota_set"]["gigabytes_gold"],
        json!({"limit": 3, "in_use": 1, "reserved": 0})
    );
    assert_eq!(set["quota_set"]["per_volume_gigabytes"]["limit"], -1);
    let limits = client.get("/limits").await.body["limits"]["absolute"].clone();
    assert_eq!(
        (&limits["totalVolumesUsed"], &limits["maxTotalBackups"]),
        (&json!(1), &json!(0))
    );
}

#[tokio::test]
async fn only_administrators_change_quotas() {
    let mut client = Client::new(|config| {
        config.quota = Quota {
            volumes: 0,
            ..Quota::default()
        }
    })
    .await;
    let path = format!("/os-quota-sets/{}", client.sim.access().project_id);
    let wish = Some(json!({"quota_set": {"volumes": 1, "gigabytes_fast": 5}}));
    client.create(json!({"size": 1})).await.expect(413);
    client.cinder(Method::PUT, &path, None, wish.clone()).await.expect(403);
    client.login_as("admin", "secret-of-admin").await;
    let set = client.cinder(Method::PUT, &path, None, wish).await.expect(200).body;
    assert_eq!(set["quota_set"]["gigabytes_fast"], 5);
    client.create(json!({"size": 1})).await.expect(202);
}

#[tokio::test]
async fn full_backend_refuses_volumes_and_extensions() {
    let mut client = Client::new(|config| config.pools = vec![Pool::new("sim", 4)]).await;
    let id = client.volume("data").await;
    let big = client.create(json!({"size": 4})).await.expect(202);
    let big = big.body["volume"]["id"].as_str().unwrap();
    client.reaches(big, VolumeStatus::Error).await;
    let messages = format!("/messages?resource_uuid={big}");
    let messages = client.cinder(Method::GET, &messages, Some("3.5"), None).await;
    assert_eq!(messages.body["messages"][0]["event_id"], "VOLUME_VOLUME_001_003");
    client.delete(big).await.expect(202);
    let extend = Some(json!({"os-extend": {"new_size": 9}}));
    let path = format!("/volumes/{id}/action");
    client.cinder(Method::POST, &path, None, extend).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    let volume = client.sim.state().volume(&id).unwrap().clone();
    assert_eq!((volume.status, volume.size), (VolumeStatus::Available, 1));

    let pools = "/scheduler-stats/get_pools?detail=true&volume_type=fast";
    let refused = client.cinder(Method::GET, pools, Some("3.35"), None).await.expect(403);
    assert_eq!(
        refused.fault().1,
        "Policy doesn't allow scheduler_extension:scheduler_stats:get_pools to be performed."
    );
    client.get("/os-services").await.expect(403);
    client.login_as("admin", "secret-of-admin").await;
    let pools = client
        .cinder(Method::GET, pools, Some("3.35"), None)
        .await
        .expect(200)
        .body;
    assert_eq!(pools["pools"][0]["name"], "sim@sim#pool0");
    assert_eq!(pools["pools"][0]["capabilities"]["free_capacity_gb"], 3);
    let services = client.get("/os-services?binary=cinder-volume").await.expect(200).body;
    assert_eq!(services["services"][0]["zone"], "nova");
}

#[tokio::test]
async fn setting_lets_members_list_pools() {
    let client = Client::new(|config| config.pools_for_members = true).await;
    let pools = client.get("/scheduler-stats/get_pools").await.expect(200).body;
    assert_eq!(pools, json!({"pools": [{"name": "sim@sim#pool0"}]}));
}
