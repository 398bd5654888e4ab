//! The availability zones of Nova.

use reqwest::Method;
use serde::Deserialize;

use super::Compute;
use crate::block_storage::null_as_default;
use crate::error::CloudError;
use crate::service::Service;
use crate::transport::Request;

#[derive(Deserialize)]
struct ZonesBody {
    #[serde(rename = "availabilityZoneInfo")]
    zones: Vec<Zone>,
}

#[derive(Deserialize)]
struct Zone {
    #[serde(rename = "zoneName")]
    name: String,
    #[serde(rename = "zoneState", default, deserialize_with = "null_as_default")]
    state: ZoneState,
}

#[derive(Deserialize)]
#[serde(default)]
struct ZoneState {
    available: bool,
}

impl Default for ZoneState {
    fn default() -> Self {
        Self { available: true }
    }
}

impl Compute<'_> {
    /// The zones that take servers.
    pub(crate) async fn zones(&self) -> Result<Vec<String>, CloudError> {
        let path = ["os-availability-zone"];
        let object = "zones of servers".to_owned();
        let request = Request::new(Service::Compute, "server_zone_list", Method::GET, &path, object);
        let zones = self.transport.send(request).await?.json::<ZonesBody>()?.zones;
        let open = zones.into_iter().filter(|zone| zone.state.available);
        Ok(open.map(|zone| zone.name).collect())
    }
}
