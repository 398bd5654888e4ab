// SPDX-License-Identifier: Apache-2.0

use cinder_cloud::config::keys_of;
use cinder_csi_crds::{CaBundleKind, CaBundleRef, Cloud, TopologyMode};
use rstest::rstest;

use super::*;
use crate::class_parameters::ClassKind;

fn mk_spec() -> CinderCSIDriverSpec {
    let mut cloud = Cloud::from_secret("openstack-credentials");
    cloud.credentials_secret_ref.key = "cloud.conf".to_owned();
    CinderCSIDriverSpec {
        cluster_id: Some("kubernetes".to_owned()),
        ..CinderCSIDriverSpec::new(vec![cloud])
    }
}

fn mk_container(program: &str, arguments: &[&str]) -> OldContainer {
    OldContainer {
        workload: "Deployment kube-system/controller".to_owned(),
        name: "c".to_owned(),
        program: program.to_owned(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        proxies: Vec::new(),
    }
}

/// The reason and the subject of each.
fn shown(findings: &[AdoptionFinding]) -> Vec<(AdoptionFindingReason, &str)> {
    findings
        .iter()
        .map(|finding| (finding.reason, finding.subject.as_str()))
        .collect()
}

#[test]
fn what_the_go_drivers_manifests_say_is_said_by_their_cluster_id_but_for_the_annotations_of_claims() {
    let facts = CheckFacts {
        containers: vec![
            mk_container(
                PROGRAM,
                &[
                    "--endpoint=unix://csi/csi.sock",
                    "--cloud-config=/etc/config/cloud.conf",
                    "--cluster=kubernetes",
                    "--pvc-annotations",
                    "--v=1",
                ],
            ),
            mk_container(
                "csi-provisioner",
                &[
                    "--csi-address=/csi.sock",
                    "--timeout=3m",
                    "--default-fstype=ext4",
                    "--feature-gates=Topology=true",
                    "--extra-create-metadata",
                    "--leader-election=true",
                ],
            ),
            mk_container("livenessprobe", &["--csi-address=/csi.sock", "--probe-timeout=9s"]),
        ],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, "--pvc-annotations")]);
    assert_eq!(found[0].names, ["Deployment kube-system/controller, container c"]);
}

#[rstest]
#[case::another_cluster(&["--cluster=prod"], "--cluster", "spec.clusterID to \"prod\"")]
#[case::no_zones(&["--with-topology=false"], "--with-topology", "spec.topology.mode to Disabled")]
#[case::segments(&["--additional-topology=region=one"], "--additional-topology", "spec.topology.additional")]
#[case::a_named_cloud(&["--cloud-name", "west"], "--cloud-name", "spec.clouds")]
#[case::metrics(&["--http-endpoint=:8080"], "--http-endpoint", "spec.controller.httpPort")]
#[case::a_loud_log(&["-v", "5"], "--v", "spec.logLevel")]
#[case::a_limit(&["--max-volumes-per-node=20"], "--max-volumes-per-node", "spec.blockStorage.nodeVolumeAttachLimit")]
#[case::a_user_agent(&["--user-agent=site"], "--user-agent", "spec.overrides")]
#[case::without_effect(&["--kube-api-qps=7"], "--kube-api-qps", "")]
#[case::without_effect_in_its_old_spelling(&["--log_flush_frequency=5s"], "--log-flush-frequency", "")]
#[case::of_a_later_release(&["--unheard-of=1"], "--unheard-of", "--help")]
#[case::not_understood(&["--with-topology=perhaps"], "the driver's command line", "yourself")]
fn each_flag_of_the_driver_that_differs_is_told_with_the_field_that_says_the_same(
    #[case] arguments: &[&str],
    #[case] subject: &str,
    #[case] remedy: &str,
) {
    let words = [&["--endpoint=unix:///csi/csi.sock"], arguments].concat();
    let facts = CheckFacts {
        // The same in both workloads is told once.
        containers: vec![mk_container(PROGRAM, &words), mk_container(PROGRAM, &words)],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, subject)]);
    assert_eq!(found[0].count, 2);
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[test]
fn a_flag_that_is_not_known_hides_no_other() {
    let words = ["--endpoint=unix:///csi/csi.sock", "--unheard-of", "1", "--cluster=prod"];
    let facts = CheckFacts {
        containers: vec![mk_container(PROGRAM, &words)],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, ["--unheard-of", "--cluster"]);
}

