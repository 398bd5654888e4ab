// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;
use serde_json::json;

use std::collections::BTreeMap;

use super::*;

fn quotas(pairs: &[(&str, i64, i64, i64)]) -> Quotas {
    pairs
        .iter()
        .map(|&(name, limit, in_use, reserved)| {
            (
                name.to_owned(),
                Quota {
                    limit,
                    in_use,
                    reserved,
                },
            )
        })
        .collect::<BTreeMap<_, _>>()
}

fn free_capacity(available: Option<u64>, largest: Option<u64>) -> FreeCapacity {
    FreeCapacity {
        available: available.map(gib),
        largest: largest.map(gib),
    }
}

#[rstest]
// No limit.
#[case(&[("volumes", -1, 3, 0), ("gigabytes", -1, 30, 0)], free_capacity(None, None))]
// The reserved part counts as used.
#[case(&[("gigabytes", 100, 30, 5)], free_capacity(Some(65), Some(65)))]
#[case(&[("gigabytes", 100, 130, 0)], free_capacity(Some(0), Some(0)))]
#[case(&[("gigabytes", 100, 30, 0), ("per_volume_gigabytes", 20, 0, 0)], free_capacity(Some(70), Some(20)))]
#[case(&[("gigabytes", 100, 30, 0), ("per_volume_gigabytes", -1, 0, 0)], free_capacity(Some(70), Some(70)))]
// Enough gigabytes, but no further volume.
#[case(&[("volumes", 10, 10, 0), ("gigabytes", 100, 30, 0)], FreeCapacity::NONE)]
#[case(&[("volumes", 10, 1, 0), ("volumes_fast", 2, 1, 1)], FreeCapacity::NONE)]
// The type's own quota counts if it is smaller, and no other type's.
#[case(&[("gigabytes", 100, 30, 0), ("gigabytes_fast", 40, 30, 0), ("gigabytes_slow", 1, 1, 0)], free_capacity(Some(10), Some(10)))]
#[case(&[("gigabytes", 100, 30, 0), ("gigabytes_fast", -1, 30, 0)], free_capacity(Some(70), Some(70)))]
fn smallest_quota_limits_capacity(#[case] pairs: &[(&str, i64, i64, i64)], #[case] expected: FreeCapacity) {
    assert_eq!(within_quotas(&quotas(pairs), Some("fast")), expected);
}

fn pool(value: serde_json::Value) -> PoolCapabilities {
    serde_json::from_value(value).expect("a pool")
}

#[rstest]
#[case(json!({"free_capacity_gb": 80, "total_capacity_gb": 100}), Some(80))]
#[case(json!({"free_capacity_gb": 80.9, "total_capacity_gb": 100, "reserved_percentage": 15}), Some(65))]
#[case(json!({"free_capacity_gb": "80", "total_capacity_gb": "100"}), Some(80))]
#[case(json!({"free_capacity_gb": 5, "total_capacity_gb": 100, "reserved_percentage": 10}), Some(0))]
#[case(json!({"free_capacity_gb": "infinite", "total_capacity_gb": "infinite"}), None)]
#[case(json!({"free_capacity_gb": "unknown"}), None)]
#[case(json!({"free_capacity_gb": 5, "total_capacity_gb": 100, "provisioned_capacity_gb": 150, "thin_provisioning_support": true,
              "max_over_subscription_ratio": "20.0", "reserved_percentage": 0}), Some(1850))]
// Without a valid ratio, the free capacity counts.
#[case(json!({"free_capacity_gb": 5, "total_capacity_gb": 100, "provisioned_capacity_gb": 150, "thin_provisioning_support": true,
              "max_over_subscription_ratio": "auto"}), Some(5))]
#[case(json!({"free_capacity_gb": null}), None)]
fn pool_capacity_matches_scheduler(#[case] capabilities: serde_json::Value, #[case] expected: Option<u64>) {
    assert_eq!(free(&pool(capabilities)), expected);
}

#[test]
fn pools_add_up_and_volume_fits_one() {
    let of = |free: &[serde_json::Value]| {
        let pools: Vec<_> = free
            .iter()
            .map(|free| pool(json!({"free_capacity_gb": free})))
            .collect();
        within(pools.iter())
    };
    assert_eq!(of(&[json!(10), json!(30)]), free_capacity(Some(40), Some(30)));
    assert_eq!(of(&[json!(10), json!("infinite")]), free_capacity(None, None));
    assert_eq!(of(&[]), FreeCapacity::NONE);
}

#[test]
fn volume_never_exceeds_total_capacity() {
    let quota = free_capacity(Some(20), None);
    assert_eq!(
        smaller(quota, free_capacity(Some(40), Some(30))),
        free_capacity(Some(20), Some(20))
    );
    assert_eq!(
        smaller(quota, free_capacity(None, None)),
        free_capacity(Some(20), Some(20))
    );
}

#[test]
fn backend_of_pool_precedes_hash() {
    assert_eq!((backend_of("h@b#p"), backend_of("h@b")), ("h@b", "h@b"));
}
