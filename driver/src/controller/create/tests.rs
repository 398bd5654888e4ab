// SPDX-License-Identifier: Apache-2.0
//! Volumes that Cinder placed elsewhere than it was asked to (`allow_availability_zone_fallback`).

use std::collections::BTreeMap;

use cinder_cloud::{Cloud, CloudConfig, CloudOptions, GiB};
use csi_proto::csi::v1::{Topology, TopologyRequirement};
use openstack_sim::{Sim, SimConfig};
use tonic::Code;

use super::*;
use crate::clouds::Clouds;
use crate::controller::Settings;
use crate::operations::{Limits, Operations};
use crate::parameters::TOPOLOGY_ZONE;

async fn cloud_and_service() -> (Sim, Cloud, ControllerService) {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let sim = Sim::start(SimConfig::default()).await.expect("a cloud");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a configuration");
    let cloud = Cloud::new(config, CloudOptions::default()).expect("a client");
    let clouds = Clouds::one(cloud.clone());
    let service = ControllerService::new(clouds, Operations::new(Limits::default()), Settings::default());
    (sim, cloud, service)
}

/// A request for a volume that must be reachable from `zone`, and the volume that the cloud made of it in zone `nova`.
async fn made(cloud: &Cloud, zone: &str) -> (WantedVolume, CreatedVolume) {
    let segments = BTreeMap::from([(TOPOLOGY_ZONE.to_owned(), zone.to_owned())]);
    let requirement = TopologyRequirement {
        requisite: vec![Topology { segments }],
        preferred: Vec::new(),
    };
    let new = NewVolume {
        name: "pvc-1".into(),
        size: GiB::new(1).expect("a size"),
        largest: None,
        source: None,
        multiattach: false,
        mode: None,
        allow_mode_change: false,
        same_host: Vec::new(),
        different_host: Vec::new(),
        mutable_metadata: BTreeMap::new(),
        volume_type: None,
        availability_zone: None,
        acceptable_zones: Vec::new(),
        description: String::new(),
        metadata: BTreeMap::new(),
    };
    let created = cloud.create_volume(new.clone()).await.expect("a volume");
    (
        WantedVolume {
            claim: None,
            context: BTreeMap::new(),
            new,
            zones: Zones::of(Some(&requirement), &crate::topology::ZoneNames::default()),
        },
        created,
    )
}

#[tokio::test]
async fn a_new_volume_in_an_unreachable_zone_is_removed_again() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (wanted, created) = made(&cloud, "elsewhere").await;
    assert!(!created.adopted);
    let refusal = answer(&service, &cloud, &wanted, created)
        .await
        .expect_err("nobody could reach it");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(
        refusal.message().contains("nova") && refusal.message().contains("elsewhere"),
        "{refusal}"
    );
    assert!(sim.state().volumes.is_empty());
}

#[tokio::test]
async fn an_older_volume_in_an_unreachable_zone_is_left_alone() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (wanted, _) = made(&cloud, "elsewhere").await;
    let found = cloud.create_volume(wanted.new.clone()).await.expect("the same volume");
    assert!(found.adopted);
    let refusal = answer(&service, &cloud, &wanted, found)
        .await
        .expect_err("nobody could reach it");
    assert_eq!(refusal.code(), Code::AlreadyExists);
    assert_eq!(sim.state().volumes.len(), 1, "it may hold data");
}

#[tokio::test]
async fn a_new_volume_that_a_repeated_request_would_not_take_is_not_handed_out() {
    let (sim, cloud, service) = cloud_and_service().await;
    // Reachable where it is, but the class names another zone.
    let (mut wanted, created) = made(&cloud, "nova").await;
    wanted.new.availability_zone = Some("east".into());
    wanted.new.acceptable_zones = vec!["east".into()];
    let refusal = answer(&service, &cloud, &wanted, created)
        .await
        .expect_err("the next call would remove it");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(
        refusal.message().contains("nova") && refusal.message().contains("east"),
        "{refusal}"
    );
    assert!(sim.state().volumes.is_empty());
}

#[tokio::test]
async fn a_volume_that_cannot_be_removed_again_leaves_everything_open() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (wanted, created) = made(&cloud, "elsewhere").await;
    let fault = openstack_sim::Fault::on("delete_volume").effect(openstack_sim::Effect::status(403));
    sim.fault(fault).expect("a rule");
    let refusal = answer(&service, &cloud, &wanted, created)
        .await
        .expect_err("it is still there");
    assert_eq!(refusal.code(), Code::Aborted);
}

#[tokio::test]
async fn a_volume_in_a_requisite_zone_is_answered_with_that_zone() {
    let (_sim, cloud, service) = cloud_and_service().await;
    let (wanted, created) = made(&cloud, "nova").await;
    let volume = answer(&service, &cloud, &wanted, created)
        .await
        .expect("a volume")
        .volume
        .expect("a volume");
    assert_eq!(volume.accessible_topology, wanted.zones.as_asked());
}

#[tokio::test]
async fn what_came_as_a_secret_is_not_in_the_refusal() {
    use csi_proto::csi::v1::VolumeCapability;
    use csi_proto::csi::v1::volume_capability::access_mode::Mode;
    use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};

    let (_sim, _cloud, service) = cloud_and_service().await;
    let request = CreateVolumeRequest {
        name: "pvc-1".into(),
        volume_capabilities: vec![VolumeCapability {
            access_mode: Some(AccessMode {
                mode: Mode::SingleNodeWriter.into(),
            }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        secrets: [("cloud".to_owned(), "geheim".to_owned())].into(),
        ..CreateVolumeRequest::default()
    };
    let deadline = service.operations.deadline(&tonic::Request::new(()));
    let refusal = create(&service, request, deadline)
        .await
        .expect_err("there is one cloud");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(
        refusal.message().contains("cloud") && !refusal.message().contains("geheim"),
        "{refusal}"
    );
}
