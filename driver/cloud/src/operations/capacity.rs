// SPDX-License-Identifier: Apache-2.0
//! The free capacity of a cloud for new volumes: the remaining quotas of the project, and the space in the scheduler's
//! pools.
//!
//! Every project may read its quotas, but by default only administrators may read the pools. After a refusal (403) the
//! driver does not request the pools again for an hour.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::api::block_storage::{Backend, BlockStorage, Pool, PoolCapabilities, Quota, Quotas, VolumeType};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::GiB;

/// The free capacity. `None` if there is no limit that the project can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeCapacity {
    /// For all new volumes together.
    pub available: Option<GiB>,
    /// For the largest single new volume.
    pub largest: Option<GiB>,
}

impl FreeCapacity {
    pub const NONE: Self = Self {
        available: Some(GiB::ZERO),
        largest: Some(GiB::ZERO),
    };
}

/// The zones that accept volumes, cached for half a minute.
pub(crate) async fn zones(cx: &Context) -> Result<Arc<Vec<String>>, CloudError> {
    let zones = &cx.cloud_facts.zones;
    zones
        .get(|| async { BlockStorage::new(&cx.transport).zones().await })
        .await
}

/// The types that the project may use, cached for half a minute.
pub(crate) async fn known_types(cx: &Context) -> Result<Arc<Vec<VolumeType>>, CloudError> {
    let types = &cx.cloud_facts.types;
    types
        .get(|| async { BlockStorage::new(&cx.transport).types().await })
        .await
}

/// Gets a type by its name or id. The cache is refreshed once for an unknown type, which may be new.
pub(crate) async fn find_type(cx: &Context, wanted: &str) -> Result<Option<VolumeType>, CloudError> {
    let find = |types: &[VolumeType]| types.iter().find(|one| one.is(wanted)).cloned();
    if let Some(found) = find(&known_types(cx).await?) {
        return Ok(Some(found));
    }
    cx.cloud_facts.types.invalidate();
    Ok(find(&known_types(cx).await?))
}

/// See [`crate::Cloud::quotas`].
pub(crate) async fn quotas_or_limits(cx: &Context) -> Result<Quotas, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let project = cx.transport.keystone().token().await?.project_id.clone();
    match cinder.quotas(&project).await {
        Err(error) if error.is_not_offered() => cinder.limits().await,
        answer => answer,
    }
}

/// See [`crate::Cloud::free_capacity`].
pub(crate) async fn free_capacity(
    cx: &Context,
    volume_type: Option<&str>,
    zone: Option<&str>,
) -> Result<FreeCapacity, CloudError> {
    let quotas = cx.cloud_facts.quotas.get(|| quotas_or_limits(cx)).await?;
    let quota_room = within_quotas(&quotas, volume_type);
    if quota_room.available == Some(GiB::ZERO) {
        return Ok(quota_room);
    }
    let pool_room = within_pools(cx, volume_type, zone).await?;
    Ok(smaller(quota_room, pool_room))
}

/// The free capacity of the pools; unlimited for a project that may not see them.
async fn within_pools(cx: &Context, volume_type: Option<&str>, zone: Option<&str>) -> Result<FreeCapacity, CloudError> {
    let unlimited = FreeCapacity {
        available: None,
        largest: None,
    };
    if cx.cloud_facts.is_refused() {
        return Ok(unlimited);
    }
    let cinder = BlockStorage::new(&cx.transport);
    if volume_type.is_some() && !cinder.knows_pools_of_types().await? {
        return Ok(unlimited);
    }
    let read_pools = async {
        let pools = cx.cloud_facts.pools_of(volume_type);
        let pools = pools.get(|| cinder.pools(volume_type)).await?;
        let zones = match zone {
            Some(_) => {
                let backends = &cx.cloud_facts.backends;
                Some(backends.get(|| async { cinder.backends().await.map(zones_of) }).await?)
            }
            None => None,
        };
        Ok((pools, zones))
    };
    match read_pools.await {
        Ok((pools, zones)) => {
            let in_zone = |pool: &&Pool| match (zone, &zones) {
                (Some(zone), Some(zones)) => zones.contains(&(backend_of(&pool.name).to_owned(), zone.to_owned())),
                _ => true,
            };
            Ok(within(pools.iter().filter(in_zone).map(|pool| &pool.capabilities)))
        }
        // Expected for a member of a project (403).
        Err(CloudError::Forbidden(failure)) => {
            tracing::info!(
                %failure,
                "this project may not see the scheduler's pools; capacity comes from its quotas"
            );
            cx.cloud_facts.remember_refusal();
            Ok(unlimited)
        }
        Err(error) => Err(error),
    }
}

