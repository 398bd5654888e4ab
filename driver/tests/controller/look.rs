// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::time::Duration;

use csi_proto::csi::v1::controller_service_capability::{Type, rpc};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetVolumeRequest, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
use openstack_sim::Sim;
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, UNKNOWN, capability, cloud, patient, refused, zone};

async fn list(driver: &Driver, max_entries: i32, token: &str) -> Result<ListVolumesResponse, Status> {
    let request = ListVolumesRequest {
        max_entries,
        starting_token: token.into(),
    };
    Ok(driver.controller().list_volumes(patient(request)).await?.into_inner())
}

#[tokio::test(start_paused = true)]
async fn advertised_capabilities_match_implementation() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let answer = driver
        .controller()
        .controller_get_capabilities(ControllerGetCapabilitiesRequest {})
        .await;
    let claimed: BTreeSet<i32> = answer
        .expect("capabilities")
        .into_inner()
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type {
            Some(Type::Rpc(rpc)) => rpc.r#type,
            None => panic!("an empty capability"),
        })
        .collect();
    for kind in [
        rpc::Type::CreateDeleteVolume,
        rpc::Type::PublishUnpublishVolume,
        rpc::Type::ListVolumes,
        rpc::Type::ListVolumesPublishedNodes,
        rpc::Type::GetVolume,
        rpc::Type::GetCapacity,
        rpc::Type::PublishReadonly,
        rpc::Type::ModifyVolume,
        rpc::Type::GetVolumeHealth,
        rpc::Type::ListVolumeHealth,
    ] {
        assert!(claimed.contains(&(kind as i32)), "{kind:?} is not claimed");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_list_every_volume_once_with_nodes() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let mut created = BTreeSet::new();
    for number in 0..5 {
        created.insert(driver.volume(&format!("pvc-{number}")).await);
    }
    let attached = created.first().expect("five of them").clone();
    driver.publish(&attached, NODE).await.expect("attached");

    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = list(&driver, 2, &token).await.expect("a page");
        assert!(page.entries.len() <= 2);
        seen.extend(page.entries);
        pages += 1;
        token = page.next_token;
        if token.is_empty() || pages > 5 {
            break;
        }
    }
    assert_eq!(pages, 3);
    let ids: BTreeSet<String> = seen
        .iter()
        .map(|entry| entry.volume.as_ref().expect("a volume").volume_id.clone())
        .collect();
    assert_eq!((ids, seen.len()), (created, 5));
    for entry in seen {
        let volume = entry.volume.expect("a volume");
        let nodes = entry.status.expect("a status").published_node_ids;
        assert_eq!(
            nodes,
            if volume.volume_id == attached {
                vec![NODE.to_owned()]
            } else {
                vec![]
            }
        );
        assert_eq!(
            (volume.capacity_bytes, volume.accessible_topology),
            (GIB, vec![zone("nova")])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unlimited_list_combines_pages_of_cinder() {
    let sim = cloud(|config| config.page_limit = 2).await;
    let driver = Driver::start(&sim);
    for number in 0..5 {
        driver.volume(&format!("pvc-{number}")).await;
    }
    let all = list(&driver, 0, "").await.expect("all");
    assert_eq!((all.entries.len(), all.next_token.as_str()), (5, ""));
}

#[tokio::test(start_paused = true)]
async fn list_resumes_after_deleted_volume() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let mut created = BTreeSet::new();
    for number in 0..3 {
        created.insert(driver.volume(&format!("pvc-{number}")).await);
    }
    let first = list(&driver, 1, "").await.expect("a page");
    let deleted = first.entries[0].volume.as_ref().expect("a volume").volume_id.clone();
    driver.delete(&deleted).await.expect("deleted");
    created.remove(&deleted);
    let rest = list(&driver, 0, &first.next_token).await.expect("the rest");
    let ids = rest.entries.iter().filter_map(|entry| entry.volume.as_ref());
    assert_eq!(
        ids.map(|volume| volume.volume_id.clone()).collect::<BTreeSet<_>>(),
        created
    );
}

#[tokio::test(start_paused = true)]
async fn pages_of_500_volumes_cost_one_list_issue_2295() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volumes = (0..501).map(|number| driver.create(crate::support::create_request(&format!("pvc-{number}"))));
    for created in futures::future::join_all(volumes).await {
        created.expect("a volume");
    }
    sim.clear_log();
    // A list that is requested at the same instant as a change is not cached.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let first = list(&driver, 0, "").await.expect("a page");
    assert_eq!(first.entries.len(), 500);
    let second = list(&driver, 0, &first.next_token).await.expect("a page");
    assert_eq!((second.entries.len(), second.next_token.as_str()), (1, ""));
    assert_eq!(sim.count("list_volumes_detail"), 1);
}

/// Counts the requests for a list of all volumes.
fn whole_lists(sim: &Sim) -> usize {
    let log = sim.log();
    let lists = log.iter().filter(|entry| entry.operation == "list_volumes_detail");
    lists.filter(|entry| !entry.path.contains('?')).count()
}

