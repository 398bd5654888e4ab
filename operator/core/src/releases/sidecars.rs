// SPDX-License-Identifier: Apache-2.0
//! Releases of the sidecars for each version of Kubernetes, and their feature gates.
//!
//! The table is data, with one row per range of API server versions. Arguments depend on the release that actually
//! runs, which an administrator may have selected. A program with an unknown argument or feature gate does not start.

use std::collections::BTreeMap;

use semver::Version;

use super::component::{Component, FeatureGate};
use crate::cluster::{KubernetesVersion, OptionalApis};

/// Returns the release in the tag of an image such as `…/csi-attacher:v4.12.0`, with or without a suffix or a digest.
/// `None` for an image with only a digest, and for a tag that is not a version.
pub fn release_of(image: &str) -> Option<Version> {
    let name = image.split('@').next().unwrap_or(image);
    let (_, tag) = name.rsplit_once('/').map_or(name, |(_, last)| last).rsplit_once(':')?;
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    // The suffix of a distribution does not denote a pre-release.
    let end = tag.find(|c: char| c != '.' && !c.is_ascii_digit());
    Version::parse(&tag[..end.unwrap_or(tag.len())]).ok()
}

/// A range of Kubernetes versions with common releases. It extends from `since` to the next range.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionSet {
    /// First version of Kubernetes in the range.
    pub since: KubernetesVersion,
    /// Description of the range, for the status.
    pub name: &'static str,
    /// Index of its releases in the table of components.
    column: usize,
}

const fn version_set_since(minor: u32, name: &'static str, column: usize) -> VersionSet {
    let since = KubernetesVersion { major: 1, minor };
    VersionSet { since, name, column }
}

/// All ranges, oldest first. The resolver rejects clusters that are older than the first range.
static VERSION_SETS: [VersionSet; 2] = [
    version_set_since(30, "1.30 - 1.33", 0),
    version_set_since(34, ">= 1.34", 1),
];

/// Returns the range of a version of Kubernetes, or the newest range for an unknown version.
pub fn version_set(kubernetes: Option<KubernetesVersion>) -> &'static VersionSet {
    let fits = |set: &&VersionSet| kubernetes.is_none_or(|version| set.since <= version);
    VERSION_SETS.iter().rev().find(fits).unwrap_or(&VERSION_SETS[0])
}

impl VersionSet {
    /// Returns the release of a sidecar. `None` for the driver, which has the version of the operator.
    pub fn release(&self, component: Component) -> Option<Version> {
        let &(major, minor, patch) = component.row().releases.get(self.column)?;
        Some(Version::new(major, minor, patch))
    }
}

/// Difference between a release and the release in the table for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The same release, or one that differs only in bug fixes.
    Ok,
    /// An older release.
    Old,
    /// A newer release.
    New,
    /// The release is unknown, or none is expected.
    Pinned,
}

impl Skew {
    /// Compares the running release with the expected one.
    pub fn between(runs: Option<&Version>, wanted: Option<&Version>) -> Self {
        let (Some(runs), Some(wanted)) = (runs, wanted) else {
            return Self::Pinned;
        };
        match (runs.major, runs.minor).cmp(&(wanted.major, wanted.minor)) {
            std::cmp::Ordering::Less => Self::Old,
            std::cmp::Ordering::Equal => Self::Ok,
            std::cmp::Ordering::Greater => Self::New,
        }
    }

    /// Name in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Old => "Old",
            Self::New => "New",
            Self::Pinned => "Pinned",
        }
    }
}