#[test]
fn section_of_the_spec_is_no_finding() {
    let mut spec = mk_spec();
    spec.clouds[0].section = Some("RegionOne".to_owned());
    let facts = CheckFacts {
        containers: vec![mk_container(
            PROGRAM,
            &[
                "--endpoint=unix:///csi/csi.sock",
                "--cluster=kubernetes",
                "--cloud-name=RegionOne",
            ],
        )],
        configuration: mk_configuration("[Global \"RegionOne\"]\nauth-url=x\n"),
        ..CheckFacts::default()
    };
    assert_eq!(shown(&findings(&spec, &facts)), []);
}

#[test]
fn what_the_spec_says_too_is_no_finding() {
    let mut spec = mk_spec();
    spec.topology.mode = TopologyMode::Disabled;
    spec.topology.additional.insert("region".to_owned(), "one".to_owned());
    spec.block_storage.rescan_on_resize = Some(false);
    spec.block_storage.node_volume_attach_limit = Some(20);
    spec.clouds[0].name = "west".to_owned();
    spec.clouds[0].ca_bundle_ref = Some(CaBundleRef {
        kind: CaBundleKind::default(),
        name: "ca".to_owned(),
        key: "ca.crt".to_owned(),
    });
    let words = [
        "--endpoint=unix:///csi/csi.sock",
        "--cluster=kubernetes",
        "--with-topology=false",
        "--additional-topology=region=one",
        "--cloud-name=west",
        "--max-volumes-per-node=20",
    ];
    let conf = "[Global \"west\"]\nauth-url=x\nca-file=/etc/ca\n[BlockStorage]\nrescan-on-resize=true\nnode-volume-attach-limit=9\n\
                ignore-volume-az=true\n[LoadBalancer]\nuse-octavia=true\n";
    let facts = CheckFacts {
        containers: vec![
            mk_container(PROGRAM, &words),
            mk_container("csi-provisioner", &["--feature-gates=Topology=false"]),
        ],
        configuration: mk_configuration(conf),
        ..CheckFacts::default()
    };
    assert_eq!(shown(&findings(&spec, &facts)), []);
}

#[rstest]
#[case("csi-provisioner", "--default-fstype=xfs", "csi.storage.k8s.io/fstype: xfs")]
#[case(
    "csi-provisioner",
    "--feature-gates=Topology=false",
    "spec.topology.mode to Disabled"
)]
#[case(
    "csi-attacher",
    "--timeout=10m",
    "timeout of csi-attacher in spec.controller.sidecars"
)]
#[case(
    "csi-resizer",
    "--workers=10",
    "workerThreads of csi-resizer in spec.controller.sidecars"
)]
#[case("csi-provisioner", "--volume-name-prefix=site", "spec.overrides")]
fn each_flag_of_a_sidecar_that_differs_is_told(#[case] program: &str, #[case] argument: &str, #[case] remedy: &str) {
    let facts = CheckFacts {
        containers: vec![mk_container(program, &[argument])],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let subject = format!("{argument} of {program}");
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, subject.as_str())]);
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[test]
fn a_proxy_of_the_environment_is_told_without_its_value() {
    let container = OldContainer {
        proxies: vec!["HTTPS_PROXY".to_owned()],
        ..mk_container("csi-provisioner", &[])
    };
    let facts = CheckFacts {
        containers: vec![container],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, "HTTPS_PROXY")]);
    assert_eq!(found[0].remedy, "Set spec.proxy");
}

