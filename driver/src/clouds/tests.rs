// SPDX-License-Identifier: Apache-2.0

use cinder_cloud::{CloudConfig, GiB, NewVolume};
use csi_proto::csi::v1::Topology;
use openstack_sim::{Effect, Fault, Sim, SimConfig};
use rstest::rstest;
use tonic::Code;

use super::*;

const NOTHING: &str = "99999999-9999-4999-8999-999999999999";

async fn sim() -> Sim {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    Sim::start(SimConfig::default()).await.expect("a cloud")
}

fn cloud(sim: &Sim, more: &str) -> Cloud {
    cloud_of(sim, more, None)
}

/// A cloud whose volumes are in this project.
fn cloud_of(sim: &Sim, more: &str, project: Option<&str>) -> Cloud {
    let conf = format!("{}{more}", sim.access().cloud_conf());
    let config = CloudConfig::from_cloud_conf(&conf).expect("a configuration");
    let options = CloudOptions {
        project: project.map(str::to_owned),
        ..CloudOptions::default()
    };
    Cloud::new(config, options).expect("a client")
}

/// The checked clouds with their names.
async fn all(clouds: &Clouds) -> Vec<(String, Cloud)> {
    clouds.all().await.expect("no project is set")
}

async fn chosen(clouds: &Clouds, secrets: &BTreeMap<String, String>) -> Cloud {
    let chosen = clouds.choose(secrets).expect("good").check().await;
    chosen.expect("no project is set")
}

fn site(name: &str) -> String {
    format!("\n[Topology]\nsegment = example.com/site={name}\n")
}

/// Two clouds with the names of their sites.
async fn two_clouds() -> (Sim, Sim, Clouds) {
    let (east, west) = (sim().await, sim().await);
    let named = [("east", &east), ("west", &west)];
    let clouds = named.map(|(name, sim)| (name.to_owned(), cloud(sim, &site(name))));
    let clouds = Clouds::new(clouds.into(), CloudOptions::default());
    (east, west, clouds)
}

