// SPDX-License-Identifier: Apache-2.0
//! Metrics of zones and volumes.

use std::collections::{BTreeMap, HashMap};

use cinder_operator_core::{
    decide::{Report, ZoneMismatch},
    diagnosis::{Operation, Stuck},
};
use k8s_openapi::jiff::Timestamp;
use prometheus::{Error, IntGaugeVec, core::Collector as _};

use super::families::{Families, as_gauge};

/// Gauges of clouds and volumes.
#[derive(Debug)]
pub(super) struct CloudMetrics {
    mismatched_zones: IntGaugeVec,
    volumes: IntGaugeVec,
    stuck: IntGaugeVec,
    stuck_oldest: IntGaugeVec,
    /// All gauges of this struct.
    gauges: Vec<IntGaugeVec>,
}

impl CloudMetrics {
    pub(super) fn new(families: &mut Families) -> Result<Self, Error> {
        let before = families.gauges.len();
        Ok(Self {
            mismatched_zones: families.gauge(
                "topology_mismatched_zones",
                "Zones of nodes that do not fit: side compute (Nova lost them) or volume (Cinder has none for them)",
                &["driver", "side"],
            )?,
            volumes: families.gauge(
                "volumes",
                "What exists of a driver: kind PersistentVolume or VolumeAttachment",
                &["driver", "kind"],
            )?,
            stuck: families.gauge(
                "stuck_volumes",
                "Operations on volumes that take longer than they may, by operation and cause",
                &["driver", "operation", "reason"],
            )?,
            stuck_oldest: families.gauge(
                "stuck_volume_oldest_timestamp_seconds",
                "Since when the oldest stuck operation waits; not there while none is stuck",
                &["driver", "operation"],
            )?,
            gauges: families.gauges[before..].to_vec(),
        })
    }

    /// Sets the series of a driver, and removes outdated ones.
    pub(super) fn export(&self, driver: &str, report: &Report<'_>) {
        let volumes = &report.outcome.volumes;
        for gauge in &self.gauges {
            forget(gauge, driver, |_| true);
        }
        let ZoneMismatch { missing, unmatched } = report.zone_mismatch();
        for (side, count) in [("compute", missing), ("volume", unmatched)] {
            self.mismatched_zones
                .with_label_values(&[driver, side])
                .set(as_gauge(count));
        }
        for (kind, count) in [
            ("PersistentVolume", volumes.count.volumes),
            ("VolumeAttachment", volumes.count.attachments),
        ] {
            self.volumes.with_label_values(&[driver, kind]).set(as_gauge(count));
        }
        self.stuck(driver, &volumes.stuck);
    }

    fn stuck(&self, driver: &str, stuck: &[Stuck]) {
        let mut counts: BTreeMap<(Operation, &str), usize> = BTreeMap::new();
        let mut oldest: BTreeMap<Operation, Timestamp> = BTreeMap::new();
        for one in stuck {
            *counts.entry((one.operation, one.finding.reason)).or_default() += 1;
            let since = oldest.entry(one.operation).or_insert(one.since);
            *since = (*since).min(one.since);
        }
        for ((operation, reason), count) in counts {
            self.stuck
                .with_label_values(&[driver, operation.as_str(), reason])
                .set(as_gauge(count));
        }
        for (operation, since) in oldest {
            self.stuck_oldest
                .with_label_values(&[driver, operation.as_str()])
                .set(since.as_second());
        }
    }
}

/// Removes the series of a family that have this driver and for whose labels `is_gone` returns true.
pub(super) fn forget(gauge: &IntGaugeVec, driver: &str, is_gone: impl Fn(&HashMap<&str, &str>) -> bool) {
    for family in gauge.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> = metric
                .get_label()
                .iter()
                .map(|label| (label.name(), label.value()))
                .collect();
            if labels.get("driver") == Some(&driver) && is_gone(&labels) {
                // The series exists, because it was collected in this function.
                drop(gauge.remove(&labels));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinder_operator_core::decide::{Decision, Facts, Outcome};

    #[test]
    fn outdated_series_of_one_driver_are_removed() {
        let metrics = super::super::Metrics::new().expect("metrics").clouds;
        let export = |driver, operation| {
            let mut outcome = Outcome::default();
            outcome.volumes.stuck = vec![Stuck {
                operation,
                since: Timestamp::UNIX_EPOCH,
                object: ("VolumeAttachment", "va".to_owned()),
                claim: None,
                volume_id: None,
                node: None,
                finding: cinder_operator_core::diagnosis::Finding {
                    reason: "NodeGone",
                    class: cinder_operator_core::diagnosis::CauseClass::NodeGone,
                    hint: String::new(),
                },
            }];
            let report = Report {
                facts: &Facts::default(),
                decision: &Decision::default(),
                outcome: &outcome,
            };
            metrics.export(driver, &report);
        };
        export("a", Operation::Attach);
        export("b", Operation::Attach);
        export("a", Operation::Detach);
        let series = |driver: &str| -> Vec<String> {
            let families = metrics.stuck.collect();
            let of = |name: &str, metric: &prometheus::proto::Metric| {
                let label = metric.get_label().iter().find(|label| label.name() == name);
                label.map(|label| label.value().to_owned()).unwrap_or_default()
            };
            families[0]
                .get_metric()
                .iter()
                .filter(|metric| of("driver", metric) == driver)
                .map(|metric| of("operation", metric))
                .collect()
        };
        assert_eq!(
            (series("a"), series("b")),
            (vec!["Detach".to_owned()], vec!["Attach".to_owned()])
        );
    }
}
