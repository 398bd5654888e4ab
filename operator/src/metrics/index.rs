// SPDX-License-Identifier: Apache-2.0
//! The age of the index of each kind, computed when the metric is collected.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus::{
    Error, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

use super::families::as_gauge;

/// The watches by name. Each has its kind, and the time since which its index is incomplete.
type Watches = BTreeMap<String, (&'static str, Option<Instant>)>;

/// The age of the index of each kind: zero while all watches of the kind work.
#[derive(Clone, Debug)]
pub(super) struct IndexAge {
    gauge: IntGaugeVec,
    watches: Arc<Mutex<Watches>>,
}

impl IndexAge {
    pub(super) fn new(options: Opts) -> Result<Self, Error> {
        Ok(Self {
            gauge: IntGaugeVec::new(options, &["kind"])?,
            watches: Arc::default(),
        })
    }

    pub(super) fn set(&self, watch: &str, kind: &'static str, is_current: bool) {
        let mut watches = self.watches.lock();
        let (_, since) = watches.entry(watch.to_owned()).or_insert((kind, None));
        *since = (!is_current).then(|| since.unwrap_or_else(Instant::now));
    }

    pub(super) fn remove(&self, watch: &str) {
        self.watches.lock().remove(watch);
    }
}

impl Collector for IndexAge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.reset();
        for (kind, since) in self.watches.lock().values() {
            let age = since.map_or(0, |since| since.elapsed().as_secs());
            let series = self.gauge.with_label_values(&[kind]);
            let age = as_gauge(usize::try_from(age).unwrap_or(usize::MAX));
            series.set(series.get().max(age));
        }
        self.gauge.collect()
    }
}
