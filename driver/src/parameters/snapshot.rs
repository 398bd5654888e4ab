// SPDX-License-Identifier: Apache-2.0
//! What a VolumeSnapshotClass asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mutable::{APPEND_METADATA, appended_metadata};
use super::{KUBERNETES_PREFIX, METADATA_CLUSTER, truth};

use crate::timing::TIMING;

const TYPE: &str = "type";
const FORCE_CREATE: &str = "force-create";
const AVAILABILITY: &str = "availability";
const INCREMENTAL: &str = "incremental";
const BACKUP_PACE: &str = "backup-max-duration-seconds-per-gb";
const SNAPSHOT_NAME: &str = "csi.storage.k8s.io/volumesnapshot/name";
const SNAPSHOT_NAMESPACE: &str = "csi.storage.k8s.io/volumesnapshot/namespace";
const CONTENT_NAME: &str = "csi.storage.k8s.io/volumesnapshotcontent/name";

/// Seconds per GiB on top, unless the class says otherwise.
const BACKUP_PACE_DEFAULT: u32 = 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SnapshotKind {
    /// A Cinder snapshot, beside its volume.
    #[default]
    Snapshot,
    /// A Cinder backup, away from it.
    Backup,
}

/// What a VolumeSnapshotClass asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotParameters {
    pub kind: SnapshotKind,
    /// Whether snapshots are taken of volumes in use, too.
    pub force: bool,
    /// The zone of the backup service.
    pub availability: Option<String>,
    /// Whether a backup holds only what changed since the one before.
    pub incremental: bool,
    /// Seconds per GiB that a backup may take.
    backup_pace: u32,
    /// Further metadata.
    appended: BTreeMap<String, String>,
    /// Keys of Kubernetes' own.
    objects: BTreeMap<String, String>,
    unknown: Vec<String>,
}

impl Default for SnapshotParameters {
    /// A snapshot, of a volume in use, too: nobody's pods have to stop for it.
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
    /// Every key that a class may have, but for Kubernetes' own.
    pub(super) const KEYS: [&str; 6] = [
        TYPE,
        FORCE_CREATE,
        AVAILABILITY,
        INCREMENTAL,
        BACKUP_PACE,
        APPEND_METADATA,
    ];

    /// Reads the map of a CreateSnapshot request. The error names the key, what is wrong with it and what is possible.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, String> {
        let mut read = Self::default();
        for (key, value) in parameters {
            match key.as_str() {
                _ if key.starts_with(KUBERNETES_PREFIX) => {
                    read.objects.insert(key, value);
                }
                // An empty value is no value.
                known if value.is_empty() && Self::KEYS.contains(&known) => {}
                TYPE => {
                    read.kind = match value.as_str() {
                        "snapshot" => SnapshotKind::Snapshot,
                        "backup" => SnapshotKind::Backup,
                        other => return Err(format!("{TYPE} is {other:?}; use snapshot or backup")),
                    };
                }
                FORCE_CREATE => read.force = truth(FORCE_CREATE, &value)?,
                INCREMENTAL => read.incremental = truth(INCREMENTAL, &value)?,
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

    /// The keys that nobody knows. They are ignored, as users of the Go driver expect, and named in the log.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The metadata of the snapshot or backup: the cluster, the Kubernetes objects where the snapshotter named them, and what the class
    /// adds.
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

    /// How long a backup of so many GiB may take before it is told as late.
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
    fn every_key_of_the_go_driver_is_read() {
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
    fn a_class_without_parameters_means_snapshots_of_volumes_in_use_too_issue_832() {
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
    fn a_bad_value_is_named_with_its_key(#[case] key: &str, #[case] value: &str) {
        let text = SnapshotParameters::decode(map(&[(key, value)])).expect_err("bad");
        assert!(text.contains(key) && text.contains(value), "{text}");
    }
}
