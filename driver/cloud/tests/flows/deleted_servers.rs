// SPDX-License-Identifier: Apache-2.0
//! Cinder's attachments to servers that Nova does not know, and attachments that must remain.

use std::time::Duration;

use cinder_cloud::{AttachOptions, CloudError, GiB, NewVolume, ObjectKind, ServerId, VolumeId};
use openstack_sim::{AttachmentStatus, Effect, Fault, SimConfig, VolumeStatus, VolumeType};

use crate::support::{NOTHING, ONE, Stage, TWO, new, stage_with, tick};

/// A call about a volume that has, or had, an attachment to server one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    AttachElsewhere,
    AttachHere,
    Detach,
    DetachAll,
    Delete,
    Expand,
}

const CALLS: [Call; 6] = [
    Call::AttachElsewhere,
    Call::AttachHere,
    Call::Detach,
    Call::DetachAll,
    Call::Delete,
    Call::Expand,
];

impl Call {
    async fn run(self, stage: &Stage, volume: &VolumeId) -> Result<(), CloudError> {
        let (one, two) = (ServerId::new(ONE), ServerId::new(TWO));
        let alone = AttachOptions {
            exclusive: true,
            ..AttachOptions::default()
        };
        let cloud = &stage.cloud;
        match self {
            Self::AttachElsewhere => cloud.attach(volume, &two, alone).await.map(drop),
            Self::AttachHere => cloud.attach(volume, &one, alone).await.map(drop),
            Self::Detach => cloud.detach(volume, Some(&one)).await,
            Self::DetachAll => cloud.detach(volume, None).await,
            Self::Delete => cloud.delete_volume(volume).await,
            Self::Expand => cloud
                .expand_volume(volume, GiB::new(2).expect("a size"))
                .await
                .map(drop),
        }
    }
}

/// A cloud that extends no volume in use, so that an expansion also depends on the attachments.
async fn old_stage() -> Stage {
    stage_with(SimConfig {
        block_storage_version: (3, 41),
        volume_types: vec![
            VolumeType::new("single"),
            VolumeType {
                multiattach: true,
                ..VolumeType::new("shared")
            },
        ],
        ..SimConfig::default()
    })
    .await
}

async fn create(stage: &Stage, multiattach: bool) -> VolumeId {
    let volume_type = if multiattach { "shared" } else { "single" };
    let request = NewVolume {
        volume_type: Some(volume_type.to_owned()),
        ..new("pvc-1")
    };
    stage.cloud.create_volume(request).await.expect("a volume").volume.id
}

async fn attach(stage: &Stage, volume: &VolumeId, server: &str) {
    let server = ServerId::new(server);
    let attached = stage.cloud.attach(volume, &server, AttachOptions::default()).await;
    attached.expect("attached");
}

/// A volume with an attachment to server one, which is deleted.
async fn volume_of_deleted_server(stage: &Stage, multiattach: bool, status: VolumeStatus) -> VolumeId {
    let volume = create(stage, multiattach).await;
    attach(stage, &volume, ONE).await;
    stage.sim.remove_server(ONE, true);
    assert!(stage.sim.set_volume_status(volume.as_str(), status));
    // The client caches its own answer for some seconds.
    tokio::time::sleep(Duration::from_secs(30)).await;
    volume
}

fn servers(stage: &Stage) -> Vec<String> {
    let attachments = stage.sim.state().attachments.into_iter();
    attachments.filter_map(|attachment| attachment.server_id).collect()
}

