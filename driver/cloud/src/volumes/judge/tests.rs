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
fn a_volume_of_the_name_fits_or_the_difference_is_told(
    #[case] change: fn(&mut NewVolume),
    #[case] expected: Option<&str>,
) {
    let mut new = new();
    change(&mut new);
    assert_eq!(difference(&volume("1", "available"), &new, false).as_deref(), expected);
}

#[test]
fn zones_do_not_matter_where_the_configuration_says_so() {
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
fn of_several_volumes_of_one_name_the_furthest_and_oldest_is_taken(#[case] found: &[(&str, &str)], #[case] id: &str) {
    let chosen = choose(found.iter().map(|(id, status)| volume(id, status)));
    assert_eq!(chosen.expect("one").id.as_str(), id);
}

#[test]
fn a_volume_is_ours_only_with_the_name_and_all_of_the_metadata() {
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
