// SPDX-License-Identifier: Apache-2.0
//! The check of the volumes' project before every call: `--project-id`.

use std::collections::BTreeSet;

use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::identity_client::IdentityClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetCapabilitiesRequest, ControllerGetVolumeHealthRequest,
    ControllerGetVolumeRequest, ControllerListVolumeHealthRequest, ControllerModifyVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest,
    DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest, GetCapacityRequest,
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, GetSnapshotRequest, GetVolumeGroupSnapshotRequest,
    GroupControllerGetCapabilitiesRequest, ListSnapshotsRequest, ListVolumesRequest, ProbeRequest,
    ValidateVolumeCapabilitiesRequest, VolumeContentSource, volume_content_source,
};
use openstack_sim::{Effect, Fault, Sim};
use sim_network::SimNetwork;
use tonic::{Code, Status};

use crate::channel::Channel;
use crate::support::{
    Driver, GIB, NODE, UNKNOWN, capability, cloud, create_request, patient, publish_request, refused, sources,
};

/// The project of the volumes. No credentials of these tests belong to it.
const OWN: &str = "project-of-the-volumes";
const PROTO: &str = include_str!("../../../proto/csi.proto");

/// The RPCs of a service in csi.proto.
fn rpcs(service: &str) -> BTreeSet<&'static str> {
    let start = PROTO.find(&format!("\nservice {service} {{")).expect("the service");
    let text = &PROTO[start + 1..];
    let text = &text[..text.find("\n}").expect("its end")];
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    names.filter_map(|line| line.split('(').next()).collect()
}

macro_rules! calls {
    ($client:expr, { $($name:literal: $method:ident($request:expr),)* }) => {
        vec![$(($name, {
            let mut client = $client.clone();
            client.$method(patient($request)).await.map(drop)
        }),)*]
    };
}

/// Returns the result of each RPC that uses the cloud, by name.
async fn call_all(driver: &Driver) -> Vec<(&'static str, Result<(), Status>)> {
    let volume = || UNKNOWN.to_owned();
    let controller: ControllerClient<Channel> = driver.controller();
    let mut results = calls!(controller, {
        "CreateVolume": create_volume(create_request("pvc-1")),
        "DeleteVolume": delete_volume(DeleteVolumeRequest { volume_id: volume(), ..Default::default() }),
        "ControllerPublishVolume": controller_publish_volume(publish_request(UNKNOWN, NODE)),
        "ControllerUnpublishVolume": controller_unpublish_volume(ControllerUnpublishVolumeRequest {
            volume_id: volume(), node_id: NODE.to_owned(), ..Default::default()
        }),
        "ValidateVolumeCapabilities": validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
            volume_id: volume(),
            volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
            ..Default::default()
        }),
        "ListVolumes": list_volumes(ListVolumesRequest::default()),
        "ControllerListVolumeHealth": controller_list_volume_health(ControllerListVolumeHealthRequest::default()),
        "ControllerGetVolumeHealth": controller_get_volume_health(ControllerGetVolumeHealthRequest {
            volume_id: volume(), ..Default::default()
        }),
        "GetCapacity": get_capacity(GetCapacityRequest::default()),
        "CreateSnapshot": create_snapshot(CreateSnapshotRequest {
            name: "snapshot-1".to_owned(), source_volume_id: volume(), ..Default::default()
        }),
        "DeleteSnapshot": delete_snapshot(DeleteSnapshotRequest { snapshot_id: volume(), ..Default::default() }),
        "ListSnapshots": list_snapshots(ListSnapshotsRequest::default()),
        "GetSnapshot": get_snapshot(GetSnapshotRequest { snapshot_id: volume(), ..Default::default() }),
        "ControllerExpandVolume": controller_expand_volume(ControllerExpandVolumeRequest {
            volume_id: volume(),
            capacity_range: Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
            ..Default::default()
        }),
        "ControllerGetVolume": controller_get_volume(ControllerGetVolumeRequest { volume_id: volume() }),
        "ControllerModifyVolume": controller_modify_volume(ControllerModifyVolumeRequest {
            volume_id: volume(),
            mutable_parameters: [("type".to_owned(), "fast".to_owned())].into(),
            ..Default::default()
        }),
    });
    let groups = GroupControllerClient::new(driver.channel());
    results.extend(calls!(groups, {
        "CreateVolumeGroupSnapshot": create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest {
            name: "group-1".to_owned(), source_volume_ids: vec![volume()], ..Default::default()
        }),
        "DeleteVolumeGroupSnapshot": delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: volume(), ..Default::default()
        }),
        "GetVolumeGroupSnapshot": get_volume_group_snapshot(GetVolumeGroupSnapshotRequest {
            group_snapshot_id: volume(), ..Default::default()
        }),
    }));
    results
}

