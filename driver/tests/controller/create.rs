// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessType, MountVolume};
use csi_proto::csi::v1::{CapacityRange, CreateVolumeRequest, VolumeContentSource};
use futures::FutureExt;
use openstack_sim::{Effect, Fault, Latencies, Quota, VolumeStatus, When};
use tonic::Code;

use crate::support::{
    Driver, GIB, NODE, SHORT, capability, cloud, create_request, patient, refused, wait_until, within, zone, zones,
};

/// Long enough to query a volume during its creation, short enough for a test.
fn slow() -> Latencies {
    Latencies {
        create: Duration::from_millis(300),
        ..Latencies::default()
    }
}

fn parameters(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn create_returns_available_volume() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    let request = CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: GIB + 1,
            limit_bytes: 0,
        }),
        parameters: parameters(&[
            ("type", "slow"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("typo", "is ignored"),
        ]),
        accessibility_requirements: Some(zones(&["nova"], &["nova"])),
        ..create_request("pvc-1")
    };
    let volume = driver.create(request).await.expect("a volume");
    assert_eq!(volume.capacity_bytes, 2 * GIB);
    assert_eq!(volume.accessible_topology, [zone("nova")]);
    assert!(volume.volume_context.is_empty() && volume.content_source.is_none());

    let state = sim.state();
    let created = state.volume(&volume.volume_id).expect("in the cloud");
    assert_eq!(
        (created.status, created.size, created.volume_type.as_str()),
        (VolumeStatus::Available, 2, "slow")
    );
    assert_eq!(
        created.description.as_deref(),
        Some("Created by OpenStack Cinder CSI driver")
    );
    assert_eq!(
        created.metadata,
        parameters(&[
            ("cinder.csi.openstack.org/cluster", "test"),
            ("cinder.csi.openstack.org/requested-zones", "nova"),
            ("cinder.csi.openstack.org/volume-mode", "Filesystem"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_create_returns_same_volume() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let first = driver.create(create_request("pvc-1")).await.expect("a volume");
    let second = driver.create(create_request("pvc-1")).await.expect("the same");
    assert_eq!(first, second);
    assert_eq!(sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejects_other_size_under_same_name() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    let larger = CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: 2 * GIB,
            limit_bytes: 0,
        }),
        ..create_request("pvc-1")
    };
    refused(driver.create(larger).await, Code::AlreadyExists);
    assert_eq!(sim.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_requests_create_one_volume_issue_91() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    let all = futures::future::join_all((0..8).map(|_| driver.create(create_request("pvc-1")))).await;
    let ids: Vec<String> = all
        .into_iter()
        .map(|answer| answer.expect("a volume").volume_id)
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!((sim.state().volumes.len(), sim.count("create_volume")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn different_request_during_creation_is_aborted() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    let first = driver.create(create_request("pvc-1"));
    let second = async {
        wait_until("the volume", || !sim.state().volumes.is_empty()).await;
        let other = CreateVolumeRequest {
            parameters: parameters(&[("type", "slow")]),
            ..create_request("pvc-1")
        };
        refused(driver.create(other).await, Code::Aborted);
    };
    let (first, ()) = tokio::join!(first, second);
    first.expect("a volume");
}

#[tokio::test(start_paused = true)]
async fn retry_after_timeout_joins_creation() {
    let sim = cloud(|config| {
        config.latencies = Latencies {
            create: 2 * SHORT,
            ..Latencies::default()
        };
    })
    .await;
    let driver = Driver::start(&sim);
    let short = within(create_request("pvc-1"), SHORT);
    let message = refused(driver.controller().create_volume(short).await, Code::DeadlineExceeded);
    assert!(
        ["pvc-1", "until it is available", "last seen creating"]
            .iter()
            .all(|part| message.contains(part)),
        "{message}"
    );
    let volume = driver.create(create_request("pvc-1")).await.expect("the retry");
    assert_eq!(sim.state().volumes[0].id, volume.volume_id);
    assert_eq!(sim.count("create_volume"), 1);
}

#[tokio::test(start_paused = true)]
async fn disconnected_client_does_not_stop_creation() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    {
        let call = driver.create(create_request("pvc-1"));
        let mut call = std::pin::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it cannot be done yet"),
            () = wait_until("the volume", || !sim.state().volumes.is_empty()) => {}
        }
    }
    let volume = driver.create(create_request("pvc-1")).await.expect("the volume");
    assert_eq!(sim.state().volumes.len(), 1);
    assert_eq!(sim.state().volumes[0].id, volume.volume_id);
}

#[tokio::test(start_paused = true)]
async fn restarted_driver_adopts_unfinished_volume() {
    let sim = cloud(|config| config.latencies = slow()).await;
    let driver = Driver::start(&sim);
    {
        let call = driver.create(create_request("pvc-1"));
        let mut call = std::pin::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it cannot be done yet"),
            () = wait_until("the volume", || !sim.state().volumes.is_empty()) => {}
        }
    }
    driver.kill();
    let volume = Driver::start(&sim)
        .create(create_request("pvc-1"))
        .await
        .expect("the volume");
    let state = sim.state();
    assert_eq!(state.volumes.len(), 1);
    assert_eq!(
        (state.volumes[0].id.as_str(), state.volumes[0].status),
        (volume.volume_id.as_str(), VolumeStatus::Available)
    );
}

#[tokio::test(start_paused = true)]
async fn killed_driver_sends_no_requests() {
    let sim = cloud(|config| config.latencies.create = Duration::from_mins(1)).await;
    let driver = Driver::start(&sim);
    let mut client = driver.controller();
    let call = tokio::spawn(async move { client.create_volume(patient(create_request("pvc-1"))).await });
    // A query for the volume proves that the operation is waiting.
    wait_until("a look", || sim.count("get_volume") > 0).await;
    driver.kill();
    let refusal = call.await.expect("no panic").expect_err("nobody answers");
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    sim.clear_log();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(sim.log(), []);
}

#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_second_volume_issue_98() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    sim.fault(Fault::on("create_volume").times(1).effect(Effect::cut(When::After)))
        .expect("a rule");
    // This call may find the volume, or report that it may exist.
    if let Err(status) = driver.create(create_request("pvc-1")).await {
        assert!(
            matches!(
                status.code(),
                Code::Unavailable | Code::Aborted | Code::DeadlineExceeded
            ),
            "{status}"
        );
    }
    let volume = driver.create(create_request("pvc-1")).await.expect("the volume");
    assert_eq!(sim.state().volumes.len(), 1);
    assert_eq!(sim.state().volumes[0].id, volume.volume_id);
}

