use csi_proto::csi::v1::plugin_capability::{Type, service};
use csi_proto::csi::v1::{GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetInfoRequest, ProbeRequest};
use tonic::Code;

use crate::support::{Driver, cloud, refused};

async fn services(driver: &Driver) -> Vec<i32> {
    let answer = driver
        .identity()
        .get_plugin_capabilities(GetPluginCapabilitiesRequest {})
        .await
        .expect("capabilities");
    let capabilities = answer.into_inner().capabilities.into_iter();
    capabilities
        .map(|capability| match capability.r#type {
            Some(Type::Service(service)) => service.r#type,
            other => panic!("{other:?} is claimed and not served"),
        })
        .collect()
}

#[tokio::test]
async fn a_controller_tells_its_name_version_and_services() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim).await;
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
            service::Type::VolumeAccessibilityConstraints as i32,
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

#[tokio::test]
async fn zones_are_not_claimed_without_topology() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::with(&sim.access().cloud_conf(), |args| args.with_topology = false).await;
    assert_eq!(services(&driver).await, [service::Type::ControllerService as i32]);
}

#[tokio::test]
async fn a_role_that_is_off_is_not_implemented() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim).await;
    let answer = driver.node().node_get_info(NodeGetInfoRequest {}).await;
    refused(answer, Code::Unimplemented);
}
