// SPDX-License-Identifier: Apache-2.0
//! The keys of parameters, contexts, metadata and secrets that Kubernetes, this driver and OpenStack exchange.
//!
//! They are a compatibility contract: volumes, classes and manifests of the Go driver use the same keys.

mod class;
mod create;
mod group;
mod keys;
mod mutable;
mod snapshot;
mod templates;

pub use cinder_cloud::metadata_keys;
pub use class::ClassKind;
pub use create::CreateParameters;
use create::parse_bool;
pub use group::GroupParameters;
pub use keys::{
    ALLOW_MODE_CHANGE, DESCRIPTION, GO_MKFS_OPTIONS, METADATA_CLUSTER, MKFS_OPTIONS, PUBLISH_DEVICE_PATH,
    PUBLISH_READONLY, PUBLISH_SIZE, RESIZE_REQUIRED, SECRET_CLOUD, TOPOLOGY_ZONE,
};
use keys::{FS_TYPE, KUBERNETES_PREFIX};
pub use mutable::MutableParameters;
pub use snapshot::{SnapshotKind, SnapshotParameters};
pub use templates::check_templates;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use std::collections::BTreeMap;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn unknown_parameters_are_listed() {
        let parameters = CreateParameters::decode(map(&[
            ("type", "fast"),
            ("availability", "zone-1"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/something/new", "x"),
            ("fsType", "xfs"),
            ("tpye", "typo"),
        ]))
        .expect("strings only");
        assert_eq!(parameters.volume_type.as_deref(), Some("fast"));
        assert_eq!(parameters.availability.as_deref(), Some("zone-1"));
        assert_eq!(parameters.unknown(), ["tpye"]);
    }

    #[test]
    fn all_parameters_of_go_driver_are_known() {
        let classes = CreateParameters::decode(map(&[
            ("type", "fast"),
            ("availability", "nova"),
            ("csi.storage.k8s.io/fstype", "xfs"),
            ("csi.storage.k8s.io/provisioner-secret-name", "s"),
            ("csi.storage.k8s.io/provisioner-secret-namespace", "n"),
            ("metadata.owner", "${pvc.name}"),
            ("mkfsOptions", "-N 1000"),
            ("mkfs-options", "-N 1000"),
            ("appendVolumeMetadata", "{}"),
        ]));
        assert_eq!(classes.expect("strings only").unknown(), Vec::<&str>::new());
        let snapshots = SnapshotParameters::decode(map(&[
            ("type", "backup"),
            ("force-create", "true"),
            ("availability", "nova"),
            ("backup-max-duration-seconds-per-gb", "30"),
            ("incremental", "true"),
            ("csi.storage.k8s.io/snapshotter-secret-name", "s"),
        ]));
        let snapshots = snapshots.expect("all are known");
        assert!(snapshots.kind == SnapshotKind::Backup && snapshots.incremental && snapshots.force);
        assert_eq!(snapshots.unknown(), Vec::<String>::new());
    }

    #[rstest]
    #[case::ours(&[("mkfsOptions", "-N 1")], Ok(Some("-N 1")))]
    #[case::of_later_go_drivers(&[("mkfs-options", "-N 1")], Ok(Some("-N 1")))]
    #[case::both(&[("mkfsOptions", "-N 1"), ("mkfs-options", "-N 1")], Ok(Some("-N 1")))]
    #[case::one_is_empty(&[("mkfsOptions", ""), ("mkfs-options", "-N 1")], Ok(Some("-N 1")))]
    #[case::none(&[], Ok(None))]
    #[case::two_values(&[("mkfsOptions", "-N 1"), ("mkfs-options", "-N 2")], Err("differ"))]
    fn mkfs_options_have_two_keys(#[case] parameters: &[(&str, &str)], #[case] expected: Result<Option<&str>, &str>) {
        let parameters = CreateParameters::decode(map(parameters)).expect("strings only");
        assert_eq!(parameters.unknown(), Vec::<&str>::new());
        match (parameters.mkfs_options(), expected) {
            (Ok(options), Ok(expected)) => assert_eq!(options, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (options, _) => panic!("{options:?}"),
        }
    }

    #[test]
    fn empty_value_counts_as_missing() {
        let parameters = CreateParameters::decode(map(&[("type", ""), ("availability", "")])).expect("strings only");
        assert_eq!(parameters, CreateParameters::default());
    }

    #[test]
    fn appended_metadata_has_middle_precedence_issue_3087() {
        let parameters = CreateParameters::decode(map(&[
            (
                "appendVolumeMetadata",
                r#"{"owner": "${cluster}", "tier": "gold", "site": "x"}"#,
            ),
            ("metadata.tier", "silver"),
        ]));
        let all = [("owner".to_owned(), "${pvc.name}".to_owned())];
        let metadata = parameters.expect("strings only").templates(&all, "kubernetes");
        assert_eq!(
            metadata.expect("good"),
            map(&[("owner", "${cluster}"), ("tier", "silver"), ("site", "x")])
        );
    }

    #[test]
    fn metadata_contains_cluster_and_kubernetes_objects() {
        let parameters = CreateParameters::decode(map(&[
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("csi.storage.k8s.io/other", "x"),
        ]))
        .expect("strings only");
        assert_eq!(
            parameters.metadata("kubernetes"),
            map(&[
                ("cinder.csi.openstack.org/cluster", "kubernetes"),
                ("csi.storage.k8s.io/pv/name", "pvc-1"),
                ("csi.storage.k8s.io/pvc/name", "data"),
                ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ])
        );
    }
}
