// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use csi_proto::csi::v1::ControllerPublishVolumeRequest;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use openstack_sim::{AttachmentStatus, Effect, Fault, Latencies, Sim, VolumeStatus, VolumeType};
use tonic::Code;

use crate::support::{
    Driver, NODE, OTHER_NODE, SHORT, UNKNOWN, capability, cloud, create_request, patient, publish_request, refused,
    wait_until, within,
};

fn slow() -> Latencies {
    Latencies {
        attach: Duration::from_millis(300),
        detach: Duration::from_millis(300),
        ..Latencies::default()
    }
}

/// Counts the requests to attach that Nova accepted. A refused one changes nothing.
fn accepted(sim: &Sim) -> usize {
    sim.log()
        .iter()
        .filter(|entry| entry.operation == "attach_volume" && entry.status < 300)
        .count()
}

#[tokio::test(start_paused = true)]
async fn publish_attaches_and_unpublish_detaches() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let context = driver.publish(&volume, NODE).await.expect("attached");
    let state = sim.state();
    assert_eq!(state.volumes[0].status, VolumeStatus::InUse);
    assert_eq!(state.attachments[0].status, AttachmentStatus::Attached);
    assert_eq!(context.get("DevicePath"), state.attachments[0].device.as_ref());
    let keys: Vec<&str> = context.keys().map(String::as_str).collect();
    assert_eq!(keys, ["DevicePath", "cinder.csi.openstack.org/size-bytes"]);

    assert_eq!(driver.publish(&volume, NODE).await.expect("attached already"), context);
    assert_eq!(accepted(&sim), 1);

    driver.unpublish(&volume, NODE).await.expect("detached");
    let state = sim.state();
    assert_eq!(
        (state.volumes[0].status, state.attachments.len()),
        (VolumeStatus::Available, 0)
    );
    driver.unpublish(&volume, NODE).await.expect("detached already");
    driver.delete(&volume).await.expect("deleted at once");
}

#[tokio::test(start_paused = true)]
async fn missing_volume_is_not_found_or_detached() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    assert!(refused(driver.publish(UNKNOWN, NODE).await, Code::NotFound).contains(UNKNOWN));
    assert!(refused(driver.publish(&volume, UNKNOWN).await, Code::NotFound).contains(UNKNOWN));
    driver.unpublish(UNKNOWN, NODE).await.expect("no volume");
    driver.unpublish(&volume, UNKNOWN).await.expect("no node");
}

#[tokio::test(start_paused = true)]
async fn invalid_ids_never_reach_openstack() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.clear_log();
    refused(driver.publish("fake-vol-id", NODE).await, Code::NotFound);
    refused(driver.publish(&volume, "fake-node-id").await, Code::NotFound);
    refused(driver.publish(&volume, "../os-keypairs").await, Code::NotFound);
    driver.unpublish("fake-vol-id", NODE).await.expect("never attached");
    driver.unpublish(&volume, "fake-node-id").await.expect("never attached");
    assert_eq!(sim.log(), []);
}

#[tokio::test(start_paused = true)]
async fn publish_reports_missing_and_invalid_fields() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let good = || publish_request(&volume, NODE);
    let cases = [
        (
            ControllerPublishVolumeRequest {
                volume_id: String::new(),
                ..good()
            },
            "volume_id",
        ),
        (
            ControllerPublishVolumeRequest {
                node_id: String::new(),
                ..good()
            },
            "node_id",
        ),
        (
            ControllerPublishVolumeRequest {
                volume_capability: None,
                ..good()
            },
            "volume_capability",
        ),
        (
            ControllerPublishVolumeRequest {
                volume_capability: Some(capability(Mode::Unknown)),
                ..good()
            },
            "volume_capability",
        ),
    ];
    for (request, field) in cases {
        let answer = driver.controller().controller_publish_volume(patient(request)).await;
        let message = refused(answer, Code::InvalidArgument);
        assert!(message.starts_with(field), "{message}");
    }
    refused(driver.unpublish("", NODE).await, Code::InvalidArgument);
    assert!(sim.state().attachments.is_empty());
}

