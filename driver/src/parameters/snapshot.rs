// SPDX-License-Identifier: Apache-2.0
//! Parameters of a VolumeSnapshotClass.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mutable::{APPEND_METADATA, appended_metadata};
use super::{KUBERNETES_PREFIX, METADATA_CLUSTER, parse_bool};

use crate::timing::TIMING;

const TYPE: &str = "type";
const FORCE_CREATE: &str = "force-create";
const AVAILABILITY: &str = "availability";
const INCREMENTAL: &str = "incremental";
const BACKUP_PACE: &str = "backup-max-duration-seconds-per-gb";
const SNAPSHOT_NAME: &str = "csi.storage.k8s.io/volumesnapshot/name";
const SNAPSHOT_NAMESPACE: &str = "csi.storage.k8s.io/volumesnapshot/namespace";
const CONTENT_NAME: &str = "csi.storage.k8s.io/volumesnapshotcontent/name";

/// The additional seconds per GiB, unless the class specifies another value.
const BACKUP_PACE_DEFAULT: u32 = 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SnapshotKind {
    /// A Cinder snapshot, on the same backend as the volume.
    #[default]
    Snapshot,
    /// A Cinder backup, outside the volume's backend.
    Backup,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotParameters {
    pub kind: SnapshotKind,
    /// Whether snapshots of volumes in use are allowed.
    pub force: bool,
    /// The zone of the backup service.
    pub availability: Option<String>,
    /// Whether a backup contains only the changes since the previous one.
    pub incremental: bool,
    /// Seconds per GiB that a backup may take.
    backup_pace: u32,
    /// Additional metadata.
    appended: BTreeMap<String, String>,
    /// Keys that the sidecars add.
    objects: BTreeMap<String, String>,
    unknown: Vec<String>,
}

impl Default for SnapshotParameters {
    /// The default is a snapshot that does not require the volume to be detached.
    fn default() -> Self {
        Self {
            kind: SnapshotKind::Snapshot,
            force: true,
            availability: None,
            incremental: false,
            backup_pace: BACKUP_PACE_DEFAULT,
            appended: BTreeMap::new(),
            objects: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }
}

impl SnapshotParameters {
    /// Every permitted key, except the keys of Kubernetes.
    pub(super) const KEYS: [&str; 6] = [
        TYPE,
        FORCE_CREATE,
        AVAILABILITY,
        INCREMENTAL,
        BACKUP_PACE,
        APPEND_METADATA,
    ];

    /// Parses the parameters of a CreateSnapshot request. The error has the key, the problem and the permitted values.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, String> {
        let mut read = Self::default();
        for (key, value) in parameters {
            match key.as_str() {
                _ if key.starts_with(KUBERNETES_PREFIX) => {
                    read.objects.insert(key, value);
                }
                // An empty value counts as missing.
                known if value.is_empty() && Self::KEYS.contains(&known) => {}
                TYPE => {
                    read.kind = match value.as_str() {
                        "snapshot" => SnapshotKind::Snapshot,
                        "backup" => SnapshotKind::Backup,
                        other => return Err(format!("{TYPE} is {other:?}; use snapshot or backup")),
                    };
                }
                FORCE_CREATE => read.force = parse_bool(FORCE_CREATE, &value)?,
                INCREMENTAL => read.incremental = parse_bool(INCREMENTAL, &value)?,
                AVAILABILITY => read.availability = Some(value),
                APPEND_METADATA => read.appended = appended_metadata(&value)?,
                BACKUP_PACE => {
                    read.backup_pace = value
                        .parse()
                        .map_err(|_| format!("{BACKUP_PACE} is {value:?}; use a whole number of seconds"))?;
                }
                _ => read.unknown.push(key),
            }
        }
        Ok(read)
    }

    /// Returns the unknown keys. They are logged and ignored, as users of the Go driver expect.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Returns the metadata of the snapshot or backup.
    ///
    /// It contains the cluster, the Kubernetes objects if the snapshotter sends them, and the additions of the class.
    pub fn metadata(&self, cluster: &str) -> BTreeMap<String, String> {
        let objects = [SNAPSHOT_NAME, SNAPSHOT_NAMESPACE, CONTENT_NAME]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), self.objects.get(key)?.clone())));
        let kind = (self.kind == SnapshotKind::Backup).then(|| (TYPE.to_owned(), "backup".to_owned()));
        let cluster = std::iter::once((METADATA_CLUSTER.to_owned(), cluster.to_owned()));
        (self.appended.clone().into_iter())
            .chain(cluster)
            .chain(objects)
            .chain(kind)
            .collect()
    }

    /// Returns how long a backup of this size may take before it is reported as late.
    pub fn backup_limit(&self, gibibytes: u64) -> Duration {
        let pace = Duration::from_secs(u64::from(self.backup_pace));
        TIMING
            .backup_base
            .saturating_add(pace.saturating_mul(u32::try_from(gibibytes).unwrap_or(u32::MAX)))
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
    fn all_snapshot_keys_of_go_driver_are_parsed() {
        let read = SnapshotParameters::decode(map(&[
            ("type", "backup"),
            ("force-create", "false"),
            ("availability", "zone-1"),
            ("incremental", "true"),
            ("backup-max-duration-seconds-per-gb", "5"),
            ("csi.storage.k8s.io/volumesnapshot/name", "snap"),
            ("tpye", "typo"),
        ]))
        .expect("good");
        assert_eq!(
            (read.kind, read.force, read.incremental),
            (SnapshotKind::Backup, false, true)
        );
        assert_eq!(read.availability.as_deref(), Some("zone-1"));
        assert_eq!(read.backup_limit(10), Duration::from_secs(80));
        assert_eq!(read.unknown(), ["tpye"]);
        assert_eq!(
            read.metadata("kubernetes"),
            map(&[
                ("cinder.csi.openstack.org/cluster", "kubernetes"),
                ("csi.storage.k8s.io/volumesnapshot/name", "snap"),
                ("type", "backup"),
            ])
        );
    }

    #[test]
    fn default_class_snapshots_volumes_in_use_issue_832() {
        let read = SnapshotParameters::decode(map(&[("type", ""), ("force-create", "")])).expect("good");
        assert_eq!(read, SnapshotParameters::default());
        assert!(read.force && read.kind == SnapshotKind::Snapshot);
        assert_eq!(read.backup_limit(1), Duration::from_secs(50));
    }

    #[rstest]
    #[case("type", "bakcup")]
    #[case("force-create", "yes")]
    #[case("incremental", "2")]
    #[case("backup-max-duration-seconds-per-gb", "-1")]
    #[case("backup-max-duration-seconds-per-gb", "fast")]
    fn invalid_value_is_reported_with_key(#[case] key: &str, #[case] value: &str) {
        let text = SnapshotParameters::decode(map(&[(key, value)])).expect_err("bad");
        assert!(text.contains(key) && text.contains(value), "{text}");
    }
}
