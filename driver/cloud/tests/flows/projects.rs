// SPDX-License-Identifier: Apache-2.0
//! The project of a cloud, to which every request is limited.

use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{AttachOptions, Cloud, CloudConfig, CloudError, CloudOptions, GiB, ServerId, VolumeId};
use openstack_sim::{Sim, SimConfig};
use sim_network::SimNetwork;

use crate::support::{NOTHING, ONE, latencies, new, stage, tick};

#[tokio::test(start_paused = true)]
async fn requests_remain_in_their_project() {
    let stage = stage().await;
    let options = CloudOptions {
        project: Some("other".to_owned()),
        ..stage.options()
    };
    let cloud = Cloud::new((*stage.cloud.config()).clone(), options).expect("a cloud");
    let (volume, server) = (VolumeId::new(NOTHING), ServerId::new(ONE));
    let results = [
        cloud.check_project().await,
        cloud.volume(&volume).await.map(drop),
        cloud.create_volume(new("pvc-1")).await.map(drop),
        cloud.attach(&volume, &server, AttachOptions::default()).await.map(drop),
        cloud.detach(&volume, Some(&server)).await,
        cloud.delete_volume(&volume).await,
        cloud
            .expand_volume(&volume, GiB::new(2).expect("a size"))
            .await
            .map(drop),
    ];
    for result in results {
        let error = result.expect_err("another project");
        assert!(matches!(error, CloudError::OtherProject { .. }), "{error:?}");
        assert!(error.to_string().contains(&stage.sim.access().project_id), "{error}");
    }
    assert_eq!(stage.calls(), 0);
    cloud.login().await.expect("the credentials are good");
}

/// Two projects, each in its own simulator, and the options of a client of the first one.
async fn two_projects() -> (Sim, Sim, CloudOptions) {
    let stage = stage().await;
    let network = SimNetwork::default();
    let at = async |name: &str| {
        let mut config = SimConfig {
            public_url: Some(format!("http://{name}.invalid")),
            sources: stage.options.sources.clone(),
            latencies: latencies(|l| l.create = Duration::from_secs(3)),
            ..SimConfig::default()
        };
        config.identity.project_id = format!("project-{name}");
        let sim = Sim::direct(config).await.expect("the simulator starts");
        network.add(&sim);
        sim
    };
    let (own, foreign) = (at("own").await, at("foreign").await);
    let options = CloudOptions {
        connector: Arc::new(network.clone()),
        project: Some("project-own".to_owned()),
        ..stage.options()
    };
    (own, foreign, options)
}

fn config(sim: &Sim) -> CloudConfig {
    CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a configuration")
}

#[tokio::test(start_paused = true)]
async fn reload_returns_to_own_project() {
    let (own, foreign, options) = two_projects().await;
    let cloud = Cloud::new(config(&foreign), options).expect("a cloud");
    cloud.check_project().await.expect_err("another project");
    cloud.reload(config(&own)).await.expect("the own project");
    cloud.check_project().await.expect("the own project");
    cloud.create_volume(new("pvc-1")).await.expect("a volume");
    assert_eq!((own.state().volumes.len(), foreign.state().volumes.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn reload_rejects_other_project_before_login() {
    let (own, foreign, options) = two_projects().await;
    let cloud = Cloud::new(config(&own), options).expect("a cloud");
    let error = cloud
        .reload(config(&foreign))
        .await
        .expect_err("another project")
        .to_string();
    assert!(
        error.contains("project-foreign") && error.contains("project-own"),
        "{error}"
    );
    cloud.check_project().await.expect("the own project");
}

#[tokio::test(start_paused = true)]
async fn creation_survives_reload_of_other_project() {
    let (own, foreign, options) = two_projects().await;
    let cloud = Cloud::new(config(&own), options).expect("a cloud");
    let (created, reloaded) = tokio::join!(cloud.create_volume(new("pvc-1")), async {
        while own.count("create_volume") == 0 {
            tick().await;
        }
        cloud.reload(config(&foreign)).await
    });
    created.expect("a volume");
    reloaded.expect_err("another project");
    assert_eq!((own.state().volumes.len(), foreign.state().volumes.len()), (1, 0));
    assert_eq!(foreign.count("list_volumes_detail"), 0);
}
