// SPDX-License-Identifier: Apache-2.0
//! Information about a cloud: versions, zones, types, quotas and credentials.

use cinder_cloud::CloudService;
use openstack_sim::{Identity, Quota, SimConfig};

use crate::support::stage_with;

const UNTIL: &str = "2036-12-01T10:00:00Z";

#[tokio::test(start_paused = true)]
async fn reports_versions_zones_types_and_quotas() {
    let stage = stage_with(SimConfig {
        zones: vec!["east".to_owned(), "west".to_owned()],
        compute_zones: vec!["nova-east".to_owned()],
        quota: "volumes=7".parse::<Quota>().expect("a quota"),
        ..SimConfig::default()
    })
    .await;
    let cloud = &stage.cloud;
    for (service, major) in [(CloudService::BlockStorage, "3."), (CloudService::Compute, "2.")] {
        let version = cloud.microversion(service).await.expect("an answer");
        assert!(
            version.as_ref().is_some_and(|version| version.starts_with(major)),
            "{version:?}"
        );
    }
    assert_eq!(cloud.volume_zones().await.expect("zones"), ["east", "west"]);
    assert_eq!(cloud.compute_zones().await.expect("zones"), ["nova-east"]);
    let quotas = cloud.quotas().await.expect("quotas");
    assert_eq!((quotas["volumes"].limit(), quotas["volumes"].used()), (Some(7), 0));
}

#[tokio::test(start_paused = true)]
async fn reports_expiry_of_application_credential() {
    let stage = stage_with(SimConfig {
        identity: Identity {
            application_credential_expires_at: Some(UNTIL.parse().expect("a time")),
            ..Identity::default()
        },
        ..SimConfig::default()
    })
    .await;
    let access = stage.sim.access();
    let by_id = format!("application-credential-id = {}", access.application_credential_id);
    let by_name = format!(
        "application-credential-name = {}\nusername = {}\nuser-domain-name = {}",
        access.application_credential_name, access.username, access.domain_name
    );
    for who in [by_id, by_name] {
        let conf = format!(
            "[Global]\nauth-url = {}\n{who}\napplication-credential-secret = {}\n",
            access.auth_url, access.application_credential_secret
        );
        let cloud = stage.cloud_with_conf(&conf);
        let facts = cloud.application_credential().await.expect("an answer").expect("facts");
        assert_eq!(facts.name, access.application_credential_name, "{who}");
        assert_eq!(
            facts.expires_at.map(|at| at.to_string()).as_deref(),
            Some(UNTIL),
            "{who}"
        );
    }
    assert_eq!(stage.cloud.application_credential().await.expect("an answer"), None);
}
