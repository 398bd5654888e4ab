// SPDX-License-Identifier: Apache-2.0
//! Decides whether the driver serves snapshots.

use std::collections::BTreeSet;

use cinder_csi_crds::{GroupSnapshotClass, RecordedContents, SnapshotClass, Snapshots as Spec, SnapshotsMode};

use crate::{
    cluster::{ContentsList, OptionalApi, OptionalApis, SnapshotContents},
    problem::Problem,
    reasons::Degraded,
    text::join_truncated,
};

/// Whether a snapshot-controller works in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControllerSight {
    /// The operator has not checked.
    #[default]
    Unseen,
    /// The cluster has none.
    Missing,
    /// No pod of this Deployment of a snapshot-controller is available.
    Down(String),
    /// A snapshot-controller works, with the evidence.
    Found(String),
    /// The check failed, with the cause.
    Unknown(String),
}

/// The resolved snapshot settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshots {
    /// The mode in the spec.
    pub mode: SnapshotsMode,
    /// Whether the driver takes snapshots: the spec enables them, and the cluster serves VolumeSnapshots. Then
    /// csi-snapshotter runs next to the driver.
    pub enabled: bool,
    /// Whether the cluster also serves VolumeGroupSnapshots.
    pub groups: bool,
    /// Kinds of contents that need csi-snapshotter, or could need it, although the spec or the cluster excludes them.
    pub retained: BTreeSet<&'static str>,
    /// Why csi-snapshotter is retained, and which contents are lost.
    pub problems: Vec<Problem>,
    /// The contents in the last successful list.
    pub contents: Vec<RecordedContents>,
    /// Whether a snapshot-controller works.
    pub sight: ControllerSight,
    pub classes: Vec<SnapshotClass>,
    pub group_classes: Vec<GroupSnapshotClass>,
}

impl Snapshots {
    /// Whether csi-snapshotter runs.
    pub fn run_sidecar(&self) -> bool {
        self.enabled || !self.retained.is_empty()
    }

    /// Returns the optional APIs, including those that retained contents need.
    pub(super) fn complete_apis(&self, apis: OptionalApis) -> OptionalApis {
        let has_groups = apis.group_snapshots || self.retained.contains(GROUPS.kind);
        apis.with(OptionalApi::GroupSnapshots, has_groups)
    }
}

/// A kind of contents.
struct ContentsKind {
    kind: &'static str,
    group: &'static str,
    objects: &'static str,
}

const SNAPSHOTS: ContentsKind = ContentsKind {
    kind: "VolumeSnapshotContent",
    group: "snapshot.storage.k8s.io",
    objects: "VolumeSnapshots",
};

const GROUPS: ContentsKind = ContentsKind {
    kind: "VolumeGroupSnapshotContent",
    group: "groupsnapshot.storage.k8s.io",
    objects: "VolumeGroupSnapshots",
};

/// Input of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotsInput<'a> {
    pub(super) spec: &'a Spec,
    pub(super) usual_class: &'a str,
    pub(super) apis: OptionalApis,
    pub(super) sight: &'a ControllerSight,
    pub(super) contents: &'a SnapshotContents,
    /// The contents in earlier lists, according to the status.
    pub(super) recorded: &'a [RecordedContents],
}

/// Resolves the snapshot settings.
pub(super) fn snapshots(input: &SnapshotsInput<'_>) -> Snapshots {
    let SnapshotsInput { spec, apis, .. } = *input;
    let enabled = spec.mode != SnapshotsMode::Disabled && apis.snapshots;
    let groups = enabled && apis.group_snapshots;
    let classes = || {
        let usual = || vec![SnapshotClass::named(input.usual_class)];
        spec.classes.clone().unwrap_or_else(usual)
    };
    let group_classes = || {
        let usual = || vec![GroupSnapshotClass::named(input.usual_class)];
        spec.group_classes.clone().unwrap_or_else(usual)
    };
    let mut decided = Snapshots {
        mode: spec.mode,
        enabled,
        groups,
        sight: input.sight.clone(),
        classes: if enabled { classes() } else { Vec::new() },
        group_classes: if groups { group_classes() } else { Vec::new() },
        ..Snapshots::default()
    };
    let kinds = [
        (&SNAPSHOTS, &input.contents.snapshots, enabled),
        (&GROUPS, &input.contents.groups, groups),
    ];
    for (kind, list, is_enabled) in kinds {
        decided.judge_contents(kind, list, is_enabled, input);
    }
    decided
}

