// SPDX-License-Identifier: Apache-2.0
//! The cloud on which both drivers are measured.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;
use suites::cloud::Cloud;
use suites::lab::Lab;
use suites::real_cloud::RealCloud;
use suites::simulator::{REAL_LATENCIES, Simulator};

use crate::Kind;
use crate::measure::Requests;

/// A running cloud that counts its requests.
#[derive(Debug)]
pub(crate) enum MeasuredCloud {
    Simulator(Box<Simulator>),
    /// Real OpenStack services.
    Real(Box<RealCloud>),
}

impl MeasuredCloud {
    /// Starts the cloud in the lab.
    pub(crate) async fn start(lab: &Lab, kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::AtOnce => Self::Simulator(Box::new(Simulator::start(lab, "").await?)),
            Kind::Simulated => Self::Simulator(Box::new(Simulator::start(lab, REAL_LATENCIES).await?)),
            Kind::Real => Self::Real(Box::new(RealCloud::start(lab).await?)),
        })
    }

    /// Returns the number of requests since the start, by operation.
    pub(crate) async fn requests(&self) -> Result<Requests> {
        let mut requests = Requests::new();
        let mut count = |operation: String| *requests.entry(operation).or_default() += 1;
        match self {
            Self::Simulator(simulator) => simulator.log().await?.into_iter().for_each(|one| count(one.operation)),
            Self::Real(cloud) => cloud
                .calls()
                .iter()
                .for_each(|call| count(operation(&call.method, &call.path))),
        }
        Ok(requests)
    }

    /// Returns the attach times of all currently attached volumes, if the cloud reports exact times.
    pub(crate) async fn attached_at(&self) -> Result<BTreeMap<String, Timestamp>> {
        let Self::Simulator(simulator) = self else {
            // Cinder returns times without fractions of a second.
            return Ok(BTreeMap::new());
        };
        attached_at(&simulator.state().await?)
    }

    /// Stops the cloud. Volumes that the Go driver did not delete are ignored.
    pub(crate) async fn stop(self) -> Result<()> {
        match self {
            Self::Simulator(simulator) => simulator.stop().await,
            Self::Real(cloud) => cloud.leave().await,
        }
    }
}

/// Reads the attach times from the state of the simulator.
pub(crate) fn attached_at(state: &Value) -> Result<BTreeMap<String, Timestamp>> {
    let attachments = state["attachments"]
        .as_array()
        .context("the state has no attachments")?;
    Ok(attachments
        .iter()
        .filter_map(|attachment| {
            let volume = attachment["volume_id"].as_str()?;
            Some((volume.to_owned(), attachment["attached_at"].as_str()?.parse().ok()?))
        })
        .collect())
}

/// Normalizes a request to its operation: removes ids and the path prefix that all requests share.
pub(crate) fn operation(method: &str, path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_id = |part: &str| part.len() >= 32 && part.chars().all(|char| char.is_ascii_hexdigit() || char == '-');
    let mut parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| if is_id(part) { "ID" } else { part })
        .collect();
    let common = parts
        .iter()
        .take_while(|part| part.starts_with('v') && part.len() < 5 || **part == "ID")
        .count();
    parts.drain(..common.min(parts.len().saturating_sub(1)));
    let keys: Vec<&str> = query
        .split('&')
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .collect();
    let mut text = format!("{method} {}", parts.join("/"));
    if !keys.is_empty() {
        text = format!("{text}?{}", keys.join("&"));
    }
    text
}

impl Cloud for MeasuredCloud {
    fn cloud_conf(&self) -> &Path {
        match self {
            Self::Simulator(simulator) => simulator.cloud_conf(),
            Self::Real(cloud) => cloud.cloud_conf(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn operation_ignores_ids() {
        let id = "11111111-2222-4333-8444-555555555555";
        let project = "11111111222243338444555555555555";
        assert_eq!(
            operation("GET", &format!("/v3/{project}/volumes/{id}")),
            "GET volumes/ID"
        );
        assert_eq!(
            operation("GET", &format!("/v3/{project}/volumes/detail?name=a&limit=1")),
            "GET volumes/detail?name&limit"
        );
        assert_eq!(operation("POST", "/v3/auth/tokens"), "POST auth/tokens");
        assert_eq!(operation("GET", "/v3/"), "GET v3");
    }
}