#[tokio::test(start_paused = true)]
async fn exceeded_volume_quota_is_resource_exhausted() {
    let sim = cloud(|config| {
        config.quota = Quota {
            gigabytes: 1,
            ..Quota::default()
        }
    })
    .await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    let message = refused(driver.create(create_request("pvc-2")).await, Code::ResourceExhausted);
    assert!(message.contains("[quota]") && message.contains("req-"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn unknown_volume_type_is_invalid_argument() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let request = CreateVolumeRequest {
        parameters: parameters(&[("type", "nonesuch")]),
        ..create_request("pvc-1")
    };
    let message = refused(driver.create(request).await, Code::InvalidArgument);
    assert!(message.contains("nonesuch"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn failed_volume_is_deleted_and_reported() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let broken = Effect::work_fails().message("the backend is on fire");
    sim.fault(Fault::on("create_volume").times(1).effect(broken))
        .expect("a rule");
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Internal);
    assert!(message.contains("error"), "{message}");
    assert!(sim.state().volumes.is_empty(), "the failed volume is gone");
    driver.create(create_request("pvc-1")).await.expect("the next try");
}

#[tokio::test(start_paused = true)]
async fn invalid_create_sends_no_openstack_request() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    sim.clear_log();
    let good = || create_request("pvc-1");
    let cases = [
        (
            CreateVolumeRequest {
                name: String::new(),
                ..good()
            },
            Code::InvalidArgument,
            "name",
        ),
        (
            CreateVolumeRequest {
                name: "x".repeat(129),
                ..good()
            },
            Code::InvalidArgument,
            "name",
        ),
        (
            CreateVolumeRequest {
                volume_capabilities: vec![],
                ..good()
            },
            Code::InvalidArgument,
            "volume_capabilities",
        ),
        (
            CreateVolumeRequest {
                volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter)],
                ..good()
            },
            Code::InvalidArgument,
            "volume_capabilities",
        ),
        (
            CreateVolumeRequest {
                mutable_parameters: parameters(&[("tpye", "slow")]),
                ..good()
            },
            Code::InvalidArgument,
            "mutable_parameters",
        ),
        (
            CreateVolumeRequest {
                volume_content_source: Some(VolumeContentSource::default()),
                ..good()
            },
            Code::InvalidArgument,
            "volume_content_source",
        ),
        (
            CreateVolumeRequest {
                secrets: parameters(&[("cloud", "two")]),
                ..good()
            },
            Code::InvalidArgument,
            "secrets",
        ),
        (
            CreateVolumeRequest {
                capacity_range: Some(CapacityRange {
                    required_bytes: 1,
                    limit_bytes: GIB - 1,
                }),
                ..good()
            },
            Code::OutOfRange,
            "limit",
        ),
        (
            CreateVolumeRequest {
                parameters: parameters(&[("availability", "nova")]),
                accessibility_requirements: Some(zones(&[], &["elsewhere"])),
                ..good()
            },
            Code::ResourceExhausted,
            "availability",
        ),
    ];
    for (request, code, named) in cases {
        let message = refused(driver.create(request).await, code);
        assert!(message.contains(named), "{named} is not named: {message}");
    }
    assert_eq!(sim.log(), []);
}

