// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use clap::CommandFactory;
use rstest::rstest;

use super::*;

fn parse(flags: &[&str]) -> Args {
    Args::from_argv([&["cinder-csi-driver", "--endpoint=unix:///csi/csi.sock"], flags].concat()).expect("valid flags")
}

fn everything_changed() -> Args {
    Args {
        endpoint: "unix:///tmp/csi.sock".into(),
        cloud_config: vec!["/etc/config/cloud.conf".into(), "/etc/config/more.conf".into()],
        cloud_name: vec!["one".into()],
        project_id: vec![
            (String::new(), "p".into()),
            ("one".into(), "q".into()),
            ("Region = One".into(), "r".into()),
        ],
        with_topology: false,
        additional_topology: vec![("topology.kubernetes.io/region".into(), "north".into())],
        cluster: "cluster=a b".into(),
        http_endpoint: ":8080".into(),
        health_endpoint: "127.0.0.1:8081".into(),
        provide_controller_service: false,
        provide_node_service: false,
        pvc_annotations: true,
        master: "https://api".into(),
        kubeconfig: "/kubeconfig".into(),
        kube_api_qps: Some("5.5".into()),
        kube_api_burst: Some("10".into()),
        min_resync_period: Some("12h".into()),
        user_agent: vec!["a, b".into(), "c".into()],
        nodeid: "node".into(),
        node_service_no_os_client: true,
        verbosity: Some(5),
        vmodule: Some("a=1".into()),
        log_flush_frequency: Some("5s".into()),
        driver_name: "other.csi.openstack.org".into(),
        instance_id: Some("0d3c2d6e-9a1b-4f2b-8f7e-2f9d6d1f0b11".into()),
        availability_zone: Some("zone one".into()),
        metadata_url: "http://127.0.0.1:8775".into(),
        search_order: vec!["metadataService".into(), "dmi".into()],
        max_volumes_per_node: Some(25),
        reserved_volumes: 3,
        default_fs_type: FsType::Xfs,
        volume_metadata: vec![("owner".into(), "${pvc.namespace}, ${pvc.name}".into())],
        zone_labels: ZoneLabels::Sanitised,
        disable_capability: vec![AlphaCapability::GetVolumeHealth, AlphaCapability::GetSnapshot],
        protect_other_clusters: true,
        register: true,
        unregister: true,
        kubelet_dir: "/kubelet".into(),
        sys_dir: "/host/sys".into(),
        dev_dir: "/host/dev".into(),
        proc_dir: "/host/proc".into(),
        log_level: "cinder_cloud=debug,info".into(),
        log_format: LogFormat::Text,
        request_timeout: Duration::from_millis(1500),
        attach_timeout: Duration::from_secs(90),
        device_in_use_timeout: Duration::ZERO,
        secure_metrics: true,
        tls_min_version: TlsVersion::Tls13,
        tls_cipher_suites: vec!["TLS_AES_128_GCM_SHA256".parse().expect("known")],
    }
}

#[test]
fn arguments_without_flags_are_defaults() {
    assert_eq!(
        Args {
            kubeconfig: String::new(),
            ..parse(&[])
        },
        Args {
            endpoint: "unix:///csi/csi.sock".into(),
            ..Args::default()
        }
    );
}

#[test]
fn defaults_render_to_endpoint_only() {
    let args = Args {
        endpoint: "unix:///csi/csi.sock".into(),
        ..Args::default()
    };
    assert_eq!(args.to_argv(), ["--endpoint=unix:///csi/csi.sock"]);
}

#[test]
fn rendered_flags_round_trip() {
    let args = everything_changed();
    let words = std::iter::once("cinder-csi-driver".to_owned()).chain(args.to_argv());
    assert_eq!(Args::from_argv(words).expect("own flags"), args);
}

#[test]
fn changed_flags_are_all_rendered() {
    let rendered: BTreeSet<String> = everything_changed()
        .to_argv()
        .iter()
        .filter_map(|word| Some(word.strip_prefix("--")?.split_once('=')?.0.to_owned()))
        .collect();
    let known: BTreeSet<String> = Args::command()
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(str::to_owned)
        .collect();
    assert_eq!(rendered, known);
}

#[rstest]
#[case(&[], true)]
#[case(&["--provide-node-service"], true)]
#[case(&["--provide-node-service=true"], true)]
#[case(&["--provide-node-service=1"], true)]
#[case(&["--provide-node-service=false"], false)]
#[case(&["--provide_node_service=F"], false)]
fn booleans_parse_like_go(#[case] flags: &[&str], #[case] expected: bool) {
    assert_eq!(parse(flags).provide_node_service, expected);
}