fn secrets(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn credentials(sim: &Sim, secret: &str) -> BTreeMap<String, String> {
    let access = sim.access();
    secrets(&[
        ("auth-url", &access.auth_url),
        ("application-credential-id", &access.application_credential_id),
        ("application-credential-secret", secret),
    ])
}

async fn volume(cloud: &Cloud, name: &str) -> VolumeId {
    let new = NewVolume {
        name: name.into(),
        size: GiB::new(1).expect("a size"),
        largest: None,
        source: None,
        multiattach: false,
        mode: None,
        allow_mode_change: false,
        same_host: Vec::new(),
        different_host: Vec::new(),
        mutable_metadata: BTreeMap::new(),
        volume_type: None,
        availability_zone: None,
        acceptable_zones: Vec::new(),
        description: String::new(),
        metadata: BTreeMap::new(),
    };
    cloud.create_volume(new).await.expect("a volume").volume.id
}

fn at_sites(preferred: &[&str], requisite: &[&str]) -> TopologyRequirement {
    let at = |sites: &[&str]| -> Vec<Topology> {
        let segments = sites
            .iter()
            .map(|site| BTreeMap::from([("example.com/site".to_owned(), (*site).to_owned())]));
        segments.map(|segments| Topology { segments }).collect()
    };
    TopologyRequirement {
        preferred: at(preferred),
        requisite: at(requisite),
    }
}

#[tokio::test]
async fn single_cloud_is_chosen_without_request() {
    let sim = sim().await;
    let clouds = Clouds::single(cloud(&sim, ""));
    let none = BTreeMap::new();
    clouds.choose(&none).expect("the only one");
    let found = clouds
        .cloud_of_volume(&VolumeId::new(NOTHING), &none)
        .await
        .expect("not asked");
    assert!(found.is_some() && sim.log().is_empty());
}

#[tokio::test]
async fn secrets_choose_cloud_by_name() {
    let (east, west, clouds) = two_clouds().await;
    let west_cloud = chosen(&clouds, &secrets(&[("cloud", "west")])).await;
    volume(&west_cloud, "v").await;
    assert_eq!((east.state().volumes.len(), west.state().volumes.len()), (0, 1));
    for (pairs, text) in [(&[("cloud", "geheim")][..], "not known"), (&[], "several clouds")] {
        let refusal = clouds.choose(&secrets(pairs)).expect_err("no such cloud");
        assert_eq!(refusal.code(), Code::InvalidArgument);
        assert!(
            refusal.message().contains(text) && !refusal.message().contains("geheim"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn cloud_of_volume_is_found_and_cached() {
    let (east, west, clouds) = two_clouds().await;
    let id = volume(&all(&clouds).await[1].1, "v").await;
    let none = BTreeMap::new();
    // The Secret was changed to another cloud. The driver still uses the cloud that has the volume.
    for secrets in [none.clone(), secrets(&[("cloud", "east")])] {
        let found = clouds
            .cloud_of_volume(&id, &secrets)
            .await
            .expect("both answered")
            .expect("found");
        assert!(found.is_same(&all(&clouds).await[1].1));
    }
    east.clear_log();
    west.clear_log();
    clouds
        .cloud_of_volume(&id, &none)
        .await
        .expect("remembered")
        .expect("found");
    assert!(east.log().is_empty() && west.log().is_empty());
}

/// A cloud whose credentials belong to another project than its volumes.
fn elsewhere(name: &str, sim: &Sim) -> Clouds {
    let cloud = cloud_of(sim, "", Some("project-of-the-volumes"));
    Clouds::new(BTreeMap::from([(name.to_owned(), cloud)]), CloudOptions::default())
}

#[tokio::test]
async fn cloud_in_other_project_is_not_queried() {
    let sim = sim().await;
    let own = sim.access().project_id.clone();
    let (id, none) = (VolumeId::new(NOTHING), BTreeMap::new());
    let right = Clouds::single(cloud_of(&sim, "", Some(&own)));
    assert!(right.cloud_of_volume(&id, &none).await.expect("its own").is_some());

    for name in [UNNAMED, "west"] {
        let clouds = elsewhere(name, &sim);
        let by_name = if name.is_empty() {
            none.clone()
        } else {
            secrets(&[("cloud", name)])
        };
        for secrets in [&none, &by_name] {
            let refusals = [
                clouds.cloud_of_volume(&id, secrets).await.expect_err("elsewhere"),
                clouds.cloud_of_snapshot(NOTHING, secrets).await.expect_err("elsewhere"),
            ];
            for refusal in refusals {
                assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
                let text = refusal.message();
                assert!(text.contains(&own) && text.contains("project-of-the-volumes"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn secret_credentials_may_use_any_project() {
    let (sim, other) = (sim().await, sim().await);
    let clouds = elsewhere(UNNAMED, &sim);
    let id = volume(&cloud(&other, ""), "v").await;
    let access = other.access();
    let credentials = credentials(&other, &access.application_credential_secret);
    assert!(
        clouds
            .cloud_of_volume(&id, &credentials)
            .await
            .expect("found there")
            .is_some()
    );
    // A missing volume may be in the configured cloud, which is not available.
    let refusal = clouds.cloud_of_volume(&VolumeId::new(NOTHING), &credentials).await;
    assert_eq!(refusal.expect_err("it cannot be known").code(), Code::Unavailable);
}

#[tokio::test]
async fn misdirected_cloud_does_not_affect_other_clouds() {
    let (east, west) = (sim().await, sim().await);
    let named = BTreeMap::from([
        ("east".to_owned(), cloud_of(&east, "", Some("project-of-the-volumes"))),
        ("west".to_owned(), cloud(&west, "")),
    ]);
    let id = volume(&named["west"], "v").await;
    let clouds = Clouds::new(named, CloudOptions::default());
    assert!(
        clouds
            .cloud_of_volume(&id, &BTreeMap::new())
            .await
            .expect("found")
            .is_some()
    );
    let refusal = clouds.cloud_of_volume(&VolumeId::new(NOTHING), &BTreeMap::new()).await;
    assert_eq!(refusal.expect_err("east cannot tell").code(), Code::Unavailable);
}

// A volume is missing only if no cloud has it.
#[tokio::test]
async fn volume_is_absent_only_if_every_cloud_agrees() {
    let (east, west, clouds) = two_clouds().await;
    let (id, none) = (VolumeId::new(NOTHING), BTreeMap::new());
    assert!(
        clouds
            .cloud_of_volume(&id, &none)
            .await
            .expect("both answered")
            .is_none()
    );
    for secrets in [none, secrets(&[("cloud", "east")])] {
        west.fault(Fault::on("get_volume").effect(Effect::status(500)))
            .expect("a rule");
        let refusal = clouds
            .cloud_of_volume(&id, &secrets)
            .await
            .expect_err("west did not answer");
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(
            refusal.message().contains("west") && refusal.message().contains(NOTHING),
            "{refusal}"
        );
    }
    let east_cloud = all(&clouds).await.remove(0).1;
    let id_in_east = volume(&east_cloud, "v").await;
    let found = clouds
        .cloud_of_volume(&id_in_east, &BTreeMap::new())
        .await
        .expect("east has it");
    assert!(
        found.is_some_and(|found| found.is_same(&east_cloud)),
        "{}",
        east.auth_url()
    );
}

/// An API node with a lagging database does not show a new volume.
#[tokio::test]
async fn new_volume_is_found_despite_404() {
    let (east, _west, clouds) = two_clouds().await;
    let east_cloud = all(&clouds).await.remove(0).1;
    let new = volume(&east_cloud, "v").await;
    let unknown = Fault::on("get_volume").effect(Effect::status(404));
    east.fault(unknown).expect("a rule");
    let found = clouds.cloud_of_volume(&new, &BTreeMap::new()).await;
    let found = found.expect("both answered").expect("this process created it");
    assert!(found.is_same(&east_cloud));
}

// kubernetes/cloud-provider-openstack#2963
#[tokio::test]
async fn secret_credentials_create_cached_session_issue_2963() {
    let (east, west, clouds) = two_clouds().await;
    let secrets = credentials(&west, &west.access().application_credential_secret);
    let id = volume(&chosen(&clouds, &secrets).await, "v").await;
    assert!(
        clouds
            .choose(&secrets)
            .expect("good")
            .is_same(&clouds.choose(&secrets).expect("good"))
    );
    let found = clouds.cloud_of_volume(&id, &secrets).await.expect("asked");
    assert!(found.is_some() && east.log().is_empty());
    assert_eq!(west.count("issue_token"), 1);
    assert!(!format!("{clouds:?}").contains(&west.access().application_credential_secret));
}

#[tokio::test]
async fn incomplete_secrets_are_reported_once() {
    let (_east, _west, clouds) = two_clouds().await;
    let incomplete = secrets(&[("auth-url", "https://keystone.example.org/v3"), ("username", "u")]);
    let refusal = clouds.choose(&incomplete).expect_err("no password");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert_eq!(refusal.message().matches("secrets").count(), 1, "{refusal}");
}

#[tokio::test]
async fn results_for_secret_credentials_are_cached() {
    let (east, west, clouds) = two_clouds().await;
    let secrets = credentials(&west, &west.access().application_credential_secret);
    // Another process created it.
    let id = volume(&cloud(&west, ""), "v").await;
    west.clear_log();
    for _ in 0..3 {
        let found = clouds
            .cloud_of_volume(&id, &secrets)
            .await
            .expect("asked")
            .expect("found");
        assert!(found.is_same(&chosen(&clouds, &secrets).await));
    }
    assert_eq!((west.count("get_volume"), east.log().len()), (1, 0));

    tokio::time::pause();
    tokio::time::advance(TIMING.found_cloud_ttl).await;
    tokio::time::resume();
    clouds
        .cloud_of_volume(&id, &secrets)
        .await
        .expect("asked")
        .expect("found");
    assert_eq!(west.count("get_volume"), 2);
}

#[tokio::test]
async fn refused_secret_credentials_are_reported_to_caller() {
    let (_east, west, clouds) = two_clouds().await;
    let refusal = clouds
        .cloud_of_volume(&VolumeId::new(NOTHING), &credentials(&west, "geheim"))
        .await
        .expect_err("a wrong secret");
    assert_eq!(refusal.code(), Code::Unauthenticated);
    assert!(!refusal.message().contains("geheim"), "{refusal}");
}

#[tokio::test]
async fn least_recently_used_session_is_dropped() {
    let sim = sim().await;
    let clouds = Clouds::single(cloud(&sim, ""));
    let session = |number: usize| clouds.choose(&credentials(&sim, &number.to_string())).expect("good");
    let (first, second) = (session(0), session(1));
    for number in 2..32 {
        session(number);
    }
    assert!(session(0).is_same(&first), "it is still there");
    session(32);
    assert!(session(0).is_same(&first) && !session(1).is_same(&second));
}

// kubernetes/cloud-provider-openstack#2843, #2035
#[rstest]
#[case(&["west"], &["east", "west"], "west")]
#[case(&[], &["west"], "west")]
#[case(&["east"], &[], "east")]
#[tokio::test]
async fn topology_selects_cloud_for_class_issue_2843_issue_2035(
    #[case] preferred: &[&str],
    #[case] requisite: &[&str],
    #[case] expected: &str,
) {
    let (_east, _west, clouds) = two_clouds().await;
    let asked = at_sites(preferred, requisite);
    let place = clouds
        .choose_for_volume(&BTreeMap::new(), Some(&asked), None, "v")
        .await
        .expect("a place");
    let all: BTreeMap<String, UncheckedCloud> = clouds.configured().into_iter().collect();
    assert!(place.cloud.is_same(&all[expected]));
    let requirement = place.requirement.expect("what is about this cloud");
    let sites = requirement.requisite.iter().chain(&requirement.preferred);
    assert!(
        sites
            .into_iter()
            .all(|topology| topology.segments["example.com/site"] == expected)
    );
}

#[tokio::test]
async fn repeated_request_uses_cloud_of_volume() {
    let (_east, west, clouds) = two_clouds().await;
    volume(&all(&clouds).await[1].1, "pvc-1").await;
    let all = clouds.configured();
    let asked = at_sites(&["east"], &["east", "west"]);
    let none = BTreeMap::new();
    let place = clouds
        .choose_for_volume(&none, Some(&asked), None, "pvc-1")
        .await
        .expect("a place");
    assert!(place.cloud.is_same(&all[1].1));
    west.fault(Fault::on("list_volumes_detail").effect(Effect::status(500)))
        .expect("a rule");
    let place = clouds
        .choose_for_volume(&none, Some(&asked), None, "pvc-2")
        .await
        .expect("a place");
    assert!(
        place.cloud.is_same(&all[0].1),
        "another cloud that is away stops nobody"
    );
}

#[tokio::test]
async fn rejects_topology_of_unknown_cloud() {
    let (_east, _west, clouds) = two_clouds().await;
    let asked = at_sites(&["north"], &["north"]);
    let refusal = clouds
        .choose_for_volume(&BTreeMap::new(), Some(&asked), None, "v")
        .await
        .expect_err("nowhere");
    assert_eq!(refusal.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn copy_is_created_in_cloud_of_source() {
    let (_east, _west, clouds) = two_clouds().await;
    let source = Source::Volume(volume(&all(&clouds).await[1].1, "source").await);
    let all = clouds.configured();
    let asked = at_sites(&["east"], &["east", "west"]);
    let place = clouds
        .choose_for_volume(&BTreeMap::new(), Some(&asked), Some(&source), "copy")
        .await;
    let place = place.expect("a place");
    assert!(place.cloud.is_same(&all[1].1));
    let requirement = place.requirement.expect("what is about this cloud");
    assert_eq!((requirement.requisite.len(), requirement.preferred.len()), (1, 0));
}

#[tokio::test]
async fn copy_out_of_reach_is_refused() {
    let (_east, _west, clouds) = two_clouds().await;
    let source = Source::Volume(volume(&all(&clouds).await[1].1, "source").await);
    let asked = at_sites(&["east"], &["east"]);
    let none = BTreeMap::new();
    let place = clouds.choose_for_volume(&none, Some(&asked), Some(&source), "copy");
    let refusal = place.await.expect_err("no requested node reaches it");
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
    assert!(refusal.message().contains("example.com/site=west"), "{refusal}");
}

#[tokio::test]
async fn copy_of_deleted_source_uses_same_cloud() {
    let (_east, _west, clouds) = two_clouds().await;
    volume(&all(&clouds).await[1].1, "copy").await;
    let source = Source::Volume(VolumeId::new(NOTHING));
    let asked = at_sites(&["east"], &["east", "west"]);
    let none = BTreeMap::new();
    let place = clouds.choose_for_volume(&none, Some(&asked), Some(&source), "copy");
    let place = place.await.expect("a place");
    assert!(
        place.cloud.is_same(&clouds.configured()[1].1),
        "an earlier attempt created it there"
    );
}
