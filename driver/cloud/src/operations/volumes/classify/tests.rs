// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::ids::GiB;

fn new() -> NewVolume {
    NewVolume {
        name: "pvc-1".to_owned(),
        size: GiB::new(2).expect("size"),
        largest: None,
        source: None,
        multiattach: false,
        mode: None,
        allow_mode_change: false,
        volume_type: None,
        availability_zone: None,
        acceptable_zones: Vec::new(),
        description: String::new(),
        metadata: BTreeMap::from([("cluster".to_owned(), "mine".to_owned())]),
        same_host: Vec::new(),
        different_host: Vec::new(),
        mutable_metadata: BTreeMap::new(),
    }
}

fn volume(id: &str, status: &str) -> Volume {
    serde_json::from_value(json!({
        "id": id, "name": "pvc-1", "size": 2, "status": status, "volume_type": "fast", "availability_zone": "nova",
        "metadata": {"cluster": "mine", "other": "x"}, "attachments": [], "created_at": format!("2026-01-01T00:00:0{id}"),
    }))
    .expect("volume")
}

#[rstest]
#[case(|_: &mut NewVolume| {}, None)]
#[case(|new: &mut NewVolume| new.size = GiB::new(3).expect("size"), Some("size 3 GiB is wanted, it has 2 GiB"))]
#[case(|new: &mut NewVolume| new.volume_type = Some("fast".into()), None)]
#[case(|new: &mut NewVolume| new.volume_type = Some("slow".into()), Some("type slow is wanted, it has fast"))]
#[case(|new: &mut NewVolume| new.volume_type = Some("11111111-2222-4333-8444-555555555555".into()), None)]
#[case(|new: &mut NewVolume| new.availability_zone = Some("nova".into()), None)]
#[case(|new: &mut NewVolume| new.availability_zone = Some("other".into()), Some("zone other is wanted, it is in nova"))]
#[case(
    |new: &mut NewVolume| {
        new.availability_zone = Some("other".into());
        new.acceptable_zones = vec!["other".into(), "nova".into()];
    },
    None
)]
fn existing_volume_matches_or_differs(#[case] change: fn(&mut NewVolume), #[case] expected: Option<&str>) {
    let mut new = new();
    change(&mut new);
    assert_eq!(difference(&volume("1", "available"), &new, false).as_deref(), expected);
}

#[test]
fn zones_are_ignored_when_configured() {
    let new = NewVolume {
        availability_zone: Some("other".into()),
        ..new()
    };
    assert_eq!(difference(&volume("1", "available"), &new, true), None);
}

#[rstest]
#[case(&[("1", "error"), ("2", "available")], "2")]
#[case(&[("1", "creating"), ("2", "in-use")], "2")]
#[case(&[("2", "available"), ("1", "available")], "1")]
#[case(&[("1", "deleting"), ("2", "creating")], "2")]
#[case(&[("1", "error_deleting"), ("2", "error")], "2")]
fn oldest_complete_volume_of_name_is_chosen(#[case] found: &[(&str, &str)], #[case] id: &str) {
    let chosen = choose_volume(found.iter().map(|(id, status)| volume(id, status)));
    assert_eq!(chosen.expect("one").id.as_str(), id);
}

#[test]
fn volume_is_ours_only_with_name_and_metadata() {
    assert!(is_ours(&volume("1", "error"), &new()));
    let other_cluster = NewVolume {
        metadata: BTreeMap::from([("cluster".into(), "theirs".into())]),
        ..new()
    };
    assert!(!is_ours(&volume("1", "error"), &other_cluster));
    let other_name = NewVolume {
        name: "pvc-2".into(),
        ..new()
    };
    assert!(!is_ours(&volume("1", "error"), &other_name));
    let nothing_to_tell_by = NewVolume {
        metadata: BTreeMap::new(),
        ..new()
    };
    assert!(!is_ours(&volume("1", "error"), &nothing_to_tell_by));
}