#[test]
fn skips_program_of_go_driver_in_first_position() {
    let flags = ["cinder-csi-driver", GO_PROGRAM, "--endpoint=unix:///csi/csi.sock"];
    assert_eq!(Args::from_argv(flags).expect("valid flags"), parse(&[]));
    for wrong in [
        ["cinder-csi-driver", "--endpoint=unix:///csi/csi.sock", GO_PROGRAM],
        ["cinder-csi-driver", "/bin/other", "--endpoint=unix:///csi/csi.sock"],
    ] {
        assert!(Args::from_argv(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn accepts_flags_of_go_driver_manifests() {
    let args = parse(&[
        "--cloud-config=/etc/config/cloud.conf,/etc/config/more.conf",
        "--cloud-config",
        "/etc/config/last.conf",
        "--cluster=kubernetes",
        "--provide-node-service=false",
        "--pvc-annotations",
        "--additional-topology",
        "a=b,c=d",
        "-v=5",
        "--log_flush_frequency=5s",
        "--kube-api-qps=5",
        "--nodeid=x",
    ]);
    assert_eq!(args.cloud_config.len(), 3);
    assert_eq!(
        args.additional_topology,
        [("a".into(), "b".into()), ("c".into(), "d".into())]
    );
    let quoted = parse(&["--cloud-name=\"region-one\"", "--additional-topology", "\"a=b\""]);
    assert_eq!(quoted.cloud_name, ["region-one"]);
    assert_eq!(quoted.additional_topology, [("a".into(), "b".into())]);
    assert_eq!(args.verbosity, Some(5));
    let ignored: Vec<&str> = args.without_effect().into_iter().map(|(flag, _)| flag).collect();
    for flag in ["--kube-api-qps", "--nodeid", "--log-flush-frequency"] {
        assert!(ignored.contains(&flag), "{flag} is not named as ignored");
    }
}

#[rstest]
#[case("-v4")]
#[case("-v=4")]
#[case("--v=4")]
fn accepts_all_spellings_of_klog_verbosity(#[case] flag: &str) {
    let args = parse(&[flag]);
    assert_eq!(args.verbosity, Some(4));
    assert!(
        args.log_filter().contains("cinder_csi_driver=debug"),
        "{}",
        args.log_filter()
    );
}

#[rstest]
#[case("30s", 30_000)]
#[case("1m30s", 90_000)]
#[case("250ms", 250)]
#[case("1.5s", 1_500)]
#[case("12h", 43_200_000)]
fn durations_parse_like_go(#[case] text: &str, #[case] millis: u64) {
    assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
}

#[rstest]
#[case("")]
#[case("30")]
#[case("s")]
#[case("-1s")]
#[case("0s")]
#[case("1d")]
fn rejects_malformed_duration(#[case] text: &str) {
    assert!(parse_duration(text).is_err());
}

#[test]
fn missing_endpoint_is_reported() {
    let error = Args::from_argv(["cinder-csi-driver"]).expect_err("no endpoint");
    assert!(error.to_string().contains("--endpoint"), "{error}");
}

/// The effect of a flag of the Go driver in this driver.
enum FlagEffect {
    Works,
    NoEffect,
}
use FlagEffect::{NoEffect, Works};

#[rstest]
#[case("--endpoint=unix:///csi/csi.sock", Works)]
#[case("--cloud-config=/etc/config/cloud.conf", Works)]
#[case("--cloud-name=west", Works)]
#[case("--with-topology=false", Works)]
#[case("--additional-topology=topology.kubernetes.io/region=west", Works)]
#[case("--cluster=kubernetes", Works)]
#[case("--http-endpoint=:8080", Works)]
#[case("--provide-controller-service=false", Works)]
#[case("--provide-node-service=false", Works)]
#[case("--pvc-annotations", Works)]
#[case("--user-agent=chart/2.36", Works)]
#[case("-v=5", Works)]
#[case("--master=https://api", NoEffect)]
#[case("--kubeconfig=/kubeconfig", NoEffect)]
#[case("--kube-api-qps=5", NoEffect)]
#[case("--kube-api-burst=10", NoEffect)]
#[case("--min-resync-period=12h", NoEffect)]
#[case("--nodeid=node", NoEffect)]
#[case("--node-service-no-os-client", NoEffect)]
#[case("--vmodule=a=1", NoEffect)]
#[case("--log-flush-frequency=5s", NoEffect)]
fn go_driver_flags_work_or_are_logged(#[case] flag: &str, #[case] effect: FlagEffect) {
    let words = ["cinder-csi-driver", "--endpoint=unix:///csi/other.sock", flag];
    let words = if flag.starts_with("--endpoint") {
        vec![words[0], flag]
    } else {
        words.to_vec()
    };
    let args = Args::from_argv(words).expect("a known flag");
    let args = if flag.starts_with("--kubeconfig") {
        args
    } else {
        Args {
            kubeconfig: String::new(),
            ..args
        }
    };
    let named = args.without_effect().into_iter().map(|(flag, _)| flag);
    let name = flag.split('=').next().unwrap_or_default();
    let expected: &[&str] = match effect {
        Works => &[],
        NoEffect => &[name],
    };
    assert_eq!(named.collect::<Vec<_>>(), expected);
}

#[test]
fn api_address_requires_pvc_annotations() {
    let args = parse(&["--pvc-annotations", "--master=https://api"]);
    let ignored: Vec<&str> = args.without_effect().into_iter().map(|(flag, _)| flag).collect();
    assert!(!ignored.contains(&"--master"), "{ignored:?}");
}
