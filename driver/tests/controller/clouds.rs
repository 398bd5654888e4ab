// SPDX-License-Identifier: Apache-2.0
//! One driver for several clouds.

use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest,
    GetCapacityRequest, GetVolumeGroupSnapshotRequest, ListVolumesRequest, Topology, TopologyRequirement,
};
use openstack_sim::{Effect, Fault, GroupType, Sim};
use sim_network::SimNetwork;
use tonic::{Code, Status};

use crate::support::{Driver, NODE, UNKNOWN, cloud, create_request, patient, refused, sources};

pub(crate) const REGION: &str = "topology.kubernetes.io/region";

/// Two clouds in two regions, and a driver for both.
pub(crate) async fn two_clouds() -> (Sim, Sim, Driver) {
    let (east, west, start) = two_clouds_without_driver().await;
    let driver = start();
    (east, west, driver)
}

/// Two clouds in two regions, and a function that starts a driver for both.
async fn two_clouds_without_driver() -> (Sim, Sim, impl Fn() -> Driver) {
    let (sources, network) = (sources(), SimNetwork::default());
    let at = async |name: &str| {
        let sim = cloud(|config| {
            config.public_url = Some(format!("http://{name}.invalid"));
            config.group_types = vec![GroupType::consistent("together")];
            // The clouds share the source of ids, so that ids are unique.
            config.sources = sources.clone();
        });
        let sim = sim.await;
        network.add(&sim);
        sim
    };
    let (east, west) = (at("east").await, at("west").await);
    let section = |name: &str, sim: &Sim| {
        let conf = sim.access().cloud_conf();
        format!(
            "{}\n[Topology \"{name}\"]\nsegment = {REGION}={name}\n",
            conf.replace("[Global]", &format!("[Global \"{name}\"]"))
        )
    };
    let conf = format!("{}\n{}", section("east", &east), section("west", &west));
    let start = move || {
        Driver::start_on(network.clone(), sources.clone(), &conf, |args| {
            args.cloud_name = vec!["east".into(), "west".into()];
        })
    };
    (east, west, start)
}

fn of_cloud(name: &str, cloud: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        secrets: [("cloud".to_owned(), cloud.to_owned())].into(),
        ..create_request(name)
    }
}

fn in_region(name: &str, region: &str) -> CreateVolumeRequest {
    let segments = [(REGION, region), (crate::support::ZONE, "nova")];
    let topology = Topology {
        segments: segments.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    };
    CreateVolumeRequest {
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology],
        }),
        ..create_request(name)
    }
}

#[tokio::test(start_paused = true)]
async fn bare_handle_finds_cloud_of_volume() {
    let (east, west, driver) = two_clouds().await;
    let volume = driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    assert_eq!((east.state().volumes.len(), west.state().volumes.len()), (0, 1));
    // These calls do not contain the cloud.
    driver.publish(&volume.volume_id, NODE).await.expect("attached");
    driver.unpublish(&volume.volume_id, NODE).await.expect("detached");
    driver.delete(&volume.volume_id).await.expect("deleted");
    assert!(west.state().volumes.is_empty());
    assert_eq!(east.count("delete_volume"), 0);
}