/// Returns the requests to Cinder and Nova.
fn requests(sim: &Sim) -> Vec<&'static str> {
    let log = sim.log();
    let operations = log.iter().map(|entry| entry.operation);
    operations.filter(|operation| *operation != "issue_token").collect()
}

fn in_project(sim: &Sim, project: &str) -> Driver {
    Driver::start_with(sim, &sim.access().cloud_conf(), |args| {
        args.project_id = vec![(String::new(), project.to_owned())];
    })
}

#[tokio::test(start_paused = true)]
async fn every_rpc_refuses_another_project() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, OWN);
    let results = call_all(&driver).await;
    let called: BTreeSet<_> = results.iter().map(|(name, _)| *name).collect();
    let mut expected = &rpcs("Controller") | &rpcs("GroupController");
    for name in ["ControllerGetCapabilities", "GroupControllerGetCapabilities"] {
        assert!(expected.remove(name), "{name}");
    }
    assert_eq!(called, expected, "the table has every RPC");
    for (name, result) in results {
        let status = result.expect_err(name);
        assert_eq!(status.code(), Code::Unavailable, "{name}: {status}");
        let text = status.message();
        assert!(text.contains("--project-id") && text.contains(OWN), "{name}: {text}");
        assert!(text.contains(&sim.access().project_id), "{name}: {text}");
    }
    assert_eq!(requests(&sim), Vec::<&str>::new());
    assert!(sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn capabilities_need_no_project() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, OWN);
    let mut identity: IdentityClient<Channel> = driver.identity();
    identity
        .get_plugin_info(patient(GetPluginInfoRequest {}))
        .await
        .expect("an answer");
    let request = patient(GetPluginCapabilitiesRequest {});
    identity.get_plugin_capabilities(request).await.expect("an answer");
    identity.probe(patient(ProbeRequest {})).await.expect("an answer");
    let request = patient(ControllerGetCapabilitiesRequest {});
    driver
        .controller()
        .controller_get_capabilities(request)
        .await
        .expect("an answer");
    let request = patient(GroupControllerGetCapabilitiesRequest {});
    let mut groups = GroupControllerClient::new(driver.channel());
    groups
        .group_controller_get_capabilities(request)
        .await
        .expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn unknown_project_is_unavailable() {
    let sim = cloud(|_| {}).await;
    sim.fault(Fault::on("issue_token").effect(Effect::status(401)))
        .expect("a rule");
    let driver = in_project(&sim, &sim.access().project_id);
    for (name, result) in call_all(&driver).await {
        assert_eq!(result.expect_err(name).code(), Code::Unavailable, "{name}");
    }
    assert_eq!(requests(&sim), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn own_project_is_served() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, &sim.access().project_id);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    driver.unpublish(&volume, NODE).await.expect("detached");
    driver.delete(&volume).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_need_no_project() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, OWN);
    let nameless = CreateVolumeRequest {
        name: String::new(),
        ..create_request("pvc-1")
    };
    refused(driver.create(nameless).await, Code::InvalidArgument);
}

