//! Whether there are snapshots, and who runs the snapshot-controller.

use cinder_csi_crds::{GroupSnapshotClass, SnapshotClass, SnapshotControllerMode, Snapshots as Spec, SnapshotsMode};

use crate::observe::OptionalApis;

/// Whether a snapshot-controller that is not this driver's works in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControllerSight {
    /// Nobody has looked.
    #[default]
    Unseen,
    /// There is none.
    Missing,
    /// What shows that there is one.
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
    /// Who is to run the snapshot-controller.
    pub controller: SnapshotControllerMode,
    /// Whether the operator runs it.
    pub deploy_controller: bool,
    /// The snapshot-controller that was seen.
    pub sight: ControllerSight,
    /// The VolumeSnapshotClasses.
    pub classes: Vec<SnapshotClass>,
    /// The VolumeGroupSnapshotClasses.
    pub group_classes: Vec<GroupSnapshotClass>,
}

/// Decides. `is_deployed` tells whether the operator runs a snapshot-controller already.
pub(super) fn snapshots(
    spec: &Spec,
    usual_class: &str,
    apis: OptionalApis,
    sight: &ControllerSight,
    is_deployed: bool,
) -> Snapshots {
    let enabled = spec.mode != SnapshotsMode::Disabled && apis.snapshots;
    let groups = enabled && apis.group_snapshots;
    let may_deploy = match sight {
        ControllerSight::Missing => true,
        ControllerSight::Found(_) => false,
        // What cannot be seen changes nothing.
        ControllerSight::Unseen | ControllerSight::Unknown(_) => is_deployed,
    };
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
        controller: spec.controller,
        deploy_controller: enabled && spec.controller == SnapshotControllerMode::Deploy && may_deploy,
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

    fn mk_spec(mode: SnapshotsMode, controller: SnapshotControllerMode) -> Spec {
        Spec {
            mode,
            controller,
            ..Spec::default()
        }
    }

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
        let spec = mk_spec(mode, SnapshotControllerMode::Detect);
        let decided = snapshots(&spec, "cinder", apis, &ControllerSight::Missing, false);
        let found = (
            decided.enabled,
            decided.groups,
            decided.classes.len(),
            decided.group_classes.len(),
        );
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::nobody_runs_it(ControllerSight::Missing, false, true)]
    #[case::somebody_runs_it(ControllerSight::Found("Lease a/b".into()), false, false)]
    #[case::somebody_else_began(ControllerSight::Found("Lease a/b".into()), true, false)]
    #[case::it_cannot_be_seen(ControllerSight::Unknown("no permission".into()), false, false)]
    #[case::it_cannot_be_seen_any_more(ControllerSight::Unknown("no permission".into()), true, true)]
    fn a_second_snapshot_controller_is_never_run(
        #[case] sight: ControllerSight,
        #[case] is_deployed: bool,
        #[case] expected: bool,
    ) {
        let spec = mk_spec(SnapshotsMode::Auto, SnapshotControllerMode::Deploy);
        assert_eq!(
            snapshots(&spec, "cinder", ALL, &sight, is_deployed).deploy_controller,
            expected
        );
        for mode in [SnapshotControllerMode::Detect, SnapshotControllerMode::Ignore] {
            let spec = mk_spec(SnapshotsMode::Auto, mode);
            assert!(!snapshots(&spec, "cinder", ALL, &sight, is_deployed).deploy_controller);
        }
    }
}
