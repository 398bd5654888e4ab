// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverSpec, Cloud, Override, OverrideTarget, OverrideType};
use rstest::rstest;

use k8s_openapi::jiff::Timestamp;

use super::{ControllerSight, Environment, resolve};
use crate::cluster::{KubernetesVersion, OptionalApis};
use crate::reasons::Degraded;
use crate::releases::InstalledImages;

pub(crate) fn mk_driver(name: &str) -> CinderCSIDriver {
    CinderCSIDriver::new(
        name,
        CinderCSIDriverSpec::new(vec![Cloud::from_secret("openstack-credentials")]),
    )
}

pub(crate) fn mk_environment() -> Environment {
    Environment {
        namespace: "cinder-csi".into(),
        operator_version: "0.1.0".into(),
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 36 }),
        cluster_uid: Some("0ca5a8c2-7a55-4a1c-8b3c-5b1f0f2d1e11".into()),
        nodes: 3,
        apis: OptionalApis::default(),
        default_classes: Vec::new(),
        snapshot_controller: ControllerSight::default(),
        snapshot_contents: crate::cluster::SnapshotContents::default(),
        silent_clouds: std::collections::BTreeSet::new(),
        zoned_volumes: 0,
        records: BTreeMap::new(),
        definition_mismatch: None,
        now: Timestamp::UNIX_EPOCH,
        clouds: BTreeMap::new(),
        images: InstalledImages::default(),
        restrictions: crate::restrictions::Restrictions::default(),
        other_drivers: Vec::new(),
    }
}

#[test]
fn cluster_id_defaults_to_kube_system_uid() {
    let mut driver = mk_driver("cinder.csi.openstack.org");
    let environment = mk_environment();
    assert_eq!(
        resolve(&driver, &environment).unwrap().cluster_id,
        "0ca5a8c2-7a55-4a1c-8b3c-5b1f0f2d1e11"
    );

    driver.spec.cluster_id = Some("kubernetes".into());
    assert_eq!(resolve(&driver, &environment).unwrap().cluster_id, "kubernetes");
}

#[test]
fn unknown_cluster_id_is_rejected() {
    let environment = Environment {
        cluster_uid: None,
        ..mk_environment()
    };

    let problems = resolve(&mk_driver("cinder.csi.openstack.org"), &environment).unwrap_err();

    assert_eq!(
        problems.iter().map(|p| p.reason).collect::<Vec<_>>(),
        [Degraded::ClusterIDUnknown]
    );
    assert!(problems[0].message.contains("spec.clusterID"), "{problems:?}");
}

#[rstest]
#[case(1, 1)]
#[case(2, 2)]
#[case(500, 2)]
fn two_replicas_run_with_two_nodes(#[case] nodes: usize, #[case] replicas: i32) {
    let environment = Environment {
        nodes,
        ..mk_environment()
    };

    let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &environment).unwrap();

    assert_eq!(resolved.controller.replicas, replicas);
}

#[rstest]
#[case(29, false)]
#[case(30, true)]
#[case(100, true)]
fn rejects_kubernetes_before_1_30(#[case] minor: u32, #[case] accepted: bool) {
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor }),
        ..mk_environment()
    };

    let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &environment);

    assert_eq!(resolved.is_ok(), accepted, "{resolved:?}");
}

#[test]
fn all_problems_are_reported_together() {
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 20 }),
        cluster_uid: None,
        ..mk_environment()
    };

    let problems = resolve(&mk_driver("cinder.csi.openstack.org"), &environment).unwrap_err();

    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn rejects_name_with_too_long_socket_path() {
    let mut driver = mk_driver(&"x".repeat(40));
    driver.spec.node.kubelet_dir = "/var/snap/microk8s/common/var/lib/kubelet".into();

    let problems = resolve(&driver, &mk_environment()).unwrap_err();

    assert_eq!(problems[0].reason, Degraded::InvalidSpec);
}

#[rstest]
#[case::label(|driver: &mut CinderCSIDriver, _: &mut Environment| {
    driver.spec.topology.additional.insert("no label".to_owned(), "x".to_owned());
}, Degraded::InvalidSpec)]
#[case::overrides(|driver: &mut CinderCSIDriver, environment: &mut Environment| {
    driver.spec.overrides = vec![Override {
        target: OverrideTarget { kind: "DaemonSet".to_owned(), name: "cinder-csi-node".to_owned() },
        kind: OverrideType::Merge,
        patch: "{}".to_owned(),
    }];
    environment.restrictions.no_overrides = true;
}, Degraded::OverridesForbidden)]
#[case::registry(|_: &mut CinderCSIDriver, environment: &mut Environment|
    environment.restrictions.registries = vec!["registry.example.org".to_owned()], Degraded::ImageForbidden)]
fn invalid_spec_is_rejected(#[case] change: fn(&mut CinderCSIDriver, &mut Environment), #[case] reason: Degraded) {
    let (mut driver, mut environment) = (mk_driver("cinder.csi.openstack.org"), mk_environment());
    change(&mut driver, &mut environment);

    let problems = resolve(&driver, &environment).unwrap_err();

    assert_eq!(
        problems.iter().map(|p| p.reason).collect::<Vec<_>>(),
        [reason],
        "{problems:?}"
    );
}

#[test]
fn name_prefix_is_unique_per_driver() {
    let name_prefix = |name| resolve(&mk_driver(name), &mk_environment()).unwrap().name_prefix;

    assert_eq!(name_prefix("cinder.csi.openstack.org"), "cinder-csi");
    assert_eq!(
        name_prefix("second.csi.example.org"),
        name_prefix("second.csi.example.org")
    );
    assert_ne!(
        name_prefix("second.csi.example.org"),
        name_prefix("third.csi.example.org")
    );
    assert_eq!(name_prefix("second.csi.example.org").len(), "cinder-csi-".len() + 8);
}

#[rstest]
#[case("1", "36", Some(KubernetesVersion { major: 1, minor: 36 }))]
#[case("1", "31+", Some(KubernetesVersion { major: 1, minor: 31 }))]
#[case("1", "", None)]
fn api_server_version_is_parsed_as_numbers(
    #[case] major: &str,
    #[case] minor: &str,
    #[case] expected: Option<KubernetesVersion>,
) {
    assert_eq!(KubernetesVersion::parse(major, minor), expected);
}

#[test]
fn unserved_class_kinds_are_omitted_and_reported() {
    let mut driver = mk_driver("cinder.csi.openstack.org");
    driver.spec.volume_attributes_classes =
        serde_json::from_value(serde_json::json!({ "items": [{ "name": "gold", "parameters": { "type": "ssd" } }] }))
            .unwrap();
    let old = resolve(&driver, &mk_environment()).unwrap();
    assert_eq!(old.unknown_classes, ["spec.volumeAttributesClasses"]);
    assert!(old.attributes_classes.is_empty());

    let environment = Environment {
        apis: OptionalApis {
            volume_attributes_classes: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    };
    let new = resolve(&driver, &environment).unwrap();
    assert!(new.unknown_classes.is_empty());
    assert_eq!(new.attributes_classes.len(), 1);
}

/// Existing nodes and node templates contain it.
#[test]
fn startup_taint_key_never_changes() {
    let mut driver = mk_driver("cinder.csi.openstack.org");
    driver.spec.node.startup_taint.enabled = true;
    let resolved = resolve(&driver, &mk_environment()).unwrap();
    assert_eq!(
        resolved.node.startup_taint.as_deref(),
        Some("cinder.csi.openstack.org/agent-not-ready")
    );
}