#[tokio::test(start_paused = true)]
async fn volume_is_published_in_one_mode_only_issue_1169() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let publish = async |readonly: bool| {
        let request = ControllerPublishVolumeRequest {
            readonly,
            ..publish_request(&volume, NODE)
        };
        let answer = driver.controller().controller_publish_volume(patient(request)).await?;
        Ok::<_, tonic::Status>(answer.into_inner().publish_context)
    };
    for readonly in [true, false] {
        for _ in 0..2 {
            let context = publish(readonly).await.expect("attached, and attached again");
            assert_eq!(context.get("readonly").map(String::as_str), readonly.then_some("true"));
        }
        let message = refused(publish(!readonly).await, Code::AlreadyExists);
        assert!(message.contains(NODE) && message.contains(&volume), "{message}");
        driver.unpublish(&volume, NODE).await.expect("detached");
    }
}

#[tokio::test(start_paused = true)]
async fn attached_volume_refusal_names_other_node() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let message = refused(driver.publish(&volume, OTHER_NODE).await, Code::FailedPrecondition);
    assert!(message.contains(NODE), "{message}");
    assert_eq!(sim.state().attachments.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn single_node_mode_is_exclusive_for_multiattach_volume() {
    let shared = VolumeType {
        multiattach: true,
        ..VolumeType::new("shared")
    };
    let sim = cloud(|config| config.volume_types = vec![shared]).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    refused(driver.publish(&volume, OTHER_NODE).await, Code::FailedPrecondition);
    let shared = ControllerPublishVolumeRequest {
        volume_capability: Some(capability(Mode::MultiNodeReaderOnly)),
        ..publish_request(&volume, OTHER_NODE)
    };
    driver
        .controller()
        .controller_publish_volume(patient(shared))
        .await
        .expect("several nodes were asked for");
    assert_eq!(sim.state().attachments.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn full_node_refuses_only_new_volumes() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.max_volumes_per_node = Some(1);
    });
    let (first, second) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    driver.publish(&first, NODE).await.expect("attached");
    let message = refused(driver.publish(&second, NODE).await, Code::ResourceExhausted);
    assert!(message.contains(NODE), "{message}");
    driver.publish(&first, NODE).await.expect("attached already");
    driver.publish(&second, OTHER_NODE).await.expect("room elsewhere");
}

#[tokio::test(start_paused = true)]
async fn flag_overrides_attach_limit_of_cloud_conf() {
    let sim = cloud(|_| {}).await;
    let conf = limited_conf(&sim);
    let driver = Driver::start_with(&sim, &conf, |_| {});
    let (first, second) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    driver.publish(&first, NODE).await.expect("attached");
    let message = refused(driver.publish(&second, NODE).await, Code::ResourceExhausted);
    assert!(message.contains(NODE) && message.contains("limit is 1"), "{message}");
    driver.publish(&second, OTHER_NODE).await.expect("room elsewhere");
    driver.unpublish(&second, OTHER_NODE).await.expect("detached");
    drop(driver);

    let driver = Driver::start_with(&sim, &conf, |args| args.max_volumes_per_node = Some(0));
    driver.publish(&second, NODE).await.expect("the flag lifts the limit");
}

#[tokio::test(start_paused = true)]
async fn foreign_volumes_do_not_count_toward_limit() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &limited_conf(&sim), |_| {});
    let [foreign, first, second] = ["boot", "pvc-1", "pvc-2"].map(|name| driver.volume(name));
    let (foreign, first, second) = (foreign.await, first.await, second.await);
    assert!(sim.set_volume(&foreign, |volume| volume.metadata.clear()));
    driver.publish(&foreign, NODE).await.expect("attached");
    sim.clear_log();
    driver.publish(&first, NODE).await.expect("the first that counts");
    assert_eq!(sim.count("list_volumes_detail"), 1);
    refused(driver.publish(&second, NODE).await, Code::ResourceExhausted);
    driver.publish(&second, OTHER_NODE).await.expect("room elsewhere");
    assert_eq!(
        sim.count("list_volumes_detail"),
        2,
        "the list is for servers near the limit"
    );
}

fn limited_conf(sim: &Sim) -> String {
    format!(
        "{}[BlockStorage]\nnode-volume-attach-limit = 1\n",
        sim.access().cloud_conf()
    )
}

