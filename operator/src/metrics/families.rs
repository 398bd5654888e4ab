// SPDX-License-Identifier: Apache-2.0
//! Creates and registers metric families.

use prometheus::core::{Collector, Desc};
use prometheus::{Error, HistogramOpts, IntCounterVec, IntGaugeVec, Opts, Registry};

/// Prefix of all metrics of this module.
pub(super) const PREFIX: &str = "cinder_csi_operator";

/// Buckets of the durations of reconciles and OpenStack requests, in seconds.
pub(super) const SECONDS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Creates and registers metrics.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) registry: Registry,
    pub(super) descriptions: Vec<Desc>,
    /// The families with a label for the driver.
    pub(super) gauges: Vec<IntGaugeVec>,
}

impl Families {
    pub(super) fn registered<C: Collector + Clone + 'static>(&mut self, family: Result<C, Error>) -> Result<C, Error> {
        let family = family?;
        self.descriptions.extend(family.desc().into_iter().cloned());
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.registered(IntCounterVec::new(options(name, help), labels))
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let gauge = self.registered(IntGaugeVec::new(options(name, help), labels))?;
        self.gauges.push(gauge.clone());
        Ok(gauge)
    }
}

pub(super) fn options(name: &str, help: &str) -> Opts {
    Opts::new(format!("{PREFIX}_{name}"), help)
}

pub(super) fn seconds(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(options(name, help)).buckets(SECONDS.to_vec())
}

pub(super) fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