/// The zones of the backends that accept volumes.
fn zones_of(backends: Vec<Backend>) -> HashSet<(String, String)> {
    let open = |backend: &Backend| backend.state != "down" && backend.status != "disabled";
    let backends = backends.into_iter().filter(open);
    backends.map(|backend| (backend.host, backend.zone)).collect()
}

/// Returns `host@backend` of `host@backend#pool`.
fn backend_of(pool: &str) -> &str {
    pool.split_once('#').map_or(pool, |(backend, _)| backend)
}

fn within_quotas(quotas: &Quotas, volume_type: Option<&str>) -> FreeCapacity {
    let quota = |name: &str| quotas.get(name).copied();
    let of_type = |name: &str| volume_type.and_then(|volume_type| quota(&format!("{name}_{volume_type}")));
    let left = |quotas: [Option<Quota>; 2]| quotas.into_iter().flatten().filter_map(Quota::left).min();
    if left([quota("volumes"), of_type("volumes")]) == Some(0) {
        return FreeCapacity::NONE;
    }
    let available = left([quota("gigabytes"), of_type("gigabytes")]);
    let single = quota("per_volume_gigabytes").and_then(Quota::limit);
    FreeCapacity {
        available: available.map(gib),
        largest: least(available, single).map(gib),
    }
}

/// The free capacity of several pools: their sum, and the largest one. Zero without a pool.
fn within<'a>(pools: impl Iterator<Item = &'a PoolCapabilities>) -> FreeCapacity {
    let mut total = Some(0_u64);
    let mut largest = Some(0_u64);
    for pool in pools {
        let free = free(pool);
        total = total.zip(free).map(|(total, free)| total.saturating_add(free));
        largest = largest.zip(free).map(|(largest, free)| largest.max(free));
    }
    FreeCapacity {
        available: total.map(gib),
        largest: largest.map(gib),
    }
}

/// The capacity that Cinder's scheduler would still allocate in a pool, in GiB; `None` for a pool of infinite or
/// unknown size. The reserved part stays free, and a thin pool may allocate more than it has.
fn free(pool: &PoolCapabilities) -> Option<u64> {
    let total = number(&pool.total_capacity_gb);
    let reserved = total.unwrap_or_default() * number(&pool.reserved_percentage).unwrap_or_default() / 100.0;
    let ratio = number(&pool.max_over_subscription_ratio);
    let free = match (total, number(&pool.provisioned_capacity_gb), ratio) {
        (Some(total), Some(provisioned), Some(ratio)) if is_yes(&pool.thin_provisioning_support) && ratio >= 1.0 => {
            total * ratio - provisioned - reserved.floor()
        }
        _ => number(&pool.free_capacity_gb)? - reserved.floor(),
    };
    Some(whole(free))
}

/// Truncates to whole GiB; zero for a negative number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast saturates, and no pool has more"
)]
fn whole(gibibytes: f64) -> u64 {
    gibibytes.max(0.0) as u64
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        // Some drivers report numbers as strings.
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

fn is_yes(value: &Value) -> bool {
    match value {
        Value::Bool(yes) => *yes,
        Value::String(text) => text.trim().eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn smaller(one: FreeCapacity, other: FreeCapacity) -> FreeCapacity {
    let available = least(one.available, other.available);
    FreeCapacity {
        available,
        // No volume is larger than the capacity for all of them.
        largest: least(least(one.largest, other.largest), available),
    }
}

/// The smaller of two optional bounds.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn gib(gibibytes: u64) -> GiB {
    GiB::new(gibibytes).unwrap_or(GiB::MAX)
}

#[cfg(test)]
mod tests;
