// SPDX-License-Identifier: Apache-2.0
//! Every key that crosses the border between Kubernetes, this driver and OpenStack. They are a contract: volumes, classes
//! and manifests of the Go driver carry the same ones.

mod class;
mod group;
mod mutable;
mod snapshot;
mod templates;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error as DecodeError, MapDeserializer};

use mutable::METADATA_PREFIX;
use templates::Values;

pub use cinder_cloud::metadata_keys;
pub use class::ClassKind;
pub use group::GroupParameters;
pub use mutable::MutableParameters;
pub use snapshot::{SnapshotKind, SnapshotParameters};
pub use templates::check_templates;

/// Topology segment of nodes and volumes: the availability zone.
pub const TOPOLOGY_ZONE: &str = "topology.cinder.csi.openstack.org/zone";
/// Publish context: the device name that Nova thought of. Nodes find the device by its serial and ignore it.
pub const PUBLISH_DEVICE_PATH: &str = "DevicePath";
/// Publish context: `true` for a volume that is at the node to be read only.
pub const PUBLISH_READONLY: &str = "readonly";
/// Publish context: the bytes that the volume's device has at least, which is more than it had before it grew and may be less than what
/// Cinder says. The Go driver's attachments lack it, and so do those of encrypted volumes, whose devices are smaller by what the keys
/// take.
pub const PUBLISH_SIZE: &str = "cinder.csi.openstack.org/size-bytes";
/// Volume context: `true` on a volume that was made from a snapshot or another volume, whose file system may have to grow.
pub const RESIZE_REQUIRED: &str = "cinder.csi.openstack.org/resizeRequired";
/// StorageClass parameter and volume context: what mkfs is told beside the driver's own defaults.
pub const MKFS_OPTIONS: &str = "mkfsOptions";
/// The same key in cinder-csi-plugin after 1.36, which separates the options by white space alone.
pub const GO_MKFS_OPTIONS: &str = "mkfs-options";
/// StorageClass parameter: `true` allows volumes with a file system from snapshots of raw devices.
pub const ALLOW_MODE_CHANGE: &str = "allowVolumeModeChange";
/// Volume metadata: the value of `--cluster`.
pub const METADATA_CLUSTER: &str = metadata_keys::CLUSTER;
/// Secrets: the name of the cloud to work on.
pub const SECRET_CLOUD: &str = "cloud";
/// Description of every volume, snapshot and backup that is made here.
pub const DESCRIPTION: &str = "Created by OpenStack Cinder CSI driver";

const PVC_NAME: &str = "csi.storage.k8s.io/pvc/name";
const PVC_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
const PV_NAME: &str = "csi.storage.k8s.io/pv/name";
/// Keys of Kubernetes' own; the sidecars add them and none is ever unknown.
const KUBERNETES_PREFIX: &str = "csi.storage.k8s.io/";
/// StorageClass parameter of csi-provisioner: the file system.
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The same, as StorageClasses named it before: csi-provisioner still reads it, in any case.
const OLD_FS_TYPE: &str = "fstype";

/// What a StorageClass asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct CreateParameters {
    /// Name or id of the Cinder volume type; Cinder's default type when absent.
    #[serde(rename = "type", default, deserialize_with = "non_empty")]
    pub volume_type: Option<String>,
    /// Availability zone of Cinder; goes before any topology.
    #[serde(default, deserialize_with = "non_empty")]
    pub availability: Option<String>,
    /// What mkfs is told on the node.
    #[serde(rename = "mkfsOptions", default, deserialize_with = "non_empty")]
    mkfs_options: Option<String>,
    /// The same in the key of cinder-csi-plugin after 1.36.
    #[serde(rename = "mkfs-options", default, deserialize_with = "non_empty")]
    go_mkfs_options: Option<String>,
    /// Whether the source of a volume with a file system may be a raw device.
    #[serde(rename = "allowVolumeModeChange", default, deserialize_with = "allow_mode_change")]
    pub allow_mode_change: bool,
    /// Further metadata of the volume, as a JSON object of strings in the spelling of the Go driver.
    #[serde(rename = "appendVolumeMetadata", default, deserialize_with = "non_empty")]
    pub append_volume_metadata: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    rest: BTreeMap<String, String>,
}

