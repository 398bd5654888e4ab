// SPDX-License-Identifier: Apache-2.0

use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse,
    VolumeHealth, VolumeHealthErrorType,
};
use openstack_sim::VolumeStatus;
use tonic::{Code, Status};

use crate::support::{Driver, NODE, UNKNOWN, cloud, patient, refused};

async fn health(driver: &Driver, volume_id: &str) -> Result<VolumeHealth, Status> {
    let request = ControllerGetVolumeHealthRequest {
        volume_id: volume_id.into(),
        ..ControllerGetVolumeHealthRequest::default()
    };
    let answer = driver
        .controller()
        .controller_get_volume_health(patient(request))
        .await?;
    Ok(answer.into_inner().volume_health.expect("an answer"))
}

async fn list(driver: &Driver, max: i32, token: &str) -> Result<ControllerListVolumeHealthResponse, Status> {
    let request = ControllerListVolumeHealthRequest {
        max_entries: max,
        starting_token: token.into(),
        ..ControllerListVolumeHealthRequest::default()
    };
    let answer = driver
        .controller()
        .controller_list_volume_health(patient(request))
        .await?;
    Ok(answer.into_inner())
}

fn entries(health: &VolumeHealth) -> Vec<(VolumeHealthErrorType, &str)> {
    let entries = health.health_statuses.iter();
    entries.map(|entry| (entry.status(), entry.reason.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn healthy_volume_has_no_entries_issue_1584() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let found = health(&driver, &volume).await.expect("an answer");
    assert_eq!((found.volume_id.as_str(), entries(&found)), (volume.as_str(), vec![]));
    assert!(list(&driver, 0, "").await.expect("a list").entries.is_empty());
    for (id, code) in [
        (UNKNOWN, Code::NotFound),
        ("fake-vol-id", Code::NotFound),
        ("", Code::InvalidArgument),
    ] {
        refused(health(&driver, id).await, code);
    }
}

#[tokio::test(start_paused = true)]
async fn both_health_calls_report_failed_volume_equally() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    let volume = driver.volume("pvc-2").await;
    sim.set_volume_status(&volume, VolumeStatus::ErrorExtending);
    let found = health(&driver, &volume).await.expect("an answer");
    assert_eq!(entries(&found), [(VolumeHealthErrorType::Degraded, "ExtendFailed")]);
    assert_eq!(list(&driver, 0, "").await.expect("a list").entries, [found]);
}

#[tokio::test(start_paused = true)]
async fn volume_of_deleted_server_is_inaccessible() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    sim.remove_server(NODE, true);
    let found = health(&driver, &volume).await.expect("an answer");
    assert_eq!(entries(&found), [(VolumeHealthErrorType::Inaccessible, "ServerGone")]);
    assert_eq!(list(&driver, 0, "").await.expect("a list").entries, [found]);
}

#[tokio::test(start_paused = true)]
async fn health_pages_list_unhealthy_volumes_once() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let mut troubled = Vec::new();
    for number in 0..5 {
        let volume = driver.volume(&format!("pvc-{number}")).await;
        sim.set_volume_status(&volume, VolumeStatus::Error);
        troubled.push(volume);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&driver, 2, &token).await.expect("a page");
        assert!((1..=2).contains(&page.entries.len()));
        seen.extend(page.entries.into_iter().map(|entry| entry.volume_id));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    troubled.sort();
    assert_eq!(seen, troubled);
    refused(list(&driver, 2, "invalid-token").await, Code::Aborted);
    refused(list(&driver, -1, "").await, Code::InvalidArgument);
}