#[rstest]
#[case(Some("theirs"), "mine", true)]
#[case(Some("theirs"), "", true)]
#[case(Some("mine"), "mine", false)]
#[case(Some(""), "mine", false)]
#[case(None, "mine", false)]
fn volume_of_another_cluster_is_refused(#[case] found: Option<&str>, #[case] own: &str, #[case] is_refused: bool) {
    let marked = |cluster: Option<&str>| -> BTreeMap<String, String> {
        let pair = |cluster: &str| (metadata_keys::CLUSTER.to_owned(), cluster.to_owned());
        cluster.map(pair).into_iter().collect()
    };
    let new = NewVolume {
        metadata: marked(Some(own)),
        ..new()
    };
    for status in ["available", "creating"] {
        let found = Volume {
            metadata: marked(found),
            ..volume("1", status)
        };
        match classify_existing(&found, &new, false) {
            ExistingVolume::Other(Reason::Different(difference)) => {
                assert!(is_refused && difference.contains("theirs"), "{difference}");
            }
            found => assert!(
                !is_refused && matches!(found, ExistingVolume::Ready | ExistingVolume::Pending),
                "{found:?}"
            ),
        }
    }
}

fn changed(volume: Volume, created: &str, updated: Option<&str>) -> Volume {
    Volume {
        created_at: created.into(),
        updated_at: updated.map(str::to_owned),
        ..volume
    }
}

#[rstest]
#[case("error", Some("2026-01-01T10:03:00.000000"), ExistingVolume::Discard(FAILED))]
#[case("error", None, ExistingVolume::Discard(FAILED))]
#[case(
    "error_restoring",
    Some("2026-01-01T10:03:00.000000"),
    ExistingVolume::Discard(FAILED)
)]
// It may have been in use in the meantime, and may have data that a user can still rescue.
#[case("error", Some("2026-03-01T10:00:00.000000"), ExistingVolume::Other(Reason::Failed))]
#[case("error", Some("not a date"), ExistingVolume::Other(Reason::Failed))]
#[case(
    "error_extending",
    Some("2026-01-01T10:03:00.000000"),
    ExistingVolume::Other(Reason::Failed)
)]
#[case(
    "error_deleting",
    Some("2026-01-01T10:03:00.000000"),
    ExistingVolume::Other(Reason::Failed)
)]
fn failed_volume_is_removed_only_after_failed_creation(
    #[case] status: &str,
    #[case] updated: Option<&str>,
    #[case] expected: ExistingVolume,
) {
    let found = changed(volume("1", status), "2026-01-01T10:00:00.000000", updated);
    assert_eq!(classify_existing(&found, &new(), false), expected);
}

#[test]
fn attached_or_foreign_failed_volume_stays() {
    let failed = changed(volume("1", "error"), "2026-01-01T10:00:00.000000", None);
    let attached = Volume {
        attachments: vec![crate::api::block_storage::VolumeAttachment {
            attachment_id: None,
            server_id: None,
            device: None,
            attached_at: None,
        }],
        ..failed.clone()
    };
    assert_eq!(
        classify_existing(&attached, &new(), false),
        ExistingVolume::Other(Reason::Failed)
    );
    let theirs = Volume {
        metadata: BTreeMap::from([("cluster".into(), "theirs".into())]),
        ..failed
    };
    assert_eq!(
        classify_existing(&theirs, &new(), false),
        ExistingVolume::Other(Reason::Failed)
    );
}

