// SPDX-License-Identifier: Apache-2.0
//! Calls that time out while the fault of the cloud persists. The work continues, and the caller receives the last
//! fault.

use std::time::Duration;

use csi_proto::csi::v1::ListVolumesRequest;
use openstack_sim::{Effect, Fault, When};
use tonic::Code;

use super::missing_parts;
use crate::support::{Driver, cloud, create_request, refused, within};

/// Shorter than the queries by name that follow an uncertain creation.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn late_creation_reports_last_cloud_response() {
    for (effect, status) in [
        (Effect::status(500), Some(500)),
        (Effect::status(503).retry_after(60), Some(503)),
        (Effect::html(502), Some(502)),
        (Effect::html(200), Some(200)),
        (Effect::reset(When::Before), None),
    ] {
        let sim = cloud(|_| {}).await;
        let driver = Driver::start(&sim);
        let html = matches!(effect, Effect::Html { .. });
        sim.fault(Fault::on("create_volume").effect(effect.clone()))
            .expect("a fault");
        let request = within(create_request("pvc-1"), SHORT);
        let message = refused(driver.controller().create_volume(request).await, Code::DeadlineExceeded);
        let lacking = missing_parts(&message, "pvc-1", status, html);
        assert!(lacking.is_empty(), "{effect:?}: {lacking:?} not told in: {message}");
        assert!(message.contains("last failure: "), "{effect:?}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_list_reports_last_cloud_response() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let busy = Effect::status(503).retry_after(4);
    sim.fault(Fault::on("list_volumes_detail").effect(busy))
        .expect("a fault");
    let request = within(ListVolumesRequest::default(), SHORT);
    let message = refused(driver.controller().list_volumes(request).await, Code::DeadlineExceeded);
    let lacking = missing_parts(&message, "ListVolumes", Some(503), false);
    assert!(lacking.is_empty(), "{lacking:?} not told in: {message}");
}
