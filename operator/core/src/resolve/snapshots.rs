// SPDX-License-Identifier: Apache-2.0
//! Whether there are snapshots.

use cinder_csi_crds::{GroupSnapshotClass, SnapshotClass, Snapshots as Spec, SnapshotsMode};

use crate::cluster::OptionalApis;

/// Whether a snapshot-controller works in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControllerSight {
    /// Nobody has looked.
    #[default]
    Unseen,
    /// There is none.
    Missing,
    /// The Deployment of one of which no pod is available.
    Down(String),
    /// What shows that one works.
    Found(String),
    /// Why it could not be seen.
    Unknown(String),
}

/// Snapshots, decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshots {
    /// What the spec wants.
    pub mode: SnapshotsMode,
    /// Whether the driver takes snapshots: they are wanted, and the cluster knows VolumeSnapshots. Then csi-snapshotter runs
    /// beside the driver.
    pub enabled: bool,
    /// Whether the cluster knows VolumeGroupSnapshots too.
    pub groups: bool,
    /// Whether a snapshot-controller works.
    pub sight: ControllerSight,
    /// The VolumeSnapshotClasses.
    pub classes: Vec<SnapshotClass>,
    /// The VolumeGroupSnapshotClasses.
    pub group_classes: Vec<GroupSnapshotClass>,
}

/// Decides.
pub(super) fn snapshots(spec: &Spec, usual_class: &str, apis: OptionalApis, sight: &ControllerSight) -> Snapshots {
    let enabled = spec.mode != SnapshotsMode::Disabled && apis.snapshots;
    let groups = enabled && apis.group_snapshots;
    let classes = || {
        let usual = || vec![SnapshotClass::named(usual_class)];
        spec.classes.clone().unwrap_or_else(usual)
    };
    let group_classes = || {
        let usual = || vec![GroupSnapshotClass::named(usual_class)];
        spec.group_classes.clone().unwrap_or_else(usual)
    };
    Snapshots {
        mode: spec.mode,
        enabled,
        groups,
        sight: sight.clone(),
        classes: if enabled { classes() } else { Vec::new() },
        group_classes: if groups { group_classes() } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ALL: OptionalApis = OptionalApis {
        snapshots: true,
        group_snapshots: true,
        monitoring: false,
        volume_attributes_classes: false,
    };

    #[rstest]
    #[case::there_and_wanted(SnapshotsMode::Auto, ALL, (true, true, 1, 1))]
    #[case::without_groups(SnapshotsMode::Enabled, OptionalApis { group_snapshots: false, ..ALL }, (true, false, 1, 0))]
    #[case::not_there(SnapshotsMode::Auto, OptionalApis::default(), (false, false, 0, 0))]
    #[case::wanted_and_not_there(SnapshotsMode::Enabled, OptionalApis::default(), (false, false, 0, 0))]
    #[case::not_wanted(SnapshotsMode::Disabled, ALL, (false, false, 0, 0))]
    fn snapshots_are_used_where_they_are_wanted_and_known(
        #[case] mode: SnapshotsMode,
        #[case] apis: OptionalApis,
        #[case] expected: (bool, bool, usize, usize),
    ) {
        let spec = Spec {
            mode,
            ..Spec::default()
        };
        let decided = snapshots(&spec, "cinder", apis, &ControllerSight::Missing);
        let found = (
            decided.enabled,
            decided.groups,
            decided.classes.len(),
            decided.group_classes.len(),
        );
        assert_eq!(found, expected);
    }
}
