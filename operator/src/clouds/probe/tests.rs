// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use cinder_cloud::{CloudConfig, CloudOptions};
use cinder_operator_core::clouds::trouble::TroubleKind;
use openstack_sim::{Effect, Fault, Identity, Quota as SimQuota, Sim, SimConfig};

use super::*;

async fn mk(config: SimConfig) -> (Sim, Cloud) {
    // A second installation in this process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sim = Sim::start(config).await.expect("the simulator starts");
    let access = sim.access();
    let conf = format!(
        "[Global]\nauth-url = {}\napplication-credential-id = {}\napplication-credential-secret = {}\nregion = {}\n",
        access.auth_url, access.application_credential_id, access.application_credential_secret, access.region
    );
    let options = CloudOptions {
        request_timeout: Duration::from_secs(2),
        ..CloudOptions::default()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    (sim, cloud)
}

#[tokio::test]
async fn a_look_tells_services_zones_types_quotas_and_the_end_of_the_credential() {
    let until = "2036-12-01T10:00:00Z".parse().expect("a time");
    let (_sim, cloud) = mk(SimConfig {
        zones: vec!["west".to_owned(), "east".to_owned()],
        compute_zones: vec!["nova".to_owned()],
        quota: "volumes=7,gigabytes=50".parse::<SimQuota>().expect("a quota"),
        identity: Identity {
            application_credential_expires_at: Some(until),
            ..Identity::default()
        },
        ..SimConfig::default()
    })
    .await;
    let state = look(&cloud, &CloudState::default()).await;
    assert!(state.is_known && state.troubles.is_empty(), "{:?}", state.troubles);
    assert_eq!(state.facts.volume_zones, ["east", "west"]);
    assert_eq!(state.facts.compute_zones, ["nova"]);
    let types: Vec<&str> = state.facts.volume_types.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(types, ["fast", "slow"]);
    let services: Vec<&str> = state.facts.services.keys().map(String::as_str).collect();
    assert_eq!(services, ["block-storage", "compute", "identity"]);
    assert!(state.facts.services["compute"].microversion.is_some());
    let volumes = state
        .facts
        .quota
        .iter()
        .find(|quota| quota.resource == "volumes" && quota.volume_type.is_none());
    assert_eq!(volumes.map(|quota| (quota.used, quota.limit)), Some((0, 7)));
    assert_eq!(state.credential.and_then(|(_, end)| end), Some(until));
    assert!(state.token_ends.is_some());
}

#[tokio::test]
async fn a_service_that_fails_is_named_and_what_it_told_before_stays() {
    let (sim, cloud) = mk(SimConfig::default()).await;
    let before = look(&cloud, &CloudState::default()).await;
    sim.fault(Fault::on("list_volume_types").effect(Effect::status(500)))
        .expect("a fault");
    let after = look(&cloud, &before).await;
    assert_eq!(after.facts.volume_types, before.facts.volume_types);
    assert_eq!(after.facts.compute_zones, before.facts.compute_zones);
    let troubles: Vec<_> = after.troubles.iter().map(|one| (one.service, one.kind)).collect();
    assert_eq!(troubles, [("block-storage", TroubleKind::Backend)]);
}

#[tokio::test]
async fn what_the_project_may_not_know_is_no_trouble() {
    let (sim, cloud) = mk(SimConfig::default()).await;
    sim.fault(Fault::on("get_volume_quota").effect(Effect::status(403)))
        .expect("a fault");
    sim.fault(Fault::on("get_volume_limits").effect(Effect::status(403)))
        .expect("a fault");
    let state = look(&cloud, &CloudState::default()).await;
    assert!(
        state.troubles.is_empty() && state.facts.quota.is_empty(),
        "{:?}",
        state.troubles
    );
}

#[tokio::test]
async fn a_cloud_that_lets_nobody_in_is_asked_for_nothing_else() {
    let (sim, cloud) = mk(SimConfig::default()).await;
    sim.fault(Fault::on("issue_token").effect(Effect::status(401)))
        .expect("a fault");
    let state = look(&cloud, &CloudState::default()).await;
    let troubles: Vec<_> = state.troubles.iter().map(|one| (one.service, one.kind)).collect();
    assert_eq!(troubles, [("identity", TroubleKind::Unauthorized)]);
    assert!(
        sim.log().iter().all(|entry| entry.service == "keystone"),
        "{:?}",
        sim.log()
    );
}

#[test]
fn a_quota_of_a_type_is_told_from_one_of_all() {
    let types = [VolumeTypeFact {
        name: "very_fast".to_owned(),
        ..VolumeTypeFact::default()
    }];
    let quota = Quota {
        limit: 10,
        in_use: 2,
        reserved: 1,
    };
    let of_type = quota_fact("gigabytes_very_fast", quota, &types).expect("a quota");
    assert_eq!(
        (of_type.resource.as_str(), of_type.volume_type.as_deref()),
        ("gigabytes", Some("very_fast"))
    );
    assert_eq!((of_type.used, of_type.limit), (3, 10));
    let of_all = quota_fact("gigabytes", quota, &types).expect("a quota");
    assert_eq!(of_all.volume_type, None);
    assert_eq!(quota_fact("per_volume_gigabytes", quota, &types), None);
    assert_eq!(quota_fact("volumes", Quota { limit: -1, ..quota }, &types), None);
}
