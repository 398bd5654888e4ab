// SPDX-License-Identifier: Apache-2.0

mod configuration;
mod identity;
mod pods;
mod proxies;
mod services;

use cinder_csi_crds::{CaBundleKind, CaBundleRef, ClientCertRef, Cloud, EndpointType, TopologyMode};
use rstest::rstest;
use serde_json::json;

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
        arguments: arguments.iter().map(|&word| word.into()).collect(),
        ..OldContainer::default()
    }
}

const OLD_SECRET: &str = "Secret kube-system/cloud-config, key cloud.conf";

/// Creates the configuration of a driver with these arguments and this file.
fn mk_configuration(arguments: &[&str], text: &str) -> OldConfiguration {
    let text = ConfigurationText {
        place: OLD_SECRET.to_owned(),
        text: text.to_owned().into(),
    };
    let mut gaps = Vec::new();
    let read = OldConfiguration::read(&mk_container(PROGRAM, arguments), &[text], false, &mut gaps);
    assert_eq!(gaps, []);
    read
}

/// Returns the findings of one file, with the optional credentials of the spec's first cloud.
fn compare(spec: &CinderCSIDriverSpec, configuration: OldConfiguration, new: Option<&str>) -> Vec<AdoptionFinding> {
    let cloud = &spec.clouds[0];
    let place = format!(
        "Secret cinder-csi/openstack-credentials, key {}",
        cloud.credentials_secret_ref.key
    );
    let new = new.map(|text| NewCredentials::read(&place, cloud, text).expect("credentials"));
    let facts = CheckFacts {
        configurations: vec![configuration],
        credentials: new.into_iter().map(|new| (cloud.name.clone(), new)).collect(),
        ..CheckFacts::default()
    };
    findings(spec, &facts)
}

fn mk_bundle() -> CaBundleRef {
    CaBundleRef {
        kind: CaBundleKind::default(),
        name: "ca".to_owned(),
        key: "ca.crt".to_owned(),
    }
}

/// Returns the reason and the subject of each finding.
fn shown(findings: &[AdoptionFinding]) -> Vec<(AdoptionFindingReason, &str)> {
    findings
        .iter()
        .map(|finding| (finding.reason, finding.subject.as_str()))
        .collect()
}

