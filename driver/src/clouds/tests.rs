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

/// The clouds by their names, each after its check.
async fn all(clouds: &Clouds) -> Vec<(String, Cloud)> {
    clouds.all().await.expect("no project is set")
}

async fn chosen(clouds: &Clouds, secrets: &BTreeMap<String, String>) -> Cloud {
    let chosen = clouds.chosen(secrets).expect("good").check().await;
    chosen.expect("no project is set")
}

fn site(name: &str) -> String {
    format!("\n[Topology]\nsegment = example.com/site={name}\n")
}

/// Two clouds, named as their nodes' sites are.
async fn two() -> (Sim, Sim, Clouds) {
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
async fn a_single_cloud_is_chosen_without_a_question() {
    let sim = sim().await;
    let clouds = Clouds::one(cloud(&sim, ""));
    let none = BTreeMap::new();
    clouds.chosen(&none).expect("the only one");
    let found = clouds
        .of_volume(&VolumeId::new(NOTHING), &none)
        .await
        .expect("not asked");
    assert!(found.is_some() && sim.log().is_empty());
}

#[tokio::test]
async fn a_cloud_is_chosen_by_the_name_in_the_secrets() {
    let (east, west, clouds) = two().await;
    let west_cloud = chosen(&clouds, &secrets(&[("cloud", "west")])).await;
    volume(&west_cloud, "v").await;
    assert_eq!((east.state().volumes.len(), west.state().volumes.len()), (0, 1));
    for (pairs, text) in [(&[("cloud", "geheim")][..], "not known"), (&[], "several clouds")] {
        let refusal = clouds.chosen(&secrets(pairs)).expect_err("no such cloud");
        assert_eq!(refusal.code(), Code::InvalidArgument);
        assert!(
            refusal.message().contains(text) && !refusal.message().contains("geheim"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn a_volume_is_found_in_whichever_cloud_has_it_and_its_place_is_remembered() {
    let (east, west, clouds) = two().await;
    let id = volume(&all(&clouds).await[1].1, "v").await;
    let none = BTreeMap::new();
    // The Secret names another cloud meanwhile: the volume is where it is.
    for secrets in [none.clone(), secrets(&[("cloud", "east")])] {
        let found = clouds
            .of_volume(&id, &secrets)
            .await
            .expect("both answered")
            .expect("found");
        assert!(found.is(&all(&clouds).await[1].1));
    }
    east.clear_log();
    west.clear_log();
    clouds.of_volume(&id, &none).await.expect("remembered").expect("found");
    assert!(east.log().is_empty() && west.log().is_empty());
}

/// A cloud whose volumes are in another project than its credentials lead to.
fn elsewhere(name: &str, sim: &Sim) -> Clouds {
    let cloud = cloud_of(sim, "", Some("project-of-the-volumes"));
    Clouds::new(BTreeMap::from([(name.to_owned(), cloud)]), CloudOptions::default())
}

#[tokio::test]
async fn nothing_is_looked_for_in_a_project_that_is_not_the_clouds_own() {
    let sim = sim().await;
    let own = sim.access().project_id.clone();
    let (id, none) = (VolumeId::new(NOTHING), BTreeMap::new());
    let right = Clouds::one(cloud_of(&sim, "", Some(&own)));
    assert!(right.of_volume(&id, &none).await.expect("its own").is_some());

    for name in [UNNAMED, "west"] {
        let clouds = elsewhere(name, &sim);
        let by_name = if name.is_empty() {
            none.clone()
        } else {
            secrets(&[("cloud", name)])
        };
        for secrets in [&none, &by_name] {
            let refusals = [
                clouds.of_volume(&id, secrets).await.expect_err("elsewhere"),
                clouds.of_snapshot(NOTHING, secrets).await.expect_err("elsewhere"),
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
async fn a_session_with_credentials_of_a_secret_may_be_in_any_project_and_finds_what_it_has() {
    let (sim, other) = (sim().await, sim().await);
    let clouds = elsewhere(UNNAMED, &sim);
    let id = volume(&cloud(&other, ""), "v").await;
    let access = other.access();
    let credentials = credentials(&other, &access.application_credential_secret);
    assert!(
        clouds
            .of_volume(&id, &credentials)
            .await
            .expect("found there")
            .is_some()
    );
    // What is not there may be in the cloud of the configuration, which cannot tell.
    let refusal = clouds.of_volume(&VolumeId::new(NOTHING), &credentials).await;
    assert_eq!(refusal.expect_err("it cannot be known").code(), Code::Unavailable);
}

#[tokio::test]
async fn a_cloud_in_another_project_does_not_keep_the_volumes_of_the_others_away() {
    let (east, west) = (sim().await, sim().await);
    let named = BTreeMap::from([
        ("east".to_owned(), cloud_of(&east, "", Some("project-of-the-volumes"))),
        ("west".to_owned(), cloud(&west, "")),
    ]);
    let id = volume(&named["west"], "v").await;
    let clouds = Clouds::new(named, CloudOptions::default());
    assert!(clouds.of_volume(&id, &BTreeMap::new()).await.expect("found").is_some());
    let refusal = clouds.of_volume(&VolumeId::new(NOTHING), &BTreeMap::new()).await;
    assert_eq!(refusal.expect_err("east cannot tell").code(), Code::Unavailable);
}

// Absent means absent everywhere.
#[tokio::test]
async fn a_volume_is_absent_only_when_every_cloud_says_so() {
    let (east, west, clouds) = two().await;
    let (id, none) = (VolumeId::new(NOTHING), BTreeMap::new());
    assert!(clouds.of_volume(&id, &none).await.expect("both answered").is_none());
    for secrets in [none, secrets(&[("cloud", "east")])] {
        west.fault(Fault::on("get_volume").effect(Effect::status(500)))
            .expect("a rule");
        let refusal = clouds.of_volume(&id, &secrets).await.expect_err("west did not answer");
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(
            refusal.message().contains("west") && refusal.message().contains(NOTHING),
            "{refusal}"
        );
    }
    let east_cloud = all(&clouds).await.remove(0).1;
    let there = volume(&east_cloud, "v").await;
    let found = clouds.of_volume(&there, &BTreeMap::new()).await.expect("east has it");
    assert!(found.is_some_and(|found| found.is(&east_cloud)), "{}", east.auth_url());
}

/// An API node with a lagging database does not show a new volume.
#[tokio::test]
async fn new_volume_is_found_despite_404() {
    let (east, _west, clouds) = two().await;
    let east_cloud = all(&clouds).await.remove(0).1;
    let new = volume(&east_cloud, "v").await;
    let unknown = Fault::on("get_volume").effect(Effect::status(404));
    east.fault(unknown).expect("a rule");
    let found = clouds.of_volume(&new, &BTreeMap::new()).await;
    let found = found.expect("both answered").expect("this process created it");
    assert!(found.is(&east_cloud));
}

// kubernetes/cloud-provider-openstack#2963
#[tokio::test]
async fn full_credentials_in_the_secrets_make_a_session_that_is_kept_issue_2963() {
    let (east, west, clouds) = two().await;
    let secrets = credentials(&west, &west.access().application_credential_secret);
    let id = volume(&chosen(&clouds, &secrets).await, "v").await;
    assert!(
        clouds
            .chosen(&secrets)
            .expect("good")
            .is(&clouds.chosen(&secrets).expect("good"))
    );
    let found = clouds.of_volume(&id, &secrets).await.expect("asked");
    assert!(found.is_some() && east.log().is_empty());
    assert_eq!(west.count("issue_token"), 1);
    assert!(!format!("{clouds:?}").contains(&west.access().application_credential_secret));
}

#[tokio::test]
async fn secrets_that_lack_a_part_are_named_once() {
    let (_east, _west, clouds) = two().await;
    let incomplete = secrets(&[("auth-url", "https://keystone.example.org/v3"), ("username", "u")]);
    let refusal = clouds.chosen(&incomplete).expect_err("no password");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert_eq!(refusal.message().matches("secrets").count(), 1, "{refusal}");
}

#[tokio::test]
async fn what_was_found_with_the_credentials_of_secrets_is_not_looked_for_at_each_call() {
    let (east, west, clouds) = two().await;
    let secrets = credentials(&west, &west.access().application_credential_secret);
    // Another process created it.
    let id = volume(&cloud(&west, ""), "v").await;
    west.clear_log();
    for _ in 0..3 {
        let found = clouds.of_volume(&id, &secrets).await.expect("asked").expect("found");
        assert!(found.is(&chosen(&clouds, &secrets).await));
    }
    assert_eq!((west.count("get_volume"), east.log().len()), (1, 0));

    tokio::time::pause();
    tokio::time::advance(TIMING.found_cloud_ttl).await;
    tokio::time::resume();
    clouds.of_volume(&id, &secrets).await.expect("asked").expect("found");
    assert_eq!(west.count("get_volume"), 2);
}

#[tokio::test]
async fn refused_credentials_of_the_secrets_are_told_to_the_caller() {
    let (_east, west, clouds) = two().await;
    let refusal = clouds
        .of_volume(&VolumeId::new(NOTHING), &credentials(&west, "geheim"))
        .await
        .expect_err("a wrong secret");
    assert_eq!(refusal.code(), Code::Unauthenticated);
    assert!(!refusal.message().contains("geheim"), "{refusal}");
}

#[tokio::test]
async fn sessions_are_bounded_and_the_longest_unused_one_makes_room() {
    let sim = sim().await;
    let clouds = Clouds::one(cloud(&sim, ""));
    let session = |number: usize| clouds.chosen(&credentials(&sim, &number.to_string())).expect("good");
    let (first, second) = (session(0), session(1));
    for number in 2..32 {
        session(number);
    }
    assert!(session(0).is(&first), "it is still there");
    session(32);
    assert!(session(0).is(&first) && !session(1).is(&second));
}

// kubernetes/cloud-provider-openstack#2843, #2035
#[rstest]
#[case(&["west"], &["east", "west"], "west")]
#[case(&[], &["west"], "west")]
#[case(&["east"], &[], "east")]
#[tokio::test]
async fn one_class_serves_several_clouds_by_topology_issue_2843_issue_2035(
    #[case] preferred: &[&str],
    #[case] requisite: &[&str],
    #[case] expected: &str,
) {
    let (_east, _west, clouds) = two().await;
    let asked = at_sites(preferred, requisite);
    let place = clouds
        .place(&BTreeMap::new(), Some(&asked), None, "v")
        .await
        .expect("a place");
    let all: BTreeMap<String, UncheckedCloud> = clouds.configured().into_iter().collect();
    assert!(place.cloud.is(&all[expected]));
    let requirement = place.requirement.expect("what is about this cloud");
    let sites = requirement.requisite.iter().chain(&requirement.preferred);
    assert!(
        sites
            .into_iter()
            .all(|topology| topology.segments["example.com/site"] == expected)
    );
}

#[tokio::test]
async fn a_repeated_request_stays_in_the_cloud_that_has_the_volume() {
    let (_east, west, clouds) = two().await;
    volume(&all(&clouds).await[1].1, "pvc-1").await;
    let all = clouds.configured();
    let asked = at_sites(&["east"], &["east", "west"]);
    let none = BTreeMap::new();
    let place = clouds.place(&none, Some(&asked), None, "pvc-1").await.expect("a place");
    assert!(place.cloud.is(&all[1].1));
    west.fault(Fault::on("list_volumes_detail").effect(Effect::status(500)))
        .expect("a rule");
    let place = clouds.place(&none, Some(&asked), None, "pvc-2").await.expect("a place");
    assert!(place.cloud.is(&all[0].1), "another cloud that is away stops nobody");
}

#[tokio::test]
async fn a_topology_that_no_cloud_knows_is_refused() {
    let (_east, _west, clouds) = two().await;
    let asked = at_sites(&["north"], &["north"]);
    let refusal = clouds
        .place(&BTreeMap::new(), Some(&asked), None, "v")
        .await
        .expect_err("nowhere");
    assert_eq!(refusal.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_copy_is_made_in_the_cloud_of_its_source() {
    let (_east, _west, clouds) = two().await;
    let source = Source::Volume(volume(&all(&clouds).await[1].1, "source").await);
    let all = clouds.configured();
    let asked = at_sites(&["east"], &["east", "west"]);
    let place = clouds
        .place(&BTreeMap::new(), Some(&asked), Some(&source), "copy")
        .await;
    let place = place.expect("a place");
    assert!(place.cloud.is(&all[1].1));
    let requirement = place.requirement.expect("what is about this cloud");
    assert_eq!((requirement.requisite.len(), requirement.preferred.len()), (1, 0));
}

#[tokio::test]
async fn copy_out_of_reach_is_refused() {
    let (_east, _west, clouds) = two().await;
    let source = Source::Volume(volume(&all(&clouds).await[1].1, "source").await);
    let asked = at_sites(&["east"], &["east"]);
    let none = BTreeMap::new();
    let place = clouds.place(&none, Some(&asked), Some(&source), "copy");
    let refusal = place.await.expect_err("no requested node reaches it");
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
    assert!(refusal.message().contains("example.com/site=west"), "{refusal}");
}

#[tokio::test]
async fn copy_of_deleted_source_keeps_its_cloud() {
    let (_east, _west, clouds) = two().await;
    volume(&all(&clouds).await[1].1, "copy").await;
    let source = Source::Volume(VolumeId::new(NOTHING));
    let asked = at_sites(&["east"], &["east", "west"]);
    let none = BTreeMap::new();
    let place = clouds.place(&none, Some(&asked), Some(&source), "copy");
    let place = place.await.expect("a place");
    assert!(
        place.cloud.is(&clouds.configured()[1].1),
        "an earlier attempt created it there"
    );
}
