// SPDX-License-Identifier: Apache-2.0
//! The availability zones of Nova.

use reqwest::Method;
use serde::Deserialize;

use super::Compute;
use crate::api::block_storage::null_as_default;
use crate::api::pages::{Item, decode_list};
use crate::error::CloudError;
use crate::http::service::Service;
use crate::http::transport::Request;

#[derive(Deserialize)]
struct ComputeZone {
    #[serde(rename = "zoneName")]
    name: String,
    #[serde(rename = "zoneState", default, deserialize_with = "null_as_default")]
    state: ComputeZoneState,
}

#[derive(Deserialize)]
#[serde(default)]
struct ComputeZoneState {
    available: bool,
}

impl Item for ComputeZone {
    const KEY: &'static str = "availabilityZoneInfo";
}

impl Default for ComputeZoneState {
    fn default() -> Self {
        Self { available: true }
    }
}

impl Compute<'_> {
    /// Lists the zones that accept servers.
    pub(crate) async fn zones(&self) -> Result<Vec<String>, CloudError> {
        let path = ["os-availability-zone"];
        let object = "zones of servers".to_owned();
        let request = Request::new(Service::Compute, "server_zone_list", Method::GET, &path, object);
        let open = |zone: ComputeZone| zone.state.available.then_some(zone.name);
        decode_list(self.transport.send(request).await?, open)
    }
}