fn mk_configuration(text: &str) -> Vec<(String, ConfKey)> {
    let keys = keys_of(text).expect("a cloud.conf").into_iter();
    keys.map(|key| ("Secret kube-system/cloud-config".to_owned(), key))
        .collect()
}

#[rstest]
#[case("[Global]\nca-file=/x", "[Global] ca-file", "spec.clouds[].caBundleRef")]
#[case("[Global]\ncert-file=/x", "[Global] cert-file", "spec.clouds[].clientCertSecretRef")]
#[case("[Global]\nkey-file=/x", "[Global] key-file", "spec.clouds[].clientCertSecretRef")]
#[case("[Global]\nuse-clouds=true", "[Global] use-clouds", "clouds.yaml")]
#[case("[Global]\nclouds-file=/x", "[Global] clouds-file", "clouds.yaml")]
#[case("[Global \"west\"]\nregion=x", "[Global \"west\"]", "name west to spec.clouds")]
#[case(
    "[Global \"RegionOne\"]\nregion=x",
    "[Global \"RegionOne\"]",
    "section \"RegionOne\" and a name"
)]
#[case(
    "[BlockStorage]\nnode-volume-attach-limit=9",
    "[BlockStorage] node-volume-attach-limit",
    "spec.blockStorage.nodeVolumeAttachLimit"
)]
#[case(
    "[BlockStorage]\nrescan-on-resize=true",
    "[BlockStorage] rescan-on-resize",
    "spec.blockStorage.rescanOnResize"
)]
#[case("[Metadata]\nsearch-order=configDrive", "[Metadata] search-order", "spec.overrides")]
#[case("[BlockStorage]\nunheard-of=1", "[BlockStorage] unheard-of", "docs/clouds.md")]
#[case("[Unheard]\nof=1", "[unheard] of", "docs/clouds.md")]
fn each_key_that_has_another_place_or_no_effect_is_told_without_its_value(
    #[case] text: &str,
    #[case] subject: &str,
    #[case] remedy: &str,
) {
    let facts = CheckFacts {
        configuration: mk_configuration(text),
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(shown(&found), [(AdoptionFindingReason::ConfigurationKey, subject)]);
    assert_eq!(found[0].names, ["Secret kube-system/cloud-config"]);
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[test]
fn volumes_pods_parameters_and_gaps_are_told_with_their_counts_and_the_gravest_come_first() {
    let facts = CheckFacts {
        shared_volumes: (0..12).map(|number| format!("n/claim-{number}")).collect(),
        shared_claims: ["n/waiting"].into_iter().collect(),
        inline_pods: ["n/pod"].into_iter().collect(),
        classes: vec![ClassParameters {
            kind: ClassKind::StorageClass,
            name: "fast".to_owned(),
            keys: vec!["tpye".to_owned(), "availability".to_owned()],
        }],
        gaps: vec![CheckGap {
            what: "pods".to_owned(),
            why: "Forbidden: pods".to_owned(),
            remedy: "Give the right",
        }],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let reasons: Vec<AdoptionFindingReason> = found.iter().map(|finding| finding.reason).collect();
    assert_eq!(
        reasons,
        [
            AdoptionFindingReason::SharedFileSystem,
            AdoptionFindingReason::SharedFileSystem,
            AdoptionFindingReason::InlineVolume,
            AdoptionFindingReason::UnknownParameter,
            AdoptionFindingReason::NotChecked,
        ]
    );
    assert_eq!((found[0].count, found[0].names.len()), (12, 10));
    assert!(found[3].subject.contains("did you mean \"type\"?"), "{:?}", found[3]);
    assert!(found[4].message.contains("Forbidden: pods"), "{:?}", found[4]);
    assert_eq!(findings(&mk_spec(), &CheckFacts::default()), []);
}