#[tokio::test(start_paused = true)]
async fn one_class_creates_volumes_in_every_region_issue_2843() {
    let (east, west, driver) = two_clouds().await;
    for (region, sim) in [("west", &west), ("east", &east)] {
        let volume = driver
            .create(in_region(&format!("pvc-{region}"), region))
            .await
            .expect("a volume");
        assert_eq!(sim.state().volumes.len(), 1, "{region}");
        let topology = &volume.accessible_topology[0];
        assert_eq!(topology.segments[REGION], region, "pods stay in the volume's region");
    }
    let refusal = refused(
        driver.create(in_region("pvc-north", "north")).await,
        Code::InvalidArgument,
    );
    assert!(refusal.contains("several clouds"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn volume_is_missing_only_if_every_cloud_agrees() {
    let (_east, west, driver) = two_clouds().await;
    driver.delete(UNKNOWN).await.expect("nobody has it");
    west.fault(Fault::on("get_volume").effect(Effect::status(500)))
        .expect("a rule");
    let refusal = refused(driver.delete(UNKNOWN).await, Code::Unavailable);
    assert!(refusal.contains("west") && refusal.contains(UNKNOWN), "{refusal}");
    let refusal = refused(driver.unpublish(UNKNOWN, NODE).await, Code::Unavailable);
    assert!(refusal.contains("west"), "{refusal}");
}

/// An API node with a lagging database does not show a new volume, and the process that created it has ended.
#[tokio::test(start_paused = true)]
async fn new_volume_is_deleted_after_restart() {
    let (_east, west, start) = two_clouds_without_driver().await;
    let volume = start().create(of_cloud("pvc-1", "west")).await.expect("a volume");
    let restarted = start();
    west.fault(Fault::on("get_volume").times(1).effect(Effect::status(404)))
        .expect("a rule");
    restarted.delete(&volume.volume_id).await.expect("deleted");
    assert!(west.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_volume_is_detached_after_restart() {
    let (_east, west, start) = two_clouds_without_driver().await;
    let driver = start();
    let volume = driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    driver.publish(&volume.volume_id, NODE).await.expect("attached");
    let restarted = start();
    west.fault(Fault::on("get_volume").times(1).effect(Effect::status(404)))
        .expect("a rule");
    restarted.unpublish(&volume.volume_id, NODE).await.expect("detached");
    assert!(west.state().attachments.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changed_secret_does_not_hide_volume() {
    let (_east, west, driver) = two_clouds().await;
    let volume = driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    let request = DeleteVolumeRequest {
        volume_id: volume.volume_id,
        secrets: [("cloud".to_owned(), "east".to_owned())].into(),
    };
    driver
        .controller()
        .delete_volume(patient(request))
        .await
        .expect("deleted");
    assert!(west.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn secret_credentials_are_used_and_checked_issue_2963() {
    let (east, west, driver) = two_clouds().await;
    let access = west.access();
    let with = |secret: &str| {
        let pairs = [
            ("auth-url", access.auth_url.as_str()),
            ("application-credential-id", &access.application_credential_id),
            ("application-credential-secret", secret),
        ];
        CreateVolumeRequest {
            secrets: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..create_request("pvc-1")
        }
    };
    // The code for invalid secrets is final for the provisioner, but an earlier attempt may have created the volume.
    let refusal = refused(driver.create(with("geheim")).await, Code::Unavailable);
    assert!(!refusal.contains("geheim") && refusal.contains("Secret"), "{refusal}");
    let created: Result<_, Status> = driver.create(with(&access.application_credential_secret)).await;
    driver
        .delete(&created.expect("a volume").volume_id)
        .await
        .expect("deleted");
    assert!(west.state().volumes.is_empty() && east.count("create_volume") == 0);
}

#[tokio::test(start_paused = true)]
async fn list_covers_all_clouds_or_fails() {
    let (east, _west, driver) = two_clouds().await;
    let list = async |max_entries: i32, token: &str| {
        let request = ListVolumesRequest {
            max_entries,
            starting_token: token.into(),
        };
        Ok::<_, Status>(driver.controller().list_volumes(patient(request)).await?.into_inner())
    };
    let (mut created, mut seen, mut token) = (Vec::new(), Vec::new(), String::new());
    for cloud in ["east", "west"] {
        let mut of_one = Vec::new();
        for number in 0..2 {
            let request = of_cloud(&format!("pvc-{cloud}-{number}"), cloud);
            of_one.push(driver.create(request).await.expect("a volume").volume_id);
        }
        of_one.sort();
        created.append(&mut of_one);
    }
    loop {
        let page = list(1, &token).await.expect("a page");
        seen.extend(page.entries.into_iter().filter_map(|entry| entry.volume));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(
        seen.into_iter().map(|volume| volume.volume_id).collect::<Vec<_>>(),
        created
    );

    // A volume that is missing in the list counts as detached.
    driver.delete(&created[0]).await.expect("deleted");
    let away = Fault::on("list_volumes_detail").effect(Effect::status(503).retry_after(3600));
    east.fault(away).expect("a rule");
    refused(list(0, "").await, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn capacity_of_region_is_capacity_of_cloud() {
    let (_east, _west, driver) = two_clouds().await;
    driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    let capacity = async |region: &str| {
        let request = GetCapacityRequest {
            accessible_topology: in_region("", region)
                .accessibility_requirements
                .map(|mut requested| requested.requisite.remove(0)),
            ..GetCapacityRequest::default()
        };
        let response = driver
            .controller()
            .get_capacity(patient(request))
            .await
            .expect("a capacity");
        response.into_inner().available_capacity
    };
    assert_eq!(capacity("east").await - capacity("west").await, 1 << 30);
}

#[tokio::test(start_paused = true)]
async fn silent_cloud_delays_no_group_snapshot() {
    let (east, west, driver) = two_clouds().await;
    let volume = driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    let mut groups = GroupControllerClient::new(driver.channel());
    let new = CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: vec![volume.volume_id],
        parameters: [("group-type".to_owned(), "together".to_owned())].into(),
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let group_snapshot = groups.create_volume_group_snapshot(patient(new)).await.expect("taken");
    let group_snapshot = group_snapshot.into_inner().group_snapshot.expect("a group snapshot");
    east.fault(Fault::everywhere().effect(Effect::status(503)))
        .expect("a rule");
    let group_snapshot_id = group_snapshot.group_snapshot_id;
    let get = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group_snapshot_id.clone(),
        ..GetVolumeGroupSnapshotRequest::default()
    };
    groups.get_volume_group_snapshot(patient(get)).await.expect("found");
    let delete = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id,
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    groups
        .delete_volume_group_snapshot(patient(delete))
        .await
        .expect("deleted");
    assert!(west.state().group_snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_of_deleted_volumes_removes_group() {
    let (_, west, driver) = two_clouds().await;
    let volume = driver.create(of_cloud("pvc-1", "west")).await.expect("a volume");
    let mut groups = GroupControllerClient::new(driver.channel());
    let new = CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: vec![volume.volume_id.clone()],
        parameters: [("group-type".to_owned(), "together".to_owned())].into(),
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    for operation in ["update_group", "delete_group"] {
        let fails = Fault::on(operation).effect(Effect::status(503));
        west.fault(fails).expect("a rule");
    }
    let first = groups.create_volume_group_snapshot(patient(new.clone())).await;
    first.expect_err("no volume enters the group");
    assert_eq!(west.state().groups.len(), 1);
    west.clear_faults();
    driver.delete(&volume.volume_id).await.expect("deleted");
    let second = groups.create_volume_group_snapshot(patient(new)).await;
    let status = second.expect_err("the volume is missing");
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert_eq!(west.state().groups, []);
}
