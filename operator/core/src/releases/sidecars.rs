// SPDX-License-Identifier: Apache-2.0
//! Which releases of the sidecars belong to which version of Kubernetes, and which feature gates they are given there.
//!
//! The table is data: one row per range of versions of the API server. Arguments follow the release that really runs, which an
//! administrator may have chosen: a program that meets an argument or a gate that it does not know does not start.

use std::collections::BTreeMap;

use semver::Version;

use crate::cluster::{KubernetesVersion, OptionalApis};
use crate::releases::Component;

/// The release that an image's tag names: `…/csi-attacher:v4.12.0`, with or without a suffix or a digest. None for an image that is
/// named by its digest alone, and for a tag of another kind.
pub fn release_of(image: &str) -> Option<Version> {
    let name = image.split('@').next().unwrap_or(image);
    let (_, tag) = name.rsplit_once('/').map_or(name, |(_, last)| last).rsplit_once(':')?;
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    // The suffix of a distribution makes no pre-release of it.
    let end = tag.find(|c: char| c != '.' && !c.is_ascii_digit());
    Version::parse(&tag[..end.unwrap_or(tag.len())]).ok()
}

/// The releases for a range of versions of Kubernetes, from `since` up to the next row's.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionSet {
    /// The first version of Kubernetes that the row is for.
    pub since: KubernetesVersion,
    /// The range in words, for the status.
    pub name: &'static str,
    /// csi-provisioner. v6.0.1, v6.1.1 and v6.2.0 leave finalizers behind that block deletions; v5 and v6.0.0 can make a volume in
    /// the wrong zone at a second try.
    provisioner: Version,
    /// csi-attacher.
    attacher: Version,
    /// csi-resizer. From v2.0 on it wants the API of Kubernetes 1.34.
    resizer: Version,
    /// csi-snapshotter. The snapshot-controller of `config/snapshot-controller` is released with it.
    snapshotter: Version,
    /// csi-node-driver-registrar.
    registrar: Version,
    /// livenessprobe.
    liveness_probe: Version,
}

const fn since(minor: u32) -> KubernetesVersion {
    KubernetesVersion { major: 1, minor }
}

/// The newest releases.
static NEWEST: VersionSet = VersionSet {
    since: since(36),
    name: ">= 1.36",
    provisioner: Version::new(6, 3, 0),
    attacher: Version::new(4, 12, 0),
    resizer: Version::new(2, 2, 1),
    snapshotter: Version::new(8, 6, 0),
    registrar: Version::new(2, 17, 0),
    liveness_probe: Version::new(2, 19, 0),
};

/// All rows but the newest, oldest first. Older clusters than the first row's are refused by the resolver.
static OLDER: [VersionSet; 3] = [
    VersionSet {
        since: since(30),
        name: "1.30 - 1.33",
        provisioner: Version::new(6, 0, 2),
        attacher: Version::new(4, 10, 0),
        resizer: Version::new(1, 14, 0),
        snapshotter: Version::new(8, 4, 0),
        registrar: Version::new(2, 15, 0),
        liveness_probe: Version::new(2, 17, 0),
    },
    VersionSet {
        since: since(34),
        name: "1.34",
        provisioner: Version::new(6, 1, 2),
        attacher: Version::new(4, 11, 0),
        resizer: Version::new(2, 1, 0),
        snapshotter: Version::new(8, 5, 0),
        registrar: Version::new(2, 16, 0),
        liveness_probe: Version::new(2, 18, 0),
    },
    VersionSet {
        since: since(35),
        name: "1.35",
        provisioner: Version::new(6, 2, 1),
        attacher: Version::new(4, 11, 0),
        resizer: Version::new(2, 1, 0),
        snapshotter: Version::new(8, 5, 0),
        registrar: Version::new(2, 16, 0),
        liveness_probe: Version::new(2, 18, 0),
    },
];

/// The row for a version of Kubernetes; the newest where it is not known.
pub fn version_set(kubernetes: Option<KubernetesVersion>) -> &'static VersionSet {
    let Some(version) = kubernetes.filter(|version| *version < NEWEST.since) else {
        return &NEWEST;
    };
    let fitting = OLDER.iter().rev().find(|row| row.since <= version);
    fitting.unwrap_or(&OLDER[0])
}

/// The row with the newest releases, whatever the cluster.
pub fn newest() -> &'static VersionSet {
    &NEWEST
}

impl VersionSet {
    /// The release of a sidecar; none for the driver, which is released with the operator.
    pub fn release(&self, component: Component) -> Option<&Version> {
        Some(match component {
            Component::Driver => return None,
            Component::Provisioner => &self.provisioner,
            Component::Attacher => &self.attacher,
            Component::Resizer => &self.resizer,
            Component::Snapshotter => &self.snapshotter,
            Component::Registrar => &self.registrar,
            Component::LivenessProbe => &self.liveness_probe,
        })
    }
}

/// How a release stands to the one that the table names for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// It is that one, or differs in mended errors only.
    Ok,
    /// It is older.
    Old,
    /// It is newer.
    New,
    /// Which release it is cannot be told, or none is expected.
    Pinned,
}

impl Skew {
    /// How `runs` stands to `wanted`.
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

    /// As in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Old => "Old",
            Self::New => "New",
            Self::Pinned => "Pinned",
        }
    }
}

