// SPDX-License-Identifier: Apache-2.0

use csi_proto::csi::v1::plugin_capability::{Type, service, volume_expansion};
use csi_proto::csi::v1::{GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetInfoRequest, ProbeRequest};
use tonic::Code;

use crate::support::{Driver, cloud, refused};

async fn services(driver: &Driver) -> Vec<i32> {
    let services = capabilities(driver).await.into_iter();
    services
        .filter_map(|capability| match capability {
            Type::Service(service) => Some(service.r#type),
            Type::VolumeExpansion(_) => None,
        })
        .collect()
}

async fn capabilities(driver: &Driver) -> Vec<Type> {
    let answer = driver
        .identity()
        .get_plugin_capabilities(GetPluginCapabilitiesRequest {})
        .await
        .expect("capabilities");
    let capabilities = answer.into_inner().capabilities.into_iter();
    capabilities
        .map(|capability| capability.r#type.expect("a capability has a type"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn online_and_offline_expansion_are_advertised() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let grows: Vec<i32> = capabilities(&driver)
        .await
        .into_iter()
        .filter_map(|capability| match capability {
            Type::VolumeExpansion(expansion) => Some(expansion.r#type),
            Type::Service(_) => None,
        })
        .collect();
    assert_eq!(
        grows,
        [
            volume_expansion::Type::Online as i32,
            volume_expansion::Type::Offline as i32
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn controller_reports_name_version_and_services() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let info = driver
        .identity()
        .get_plugin_info(GetPluginInfoRequest {})
        .await
        .expect("info")
        .into_inner();
    assert_eq!(info.name, "cinder.csi.openstack.org");
    assert_eq!(info.vendor_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(
        services(&driver).await,
        [
            service::Type::ControllerService as i32,
            service::Type::GroupControllerService as i32,
            service::Type::VolumeAccessibilityConstraints as i32,
            service::Type::SnapshotAccessibilityConstraints as i32,
        ]
    );
    let probe = driver
        .identity()
        .probe(ProbeRequest {})
        .await
        .expect("probe")
        .into_inner();
    assert_eq!(probe.ready, Some(true));
}

#[tokio::test(start_paused = true)]
async fn disabled_topology_is_not_advertised() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.with_topology = false);
    assert_eq!(
        services(&driver).await,
        [
            service::Type::ControllerService as i32,
            service::Type::GroupControllerService as i32
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn disabled_role_is_unimplemented() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let answer = driver.node().node_get_info(NodeGetInfoRequest {}).await;
    refused(answer, Code::Unimplemented);
}