#[test]
fn go_manifests_need_only_cluster_id() {
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
#[case::not_understood(&["--with-topology=perhaps"], "--with-topology", "docs/overrides.md")]
#[case::a_quoted_cloud(&["--cloud-name=\"west\""], "--cloud-name", "spec.clouds")]
#[case::quoted_segments(&["--additional-topology=\"region=one\""], "--additional-topology", "Add region: one to")]
fn differing_driver_flag_is_reported_with_its_field(
    #[case] arguments: &[&str],
    #[case] subject: &str,
    #[case] remedy: &str,
) {
    let words = [&["--endpoint=unix:///csi/csi.sock"], arguments].concat();
    let facts = CheckFacts {
        // The same difference in two containers is one finding.
        containers: vec![
            mk_container(PROGRAM, &words),
            OldContainer {
                name: "d".to_owned(),
                ..mk_container(PROGRAM, &words)
            },
        ],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, subject)]);
    assert_eq!(found[0].count, 2);
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[test]
fn unknown_flag_hides_no_other() {
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
fn section_in_spec_has_no_finding() {
    let mut spec = mk_spec();
    spec.clouds[0].section = Some("RegionOne".to_owned());
    let words = [
        "--endpoint=unix:///csi/csi.sock",
        "--cluster=kubernetes",
        "--cloud-name=RegionOne",
    ];
    let facts = CheckFacts {
        containers: vec![mk_container(PROGRAM, &words)],
        configurations: vec![mk_configuration(&words, "[Global \"RegionOne\"]\nauth-url=x\n")],
        ..CheckFacts::default()
    };
    assert_eq!(shown(&findings(&spec, &facts)), []);
}

#[test]
fn equal_value_in_spec_has_no_finding() {
    let mut spec = mk_spec();
    spec.topology.mode = TopologyMode::Disabled;
    spec.topology.additional.insert("region".to_owned(), "one".to_owned());
    spec.block_storage.rescan_on_resize = Some(true);
    spec.block_storage.node_volume_attach_limit = Some(20);
    spec.clouds[0].name = "west".to_owned();
    spec.clouds[0].ca_bundle_ref = Some(mk_bundle());
    let words = [
        "--endpoint=unix:///csi/csi.sock",
        "--cluster=kubernetes",
        "--with-topology=false",
        "--additional-topology=region=one",
        "--cloud-name=west",
        "--max-volumes-per-node=20",
    ];
    let conf = "[Global \"west\"]\nauth-url=x\nca-file=/etc/ca\n[BlockStorage]\nrescan-on-resize=true\nnode-volume-attach-limit=20\n\
                ignore-volume-az=true\n[LoadBalancer]\nuse-octavia=true\n";
    let facts = CheckFacts {
        containers: vec![
            mk_container(PROGRAM, &words),
            mk_container("csi-provisioner", &["--feature-gates=Topology=false"]),
        ],
        configurations: vec![mk_configuration(&words, conf)],
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
fn differing_sidecar_flags_are_reported(#[case] program: &str, #[case] argument: &str, #[case] remedy: &str) {
    let facts = CheckFacts {
        containers: vec![mk_container(program, &[argument])],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let subject = format!("{argument} of {program}");
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, subject.as_str())]);
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[rstest]
#[case::same_time("csi-attacher", "--timeout=180s")]
#[case::own_time("csi-attacher", "--timeout=300s")]
#[case::gates_in_any_order("csi-provisioner", "--feature-gates=Other=1,Topology=T")]
#[case::boolean("csi-resizer", "--handle-volume-inuse-error=F")]
#[case::empty_kubeconfig("csi-attacher", "--kubeconfig=")]
#[case::lower_limit("csi-attacher", "--kube-api-qps=5.0")]
#[case::default("csi-provisioner", "--retry-interval-start=1000ms")]
#[case::other_program("livenessprobe", "--probe-timeout=9s")]
#[case::last_value("csi-attacher", "--timeout=1s --timeout=3m")]
#[case::last_value_of_the_driver(PROGRAM, "--with-topology=false --with-topology=T")]
fn equivalent_values_have_no_finding(#[case] program: &str, #[case] arguments: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let facts = CheckFacts {
        containers: vec![mk_container(program, &words)],
        ..CheckFacts::default()
    };
    assert_eq!(findings(&mk_spec(), &facts), []);
}

#[rstest]
#[case(&["--kubeconfig=/etc/kubeconfig"])]
#[case(&["--kubeconfig", "/etc/kubeconfig"])]
#[case(&["-master=https://api"])]
fn external_controller_blocks_the_migration(#[case] arguments: &[&str]) {
    let facts = CheckFacts {
        inline_pods: ["n/pod"].into_iter().collect(),
        containers: vec![mk_container("csi-attacher", arguments)],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(found[0].reason, AdoptionFindingReason::OutsideController, "{found:?}");
    assert!(
        found[0].reason.is_final() && found[0].message.contains("cannot migrate"),
        "{found:?}"
    );
}

#[rstest]
#[case("csi-attacher", "--master=https://u:hunter2@api")]
#[case("csi-provisioner", "--unheard-of=https://u:hunter2@api")]
#[case(PROGRAM, "--user-agent=https://u:hunter2@api")]
#[case(PROGRAM, "--with-topology=https://u:hunter2@api")]
fn addresses_of_flags_have_no_credentials(#[case] program: &str, #[case] argument: &str) {
    let facts = CheckFacts {
        containers: vec![mk_container(program, &[argument])],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let shown = format!("{found:?}");
    assert!(shown.contains("...@api") && !shown.contains("hunter2"), "{found:?}");
}

#[test]
fn repeated_feature_gates_accumulate() {
    let words = ["--feature-gates=Topology=false", "--feature-gates=Other=true"];
    let facts = CheckFacts {
        containers: vec![mk_container("csi-provisioner", &words)],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(
        shown(&found),
        [(
            AdoptionFindingReason::Flag,
            "--feature-gates=Topology=false,Other=true of csi-provisioner"
        )]
    );
}

#[test]
fn unknown_variable_hides_no_other_flag() {
    let mut variables = Variables::default();
    variables.set("KNOWN", VariableValue::Plain("prod".to_owned()));
    variables.set(
        "FIELD",
        VariableValue::Unknown("it is the field x of each pod".to_owned()),
    );
    let words = [
        "--with-topology=$(FIELD)",
        "--cluster",
        "$(KNOWN)",
        "--nodeid",
        "$(NONE)",
    ];
    let container = OldContainer {
        arguments: words.iter().map(|word| variables.expand(word)).collect(),
        ..mk_container(PROGRAM, &[])
    };
    let facts = CheckFacts {
        containers: vec![container],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(
        shown(&found),
        [
            (AdoptionFindingReason::NotChecked, "--with-topology"),
            (AdoptionFindingReason::NotChecked, "--nodeid"),
            (AdoptionFindingReason::Flag, "--cluster"),
        ]
    );
    assert!(
        found[0]
            .message
            .contains("variable FIELD: it is the field x of each pod"),
        "{found:?}"
    );
}

#[rstest]
#[case("--cluster=$(SECRET)", PROGRAM)]
#[case("--with-topology=$(SECRET)", PROGRAM)]
#[case("--cloud-name=$(SECRET)", PROGRAM)]
#[case("--unheard-of=$(SECRET)", PROGRAM)]
#[case("--cloud-config=$(SECRET)", PROGRAM)]
#[case("--timeout=$(SECRET)", "csi-attacher")]
#[case("--volume-name-prefix=$(SECRET)", "csi-provisioner")]
fn values_of_secrets_are_compared_and_not_shown(#[case] word: &str, #[case] program: &str) {
    let mut variables = Variables::default();
    variables.set("SECRET", VariableValue::Secret("hunter2".to_owned().into()));
    let container = OldContainer {
        arguments: vec![variables.expand(word)],
        ..mk_container(program, &[])
    };
    let facts = CheckFacts {
        containers: vec![container],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(!format!("{found:?} {facts:?}").contains("hunter2"), "{found:?}");
}

#[test]
fn equal_secret_value_has_no_finding() {
    let mut variables = Variables::default();
    variables.set("SECRET", VariableValue::Secret("kubernetes".to_owned().into()));
    let container = OldContainer {
        arguments: vec![variables.expand("--cluster=$(SECRET)")],
        ..mk_container(PROGRAM, &[])
    };
    let facts = CheckFacts {
        containers: vec![container],
        ..CheckFacts::default()
    };
    assert_eq!(findings(&mk_spec(), &facts), []);
}

#[test]
fn script_and_missing_controller_are_gaps() {
    let script = OldContainer {
        is_script: true,
        ..mk_container(PROGRAM, &["-c", "cinder-csi-plugin --cluster=x"])
    };
    let facts = CheckFacts {
        containers: vec![script],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(
        shown(&found),
        [(AdoptionFindingReason::NotChecked, "the command line of c")]
    );
    let facts = CheckFacts {
        containers: vec![mk_container(PROGRAM, &["--provide-controller-service=false"])],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(
        shown(&found),
        [(
            AdoptionFindingReason::NotChecked,
            "the controller of the other installation"
        )]
    );
}

#[test]
fn rejected_values_are_findings() {
    let facts = CheckFacts {
        classes: vec![ClassParameters {
            kind: ClassKind::VolumeSnapshotClass,
            name: "premium".to_owned(),
            keys: vec!["type".to_owned()],
            refusal: Some("type is \"Premium-SSD\"; use snapshot or backup".to_owned()),
        }],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert_eq!(found[0].reason, AdoptionFindingReason::RefusedParameter, "{found:?}");
    assert!(found[0].message.contains("Premium-SSD"), "{found:?}");
}

#[test]
fn findings_have_counts_and_are_sorted_by_severity() {
    let facts = CheckFacts {
        shared_volumes: (0..12).map(|number| format!("n/claim-{number}")).collect(),
        shared_claims: ["n/waiting"].into_iter().collect(),
        inline_pods: ["n/pod"].into_iter().collect(),
        classes: vec![ClassParameters {
            kind: ClassKind::StorageClass,
            name: "fast".to_owned(),
            keys: vec!["tpye".to_owned(), "availability".to_owned()],
            refusal: None,
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