#[tokio::test(start_paused = true)]
async fn changes_between_pages_cost_no_list() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let mut created = BTreeSet::new();
    for number in 0..20 {
        created.insert(driver.volume(&format!("pvc-{number}")).await);
    }
    sim.clear_log();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (mut seen, mut token) = (BTreeSet::new(), String::new());
    for page in 0..20 {
        let answer = list(&driver, 1, &token).await.expect("a page");
        seen.extend(
            answer
                .entries
                .into_iter()
                .filter_map(|entry| Some(entry.volume?.volume_id)),
        );
        token = answer.next_token;
        driver.volume(&format!("later-{page}")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!((seen, token.as_str()), (created, ""));
    assert_eq!(whole_lists(&sim), 1);
    let all = list(&driver, 0, "").await.expect("all");
    assert_eq!(all.entries.len(), 40, "the next walk sees what was made");
}

#[tokio::test(start_paused = true)]
async fn other_process_resumes_walk_with_new_list() {
    let sim = cloud(|_| {}).await;
    let (driver, other) = (Driver::start(&sim), Driver::start(&sim));
    for number in 0..3 {
        driver.volume(&format!("pvc-{number}")).await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let first = list(&driver, 1, "").await.expect("a page");
    sim.clear_log();
    let second = list(&other, 1, &first.next_token).await.expect("a page");
    let third = list(&other, 1, &second.next_token).await.expect("a page");
    let pages = [&first, &second, &third].map(|page| page.entries[0].volume.clone().expect("a volume").volume_id);
    assert_eq!(BTreeSet::from(pages).len(), 3);
    assert_eq!((whole_lists(&sim), third.next_token.as_str()), (1, ""));
}

#[tokio::test(start_paused = true)]
async fn rejects_invalid_token_and_negative_limit() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    driver.volume("pvc-2").await;
    let token = list(&driver, 1, "").await.expect("a page").next_token;
    assert!(!token.is_empty() && token.len() <= 128, "{token}");
    for bad in [&token[1..], &token[..token.len() - 1]] {
        refused(list(&driver, 1, bad).await, Code::Aborted);
    }
    refused(list(&driver, 1, "invalid-token").await, Code::Aborted);
    refused(list(&driver, 1, UNKNOWN).await, Code::Aborted);
    refused(list(&driver, -1, "").await, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn get_volume_matches_list_entry() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume_id = driver.volume("pvc-1").await;
    driver.publish(&volume_id, NODE).await.expect("attached");
    let answer = driver
        .controller()
        .controller_get_volume(ControllerGetVolumeRequest { volume_id })
        .await;
    let answer = answer.expect("a volume").into_inner();
    let listed = list(&driver, 0, "").await.expect("all").entries.remove(0);
    assert_eq!(answer.volume, listed.volume);
    assert_eq!(answer.status.expect("a status").published_node_ids, [NODE]);
    for (id, code) in [
        (UNKNOWN, Code::NotFound),
        ("fake-vol-id", Code::NotFound),
        ("", Code::InvalidArgument),
    ] {
        let request = ControllerGetVolumeRequest { volume_id: id.into() };
        refused(driver.controller().controller_get_volume(request).await, code);
    }
}

async fn validate(
    driver: &Driver,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    Ok(driver
        .controller()
        .validate_volume_capabilities(patient(request))
        .await?
        .into_inner())
}

#[tokio::test(start_paused = true)]
async fn capabilities_are_confirmed_only_if_all_supported() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let pair = |key: &str| std::iter::once((key.to_owned(), "value".to_owned())).collect();
    let request = |volume_id: &str, modes: &[Mode]| ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.into(),
        volume_context: pair("context"),
        volume_capabilities: modes.iter().map(|&mode| capability(mode)).collect(),
        parameters: pair("parameter"),
        mutable_parameters: pair("mutable"),
        ..ValidateVolumeCapabilitiesRequest::default()
    };
    let requested = request(&volume, &[Mode::SingleNodeWriter, Mode::SingleNodeReaderOnly]);
    let confirmed = validate(&driver, requested.clone())
        .await
        .expect("an answer")
        .confirmed
        .expect("confirmed");
    assert_eq!(confirmed.volume_context, requested.volume_context);
    assert_eq!(confirmed.volume_capabilities, requested.volume_capabilities);
    assert_eq!(confirmed.parameters, requested.parameters);
    assert_eq!(confirmed.mutable_parameters, requested.mutable_parameters);

    for unmet in [Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly] {
        let requested = request(&volume, &[Mode::SingleNodeWriter, unmet]);
        let answer = validate(&driver, requested).await.expect("an answer");
        assert!(
            answer.confirmed.is_none() && !answer.message.is_empty(),
            "{unmet:?}: {answer:?}"
        );
    }

    let modes = [Mode::SingleNodeWriter];
    refused(validate(&driver, request(UNKNOWN, &modes)).await, Code::NotFound);
    refused(validate(&driver, request("fake-vol-id", &modes)).await, Code::NotFound);
    refused(validate(&driver, request("", &modes)).await, Code::InvalidArgument);
    refused(validate(&driver, request(&volume, &[])).await, Code::InvalidArgument);
}