/// Two clouds. The credentials of `west` belong to another project.
async fn east_and_foreign_west() -> (Sim, Sim, Driver) {
    let (sources, network) = (sources(), SimNetwork::default());
    let at = async |name: &str| {
        let sim = cloud(|config| {
            config.public_url = Some(format!("http://{name}.invalid"));
            config.sources = sources.clone();
        })
        .await;
        network.add(&sim);
        sim
    };
    let (east, west) = (at("east").await, at("west").await);
    let section = |name: &str, sim: &Sim| {
        let conf = sim.access().cloud_conf();
        conf.replace("[Global]", &format!("[Global \"{name}\"]"))
    };
    let conf = format!("{}\n{}", section("east", &east), section("west", &west));
    let driver = Driver::start_on(network, sources, &conf, |args| {
        args.cloud_name = vec!["east".into(), "west".into()];
        args.project_id = vec![("west".to_owned(), OWN.to_owned())];
    });
    (east, west, driver)
}

#[tokio::test(start_paused = true)]
async fn lists_fail_with_one_misdirected_cloud() {
    let (_east, west, driver) = east_and_foreign_west().await;
    let mut controller = driver.controller();
    let results = [
        controller
            .list_volumes(patient(ListVolumesRequest::default()))
            .await
            .map(drop),
        controller
            .list_snapshots(patient(ListSnapshotsRequest::default()))
            .await
            .map(drop),
        (controller
            .controller_list_volume_health(patient(ControllerListVolumeHealthRequest::default()))
            .await)
            .map(drop),
    ];
    for result in results {
        assert!(refused(result, Code::Unavailable).contains("west"));
    }
    assert_eq!(requests(&west), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn next_page_checks_the_project_again() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, &sim.access().project_id);
    for name in ["pvc-1", "pvc-2"] {
        driver.volume(name).await;
    }
    let mut controller = driver.controller();
    let page = |starting_token: String| ListVolumesRequest {
        max_entries: 1,
        starting_token,
    };
    let first = controller
        .list_volumes(patient(page(String::new())))
        .await
        .expect("a page");
    let token = first.into_inner().next_token;
    assert!(!token.is_empty());
    sim.fault(Fault::on("issue_token").effect(Effect::status(401)))
        .expect("a rule");
    sim.revoke_tokens();
    tokio::time::advance(std::time::Duration::from_hours(24)).await;
    refused(controller.list_volumes(patient(page(token))).await, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn other_clouds_are_served_next_to_misdirected_cloud() {
    let (east, west, driver) = east_and_foreign_west().await;
    let named = |name: &str, cloud: &str| CreateVolumeRequest {
        secrets: [("cloud".to_owned(), cloud.to_owned())].into(),
        ..create_request(name)
    };
    let volume = driver.create(named("pvc-1", "east")).await.expect("a volume").volume_id;
    refused(driver.create(named("pvc-2", "west")).await, Code::Unavailable);
    driver.publish(&volume, NODE).await.expect("attached");
    driver.unpublish(&volume, NODE).await.expect("detached");
    driver.delete(&volume).await.expect("deleted");
    refused(driver.delete(UNKNOWN).await, Code::Unavailable);
    let copy = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(volume_content_source::Type::Volume(
                volume_content_source::VolumeSource {
                    volume_id: UNKNOWN.to_owned(),
                },
            )),
        }),
        ..create_request("pvc-3")
    };
    refused(driver.create(copy).await, Code::Unavailable);
    assert!(east.state().volumes.is_empty());
    assert_eq!(requests(&west), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn credentials_of_a_secret_choose_their_project() {
    let sim = cloud(|_| {}).await;
    let driver = in_project(&sim, OWN);
    let access = sim.access();
    let pairs = [
        ("auth-url", access.auth_url.as_str()),
        ("application-credential-id", &access.application_credential_id),
        ("application-credential-secret", &access.application_credential_secret),
    ];
    let request = CreateVolumeRequest {
        secrets: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..create_request("pvc-1")
    };
    driver.create(request).await.expect("a volume");
}
