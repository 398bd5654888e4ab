// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::{ClassesState, ConditionType, StorageClassItem};
use k8s_openapi::jiff::Timestamp;
use rstest::rstest;

use super::*;
use crate::{
    cluster::{Key, kind},
    plan::Obstacle,
    problem::Problem,
    resolve::{
        Class, Classes, SkippedDefault, Snapshots, resolve,
        tests::{mk_driver, mk_environment},
    },
    status::tests::{Report, but, status},
};

fn mk_view() -> ClassesView {
    let resolved = resolve(&mk_driver("cinder.csi.openstack.org"), &mk_environment()).expect("a spec without problems");
    ClassesView::new(&resolved)
}

fn mk_class(name: &str, was_made: bool) -> Class {
    Class {
        item: StorageClassItem::named(name),
        is_default: false,
        insists: false,
        was_made,
    }
}

#[rstest]
#[case::disabled(SnapshotsMode::Disabled, true, ControllerSight::Unseen, None, false)]
#[case::not_installed(SnapshotsMode::Auto, false, ControllerSight::Unseen, None, false)]
#[case::missed(
    SnapshotsMode::Enabled,
    false,
    ControllerSight::Unseen,
    Some(Degraded::SnapshotCRDsMissing),
    false
)]
#[case::found(SnapshotsMode::Enabled, true, ControllerSight::Found("x".into()), None, false)]
#[case::missing(SnapshotsMode::Auto, true, ControllerSight::Missing, None, true)]
#[case::down(SnapshotsMode::Auto, true, ControllerSight::Down("x".into()), None, true)]
#[case::required(
    SnapshotsMode::Enabled,
    true,
    ControllerSight::Missing,
    Some(Degraded::SnapshotControllerUnavailable),
    true
)]
#[case::unknown(SnapshotsMode::Enabled, true, ControllerSight::Unknown("403".into()), Some(Degraded::SnapshotControllerUnavailable), true)]
fn unavailable_snapshots_are_reported(
    #[case] mode: SnapshotsMode,
    #[case] is_served: bool,
    #[case] sight: ControllerSight,
    #[case] issue: Option<Degraded>,
    #[case] is_event: bool,
) {
    let mut view = mk_view();
    view.snapshots = Snapshots {
        mode,
        enabled: is_served && mode != SnapshotsMode::Disabled,
        sight,
        ..Snapshots::default()
    };
    assert_eq!(issues(&view).first().map(|issue| issue.reason), issue);
    assert_eq!(unavailable_snapshot_controller(&view).is_some(), is_event);
}

#[test]
fn unresolved_spec_retains_recorded_status() {
    let previous = CinderCSIDriverStatus {
        topology: Some(TopologyStatus {
            enabled: true,
            reason: "ZonesMatch".into(),
            pending: None,
        }),
        storage_classes: Some(StorageClassesStatus {
            created_once: vec!["a".into()],
            ..StorageClassesStatus::default()
        }),
        ..CinderCSIDriverStatus::default()
    };
    assert_eq!(topology(Some(&previous), None), previous.topology);
    assert_eq!(storage_classes(Some(&previous), None, &[]), previous.storage_classes);
}

#[test]
fn created_classes_are_recorded_while_in_spec() {
    let mut view = mk_view();
    view.classes = Classes {
        state: ClassesState::Unmanaged,
        items: vec![
            mk_class("deleted-by-somebody", true),
            mk_class("new", false),
            mk_class("not-yet", false),
        ],
        ..Classes::default()
    };
    let existing = ["new".to_owned(), "of-somebody-else".to_owned()];
    let made = storage_classes(None, Some(&view), &existing).map(|status| status.created_once);
    assert_eq!(made, Some(vec!["deleted-by-somebody".to_owned(), "new".to_owned()]));

    view.classes.state = ClassesState::Managed;
    assert_eq!(storage_classes(None, Some(&view), &existing), None);
}

#[test]
fn other_default_class_is_reported_once() {
    let mut view = mk_view();
    view.classes = Classes {
        items: vec![mk_class("cinder", false)],
        passed_over: Some(SkippedDefault {
            class: "cinder".into(),
            other: "ceph".into(),
        }),
        ..Classes::default()
    };
    let status = CinderCSIDriverStatus {
        storage_classes: storage_classes(None, Some(&view), &[]),
        ..CinderCSIDriverStatus::default()
    };
    let told = notices(None, &status);
    let events: Vec<Event> = told.iter().map(|notice| notice.event).collect();
    assert_eq!(events, [Event::DefaultStorageClassSkipped]);
    assert!(notices(Some(&status), &status).is_empty());
}

#[rstest]
#[case(Some(true), false, 1)]
#[case(Some(true), true, 0)]
#[case(None, true, 0)]
fn topology_change_sends_event(#[case] before: Option<bool>, #[case] now: bool, #[case] expected: usize) {
    let status = |enabled: bool| CinderCSIDriverStatus {
        topology: Some(TopologyStatus {
            enabled,
            reason: "ZonesDiffer".into(),
            pending: None,
        }),
        ..CinderCSIDriverStatus::default()
    };
    let told = notices(before.map(status).as_ref(), &status(now));
    let told: Vec<Event> = told.iter().map(|notice| notice.event).collect();
    assert_eq!(told, vec![Event::TopologyChanged; expected]);
}

#[rstest]
#[case::waits(
    Obstacle::Waiting { key: Key::new(kind::CSI_DRIVER, None, "d"), fields: vec!["spec.volumeLifecycleModes".into()],
        what: "VolumeAttachments are under way: va-1".into() },
    "PendingRecreate",
    "va-1"
)]
#[case::refused(
    Obstacle::Refused { key: Key::new(kind::STORAGE_CLASS, None, "fast"), fields: vec!["parameters".into()] },
    "ImmutableField",
    "onImmutableChange is Refuse"
)]
fn refused_re_creation_is_explained(#[case] obstacle: Obstacle, #[case] reason: &str, #[case] part: &str) {
    let report = but(Report::default(), |report| {
        report.decision.plan.obstacles = vec![obstacle];
    });
    let status = status(None, &report, Timestamp::UNIX_EPOCH);
    let degraded = status.condition(ConditionType::Degraded).expect("the condition");
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", reason));
    assert!(degraded.message.contains(part), "{}", degraded.message);
}

#[test]
fn retained_zones_degrade_the_driver() {
    let mut view = mk_view();
    view.topology.refusal = Some(Problem {
        reason: Degraded::TopologyInUse,
        message: "2 PersistentVolumes".into(),
    });
    let report = but(Report::default(), |report| {
        report.decision.classes = Some(view);
    });
    let status = status(None, &report, Timestamp::UNIX_EPOCH);
    let degraded = status.condition(ConditionType::Degraded).expect("the condition");
    assert_eq!(degraded.reason, "TopologyInUse");
}