#[rstest]
#[case("east", "available", ExistingVolume::Discard(UNFIT))]
#[case("east,west", "available", ExistingVolume::Discard(UNFIT))]
// An earlier attempt created it in a zone that was acceptable then, and a caller may have received it.
#[case(
    "east,nova",
    "available",
    ExistingVolume::Other(Reason::EarlierAttempt(String::new()))
)]
// A server has it, or is about to.
#[case("east", "in-use", ExistingVolume::Other(Reason::Different(String::new())))]
#[case("east", "reserved", ExistingVolume::Other(Reason::Different(String::new())))]
// It cannot be deleted yet.
#[case("east", "creating", ExistingVolume::Pending)]
#[case(
    "east,nova",
    "creating",
    ExistingVolume::Other(Reason::EarlierAttempt(String::new()))
)]
fn misplaced_volume_needs_own_mark_for_removal(
    #[case] requested: &str,
    #[case] status: &str,
    #[case] expected: ExistingVolume,
) {
    let wanted = NewVolume {
        acceptable_zones: vec!["east".into()],
        ..new()
    };
    let mut found = volume("1", status);
    found
        .metadata
        .insert(metadata_keys::REQUESTED_ZONES.into(), requested.into());
    let judged = match classify_existing(&found, &wanted, false) {
        ExistingVolume::Other(Reason::Different(_)) => ExistingVolume::Other(Reason::Different(String::new())),
        ExistingVolume::Other(Reason::EarlierAttempt(_)) => {
            ExistingVolume::Other(Reason::EarlierAttempt(String::new()))
        }
        other => other,
    };
    assert_eq!(judged, expected);
    let anywhere = if found.status.is_coming() {
        ExistingVolume::Pending
    } else {
        ExistingVolume::Ready
    };
    assert_eq!(
        classify_existing(&found, &wanted, true),
        anywhere,
        "where zones do not matter"
    );
}

#[rstest]
#[case(Some("true"), "available", None, ExistingVolume::Discard(UNFIT))]
#[case(Some("true"), "creating", None, ExistingVolume::Pending)]
// A caller may have received it, with multiattach from an earlier type or for a single server; or a server has it.
#[case(
    Some("true"),
    "available",
    Some("2026-03-01T10:00:00.000000"),
    ExistingVolume::Other(Reason::Different(String::new()))
)]
#[case(
    Some("false"),
    "available",
    None,
    ExistingVolume::Other(Reason::Different(String::new()))
)]
#[case(None, "available", None, ExistingVolume::Other(Reason::Different(String::new())))]
#[case(
    Some("true"),
    "in-use",
    None,
    ExistingVolume::Other(Reason::Different(String::new()))
)]
fn single_attach_volume_needs_own_mark_for_removal(
    #[case] mark: Option<&str>,
    #[case] status: &str,
    #[case] updated: Option<&str>,
    #[case] expected: ExistingVolume,
) {
    let wanted = NewVolume {
        multiattach: true,
        ..new()
    };
    let mut found = changed(volume("1", status), "2026-01-01T10:00:00.000000", updated);
    found
        .metadata
        .extend(mark.map(|mark| (metadata_keys::REQUESTED_MULTIATTACH.to_owned(), mark.to_owned())));
    let judged = match classify_existing(&found, &wanted, false) {
        ExistingVolume::Other(Reason::Different(_)) => ExistingVolume::Other(Reason::Different(String::new())),
        other => other,
    };
    assert_eq!(judged, expected);
    assert_eq!(
        classify_existing(&found, &new(), false) == ExistingVolume::Ready,
        !found.status.is_coming(),
        "one server is all that is wanted"
    );
}

#[test]
fn zone_mark_is_omitted_when_too_long() {
    let of = |zones: &[&str]| {
        requested_zones(&NewVolume {
            acceptable_zones: zones.iter().map(|&zone| zone.to_owned()).collect(),
            ..new()
        })
    };
    assert_eq!(of(&["a", "b c"]).as_deref(), Some("a,b c"));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&["a,b"]), None);
    assert_eq!(of(&["z".repeat(256).as_str()]), None);
}

#[rstest]
#[case(None, "{}", None)]
#[case(Some(Source::Volume("v".into())), r#"{"source_volid": "v"}"#, None)]
#[case(Some(Source::PointInTime("s".into())), r#"{"snapshot_id": "s"}"#, None)]
#[case(Some(Source::PointInTime("b".into())), r#"{"metadata": {"cinder.csi.openstack.org/source-backup": "b"}}"#, None)]
#[case(
    None,
    r#"{"snapshot_id": "s"}"#,
    Some("source nothing is wanted, it was made from snapshot or backup s")
)]
#[case(Some(Source::Volume("v".into())), "{}", Some("source volume v is wanted, it was made from nothing"))]
fn volume_source_is_compared(#[case] wanted: Option<Source>, #[case] found: &str, #[case] expected: Option<&str>) {
    let mut json = json!({"id": "1", "size": 2, "status": "available"});
    let more: serde_json::Map<_, _> = serde_json::from_str(found).expect("json");
    json.as_object_mut().expect("an object").extend(more);
    let found: Volume = serde_json::from_value(json).expect("a volume");
    assert_eq!(source_difference(&found, wanted.as_ref()).as_deref(), expected);
}