#[tokio::test(start_paused = true)]
async fn unpublish_without_node_detaches_from_all() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    driver.unpublish(&volume, "").await.expect("detached");
    assert!(sim.state().attachments.is_empty());
    assert_eq!(sim.state().volumes[0].status, VolumeStatus::Available);
}

#[tokio::test(start_paused = true)]
async fn slow_attachment_continues_and_blocks_other_nodes() {
    let sim = cloud(|config| {
        config.latencies = Latencies {
            attach: 2 * SHORT,
            ..Latencies::default()
        };
    })
    .await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let short = within(publish_request(&volume, NODE), SHORT);
    let message = refused(
        driver.controller().controller_publish_volume(short).await,
        Code::DeadlineExceeded,
    );
    assert!(message.contains(&volume) && message.contains(NODE), "{message}");
    refused(driver.publish(&volume, OTHER_NODE).await, Code::Aborted);
    refused(driver.delete(&volume).await, Code::Aborted);
    driver.publish(&volume, NODE).await.expect("joined");
    assert_eq!(accepted(&sim), 1);
}

#[tokio::test(start_paused = true)]
async fn attach_timeout_limits_long_calls() {
    let sim = cloud(|config| {
        config.latencies = Latencies {
            attach: 2 * SHORT,
            detach: 2 * SHORT,
            ..Latencies::default()
        };
    })
    .await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.attach_timeout = SHORT / 2);
    let volume = driver.volume("pvc-1").await;
    let message = refused(driver.publish(&volume, NODE).await, Code::DeadlineExceeded);
    assert!(message.contains("it goes on"), "{message}");
    let joined = async { while driver.publish(&volume, NODE).await.is_err() {} };
    tokio::time::timeout(10 * SHORT, joined)
        .await
        .expect("attached in the end");
    assert_eq!(accepted(&sim), 1);
    driver
        .unpublish(&volume, NODE)
        .await
        .expect("only attaching is bounded");
}

#[tokio::test(start_paused = true)]
async fn restarted_driver_resumes_attachment() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    let volume = driver
        .create(create_request("pvc-1"))
        .await
        .expect("a volume")
        .volume_id;
    {
        let mut call = std::pin::pin!(driver.publish(&volume, NODE));
        tokio::select! {
            _ = &mut call => panic!("it cannot be done yet"),
            () = wait_until("the attachment", || !sim.state().attachments.is_empty()) => {}
        }
    }
    driver.kill();
    let driver = Driver::start(&sim);
    driver.publish(&volume, NODE).await.expect("attached");
    let state = sim.state();
    assert_eq!(
        (state.attachments.len(), state.attachments[0].status),
        (1, AttachmentStatus::Attached)
    );
    assert_eq!(accepted(&sim), 1);
}

#[tokio::test(start_paused = true)]
async fn unreachable_cloud_is_unavailable() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.fault(Fault::on("attach_volume").effect(Effect::status(503)))
        .expect("a rule");
    let call = within(publish_request(&volume, NODE), Duration::from_secs(1));
    let status = driver
        .controller()
        .controller_publish_volume(call)
        .await
        .expect_err("the cloud is away");
    assert!(
        matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded),
        "{status}"
    );
    sim.clear_faults();
    driver.publish(&volume, NODE).await.expect("attached");
}

#[tokio::test(start_paused = true)]
async fn locked_server_is_reported_with_remedy() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let refusal = Effect::status(409).message(format!("Instance {NODE} is locked"));
    sim.fault(Fault::on("attach_volume").times(1).effect(refusal))
        .expect("a rule");
    let message = refused(driver.publish(&volume, NODE).await, Code::Aborted);
    for word in [volume.as_str(), NODE, "openstack server unlock", "req-"] {
        assert!(message.contains(word), "{word} is missing: {message}");
    }
    driver.publish(&volume, NODE).await.expect("attached");
    assert!(sim.set_server_state(NODE, "error", None));
    let message = refused(driver.unpublish(&volume, NODE).await, Code::Aborted);
    assert!(message.contains("ERROR"), "{message}");
    assert_eq!(sim.state().attachments.len(), 1, "nothing is reported as done");
}

