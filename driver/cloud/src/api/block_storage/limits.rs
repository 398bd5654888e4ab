// SPDX-License-Identifier: Apache-2.0
//! Capacity: quotas, zones, and the scheduler's data about its pools.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{BlockStorage, null_as_default};
use crate::api::pages::{Item, decode_list};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::memory_size::memory_size;

/// The first microversion in which pools can be filtered by volume type.
pub(crate) const POOLS_OF_TYPE: MicroVersion = MicroVersion(3, 35);

/// A quota of a project and its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Quota {
    /// The limit; negative when there is no limit.
    pub limit: i64,
    /// The used amount.
    #[serde(default)]
    pub in_use: i64,
    /// The amount that is reserved for pending requests.
    #[serde(default)]
    pub reserved: i64,
}

impl Quota {
    /// The unused amount; `None` without a limit.
    pub(crate) fn left(self) -> Option<u64> {
        let limit = u64::try_from(self.limit).ok()?;
        Some(limit.saturating_sub(self.used()))
    }

    /// The used and the reserved amount.
    pub fn used(self) -> u64 {
        let used = self.in_use.max(0).saturating_add(self.reserved.max(0));
        used.unsigned_abs()
    }

    /// The limit; `None` without a limit.
    pub fn limit(self) -> Option<u64> {
        u64::try_from(self.limit).ok()
    }
}

/// The quotas of a project by name: `volumes`, `gigabytes`, `per_volume_gigabytes`, and the same names with `_` and
/// the name of a volume type.
pub(crate) type Quotas = BTreeMap<String, Quota>;

#[derive(Deserialize)]
struct QuotaBody {
    // Also contains the project's id, a string.
    quota_set: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct LimitsBody {
    limits: Limits,
}

#[derive(Deserialize)]
struct Limits {
    absolute: Absolute,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Absolute {
    max_total_volumes: i64,
    max_total_volume_gigabytes: i64,
    #[serde(default)]
    total_volumes_used: i64,
    #[serde(default)]
    total_gigabytes_used: i64,
}

#[derive(Deserialize)]
struct Zone {
    #[serde(rename = "zoneName")]
    name: String,
    #[serde(rename = "zoneState", default, deserialize_with = "null_as_default")]
    state: ZoneState,
}

impl Item for Zone {
    const KEY: &'static str = "availabilityZoneInfo";
}

#[derive(Deserialize)]
struct ZoneState {
    #[serde(default = "is_available_by_default")]
    available: bool,
}

impl Default for ZoneState {
    fn default() -> Self {
        Self { available: true }
    }
}

fn is_available_by_default() -> bool {
    true
}

/// A pool of a backend, as the scheduler lists it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Pool {
    /// `host@backend#pool`
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) capabilities: PoolCapabilities,
}

/// The capabilities that a pool reports. A number may also be a string: `infinite` or `unknown`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PoolCapabilities {
    pub(crate) free_capacity_gb: Value,
    pub(crate) total_capacity_gb: Value,
    pub(crate) provisioned_capacity_gb: Value,
    pub(crate) reserved_percentage: Value,
    pub(crate) max_over_subscription_ratio: Value,
    pub(crate) thin_provisioning_support: Value,
}

memory_size!(Pool { name, capabilities });

memory_size!(PoolCapabilities {
    free_capacity_gb,
    total_capacity_gb,
    provisioned_capacity_gb,
    reserved_percentage,
    max_over_subscription_ratio,
    thin_provisioning_support,
});

impl Item for Pool {
    const KEY: &'static str = "pools";
}

/// The volume service of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Backend {
    /// `host@backend`
    pub(crate) host: String,
    pub(crate) zone: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) state: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
}

memory_size!(Backend {
    host,
    zone,
    state,
    status,
});

impl Item for Backend {
    const KEY: &'static str = "services";
}

impl BlockStorage<'_> {
    /// Gets the quotas of a project, including those of volume types.
    pub(crate) async fn quotas(&self, project: &str) -> Result<Quotas, CloudError> {
        let path = ["os-quota-sets", project];
        let mut request = Self::request("quota_get", Method::GET, &path, format!("quotas of project {project}"));
        request.query.push(("usage", "true".to_owned()));
        let body = self.transport.send(request).await?.json::<QuotaBody>()?;
        let quotas = body.quota_set.into_iter();
        Ok(quotas
            .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)))
            .collect())
    }

    /// Gets the limits of the project, by the names of [`Self::quotas`]. They contain less than the quotas, and serve
    /// clouds that do not show quotas to projects.
    pub(crate) async fn limits(&self) -> Result<Quotas, CloudError> {
        let request = Self::request("limits_get", Method::GET, &["limits"], "limits of the project");
        let limits = self
            .transport
            .send(request)
            .await?
            .json::<LimitsBody>()?
            .limits
            .absolute;
        let quota = |limit, in_use| Quota {
            limit,
            in_use,
            reserved: 0,
        };
        Ok(Quotas::from([
            (
                "volumes".to_owned(),
                quota(limits.max_total_volumes, limits.total_volumes_used),
            ),
            (
                "gigabytes".to_owned(),
                quota(limits.max_total_volume_gigabytes, limits.total_gigabytes_used),
            ),
        ]))
    }

    /// Lists the availability zones that accept volumes.
    pub(crate) async fn zones(&self) -> Result<Vec<String>, CloudError> {
        let request = Self::request("zone_list", Method::GET, &["os-availability-zone"], "zones");
        let open = |zone: Zone| zone.state.available.then_some(zone.name);
        decode_list(self.transport.send(request).await?, open)
    }

    /// Lists the scheduler's pools, optionally only those for a volume type. By default the policy of Cinder permits
    /// this to administrators only.
    pub(crate) async fn pools(&self, volume_type: Option<&str>) -> Result<Vec<Pool>, CloudError> {
        let path = ["scheduler-stats", "get_pools"];
        let mut request = Self::request("pool_list", Method::GET, &path, "pools of the scheduler");
        request.query.push(("detail", "true".to_owned()));
        if let Some(volume_type) = volume_type {
            request.version = Some(POOLS_OF_TYPE);
            request.query.push(("volume_type", volume_type.to_owned()));
        }
        decode_list(self.transport.send(request).await?, Some)
    }

    /// Lists the volume services, which contain the zones of backends. By default the policy of Cinder permits this
    /// to administrators only.
    pub(crate) async fn backends(&self) -> Result<Vec<Backend>, CloudError> {
        let mut request = Self::request("service_list", Method::GET, &["os-services"], "volume services");
        request.query.push(("binary", "cinder-volume".to_owned()));
        decode_list(self.transport.send(request).await?, Some)
    }

    /// Whether Cinder can filter pools by volume type.
    pub(crate) async fn knows_pools_of_types(&self) -> Result<bool, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(highest >= Some(POOLS_OF_TYPE))
    }
}