#[tokio::test(start_paused = true)]
async fn deleted_server_blocks_no_call() {
    use VolumeStatus::{Attaching, Detaching, InUse, Reserved};
    for call in CALLS {
        for multiattach in [false, true] {
            for status in [InUse, Detaching, Attaching, Reserved] {
                let context = format!("{call:?}, multiattach {multiattach}, {status}");
                let stage = old_stage().await;
                let volume = volume_of_deleted_server(&stage, multiattach, status).await;
                let result = call.run(&stage, &volume).await;
                if call == Call::AttachHere {
                    let error = result.expect_err(&context);
                    let is_server = matches!(
                        error,
                        CloudError::NotFound {
                            kind: ObjectKind::Server,
                            ..
                        }
                    );
                    assert!(is_server, "{context}: {error:?}");
                    continue;
                }
                result.unwrap_or_else(|error| panic!("{context}: {error}"));
                let expected: &[&str] = if call == Call::AttachElsewhere { &[TWO] } else { &[] };
                assert_eq!(servers(&stage), expected, "{context}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_volume_of_deleted_server_is_deleted() {
    for status in [VolumeStatus::Error, VolumeStatus::ErrorExtending] {
        let stage = old_stage().await;
        let volume = volume_of_deleted_server(&stage, false, status).await;
        Call::Delete.run(&stage, &volume).await.expect("deleted");
        assert!(stage.sim.state().volumes.is_empty() && servers(&stage).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn only_deleted_server_loses_attachment() {
    for call in [Call::AttachElsewhere, Call::Delete, Call::Expand, Call::Detach] {
        let stage = old_stage().await;
        let volume = create(&stage, true).await;
        let third = "33333333-2222-4333-8444-555555555555";
        stage.sim.add_server(openstack_sim::ServerSpec::new(third));
        for server in [ONE, third] {
            attach(&stage, &volume, server).await;
        }
        stage.sim.remove_server(ONE, true);
        let result = call.run(&stage, &volume).await;
        assert_eq!(servers(&stage), [third], "{call:?}");
        match result {
            Ok(()) => assert_eq!(call, Call::Detach),
            Err(
                CloudError::AttachedElsewhere { servers, .. }
                | CloudError::VolumeInUse { servers, .. }
                | CloudError::OnlineExpansion { servers, .. },
            ) => assert_eq!(servers, [ServerId::new(third)], "{call:?}"),
            Err(error) => panic!("{call:?}: {error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shared_attach_skips_deleted_servers() {
    let stage = old_stage().await;
    let volume = volume_of_deleted_server(&stage, true, VolumeStatus::InUse).await;
    attach(&stage, &volume, TWO).await;
    assert_eq!(servers(&stage), [ONE, TWO]);
}

/// Answers of Nova about a server that do not prove its deletion.
fn doubtful_answers() -> Vec<(&'static str, Fault)> {
    let on = |effect| Fault::on("get_server").effect(effect);
    vec![
        ("500", on(Effect::status(500))),
        ("503", on(Effect::status(503))),
        ("403", on(Effect::status(403))),
        ("page", on(Effect::Html { status: 404 })),
        ("404 of another thing", on(Effect::status(404))),
        (
            "404 of another server",
            on(Effect::status(404).message(format!("Instance {NOTHING} could not be found."))),
        ),
        (
            "404 of an old database",
            Fault {
                path: Some(ONE.to_owned()),
                ..on(Effect::status(404).message(format!("Instance {ONE} could not be found.")))
            }
            .times(1),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn doubtful_answers_remove_no_attachment() {
    // Nova may attach a volume again to the server that has it.
    for call in CALLS.into_iter().filter(|call| *call != Call::AttachHere) {
        for (name, fault) in doubtful_answers() {
            let stage = old_stage().await;
            let volume = create(&stage, false).await;
            // A record of Cinder only, so that the state of the guest is unknown.
            let expected = (stage.sim).add_attachment(volume.as_str(), Some(ONE), AttachmentStatus::Attached);
            stage.sim.fault(fault).expect("a rule");
            let result = call.run(&stage, &volume).await;
            let context = format!("{call:?}, {name}: {result:?}");
            assert!(result.is_err(), "{context}");
            let state = stage.sim.state();
            let ids: Vec<_> = state
                .attachments
                .iter()
                .map(|attachment| Some(attachment.id.clone()))
                .collect();
            assert_eq!(ids, [expected], "{context}");
            assert_eq!(stage.sim.count("delete_attachment"), 0, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn live_servers_keep_their_attachments() {
    for vm_state in [
        "active",
        "stopped",
        "error",
        "soft-delete",
        "deleted",
        "building",
        "suspended",
    ] {
        for call in [Call::AttachElsewhere, Call::Delete, Call::Expand, Call::DetachAll] {
            let stage = old_stage().await;
            let volume = create(&stage, false).await;
            let id = volume.as_str();
            (stage.sim)
                .add_attachment(id, Some(ONE), AttachmentStatus::Attached)
                .expect("a record");
            assert!(stage.sim.set_server_state(ONE, vm_state, None));
            let result = call.run(&stage, &volume).await;
            assert!(result.is_err(), "{vm_state}, {call:?}");
            assert_eq!(servers(&stage), [ONE], "{vm_state}, {call:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attachments_of_other_services_remain() {
    let foreign: [(&str, Option<&str>, Option<&str>); 3] = [
        ("a host", None, None),
        ("a name", Some("glance-store-1"), None),
        ("a machine of Ironic", Some(NOTHING), Some("ironic_node_1")),
    ];
    for (name, server, mark) in foreign {
        for call in [Call::AttachElsewhere, Call::Delete, Call::Expand, Call::DetachAll] {
            let stage = old_stage().await;
            let volume = create(&stage, false).await;
            let id = volume.as_str();
            (stage.sim)
                .add_attachment(id, server, AttachmentStatus::Attached)
                .expect("a record");
            if let Some(mark) = mark {
                let mark = (mark.to_owned(), "{}".to_owned());
                assert!(stage.sim.set_volume(id, |volume| volume.metadata.extend([mark])));
            }
            drop(call.run(&stage, &volume).await);
            let state = stage.sim.state();
            assert_eq!(state.attachments.len(), 1, "{name}, {call:?}");
            assert_eq!(stage.sim.count("delete_attachment"), 0, "{name}, {call:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_cleanup() {
    let stage = old_stage().await;
    let volume = volume_of_deleted_server(&stage, false, VolumeStatus::InUse).await;
    let (first, second) = tokio::join!(
        Call::AttachElsewhere.run(&stage, &volume),
        Call::AttachElsewhere.run(&stage, &volume)
    );
    first.expect("attached");
    second.expect("attached");
    assert_eq!(servers(&stage), [TWO]);

    let stage = old_stage().await;
    let volume = volume_of_deleted_server(&stage, false, VolumeStatus::InUse).await;
    let (attached, deleted) = tokio::join!(
        Call::AttachElsewhere.run(&stage, &volume),
        Call::Delete.run(&stage, &volume)
    );
    assert!(attached.is_ok() != deleted.is_ok(), "{attached:?}, {deleted:?}");
    let expected: &[&str] = if attached.is_ok() { &[TWO] } else { &[] };
    assert_eq!(servers(&stage), expected);
}

#[tokio::test(start_paused = true)]
async fn interrupted_cleanup_is_completed() {
    for call in [Call::AttachElsewhere, Call::Delete, Call::Expand] {
        let stage = old_stage().await;
        let volume = volume_of_deleted_server(&stage, false, VolumeStatus::InUse).await;
        // First before the attachment is deleted, then right after.
        drop(tokio::time::timeout(Duration::from_secs(1), call.run(&stage, &volume)).await);
        assert_eq!(servers(&stage), [ONE], "{call:?}");
        tokio::select! {
            result = call.run(&stage, &volume) => panic!("{call:?}: {result:?}"),
            () = async {
                while !servers(&stage).is_empty() {
                    tick().await;
                }
            } => {}
        }
        call.run(&stage, &volume)
            .await
            .unwrap_or_else(|error| panic!("{call:?}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_cleanup_is_reported() {
    let stage = old_stage().await;
    let volume = volume_of_deleted_server(&stage, false, VolumeStatus::InUse).await;
    let conflict = Effect::status(409).message("ConflictNovaUsingAttachment".to_owned());
    stage
        .sim
        .fault(Fault::on("delete_attachment").effect(conflict))
        .expect("a rule");
    let error = Call::AttachElsewhere.run(&stage, &volume).await.expect_err("refused");
    assert!(matches!(error, CloudError::Conflict(_)), "{error:?}");
    let error = Call::Delete.run(&stage, &volume).await.expect_err("refused");
    assert!(matches!(error, CloudError::VolumeInUse { .. }), "{error:?}");
    assert_eq!(servers(&stage), [ONE]);
}