fn non_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(|text| (!text.is_empty()).then_some(text))
}

fn allow_mode_change<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = String::deserialize(deserializer)?;
    // An empty value counts as missing.
    if value.is_empty() {
        return Ok(false);
    }
    truth(ALLOW_MODE_CHANGE, &value).map_err(serde::de::Error::custom)
}

/// Parses a boolean in the spellings of `strconv.ParseBool`.
fn truth(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{key} is {other:?}; use true or false")),
    }
}

impl CreateParameters {
    /// Reads the map of a CreateVolume request.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, DecodeError> {
        Self::deserialize(MapDeserializer::new(parameters.into_iter()))
    }

    /// The keys that nobody knows. They are ignored, as users of the Go driver expect, and named in the log.
    pub fn unknown(&self) -> Vec<&str> {
        self.rest
            .keys()
            .map(String::as_str)
            .filter(|key| !key.starts_with(KUBERNETES_PREFIX) && !key.starts_with(METADATA_PREFIX))
            .filter(|key| !key.eq_ignore_ascii_case(OLD_FS_TYPE))
            .collect()
    }

    /// The options of mkfs, from either key. A class with two different values is refused.
    pub fn mkfs_options(&self) -> Result<Option<&str>, String> {
        match (self.mkfs_options.as_deref(), self.go_mkfs_options.as_deref()) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(format!(
                "{MKFS_OPTIONS} and {GO_MKFS_OPTIONS} are two names of one parameter and differ; remove one of them"
            )),
            (ours, theirs) => Ok(ours.or(theirs)),
        }
    }

    /// Namespace and name of the claim, where the provisioner tells them.
    pub fn claim(&self) -> Option<(&str, &str)> {
        Some((self.rest.get(PVC_NAMESPACE)?, self.rest.get(PVC_NAME)?))
    }

    /// The volume's metadata by templates: those of all volumes, over them the class's `appendVolumeMetadata`, which has no templates,
    /// and over that its `metadata.KEY` parameters.
    pub fn templates(&self, all: &[(String, String)], cluster: &str) -> Result<BTreeMap<String, String>, String> {
        let of_class = self.rest.iter().filter_map(|(key, template)| {
            let key = key.strip_prefix(METADATA_PREFIX)?;
            Some((key.to_owned(), template.clone()))
        });
        let appended = self.append_volume_metadata.as_deref();
        let mut metadata = appended
            .map(mutable::appended_metadata)
            .transpose()?
            .unwrap_or_default();
        let all = all.iter().filter(|(key, _)| !metadata.contains_key(key));
        let templates = all.cloned().chain(of_class).collect();
        let value = |key: &str| self.rest.get(key).map(String::as_str);
        let values = Values {
            pvc_name: value(PVC_NAME),
            pvc_namespace: value(PVC_NAMESPACE),
            pv_name: value(PV_NAME),
            cluster,
        };
        metadata.extend(templates::fill(&templates, &values)?);
        Ok(metadata)
    }

    /// The metadata of the volume: the cluster, and the Kubernetes objects where the provisioner named them.
    pub fn metadata(&self, cluster: &str) -> BTreeMap<String, String> {
        let objects = [PVC_NAME, PVC_NAMESPACE, PV_NAME]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), self.rest.get(key)?.clone())));
        std::iter::once((METADATA_CLUSTER.to_owned(), cluster.to_owned()))
            .chain(objects)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn known_parameters_are_read_and_the_rest_is_named() {
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
    fn every_parameter_of_the_go_driver_is_known() {
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
    fn an_empty_value_is_no_value() {
        let parameters = CreateParameters::decode(map(&[("type", ""), ("availability", "")])).expect("strings only");
        assert_eq!(parameters, CreateParameters::default());
    }

    #[test]
    fn appended_metadata_goes_over_that_of_all_volumes_and_under_that_of_its_key_issue_3087() {
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
    fn the_metadata_names_the_cluster_and_the_kubernetes_objects() {
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
