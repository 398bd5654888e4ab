// SPDX-License-Identifier: Apache-2.0
//! CreateVolume if Cinder chose another zone than requested (`allow_availability_zone_fallback`).

use std::collections::BTreeMap;

use cinder_cloud::{Cloud, CloudConfig, CloudOptions, CreatedVolume, GiB, NewVolume};
use csi_proto::csi::v1::{Topology, TopologyRequirement};
use openstack_sim::{Sim, SimConfig};
use tonic::Code;

use super::request::DesiredVolume;
use super::*;
use crate::clouds::Clouds;
use crate::controller::Settings;
use crate::operations::{Limits, Operations};
use crate::parameters::TOPOLOGY_ZONE;
use crate::topology::Zones;

async fn cloud_and_service() -> (Sim, Cloud, ControllerService) {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let sim = Sim::start(SimConfig::default()).await.expect("a cloud");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a configuration");
    let cloud = Cloud::new(config, CloudOptions::default()).expect("a client");
    let clouds = Clouds::single(cloud.clone());
    let service = ControllerService::new(clouds, Operations::new(Limits::default()), Settings::default());
    (sim, cloud, service)
}

/// A request for a volume that must be accessible from `zone`, and its volume, which the cloud created in zone `nova`.
async fn misplaced_volume(cloud: &Cloud, zone: &str) -> (DesiredVolume, CreatedVolume) {
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
        DesiredVolume {
            claim: None,
            context: BTreeMap::new(),
            new,
            zones: Zones::from_requirement(Some(&requirement), &crate::topology::ZoneNames::default()),
        },
        created,
    )
}

#[tokio::test]
async fn new_volume_in_unreachable_zone_is_deleted() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (desired, created) = misplaced_volume(&cloud, "elsewhere").await;
    assert!(!created.adopted);
    let refusal = build_response(&service, &cloud, &desired, created)
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
async fn adopted_volume_in_unreachable_zone_is_retained() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (desired, _) = misplaced_volume(&cloud, "elsewhere").await;
    let found = cloud.create_volume(desired.new.clone()).await.expect("the same volume");
    assert!(found.adopted);
    let refusal = build_response(&service, &cloud, &desired, found)
        .await
        .expect_err("nobody could reach it");
    assert_eq!(refusal.code(), Code::AlreadyExists);
    assert_eq!(sim.state().volumes.len(), 1, "it may hold data");
}

#[tokio::test]
async fn new_volume_in_unacceptable_zone_is_deleted() {
    let (sim, cloud, service) = cloud_and_service().await;
    // The zone is accessible, but the class specifies another one.
    let (mut desired, created) = misplaced_volume(&cloud, "nova").await;
    desired.new.availability_zone = Some("east".into());
    desired.new.acceptable_zones = vec!["east".into()];
    let refusal = build_response(&service, &cloud, &desired, created)
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
async fn failed_cleanup_is_not_final() {
    let (sim, cloud, service) = cloud_and_service().await;
    let (desired, created) = misplaced_volume(&cloud, "elsewhere").await;
    let fault = openstack_sim::Fault::on("delete_volume").effect(openstack_sim::Effect::status(403));
    sim.fault(fault).expect("a rule");
    let refusal = build_response(&service, &cloud, &desired, created)
        .await
        .expect_err("it is still there");
    assert_eq!(refusal.code(), Code::Aborted);
}

#[tokio::test]
async fn volume_in_requisite_zone_reports_that_zone() {
    let (_sim, cloud, service) = cloud_and_service().await;
    let (desired, created) = misplaced_volume(&cloud, "nova").await;
    let volume = build_response(&service, &cloud, &desired, created)
        .await
        .expect("a volume")
        .volume
        .expect("a volume");
    assert_eq!(volume.accessible_topology, desired.zones.requested_topology());
}

#[tokio::test]
async fn refusal_omits_secret_values() {
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