impl Snapshots {
    /// Decides about the contents of one kind. Existing contents need csi-snapshotter, because no other program can
    /// delete them. While their existence is unknown, a running csi-snapshotter remains. If their kind does not
    /// exist, it has no work.
    fn judge_contents(
        &mut self,
        kind: &ContentsKind,
        list: &ContentsList,
        is_enabled: bool,
        input: &SnapshotsInput<'_>,
    ) {
        let recorded = input.recorded.iter().find(|recorded| recorded.kind == kind.kind);
        let record = match list {
            ContentsList::Exist(names) => Some(RecordedContents {
                kind: kind.kind.to_owned(),
                count: i32::try_from(names.len()).unwrap_or(i32::MAX),
            }),
            ContentsList::Empty => None,
            _ => recorded.cloned(),
        };
        self.contents.extend(record.clone());
        if is_enabled {
            return;
        }
        let is_groups = kind.kind == GROUPS.kind;
        let has_service = if is_groups {
            input.contents.has_groups
        } else {
            input.contents.has_sidecar
        };
        let (stays, problem) = match (list, record) {
            (ContentsList::Exist(names), _) => {
                let need = format!("these {}s of the driver need it: {}", kind.kind, join_truncated(names));
                (true, Some(retained(kind, self.mode, &need)))
            }
            (ContentsList::Failed(cause), record) => {
                let need = format!("it is unknown whether {}s of the driver need it: {cause}", kind.kind);
                let is_concerned = has_service || record.is_some();
                (has_service, is_concerned.then(|| retained(kind, self.mode, &need)))
            }
            // With the feature gate for groups, csi-snapshotter waits for their kinds at its next start, and serves
            // no snapshots.
            (ContentsList::Unconfirmed, Some(record)) => (has_service && !is_groups, Some(lost(kind, &record))),
            (ContentsList::Unserved, Some(record)) => (false, Some(lost(kind, &record))),
            (ContentsList::Unlisted, _) => (has_service, None),
            _ => return,
        };
        if stays {
            self.retained.insert(kind.kind);
        }
        self.problems.extend(problem);
    }
}

fn retained(kind: &ContentsKind, mode: SnapshotsMode, need: &str) -> Problem {
    let ContentsKind { group, objects, .. } = kind;
    let (cause, remedy) = if mode == SnapshotsMode::Disabled {
        (
            "spec.snapshots.mode is Disabled".to_owned(),
            "set the mode to Auto".to_owned(),
        )
    } else {
        let cause = format!("the API server does not serve all kinds of {group}/v1");
        (cause, "apply the CustomResourceDefinitions again".to_owned())
    };
    Problem {
        reason: Degraded::SnapshotsInUse,
        message: format!(
            "{cause}, and csi-snapshotter stays: {need}. Delete the {objects}, which csi-snapshotter completes, or {remedy}"
        ),
    }
}

