// SPDX-License-Identifier: Apache-2.0
//! Metrics in a registry that is passed on, never a global one.

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, Opts, Registry, TextEncoder};
use thiserror::Error;

/// What `build_info` tells about a program.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo<'a> {
    /// Prefix of the metric's name, such as `cinder_csi_driver`.
    pub program: &'a str,
    /// Released version.
    pub version: &'a str,
    /// Commit that it was built from; empty where that is not known.
    pub revision: &'a str,
}

/// Why a metric could not be registered or written.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// Two metrics of one name.
    #[error("cannot register the metric {name}: {source}")]
    Register { name: String, source: prometheus::Error },
    /// A name or label that Prometheus does not allow.
    #[error("cannot make a metric: {0}")]
    Make(#[source] prometheus::Error),
    /// The registry could not be written as text.
    #[error("cannot write the metrics: {0}")]
    Encode(#[source] prometheus::Error),
}

/// The registry of one process, with `process_*` (CPU, memory, files) and `<program>_build_info` in it. Cheap to clone; clones
/// share the registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// `Content-Type` of what [`Metrics::encode`] returns.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// A registry with the metrics that every program has.
    pub fn new(build: BuildInfo<'_>) -> Result<Self, MetricsError> {
        let metrics = Self {
            registry: Registry::new(),
        };
        metrics.register(ProcessCollector::for_self())?;
        let name = format!("{}_build_info", build.program);
        let opts = Opts::new(name.as_str(), "Version and revision of the program; always 1.")
            .const_label("version", build.version)
            .const_label("revision", build.revision);
        metrics.registered(IntGauge::with_opts(opts))?.set(1);
        Ok(metrics)
    }

    /// Adds a metric. The caller keeps a clone of it to count with.
    pub fn register(&self, metric: impl Collector + 'static) -> Result<(), MetricsError> {
        let names: Vec<&str> = metric.desc().iter().map(|desc| desc.fq_name.as_str()).collect();
        let name = names.join(", ");
        self.registry
            .register(Box::new(metric))
            .map_err(|source| MetricsError::Register { name, source })
    }

    /// Adds a family that was made just now, and gives it back to count with.
    pub fn registered<C: Collector + Clone + 'static>(
        &self,
        family: Result<C, prometheus::Error>,
    ) -> Result<C, MetricsError> {
        let family = family.map_err(MetricsError::Make)?;
        self.register(family.clone()).map(|()| family)
    }

    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in Prometheus' text format.
    pub fn encode(&self) -> Result<String, MetricsError> {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(MetricsError::Encode)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::IntCounter;

    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(BuildInfo {
            program: "tester",
            version: "1.2.3",
            revision: "abc",
        })
        .expect("registers")
    }

    #[test]
    fn a_new_registry_tells_the_build_and_the_process() {
        let text = metrics().encode().expect("encodes");
        assert!(
            text.contains("tester_build_info{revision=\"abc\",version=\"1.2.3\"} 1"),
            "{text}"
        );
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
    }

    #[test]
    fn two_registries_in_one_process_know_nothing_of_each_other() {
        let (one, other) = (metrics(), metrics());
        let counter = IntCounter::new("lives_total", "Lives.").expect("is a metric");
        one.register(counter.clone()).expect("registers");
        counter.inc_by(9);
        assert!(one.encode().expect("encodes").contains("lives_total 9"));
        assert!(!other.encode().expect("encodes").contains("lives_total"));
    }

    #[test]
    fn a_name_that_is_taken_is_refused() {
        let (metrics, counter) = (
            metrics(),
            IntCounter::new("lives_total", "Lives.").expect("is a metric"),
        );
        metrics.register(counter.clone()).expect("registers");
        assert!(
            metrics
                .register(counter)
                .expect_err("is taken")
                .to_string()
                .contains("lives_total")
        );
    }
}
