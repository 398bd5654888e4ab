// SPDX-License-Identifier: Apache-2.0
//! Metrics in a registry that callers pass explicitly. There is no global registry.

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, Opts, Registry, TextEncoder};
use thiserror::Error;

/// Labels of `build_info`.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo<'a> {
    /// Prefix of the metric's name, such as `cinder_csi_driver`.
    pub program: &'a str,
    pub version: &'a str,
    /// Commit of the build; empty if unknown.
    pub revision: &'a str,
}

/// Reasons why a metric could not be registered or encoded.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// Two metrics have the same name.
    #[error("cannot register the metric {name}: {source}")]
    Register { name: String, source: prometheus::Error },
    /// Prometheus does not allow a name or label.
    #[error("cannot make a metric: {0}")]
    Make(#[source] prometheus::Error),
    /// The registry could not be encoded as text.
    #[error("cannot write the metrics: {0}")]
    Encode(#[source] prometheus::Error),
}

/// The registry of a process. It contains `process_*` (CPU, memory, files) and `<program>_build_info`. Cheap to clone;
/// clones share the registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// `Content-Type` of the text from [`Metrics::encode`].
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Creates a registry with the metrics of every program.
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

    /// Registers a metric. The caller retains a clone to update it.
    pub fn register(&self, metric: impl Collector + 'static) -> Result<(), MetricsError> {
        let names: Vec<&str> = metric.desc().iter().map(|desc| desc.fq_name.as_str()).collect();
        let name = names.join(", ");
        self.registry
            .register(Box::new(metric))
            .map_err(|source| MetricsError::Register { name, source })
    }

    /// Registers a newly created metric family, and returns it.
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

    /// Encodes all metrics in the text format of Prometheus.
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
    fn new_registry_has_build_and_process_metrics() {
        let text = metrics().encode().expect("encodes");
        assert!(
            text.contains("tester_build_info{revision=\"abc\",version=\"1.2.3\"} 1"),
            "{text}"
        );
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
    }

    #[test]
    fn registries_are_independent() {
        let (one, other) = (metrics(), metrics());
        let counter = IntCounter::new("lives_total", "Lives.").expect("is a metric");
        one.register(counter.clone()).expect("registers");
        counter.inc_by(9);
        assert!(one.encode().expect("encodes").contains("lives_total 9"));
        assert!(!other.encode().expect("encodes").contains("lives_total"));
    }

    #[test]
    fn refuses_duplicate_metric_name() {
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
