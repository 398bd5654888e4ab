// SPDX-License-Identifier: Apache-2.0
//! Catalogs with several regions.

use cinder_cloud::{Cloud, CloudConfig, CloudError, ServerId, VolumeId};
use openstack_sim::SimConfig;

use crate::support::{NOTHING, ONE, Stage, new, stage, stage_with};

fn conf_without_region(stage: &Stage) -> String {
    stage.sim.access().cloud_conf().replace("region = \"RegionOne\"\n", "")
}

fn config(conf: &str) -> CloudConfig {
    CloudConfig::from_cloud_conf(conf).expect("well-formed")
}

/// A cloud with two regions. The other region is listed first.
async fn two_regions() -> Stage {
    stage_with(SimConfig {
        other_regions: vec!["RegionZero".to_owned()],
        ..SimConfig::default()
    })
    .await
}

fn assert_ambiguous(error: &CloudError) {
    assert!(matches!(error, CloudError::RegionAmbiguous { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["(RegionOne, RegionZero)", "region in cloud.conf", "region_name"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_regions_require_configured_region() {
    let stage = two_regions().await;
    let cloud: Cloud = stage.cloud_with_conf(&conf_without_region(&stage));
    let (volume, server) = (VolumeId::new(NOTHING), ServerId::new(ONE));
    assert_ambiguous(&cloud.login().await.expect_err("login"));
    assert_ambiguous(&cloud.create_volume(new("pvc-1")).await.expect_err("create"));
    assert_ambiguous(&cloud.delete_volume(&volume).await.expect_err("delete"));
    assert_ambiguous(&cloud.detach(&volume, Some(&server)).await.expect_err("detach"));
    let log = stage.sim.log();
    assert!(log.iter().all(|entry| entry.operation == "issue_token"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn configured_region_serves_both_services() {
    let stage = two_regions().await;
    let volume = stage.create("pvc-1").await.id;
    let server = ServerId::new(ONE);
    let options = cinder_cloud::AttachOptions::default();
    stage.cloud.attach(&volume, &server, options).await.expect("attached");
    assert_eq!(
        stage.cloud.login().await.expect("logged in").region.as_deref(),
        Some("RegionOne")
    );
}

#[tokio::test(start_paused = true)]
async fn region_in_use_survives_changed_catalog() {
    let stage = stage().await;
    let cloud = stage.cloud_with_conf(&conf_without_region(&stage));
    let volume = cloud.create_volume(new("pvc-1")).await.expect("created").volume.id;
    stage.sim.set_other_regions(&["RegionZero"]);
    stage.sim.revoke_tokens();
    // A new token, and a new session after the reload.
    assert!(cloud.volume(&volume).await.expect("found").is_some());
    let login = cloud
        .reload(config(&conf_without_region(&stage)))
        .await
        .expect("same region");
    assert_eq!(login.region.as_deref(), Some("RegionOne"));
    cloud.delete_volume(&volume).await.expect("deleted");
    assert!(
        stage.sim.state().volumes.is_empty(),
        "deleted in the region where it was"
    );
}

#[tokio::test(start_paused = true)]
async fn reload_may_name_region_in_use() {
    let stage = stage().await;
    let cloud = stage.cloud_with_conf(&conf_without_region(&stage));
    cloud.login().await.expect("logged in");
    let named = stage.sim.access().cloud_conf();
    cloud.reload(config(&named)).await.expect("the same region by name");
    stage.sim.set_other_regions(&["RegionZero"]);
    let unnamed = cloud.reload(config(&conf_without_region(&stage))).await;
    assert_eq!(unnamed.expect("the region in use").region.as_deref(), Some("RegionOne"));
    let other = config(&named.replace("RegionOne", "RegionZero"));
    let error = cloud.reload(other).await.expect_err("another region").to_string();
    assert!(error.contains("RegionZero") && error.contains("RegionOne"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ambiguous_configuration_is_fixed_by_reload() {
    let stage = two_regions().await;
    let cloud = stage.cloud_with_conf(&conf_without_region(&stage));
    assert_ambiguous(&cloud.login().await.expect_err("ambiguous"));
    cloud
        .reload(config(&stage.sim.access().cloud_conf()))
        .await
        .expect("named");
    cloud.create_volume(new("pvc-1")).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn restart_fails_after_changed_catalog() {
    let stage = stage().await;
    let conf = conf_without_region(&stage);
    let volume = stage
        .cloud_with_conf(&conf)
        .create_volume(new("pvc-1"))
        .await
        .expect("created")
        .volume
        .id;
    stage.sim.set_other_regions(&["RegionZero"]);
    assert_ambiguous(
        &stage
            .cloud_with_conf(&conf)
            .delete_volume(&volume)
            .await
            .expect_err("which region?"),
    );
    assert_eq!(stage.sim.state().volumes.len(), 1);
}
