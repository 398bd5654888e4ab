//! The cloud that both drivers are measured on.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use suites::cloud::Cloud;
use suites::lab::Lab;
use suites::real_cloud::RealCloud;
use suites::simulator::{REAL_LATENCIES, Simulator};

use crate::Kind;

/// A running cloud whose requests are counted.
#[derive(Debug)]
pub(crate) enum Measured {
    /// The simulator.
    Simulator(Box<Simulator>),
    /// Real services.
    Real(Box<RealCloud>),
}

impl Measured {
    /// Starts it in the lab.
    pub(crate) async fn start(lab: &Lab, kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::AtOnce => Self::Simulator(Box::new(Simulator::start(lab, "").await?)),
            Kind::Simulated => Self::Simulator(Box::new(Simulator::start(lab, REAL_LATENCIES).await?)),
            Kind::Real => Self::Real(Box::new(RealCloud::start(lab).await?)),
        })
    }

    /// How many requests it has answered since it started.
    pub(crate) async fn requests(&self) -> Result<usize> {
        Ok(match self {
            Self::Simulator(simulator) => simulator.log().await?.len(),
            Self::Real(cloud) => cloud.calls().len(),
        })
    }

    /// When each volume that is attached now was, where the cloud tells it exactly.
    pub(crate) async fn attached_at(&self) -> Result<BTreeMap<String, Timestamp>> {
        let Self::Simulator(simulator) = self else {
            // Cinder's times have no fractions of a second.
            return Ok(BTreeMap::new());
        };
        let state = simulator.state().await?;
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

    /// Ends it. What the Go driver leaves behind is its own affair here.
    pub(crate) async fn stop(self) -> Result<()> {
        match self {
            Self::Simulator(simulator) => simulator.stop().await,
            Self::Real(cloud) => cloud.leave().await,
        }
    }
}

impl Cloud for Measured {
    fn cloud_conf(&self) -> &Path {
        match self {
            Self::Simulator(simulator) => simulator.cloud_conf(),
            Self::Real(cloud) => cloud.cloud_conf(),
        }
    }
}
