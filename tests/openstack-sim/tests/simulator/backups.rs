// SPDX-License-Identifier: Apache-2.0
//! Tests of backups, incremental backups, and volumes from backups.

use std::io::{Read as _, Write as _};

use openstack_sim::{BackupStatus, Effect, Fault, VolumeStatus};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, NEVER, NODE, PATIENCE};

async fn backup(client: &Client, body: Value) -> String {
    let body = Some(json!({"backup": body}));
    let made = client
        .cinder(Method::POST, "/backups", Some("3.43"), body)
        .await
        .expect(202);
    made.body["backup"]["id"].as_str().unwrap().to_owned()
}

async fn refused(client: &Client, body: Value) -> String {
    let body = Some(json!({"backup": body}));
    let answer = client
        .cinder(Method::POST, "/backups", Some("3.43"), body)
        .await
        .expect(400);
    answer.fault().1.to_owned()
}

#[tokio::test]
async fn volume_is_backing_up_during_backup() {
    let client = Client::new(|config| config.latencies.backup = NEVER).await;
    let volume = client.volume("data").await;
    let id = backup(
        &client,
        json!({"volume_id": volume, "name": "b", "container": "box", "metadata": {"a": "b"}}),
    )
    .await;
    assert_eq!(
        client.sim.state().volume(&volume).unwrap().status,
        VolumeStatus::BackingUp
    );
    let path = format!("/backups/{id}");
    let shown = client.cinder(Method::GET, &path, Some("3.43"), None).await.expect(200);
    assert_eq!(shown.body["backup"]["status"], "creating");
    let busy = refused(&client, json!({"volume_id": volume})).await;
    assert_eq!(
        busy,
        "Invalid volume: Volume to be backed up must be available or in-use, but the current status is \"backing-up\"."
    );

    client.latency(|_| {});
    let volume = client.volume("other").await;
    let id = backup(
        &client,
        json!({"volume_id": volume, "name": "b2", "container": "box", "metadata": {"a": "b"}}),
    )
    .await;
    assert!(
        client
            .sim
            .wait_until(PATIENCE, |state| state.backup(&id).unwrap().status
                == BackupStatus::Available)
            .await
    );
    client.reaches(&volume, VolumeStatus::Available).await;
    let path = format!("/backups/{id}");
    let shown = &client.cinder(Method::GET, &path, Some("3.43"), None).await.body["backup"];
    for (key, value) in [
        ("container", json!("box")),
        ("metadata", json!({"a": "b"})),
        ("is_incremental", json!(false)),
        ("has_dependent_backups", json!(false)),
        ("size", json!(1)),
        ("volume_id", json!(volume)),
        ("fail_reason", Value::Null),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    let listed = client.get("/backups/detail?name=b2&status=available").await;
    assert_eq!(listed.body["backups"][0]["id"], id.as_str());
    assert_eq!(client.get("/backups/detail?name=none").await.body["backups"], json!([]));
    let summary = client.get("/backups?name=b2").await;
    assert_eq!(summary.body["backups"][0].get("status"), None);
    let unknown = client
        .cinder(Method::GET, "/backups/detail?colour=red", Some("3.31"), None)
        .await
        .expect(400);
    assert_eq!(unknown.fault().1, "Invalid filters colour are found in query options.");
}

#[tokio::test]
async fn backup_chain_is_deleted_from_its_end() {
    let client = Client::new(|_| {}).await;
    let volume = client.volume("data").await;
    assert_eq!(
        refused(&client, json!({"volume_id": volume, "incremental": true})).await,
        "Invalid backup: No backups available to do an incremental backup."
    );
    let full = backup(&client, json!({"volume_id": volume})).await;
    assert!(client.sim.settled(PATIENCE).await);
    let delta = backup(&client, json!({"volume_id": volume, "incremental": true})).await;
    assert!(client.sim.settled(PATIENCE).await);
    let shown = client.get(&format!("/backups/{full}")).await;
    assert_eq!(shown.body["backup"]["has_dependent_backups"], true);
    let shown = client.get(&format!("/backups/{delta}")).await;
    assert_eq!(shown.body["backup"]["is_incremental"], true);
    let delete = async |id: &str| {
        client
            .cinder(Method::DELETE, &format!("/backups/{id}"), None, None)
            .await
    };
    let held = delete(&full).await.expect(400);
    assert_eq!(
        held.fault().1,
        "Invalid backup: Incremental backups exist for this backup."
    );
    for id in [&delta, &full] {
        delete(id).await.expect(202);
        assert!(client.sim.settled(PATIENCE).await);
        client.get(&format!("/backups/{id}")).await.expect(404);
    }
}

#[tokio::test]
async fn backup_of_attached_volume_needs_force() {
    let client = Client::new(|_| {}).await;
    let volume = client.volume("data").await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = client
        .cinder(Method::POST, "/snapshots", None, Some(body))
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    client.attached(NODE, &volume).await;
    assert_eq!(
        refused(&client, json!({"volume_id": volume})).await,
        "Invalid volume: Backing up an in-use volume must use the force flag."
    );
    backup(&client, json!({"volume_id": volume, "force": true})).await;
    client.reaches(&volume, VolumeStatus::InUse).await;
    let snapshot = snapshot.body["snapshot"]["id"].clone();
    let id = backup(&client, json!({"volume_id": volume, "snapshot_id": snapshot})).await;
    assert!(client.sim.settled(PATIENCE).await);
    let state = client.sim.state();
    assert_eq!(state.backup(&id).unwrap().status, BackupStatus::Available);
    assert_eq!(
        state.snapshot(snapshot.as_str().unwrap()).unwrap().status.as_str(),
        "available"
    );
}

#[tokio::test]
async fn creates_volume_from_backup() {
    let client = Client::new(|_| {}).await;
    let volume = client.volume("data").await;
    let metadata = Some(json!({"metadata": {"own": "1"}}));
    client
        .cinder(Method::POST, &format!("/volumes/{volume}/metadata"), None, metadata)
        .await
        .expect(200);
    let id = backup(&client, json!({"volume_id": volume})).await;
    assert!(client.sim.settled(PATIENCE).await);
    let wish = json!({"volume": {"backup_id": id, "size": 2, "metadata": {"wished": "1"}}});
    let create = async |wish| client.cinder(Method::POST, "/volumes", Some("3.47"), Some(wish)).await;
    let made = create(wish).await.expect(202);
    let restored = made.body["volume"]["id"].as_str().unwrap();
    client.reaches(restored, VolumeStatus::Available).await;
    let shown = client.get(&format!("/volumes/{restored}")).await;
    assert_eq!(
        shown.body["volume"]["metadata"],
        json!({"own": "1", "src_backup_id": id}),
        "those of the saved volume, and where the data come from"
    );
    client.latency(|latencies| latencies.backup = NEVER);
    let stuck = create(json!({"volume": {"backup_id": id}})).await.expect(202);
    let stuck = stuck.body["volume"]["id"].as_str().unwrap();
    client.reaches(stuck, VolumeStatus::RestoringBackup).await;
    assert_eq!(client.sim.state().backup(&id).unwrap().status, BackupStatus::Restoring);
    client.latency(|_| {});
    let missing = create(json!({"volume": {"backup_id": "none", "size": 2}}))
        .await
        .expect(404);
    assert_eq!(missing.fault().1, "Backup none could not be found.");
    assert!(client.sim.set_backup_status(&id, BackupStatus::Error));
    let bad = create(json!({"volume": {"backup_id": id, "size": 2}}))
        .await
        .expect(400);
    assert_eq!(
        bad.fault().1,
        "Invalid backup: Originating backup status must be one of 'available' values"
    );
    // Before 3.47, `backup_id` is ignored.
    client.create(json!({"backup_id": "none", "size": 2})).await.expect(202);
}

#[tokio::test]
async fn failed_backup_restores_volume_and_adds_message() {
    let client = Client::new(|_| {}).await;
    let volume = client.volume("data").await;
    let fails = Fault::on("create_backup").times(1);
    client
        .sim
        .fault(fails.effect(Effect::work_fails().message("the disk is full")))
        .unwrap();
    let id = backup(&client, json!({"volume_id": volume})).await;
    assert!(client.sim.settled(PATIENCE).await);
    let shown = client.get(&format!("/backups/{id}")).await;
    assert_eq!(shown.body["backup"]["status"], "error");
    assert_eq!(shown.body["backup"]["fail_reason"], "the disk is full");
    assert_eq!(
        client.sim.state().volume(&volume).unwrap().status,
        VolumeStatus::Available
    );
    let path = format!("/messages?resource_uuid={id}");
    let messages = client.cinder(Method::GET, &path, Some("3.5"), None).await;
    assert_eq!(messages.body["messages"][0]["resource_type"], "VOLUME_BACKUP");

    let fails = Fault::on("delete_backup").times(1).effect(Effect::work_fails());
    client.sim.fault(fails).unwrap();
    client
        .cinder(Method::DELETE, &format!("/backups/{id}"), None, None)
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(
        client.sim.state().backup(&id).unwrap().status,
        BackupStatus::ErrorDeleting
    );
}

#[tokio::test]
async fn reports_missing_backup_service() {
    let client = Client::new(|config| config.backups = false).await;
    let volume = client.volume("data").await;
    let body = Some(json!({"backup": {"volume_id": volume}}));
    let refused = client.cinder(Method::POST, "/backups", None, body).await.expect(503);
    assert_eq!(refused.fault().1, "Service cinder-backup could not be found.");
}

#[tokio::test]
async fn restored_volume_has_data_of_backup() {
    let folder = tempfile::TempDir::new().unwrap();
    let client = Client::new(|config| config.backing = Some(folder.path().to_owned())).await;
    let file = |id: &str| folder.path().join("volumes").join(format!("{id}.img"));
    let write = |id: &str, text: &str| {
        let mut file = std::fs::OpenOptions::new().write(true).open(file(id)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let read = |id: &str| {
        let mut text = [0; 3];
        std::fs::File::open(file(id)).unwrap().read_exact(&mut text).unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    };
    let volume = client.volume("data").await;
    let mut backups = Vec::new();
    for (text, incremental) in [("one", false), ("two", true)] {
        write(&volume, text);
        backups.push(backup(&client, json!({"volume_id": volume, "incremental": incremental})).await);
        assert!(client.sim.settled(PATIENCE).await);
    }
    write(&volume, "now");
    for (id, text) in backups.iter().zip(["one", "two"]) {
        let wish = Some(json!({"volume": {"backup_id": id, "size": 2}}));
        let made = client
            .cinder(Method::POST, "/volumes", Some("3.47"), wish)
            .await
            .expect(202);
        let restored = made.body["volume"]["id"].as_str().unwrap();
        client.reaches(restored, VolumeStatus::Available).await;
        assert_eq!(read(restored), text);
        assert_eq!(std::fs::metadata(file(restored)).unwrap().len(), 2 << 30);
    }
    let over = Some(json!({"restore": {"volume_id": volume}}));
    let path = format!("/backups/{}/restore", backups[0]);
    client.cinder(Method::POST, &path, None, over).await.expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(read(&volume), "one");
    client.reaches(&volume, VolumeStatus::Available).await;
}
