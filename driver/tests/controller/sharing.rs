// SPDX-License-Identifier: Apache-2.0
//! Volumes for several nodes or pods at the same time.

use csi_proto::csi::v1::controller_service_capability::{self, rpc};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessType, BlockVolume};
use csi_proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    ValidateVolumeCapabilitiesRequest, VolumeCapability,
};
use openstack_sim::{Sim, VolumeType};
use tonic::{Code, Status};

use crate::support::{Driver, NODE, OTHER_NODE, capability, cloud, create_request, patient, publish_request, refused};

/// A cloud whose volumes of type `shared` can be attached to several servers.
async fn sharing() -> Sim {
    let shared = VolumeType {
        multiattach: true,
        ..VolumeType::new("shared")
    };
    cloud(|config| config.volume_types = vec![VolumeType::new("fast"), shared]).await
}

fn device(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        ..capability(mode)
    }
}

fn of_type(name: &str, volume_type: &str, capability: VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest {
        parameters: [("type".to_owned(), volume_type.to_owned())].into(),
        volume_capabilities: vec![capability],
        ..create_request(name)
    }
}

async fn publish(driver: &Driver, volume: &str, node: &str, capability: VolumeCapability) -> Result<(), Status> {
    let request = ControllerPublishVolumeRequest {
        volume_capability: Some(capability),
        ..publish_request(volume, node)
    };
    let answer = driver.controller().controller_publish_volume(patient(request)).await;
    answer.map(drop)
}

#[tokio::test(start_paused = true)]
async fn filesystem_is_never_shared_for_writing_issue_3031_issue_729() {
    let sim = sharing().await;
    let driver = Driver::start(&sim);
    let volume = driver
        .create(of_type("pvc-1", "shared", capability(Mode::SingleNodeWriter)))
        .await
        .expect("a volume")
        .volume_id;
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
        let request = of_type("pvc-2", "shared", capability(mode));
        let refusal = refused(driver.create(request).await, Code::InvalidArgument);
        assert!(
            refusal.contains("file system") && refusal.contains("volumeMode: Block"),
            "{refusal}"
        );
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume.clone(),
            volume_capabilities: vec![capability(mode)],
            ..ValidateVolumeCapabilitiesRequest::default()
        };
        let answer = driver.controller().validate_volume_capabilities(patient(request)).await;
        let answer = answer.expect("an answer").into_inner();
        assert!(
            answer.confirmed.is_none() && answer.message.contains("file system"),
            "{answer:?}"
        );
    }
    let state = sim.state();
    assert_eq!((state.volumes.len(), state.attachments.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn existing_shared_filesystem_is_served_on_one_node_issue_1367() {
    let sim = sharing().await;
    let driver = Driver::start(&sim);
    for (name, of) in [("pvc-1", "shared"), ("pvc-2", "fast")] {
        let created = driver.create(of_type(name, of, capability(Mode::SingleNodeWriter)));
        let volume = created.await.expect("a volume").volume_id;
        let several = || capability(Mode::MultiNodeMultiWriter);
        publish(&driver, &volume, NODE, several()).await.expect("at one node");
        publish(&driver, &volume, NODE, several()).await.expect("there already");
        let refusal = refused(
            publish(&driver, &volume, OTHER_NODE, several()).await,
            Code::FailedPrecondition,
        );
        for part in [NODE, "several nodes", "ReadWriteOnce"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        driver.unpublish(&volume, NODE).await.expect("detached");
        publish(&driver, &volume, OTHER_NODE, several()).await.expect("moved");
    }
}

#[tokio::test(start_paused = true)]
async fn multiattach_type_allows_shared_volumes_issue_1248_issue_1367_issue_1778() {
    let sim = sharing().await;
    let driver = Driver::start(&sim);
    for (name, capability) in [
        ("device", device(Mode::MultiNodeMultiWriter)),
        ("read-only", capability(Mode::MultiNodeReaderOnly)),
    ] {
        // Cinder would create the volume, but Nova would refuse the second node much later.
        let refusal = refused(
            driver.create(of_type(name, "fast", capability.clone())).await,
            Code::InvalidArgument,
        );
        assert!(
            refusal.contains("type fast") && refusal.contains("multiattach"),
            "{refusal}"
        );
        let created = driver.create(of_type(name, "shared", capability.clone())).await;
        let volume = created.expect("a volume").volume_id;
        for node in [NODE, OTHER_NODE] {
            publish(&driver, &volume, node, capability.clone()).await.expect(name);
        }
    }
    let state = sim.state();
    assert_eq!((state.volumes.len(), state.attachments.len()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn single_writer_modes_are_supported_issue_1686() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let request = ControllerGetCapabilitiesRequest {};
    let answer = driver.controller().controller_get_capabilities(request).await;
    let claimed = answer.expect("capabilities").into_inner().capabilities;
    let wanted = controller_service_capability::Type::Rpc(controller_service_capability::Rpc {
        r#type: rpc::Type::SingleNodeMultiWriter.into(),
    });
    // Without this capability, the provisioner never requests the access mode of a ReadWriteOncePod volume.
    assert!(
        claimed.iter().any(|one| one.r#type.as_ref() == Some(&wanted)),
        "{claimed:?}"
    );
    for mode in [Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
        let request = CreateVolumeRequest {
            volume_capabilities: vec![capability(mode)],
            ..create_request(mode.as_str_name())
        };
        let volume = driver.create(request).await.expect("a volume").volume_id;
        publish(&driver, &volume, NODE, capability(mode))
            .await
            .expect("attached");
        let elsewhere = publish(&driver, &volume, OTHER_NODE, capability(mode)).await;
        assert!(refused(elsewhere, Code::FailedPrecondition).contains(NODE));
    }
}