/// Returns the feature gates that a release of a sidecar needs in this cluster. These are gates with a non-default
/// value, and gates that a sidecar otherwise sets by discovery at its start.
pub fn gates(
    component: Component,
    runs: &Version,
    kubernetes: Option<KubernetesVersion>,
    apis: OptionalApis,
) -> BTreeMap<String, bool> {
    let gates = component.row().gates.iter();
    let known = gates.filter(|FeatureGate(_, since, _)| (runs.major, runs.minor) >= *since);
    known
        .filter_map(|FeatureGate(name, _, value)| Some(((*name).to_owned(), value(kubernetes, apis)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::releases::COMPONENTS;

    fn mk_version(minor: u32) -> KubernetesVersion {
        KubernetesVersion { major: 1, minor }
    }

    #[rstest]
    #[case("registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Some(Version::new(4, 12, 0)))]
    #[case("mirror:5000/csi-attacher:v4.12.0-eks-1", Some(Version::new(4, 12, 0)))]
    #[case("mirror/csi-attacher:4.10.1@sha256:0123", Some(Version::new(4, 10, 1)))]
    #[case("mirror:5000/csi-attacher", None)]
    #[case("mirror/csi-attacher@sha256:0123", None)]
    #[case("mirror/csi-attacher:latest", None)]
    #[case("mirror/csi-attacher:v4", None)]
    fn release_is_parsed_from_tag(#[case] image: &str, #[case] expected: Option<Version>) {
        assert_eq!(release_of(image), expected);
    }

    #[rstest]
    #[case(29, "1.30 - 1.33")]
    #[case(30, "1.30 - 1.33")]
    #[case(33, "1.30 - 1.33")]
    #[case(34, ">= 1.34")]
    #[case(36, ">= 1.34")]
    #[case(37, ">= 1.34")]
    #[case(100, ">= 1.34")]
    fn every_version_of_kubernetes_has_one_row(#[case] minor: u32, #[case] name: &str) {
        assert_eq!(version_set(Some(mk_version(minor))).name, name);
    }

    #[test]
    fn releases_never_decrease_with_kubernetes_version() {
        for pair in VERSION_SETS.windows(2) {
            assert!(pair[0].since < pair[1].since);
            for component in &COMPONENTS {
                assert!(
                    pair[0].release(component.component) <= pair[1].release(component.component),
                    "{component:?}"
                );
            }
        }
        assert_eq!(version_set(None), &VERSION_SETS[1]);
    }

    #[test]
    fn documentation_contains_the_sidecar_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pods.md");
        let page = std::fs::read_to_string(page).unwrap();
        let lines: Vec<&str> = page.lines().filter(|line| line.contains(" | v")).collect();

        for (row, line) in VERSION_SETS.iter().zip(&lines) {
            let releases = COMPONENTS
                .iter()
                .filter_map(|component| row.release(component.component));
            let expected = releases
                .map(|release| format!("v{release}"))
                .collect::<Vec<_>>()
                .join(" | ");
            assert!(line.ends_with(&format!("| {expected} |")), "{line}\n{expected}");
        }
        assert_eq!(lines.len(), VERSION_SETS.len());
    }

    #[test]
    fn snapshot_controller_has_newest_release() {
        let deployment = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../config/snapshot-controller/deployment.yaml"
        );
        let deployment = std::fs::read_to_string(deployment).unwrap();
        let image = deployment.lines().find_map(|line| line.trim().strip_prefix("image: "));
        assert_eq!(
            image.and_then(release_of),
            version_set(None).release(Component::Snapshotter)
        );
    }

    #[test]
    fn table_has_no_harmful_release() {
        for row in &VERSION_SETS {
            for bad in [
                Version::new(6, 0, 0),
                Version::new(6, 0, 1),
                Version::new(6, 1, 1),
                Version::new(6, 2, 0),
            ] {
                assert_ne!(row.release(Component::Provisioner), Some(bad), "{}", row.name);
            }
        }
    }

    #[rstest]
    #[case(Some(Version::new(4, 12, 3)), Some(Version::new(4, 12, 0)), Skew::Ok)]
    #[case(Some(Version::new(4, 9, 0)), Some(Version::new(4, 10, 0)), Skew::Old)]
    #[case(Some(Version::new(10, 0, 0)), Some(Version::new(9, 12, 0)), Skew::New)]
    #[case(None, Some(Version::new(4, 12, 0)), Skew::Pinned)]
    #[case(Some(Version::new(4, 12, 0)), None, Skew::Pinned)]
    fn releases_are_compared_as_numbers(
        #[case] runs: Option<Version>,
        #[case] wanted: Option<Version>,
        #[case] expected: Skew,
    ) {
        assert_eq!(Skew::between(runs.as_ref(), wanted.as_ref()), expected);
    }

    #[rstest]
    #[case::knows_all(
        Component::Provisioner,
        Version::new(6, 3, 0),
        36,
        "ReleaseLeaderElectionOnExit=true VolumeAttributesClass=true"
    )]
    #[case::older_than_the_gates(Component::Provisioner, Version::new(5, 3, 0), 36, "")]
    #[case::attacher_before_the_api(
        Component::Attacher,
        Version::new(4, 12, 0),
        33,
        "MutableCSINodeAllocatableCount=false ReleaseLeaderElectionOnExit=true"
    )]
    #[case::resizer_before_the_api(
        Component::Resizer,
        Version::new(1, 14, 0),
        31,
        "RecoverVolumeExpansionFailure=false"
    )]
    #[case::resizer_of_1_32(Component::Resizer, Version::new(1, 14, 0), 32, "")]
    #[case::resizer(
        Component::Resizer,
        Version::new(2, 2, 1),
        36,
        "ReleaseLeaderElectionOnExit=true VolumeAttributesClass=true"
    )]
    #[case::snapshotter(
        Component::Snapshotter,
        Version::new(8, 6, 0),
        36,
        "CSIVolumeGroupSnapshot=true ReleaseLeaderElectionOnExit=true"
    )]
    #[case::registrar(Component::Registrar, Version::new(2, 17, 0), 36, "")]
    fn feature_gates_follow_running_release(
        #[case] component: Component,
        #[case] runs: Version,
        #[case] minor: u32,
        #[case] expected: &str,
    ) {
        let apis = OptionalApis {
            group_snapshots: true,
            volume_attributes_classes: true,
            ..OptionalApis::default()
        };

        let gates = gates(component, &runs, Some(mk_version(minor)), apis);

        let text: Vec<String> = gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        assert_eq!(text.join(" "), expected);
    }
}
