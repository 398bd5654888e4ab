// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{GetCapacityRequest, GetCapacityResponse};
use openstack_sim::{Effect, Fault, Pool, Quota, SimConfig, TypeQuota, VolumeType};
use tonic::{Code, Status};

use crate::support::{Driver, GIB, capability, cloud, patient, refused, zone};

async fn capacity(driver: &Driver, request: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
    Ok(driver.controller().get_capacity(patient(request)).await?.into_inner())
}

fn of_type(name: &str) -> GetCapacityRequest {
    GetCapacityRequest {
        parameters: BTreeMap::from([("type".to_owned(), name.to_owned())]),
        ..GetCapacityRequest::default()
    }
}

fn in_zone(name: &str) -> GetCapacityRequest {
    GetCapacityRequest {
        accessible_topology: Some(zone(name)),
        ..GetCapacityRequest::default()
    }
}

fn limited(config: &mut SimConfig) {
    config.quota = Quota {
        gigabytes: 100,
        per_volume_gigabytes: 30,
        ..Quota::default()
    };
    config.volume_types[1].quota = TypeQuota {
        gigabytes: 20,
        ..TypeQuota::default()
    };
}

#[tokio::test(start_paused = true)]
async fn quotas_limit_capacity_issue_1465() {
    let sim = cloud(limited).await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    let response = capacity(&driver, of_type("fast")).await.expect("a capacity");
    assert_eq!(response.available_capacity, 99 * GIB);
    assert_eq!(response.maximum_volume_size, Some(30 * GIB));
    assert_eq!(response.minimum_volume_size, Some(GIB));
    let response = capacity(&driver, of_type("slow")).await.expect("a capacity");
    assert_eq!(
        (response.available_capacity, response.maximum_volume_size),
        (20 * GIB, Some(20 * GIB))
    );
}

#[tokio::test(start_paused = true)]
async fn visible_pools_limit_capacity() {
    let sim = cloud(|config| {
        limited(config);
        config.volume_types.push(VolumeType::new("far").on_backend("other"));
        config.pools.push(Pool::new("other", 7));
        config.pools_for_members = true;
    })
    .await;
    let driver = Driver::start(&sim);
    let in_its_zone = GetCapacityRequest {
        accessible_topology: Some(zone("nova")),
        ..of_type("far")
    };
    for request in [of_type("far"), in_its_zone] {
        let response = capacity(&driver, request).await.expect("a capacity");
        assert_eq!(
            (response.available_capacity, response.maximum_volume_size),
            (7 * GIB, Some(7 * GIB))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn impossible_volume_has_no_capacity() {
    let sim = cloud(|config| {
        let east = VolumeType::new("east").spec("RESKEY:availability_zones", "east");
        config.volume_types.push(east);
    })
    .await;
    let driver = Driver::start(&sim);
    assert!(
        capacity(&driver, in_zone("nova"))
            .await
            .expect("a capacity")
            .available_capacity
            > 0
    );
    let several = GetCapacityRequest {
        volume_capabilities: vec![capability(Mode::MultiNodeReaderOnly)],
        ..of_type("fast")
    };
    let impossible = GetCapacityRequest {
        volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter)],
        ..GetCapacityRequest::default()
    };
    let elsewhere = GetCapacityRequest {
        accessible_topology: Some(zone("nova")),
        ..of_type("east")
    };
    for request in [in_zone("atlantis"), several, impossible, elsewhere] {
        let response = capacity(&driver, request.clone()).await.expect("a capacity");
        assert_eq!(response.available_capacity, 0, "{request:?}");
    }
    refused(capacity(&driver, of_type("no-such-type")).await, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn capacity_without_limits_is_finite() {
    let sim = cloud(|config| {
        config.quota = Quota {
            gigabytes: -1,
            volumes: -1,
            ..Quota::default()
        };
    })
    .await;
    let driver = Driver::start(&sim);
    let response = capacity(&driver, GetCapacityRequest::default())
        .await
        .expect("a capacity");
    assert_eq!(
        (response.available_capacity, response.maximum_volume_size),
        (1 << 60, None)
    );
}

#[tokio::test(start_paused = true)]
async fn full_project_has_no_capacity() {
    let sim = cloud(|config| {
        config.quota = Quota {
            volumes: 1,
            ..Quota::default()
        };
    })
    .await;
    let driver = Driver::start(&sim);
    driver.volume("pvc-1").await;
    let response = capacity(&driver, GetCapacityRequest::default())
        .await
        .expect("a capacity");
    assert_eq!(
        (response.available_capacity, response.maximum_volume_size),
        (0, Some(0))
    );
}

#[tokio::test(start_paused = true)]
async fn project_limits_replace_forbidden_quotas() {
    let sim = cloud(limited).await;
    let driver = Driver::start(&sim);
    let secret = Fault::on("get_volume_quota").effect(Effect::status(403));
    sim.fault(secret).expect("a rule");
    let response = capacity(&driver, GetCapacityRequest::default())
        .await
        .expect("a capacity");
    assert_eq!(response.available_capacity, 100 * GIB);
}

#[tokio::test(start_paused = true)]
async fn capacity_requests_are_cached() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    capacity(&driver, in_zone("nova")).await.expect("a capacity");
    sim.clear_log();
    for _ in 0..10 {
        capacity(&driver, in_zone("nova")).await.expect("a capacity");
    }
    assert!(sim.log().is_empty(), "{:?}", sim.log());
}