fn lost(kind: &ContentsKind, record: &RecordedContents) -> Problem {
    let (ContentsKind { kind, group, .. }, count) = (kind, record.count);
    Problem {
        reason: Degraded::SnapshotCRDsMissing,
        message: format!(
            "the CustomResourceDefinitions of {group} do not exist, and the last list of the operator had {count} or more {kind}s of the \
             driver: their snapshots may remain in Cinder without an object. Apply the CustomResourceDefinitions again, which ends this \
             report after the next list. Restore the {kind}s from a backup, or delete the snapshots in Cinder"
        ),
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
        reference_grants: false,
    };

    fn decide(
        spec: &Spec,
        apis: OptionalApis,
        contents: &SnapshotContents,
        recorded: &[RecordedContents],
    ) -> Snapshots {
        snapshots(&SnapshotsInput {
            spec,
            usual_class: "cinder",
            apis,
            sight: &ControllerSight::Missing,
            contents,
            recorded,
        })
    }

    fn exist() -> ContentsList {
        ContentsList::Exist(vec!["c1".to_owned()])
    }

    fn failed() -> ContentsList {
        ContentsList::Failed("Forbidden".to_owned())
    }

    fn mk_record(kind: &ContentsKind) -> RecordedContents {
        RecordedContents {
            kind: kind.kind.to_owned(),
            count: 1,
        }
    }

    const HALF: OptionalApis = OptionalApis {
        snapshots: false,
        ..ALL
    };

    /// Arguments: the list, whether the status records contents, and whether the sidecar runs. Results: whether it
    /// runs, the reports, and the record.
    #[rstest]
    #[case::exist(exist(), false, false, (true, 1, true))]
    #[case::none(ContentsList::Empty, true, true, (false, 0, false))]
    #[case::unknown_and_running(failed(), false, true, (true, 1, false))]
    #[case::unknown_and_recorded(failed(), true, true, (true, 1, true))]
    #[case::unknown_and_stopped(failed(), true, false, (false, 1, true))]
    #[case::unknown_and_never_used(failed(), false, false, (false, 0, false))]
    #[case::without_crds(ContentsList::Unserved, false, true, (false, 0, false))]
    #[case::perhaps_without_crds(ContentsList::Unconfirmed, true, true, (true, 1, true))]
    #[case::perhaps_without_crds_and_stopped(ContentsList::Unconfirmed, true, false, (false, 1, true))]
    #[case::without_crds_and_recorded(ContentsList::Unserved, true, true, (false, 1, true))]
    fn sidecar_remains_while_contents_may_exist(
        #[case] list: ContentsList,
        #[case] is_recorded: bool,
        #[case] has_sidecar: bool,
        #[case] expected: (bool, usize, bool),
    ) {
        let recorded: Vec<_> = is_recorded.then(|| mk_record(&SNAPSHOTS)).into_iter().collect();
        for (mode, apis) in [
            (SnapshotsMode::Disabled, ALL),
            (SnapshotsMode::Auto, HALF),
            (SnapshotsMode::Enabled, OptionalApis::default()),
        ] {
            let spec = Spec {
                mode,
                ..Spec::default()
            };
            let contents = SnapshotContents {
                snapshots: list.clone(),
                groups: ContentsList::Empty,
                has_sidecar,
                has_groups: false,
            };
            let decided = decide(&spec, apis, &contents, &recorded);
            let found = (
                decided.run_sidecar(),
                decided.problems.len(),
                !decided.contents.is_empty(),
            );
            assert_eq!(found, expected, "{decided:?}");
            assert!(decided.classes.is_empty());
        }
    }

    #[rstest]
    #[case::exist(exist(), false, true, 1)]
    #[case::unknown(failed(), true, true, 1)]
    #[case::unknown_and_off(failed(), false, false, 1)]
    #[case::perhaps_lost(ContentsList::Unconfirmed, true, false, 1)]
    #[case::lost(ContentsList::Unserved, true, false, 1)]
    #[case::none(ContentsList::Empty, true, false, 0)]
    fn group_feature_remains_with_possible_contents(
        #[case] list: ContentsList,
        #[case] runs: bool,
        #[case] has_groups: bool,
        #[case] problems: usize,
    ) {
        let contents = SnapshotContents {
            groups: list,
            has_sidecar: true,
            has_groups: runs,
            ..SnapshotContents::default()
        };
        let apis = OptionalApis {
            group_snapshots: false,
            ..ALL
        };
        let decided = decide(&Spec::default(), apis, &contents, &[mk_record(&GROUPS)]);
        assert_eq!(decided.complete_apis(apis).group_snapshots, has_groups);
        assert_eq!(decided.problems.len(), problems, "{decided:?}");
        assert!(decided.enabled && decided.run_sidecar());
    }

    #[rstest]
    #[case::there_and_wanted(SnapshotsMode::Auto, ALL, (true, true, 1, 1))]
    #[case::without_groups(SnapshotsMode::Enabled, OptionalApis { group_snapshots: false, ..ALL }, (true, false, 1, 0))]
    #[case::not_there(SnapshotsMode::Auto, OptionalApis::default(), (false, false, 0, 0))]
    #[case::wanted_and_not_there(SnapshotsMode::Enabled, OptionalApis::default(), (false, false, 0, 0))]
    #[case::not_wanted(SnapshotsMode::Disabled, ALL, (false, false, 0, 0))]
    fn snapshots_require_spec_and_served_api(
        #[case] mode: SnapshotsMode,
        #[case] apis: OptionalApis,
        #[case] expected: (bool, bool, usize, usize),
    ) {
        let spec = Spec {
            mode,
            ..Spec::default()
        };
        let decided = decide(&spec, apis, &SnapshotContents::default(), &[]);
        let found = (
            decided.enabled,
            decided.groups,
            decided.classes.len(),
            decided.group_classes.len(),
        );
        assert_eq!(found, expected);
    }
}