#[test]
fn mutable_metadata_is_compared() {
    let wanted = NewVolume {
        mutable_metadata: BTreeMap::from([("other".into(), "y".into())]),
        ..new()
    };
    assert_eq!(
        difference(&volume("1", "available"), &wanted, false).as_deref(),
        Some("metadata other=y is wanted, it has x")
    );
}

#[test]
fn restored_marks_prove_nothing_about_the_volume() {
    let wanted = NewVolume {
        acceptable_zones: vec!["east".into()],
        source: Some(Source::PointInTime("b-2".into())),
        ..new()
    };
    let mut restored = volume("1", "available");
    restored.metadata.extend([
        (metadata_keys::REQUESTED_ZONES.into(), "east".into()),
        (metadata_keys::SOURCE_BACKUP.into(), "b-1".into()),
        (metadata_keys::CINDERS_SOURCE_BACKUP.into(), "b-2".into()),
    ]);
    assert_eq!(restored.source_backup(), Some("b-2"));
    assert!(
        matches!(
            classify_existing(&restored, &wanted, false),
            ExistingVolume::Other(Reason::EarlierAttempt(_))
        ),
        "somebody may have got it"
    );
    let larger = NewVolume {
        size: GiB::new(3).expect("size"),
        ..wanted.clone()
    };
    assert!(matches!(
        classify_existing(&restored, &larger, false),
        ExistingVolume::Other(Reason::Different(_))
    ));
    restored
        .metadata
        .insert(metadata_keys::SOURCE_BACKUP.into(), "b-2".into());
    assert_eq!(
        classify_existing(&restored, &wanted, false),
        ExistingVolume::Discard(UNFIT)
    );
}

#[test]
fn restored_mutable_metadata_is_not_a_difference() {
    let wanted = NewVolume {
        source: Some(Source::PointInTime("b-2".into())),
        mutable_metadata: BTreeMap::from([("other".into(), "y".into())]),
        ..new()
    };
    assert_eq!(
        classify_existing(&volume("1", "restoring-backup"), &wanted, false),
        ExistingVolume::Pending
    );
    let mut restored = volume("1", "available");
    restored
        .metadata
        .insert(metadata_keys::CINDERS_SOURCE_BACKUP.into(), "b-2".into());
    assert_eq!(classify_existing(&restored, &wanted, false), ExistingVolume::Ready);
    restored
        .metadata
        .insert(metadata_keys::SOURCE_BACKUP.into(), "b-2".into());
    assert!(matches!(
        classify_existing(&restored, &wanted, false),
        ExistingVolume::Other(Reason::Different(_))
    ));
}

#[rstest]
#[case("zone one", "zone one", true)]
#[case("zone-one", "zone one", true)]
#[case("zone one", "zone-one", true)]
#[case("zone one", "zone+one", false)]
// A label has ASCII characters only, so neither name has a label.
#[case("北京", "上海", false)]
#[case("北京", "北京", true)]
#[case("", "北京", false)]
// Both have the same label, and neither name is the label of the other.
#[case("nord-é", "nord-è", false)]
#[case("nord", "nord-è", true)]
fn zone_matches_its_name_or_label(#[case] wanted: &str, #[case] found: &str, #[case] is_it: bool) {
    assert_eq!(same_zone(wanted, found), is_it);
    assert_eq!(same_zone(found, wanted), is_it);
}

#[test]
fn duplicate_volume_of_late_request_is_reported() {
    let mut of_another = volume("3", "available");
    of_another.metadata.clear();
    let alone = [volume("1", "available"), volume("2", "deleting"), of_another];
    assert_eq!(find_duplicates(&alone, &new()), [""; 0]);
    let two = [volume("1", "in-use"), volume("2", "creating")];
    assert_eq!(find_duplicates(&two, &new()), ["1", "2"]);
}