/// Whether Kubernetes is at least `1.minor`; a version that is not known is taken for a new one.
pub fn at_least(kubernetes: Option<KubernetesVersion>, minor: u32) -> bool {
    kubernetes.is_none_or(|version| version >= since(minor))
}

/// The feature gates that a release of a sidecar needs in this cluster, where they differ from its own choice or the choice
/// would be made only when it starts.
pub fn gates(
    component: Component,
    runs: &Version,
    kubernetes: Option<KubernetesVersion>,
    apis: OptionalApis,
) -> BTreeMap<String, bool> {
    // The release with which a gate came.
    let known = |major, minor| *runs >= Version::new(major, minor, 0);
    let mut gates = BTreeMap::new();
    let mut set = |name: &str, on: bool| {
        gates.insert(name.to_owned(), on);
    };
    // Without it a successor waits for the end of a lease that nobody holds any more.
    let makes_room = match component {
        Component::Provisioner => known(6, 0),
        Component::Attacher => known(4, 10),
        Component::Resizer => known(2, 0),
        Component::Snapshotter => known(8, 4),
        Component::Driver | Component::Registrar | Component::LivenessProbe => false,
    };
    if makes_room {
        set("ReleaseLeaderElectionOnExit", true);
    }
    match component {
        // They look for the API when they start and never again: a changed argument starts them anew when it appears.
        Component::Provisioner if known(6, 0) => set("VolumeAttributesClass", apis.volume_attributes_classes),
        Component::Resizer => {
            if known(2, 0) {
                set("VolumeAttributesClass", apis.volume_attributes_classes);
            }
            if !at_least(kubernetes, 32) {
                // The status of a claim cannot hold it.
                set("RecoverVolumeExpansionFailure", false);
            }
        }
        // The error code that makes the kubelet count again.
        Component::Attacher if known(4, 10) => set("MutableCSINodeAllocatableCount", at_least(kubernetes, 34)),
        Component::Snapshotter if apis.group_snapshots => {
            set("CSIVolumeGroupSnapshot", true);
        }
        _ => {}
    }
    gates
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Some(Version::new(4, 12, 0)))]
    #[case("mirror:5000/csi-attacher:v4.12.0-eks-1", Some(Version::new(4, 12, 0)))]
    #[case("mirror/csi-attacher:4.10.1@sha256:0123", Some(Version::new(4, 10, 1)))]
    #[case("mirror:5000/csi-attacher", None)]
    #[case("mirror/csi-attacher@sha256:0123", None)]
    #[case("mirror/csi-attacher:latest", None)]
    #[case("mirror/csi-attacher:v4", None)]
    fn the_release_is_read_from_the_tag(#[case] image: &str, #[case] expected: Option<Version>) {
        assert_eq!(release_of(image), expected);
    }

    #[rstest]
    #[case(29, "1.30 - 1.33")]
    #[case(30, "1.30 - 1.33")]
    #[case(33, "1.30 - 1.33")]
    #[case(34, "1.34")]
    #[case(35, "1.35")]
    #[case(36, ">= 1.36")]
    #[case(100, ">= 1.36")]
    fn every_version_of_kubernetes_has_one_row(#[case] minor: u32, #[case] name: &str) {
        assert_eq!(version_set(Some(since(minor))).name, name);
    }

    #[test]
    fn rows_are_in_order_and_no_release_goes_back() {
        let rows: Vec<&VersionSet> = OLDER.iter().chain([&NEWEST]).collect();
        for pair in rows.windows(2) {
            assert!(pair[0].since < pair[1].since);
            for component in Component::ALL {
                assert!(
                    pair[0].release(component) <= pair[1].release(component),
                    "{component:?}"
                );
            }
        }
        assert_eq!(version_set(None), &NEWEST);
    }

    #[test]
    fn the_page_shows_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pods.md");
        let page = std::fs::read_to_string(page).unwrap();
        let lines: Vec<&str> = page.lines().filter(|line| line.contains(" | v")).collect();

        for (row, line) in OLDER.iter().chain([&NEWEST]).zip(&lines) {
            let cells = [
                &row.provisioner,
                &row.attacher,
                &row.resizer,
                &row.snapshotter,
                &row.registrar,
                &row.liveness_probe,
            ];
            let expected = cells.map(|release| format!("v{release}")).join(" | ");
            assert!(line.ends_with(&format!("| {expected} |")), "{line}\n{expected}");
        }
        assert_eq!(lines.len(), OLDER.len() + 1);
    }

    #[test]
    fn the_snapshot_controller_of_config_is_of_the_newest_release() {
        let deployment = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../config/snapshot-controller/deployment.yaml"
        );
        let deployment = std::fs::read_to_string(deployment).unwrap();
        let image = deployment.lines().find_map(|line| line.trim().strip_prefix("image: "));
        assert_eq!(image.and_then(release_of), Some(NEWEST.snapshotter.clone()));
    }

    #[test]
    fn no_row_has_a_release_that_harms() {
        for row in OLDER.iter().chain([&NEWEST]) {
            for bad in [
                Version::new(6, 0, 0),
                Version::new(6, 0, 1),
                Version::new(6, 1, 1),
                Version::new(6, 2, 0),
            ] {
                assert_ne!(row.provisioner, bad, "{}", row.name);
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
    fn gates_follow_the_release_that_runs(
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

        let gates = gates(component, &runs, Some(since(minor)), apis);

        let text: Vec<String> = gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        assert_eq!(text.join(" "), expected);
    }
}
