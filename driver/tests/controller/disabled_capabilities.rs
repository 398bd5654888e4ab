// SPDX-License-Identifier: Apache-2.0
//! Alpha calls of CSI: each is served by default, and `UNIMPLEMENTED` if it is disabled.

use std::collections::BTreeSet;

use cinder_csi_driver::disabled_capabilities::AlphaCapability;
use csi_proto::csi::v1::controller_service_capability::{Type as ControllerType, rpc as controller_rpc};
use csi_proto::csi::v1::node_service_capability::{Type as NodeType, rpc as node_rpc};
use csi_proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetVolumeHealthRequest, ControllerGetVolumeRequest,
    ControllerListVolumeHealthRequest, GetSnapshotRequest, NodeGetCapabilitiesRequest, NodeGetStorageHealthRequest,
    NodeGetVolumeHealthRequest,
};
use openstack_sim::Sim;
use tonic::{Code, Status};

use crate::support::{Driver, NODE, cloud, patient};

/// Every call that `csi.proto` marks as alpha, and the capability that disables it.
const CALLS: [(&str, AlphaCapability); 6] = [
    ("ControllerListVolumeHealth", AlphaCapability::ListVolumeHealth),
    ("ControllerGetVolumeHealth", AlphaCapability::GetVolumeHealth),
    ("GetSnapshot", AlphaCapability::GetSnapshot),
    ("ControllerGetVolume", AlphaCapability::GetVolume),
    ("NodeGetVolumeHealth", AlphaCapability::GetVolumeHealth),
    ("NodeGetStorageHealth", AlphaCapability::GetStorageHealth),
];

async fn call(driver: &Driver, name: &str) -> Code {
    let (mut controller, mut node) = (driver.controller(), driver.node());
    // The requests are empty, so a call that is served reports a missing field.
    let answer: Result<(), Status> = match name {
        "ControllerListVolumeHealth" => {
            let request = patient(ControllerListVolumeHealthRequest::default());
            controller.controller_list_volume_health(request).await.map(drop)
        }
        "ControllerGetVolumeHealth" => {
            let request = patient(ControllerGetVolumeHealthRequest::default());
            controller.controller_get_volume_health(request).await.map(drop)
        }
        "GetSnapshot" => controller
            .get_snapshot(patient(GetSnapshotRequest::default()))
            .await
            .map(drop),
        "ControllerGetVolume" => {
            let request = patient(ControllerGetVolumeRequest::default());
            controller.controller_get_volume(request).await.map(drop)
        }
        "NodeGetVolumeHealth" => node
            .node_get_volume_health(patient(NodeGetVolumeHealthRequest::default()))
            .await
            .map(drop),
        "NodeGetStorageHealth" => node
            .node_get_storage_health(patient(NodeGetStorageHealthRequest::default()))
            .await
            .map(drop),
        other => panic!("{other} is not in this table"),
    };
    answer.err().map_or(Code::Ok, |status| status.code())
}

/// Returns the names of all advertised capabilities of controller and node.
async fn claimed(driver: &Driver) -> BTreeSet<String> {
    let controller = driver
        .controller()
        .controller_get_capabilities(ControllerGetCapabilitiesRequest {})
        .await;
    let controller = controller.expect("capabilities").into_inner().capabilities.into_iter();
    let controller = controller.filter_map(|capability| match capability.r#type? {
        ControllerType::Rpc(rpc) => Some(
            controller_rpc::Type::try_from(rpc.r#type)
                .ok()?
                .as_str_name()
                .to_owned(),
        ),
    });
    let node = driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    let node = node.expect("capabilities").into_inner().capabilities.into_iter();
    let node = node.filter_map(|capability| match capability.r#type? {
        NodeType::Rpc(rpc) => Some(node_rpc::Type::try_from(rpc.r#type).ok()?.as_str_name().to_owned()),
    });
    controller.chain(node).collect()
}

fn both_roles(sim: &Sim, off: &[AlphaCapability]) -> Driver {
    Driver::start_with(sim, &sim.access().cloud_conf(), |args| {
        args.provide_node_service = true;
        args.instance_id = Some(NODE.to_owned());
        args.disable_capability = off.to_vec();
    })
}

#[test]
fn table_contains_all_alpha_calls_of_csi() {
    let proto = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/csi.proto"));
    let proto = proto.expect("csi.proto");
    let (mut alpha, mut last) = (BTreeSet::new(), "");
    for line in proto.lines().map(str::trim) {
        if let Some(rpc) = line.strip_prefix("rpc ") {
            last = rpc.split('(').next().unwrap_or_default();
        } else if line.starts_with("option (alpha_method) = true") {
            alpha.insert(last);
        }
    }
    assert_eq!(alpha, CALLS.iter().map(|(name, _)| *name).collect());
}

#[tokio::test(start_paused = true)]
async fn alpha_calls_are_served_unless_disabled() {
    let sim = cloud(|_| {}).await;
    let driver = both_roles(&sim, &[]);
    let all = claimed(&driver).await;
    for (name, switch) in CALLS {
        assert_ne!(call(&driver, name).await, Code::Unimplemented, "{name}");
        assert!(all.contains(switch.name()), "{name} is claimed");
    }
    for off in AlphaCapability::ALL {
        let driver = both_roles(&sim, &[off]);
        for (name, switch) in CALLS {
            let code = call(&driver, name).await;
            assert_eq!(
                code == Code::Unimplemented,
                switch == off,
                "{name} without {off}: {code:?}"
            );
        }
        let mut expected = all.clone();
        expected.remove(off.name());
        assert_eq!(claimed(&driver).await, expected, "without {off}");
    }
}