#[tokio::test(start_paused = true)]
async fn full_server_is_resource_exhausted_issue_572() {
    // The limits of controller and node may differ, and Nova enforces the limit of the server.
    let sim = cloud(|config| config.volumes_per_server = 1).await;
    let driver = Driver::start(&sim);
    let (first, second) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    driver.publish(&first, NODE).await.expect("attached");
    let message = refused(driver.publish(&second, NODE).await, Code::ResourceExhausted);
    assert!(message.contains(NODE) && message.contains("req-"), "{message}");
    driver.publish(&second, OTHER_NODE).await.expect("room elsewhere");
}

#[tokio::test(start_paused = true)]
async fn publish_context_has_minimum_size_of_disk() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    for (gib, least) in [(1_u64, 1), (2, (1 << 30) + 1), (100, 99 * (1_u64 << 30) + 1)] {
        assert!(sim.set_volume(&volume, |volume| volume.size = gib));
        // Attached, and attached again.
        for _ in 0..2 {
            let context = driver.publish(&volume, NODE).await.expect("attached");
            let size = &context["cinder.csi.openstack.org/size-bytes"];
            assert_eq!(size.parse(), Ok(least), "{gib} GiB");
        }
        driver.unpublish(&volume, NODE).await.expect("detached");
    }
}

#[tokio::test(start_paused = true)]
async fn unpublish_withdraws_queued_attachment() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let (first, second) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    // Nova delays one attachment, and the other is queued behind it.
    let slow = Fault::on("attach_volume").times(1);
    sim.fault(slow.effect(Effect::delay(Duration::from_secs(20))))
        .expect("a rule");
    let calls = async {
        let ahead = driver.publish(&first, NODE);
        let waiting = driver.publish(&second, NODE);
        let taken_back = async {
            wait_until("the request", || !sim.held().is_empty()).await;
            let started = tokio::time::Instant::now();
            driver.unpublish(&second, NODE).await.expect("nothing was asked for");
            assert!(started.elapsed() < Duration::from_secs(1));
            driver
                .publish(&second, OTHER_NODE)
                .await
                .expect("it is free for another node");
        };
        tokio::join!(ahead, waiting, taken_back)
    };
    let (ahead, waiting, ()) = calls.await;
    ahead.expect("attached in the end");
    let reason = refused(waiting, Code::Aborted);
    assert!(reason.contains("taken back"), "{reason}");
    assert_eq!(accepted(&sim), 2);
}

#[tokio::test(start_paused = true)]
async fn unpublish_ends_on_shelved_servers() {
    for state in ["shelved", "shelved_offloaded"] {
        let sim = cloud(|_| {}).await;
        let driver = Driver::start(&sim);
        let volume = driver.volume("pvc-1").await;
        driver.publish(&volume, NODE).await.expect("attached");
        assert!(sim.set_server_state(NODE, state, None));
        let message = refused(driver.publish(&volume, OTHER_NODE).await, Code::FailedPrecondition);
        assert!(message.contains(NODE), "{message}");
        driver.unpublish(&volume, NODE).await.expect("detached");
        driver.publish(&volume, OTHER_NODE).await.expect("attached");
        assert_eq!(sim.state().attachments.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn old_nova_names_the_shelved_server() {
    let sim = cloud(|config| config.compute_version = (2, 19)).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    assert!(sim.set_server_state(NODE, "shelved_offloaded", None));
    let message = refused(driver.unpublish(&volume, NODE).await, Code::Aborted);
    assert!(
        message.contains("openstack server unshelve") && !message.contains("delete"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_server_releases_its_volumes() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let (moved, deleted) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    for volume in [&moved, &deleted] {
        driver.publish(volume, NODE).await.expect("attached");
    }
    sim.remove_server(NODE, true);
    driver.publish(&moved, OTHER_NODE).await.expect("attached");
    driver.delete(&deleted).await.expect("deleted");
    let state = sim.state();
    let servers: Vec<_> = state.attachments.iter().map(|one| one.server_id.as_deref()).collect();
    assert_eq!(servers, [Some(OTHER_NODE)]);
}