#[tokio::test(start_paused = true)]
async fn create_uses_preferred_zone_first() {
    let sim = cloud(|config| config.zones = vec!["a".into(), "b".into()]).await;
    let driver = Driver::start(&sim);
    let asked = |name: &str, preferred: &[&str]| CreateVolumeRequest {
        accessibility_requirements: Some(zones(preferred, &["a", "b"])),
        ..create_request(name)
    };
    let volume = driver.create(asked("pvc-1", &["b", "a"])).await.expect("a volume");
    assert_eq!(volume.accessible_topology, [zone("b")]);
    // A repeated request may prefer another zone, and returns the same volume.
    let again = driver
        .create(asked("pvc-1", &["a", "b"]))
        .await
        .expect("the same volume");
    assert_eq!(again, volume);
    let other = driver.create(asked("pvc-2", &[])).await.expect("a volume");
    assert_eq!(other.accessible_topology, [zone("a")]);
}

#[tokio::test(start_paused = true)]
async fn class_zone_overrides_topology() {
    let sim = cloud(|config| config.zones = vec!["a".into(), "b".into()]).await;
    let driver = Driver::start(&sim);
    let request = CreateVolumeRequest {
        parameters: parameters(&[("availability", "b")]),
        accessibility_requirements: Some(zones(&["a"], &["a", "b"])),
        ..create_request("pvc-1")
    };
    assert_eq!(
        driver.create(request).await.expect("a volume").accessible_topology,
        [zone("b")]
    );
}

#[tokio::test(start_paused = true)]
async fn ignore_volume_az_returns_requested_topology() {
    let sim = cloud(|_| {}).await;
    let conf = format!("{}[BlockStorage]\nignore-volume-az = true\n", sim.access().cloud_conf());
    let driver = Driver::start_with(&sim, &conf, |_| {});
    let request = CreateVolumeRequest {
        parameters: parameters(&[("availability", "nova")]),
        accessibility_requirements: Some(zones(&["compute-1"], &["compute-1", "compute-2"])),
        ..create_request("pvc-1")
    };
    assert_eq!(
        driver.create(request).await.expect("a volume").accessible_topology,
        [zone("compute-1")]
    );
}

#[tokio::test(start_paused = true)]
async fn disabled_topology_reports_no_zone() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.with_topology = false);
    let request = CreateVolumeRequest {
        accessibility_requirements: Some(zones(&["elsewhere"], &["elsewhere"])),
        ..create_request("pvc-1")
    };
    assert!(
        driver
            .create(request)
            .await
            .expect("a volume")
            .accessible_topology
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn expired_deadline_still_starts_creation() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let hurried = within(create_request("pvc-1"), Duration::from_millis(1));
    let call = driver.controller().create_volume(hurried).await;
    assert!(
        call.is_ok() || call.is_err_and(|status| matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled))
    );
    let mut client = driver.controller();
    let never_polled = client.create_volume(patient(create_request("pvc-2")));
    assert!(never_polled.now_or_never().is_none());
    driver.volume("pvc-1").await;
    driver.volume("pvc-2").await;
    assert_eq!(sim.state().volumes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn invalid_mkfs_options_are_refused_before_creation() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let request = |fs_type: &str, options: &str| {
        let mut request = create_request("pvc-1");
        request.parameters = parameters(&[("mkfsOptions", options)]);
        let mount = MountVolume {
            fs_type: fs_type.into(),
            ..MountVolume::default()
        };
        request.volume_capabilities[0].access_type = Some(AccessType::Mount(mount));
        request
    };
    for (fs_type, options) in [
        ("", "-F /dev/vda"),
        ("ext4", "-d su=64k"),
        ("xfs", "-N 1000"),
        ("", "-E offset=4096"),
    ] {
        let message = refused(driver.create(request(fs_type, options)).await, Code::InvalidArgument);
        assert!(message.contains("mkfsOptions"), "{fs_type} {options}: {message}");
    }
    assert!(sim.state().volumes.is_empty());
    // Nodes may format XFS if the request has no file system.
    driver.create(request("", "-d su=64k")).await.expect("a volume");
}

#[tokio::test(start_paused = true)]
async fn unusable_zone_of_earlier_attempt_is_not_final() {
    let sim = cloud(|config| config.zones = vec!["nova".into(), "east".into()]).await;
    let driver = Driver::start(&sim);
    let within = |zones_asked: &[&str]| CreateVolumeRequest {
        accessibility_requirements: Some(zones(zones_asked, zones_asked)),
        ..create_request("pvc-1")
    };
    // Immediate binding: the request contains the zones of all nodes, and the first response is lost.
    let created = driver.create(within(&["nova", "east"])).await.expect("a volume");
    let message = refused(driver.create(within(&["east"])).await, Code::Aborted);
    assert!(
        message.contains(&created.volume_id) && message.contains("east"),
        "{message}"
    );
    let again = driver
        .create(within(&["nova", "east"]))
        .await
        .expect("the zone is back");
    assert_eq!(again.volume_id, created.volume_id);

    // A volume that a pod uses is not a remnant of an earlier attempt.
    driver.publish(&created.volume_id, NODE).await.expect("attached");
    refused(driver.create(within(&["east"])).await, Code::AlreadyExists);
}
