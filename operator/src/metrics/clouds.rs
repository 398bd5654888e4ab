// SPDX-License-Identifier: Apache-2.0
//! What is counted of clouds and of volumes in trouble.

use std::collections::{BTreeMap, HashMap};

use cinder_operator_core::{
    clouds::QuotaFact,
    decide::{CloudView, Report, ZoneMismatch},
    diagnosis::{Operation, Stuck},
};
use k8s_openapi::jiff::Timestamp;
use prometheus::{Error, IntGaugeVec, core::Collector as _};

use super::{Families, as_gauge};

/// Gauges of clouds and volumes.
#[derive(Debug)]
pub(super) struct CloudMetrics {
    expiry: IntGaugeVec,
    backend_up: IntGaugeVec,
    quota_used: IntGaugeVec,
    quota_limit: IntGaugeVec,
    mismatched_zones: IntGaugeVec,
    volumes: IntGaugeVec,
    stuck: IntGaugeVec,
    stuck_oldest: IntGaugeVec,
    /// All of these.
    gauges: Vec<IntGaugeVec>,
}

impl CloudMetrics {
    pub(super) fn new(families: &mut Families) -> Result<Self, Error> {
        let before = families.gauges.len();
        Ok(Self {
            expiry: families.gauge(
                "credential_expiry_timestamp_seconds",
                "When a credential or certificate of the driver expires: app_credential, token, ca, client_cert",
                &["driver", "cloud", "kind"],
            )?,
            backend_up: families.gauge(
                "backend_up",
                "1 while a service of a cloud answers as it should",
                &["driver", "cloud", "service"],
            )?,
            quota_used: families.gauge(
                "quota_used",
                "How much of a quota is used or promised; volume_type is empty for all types together",
                &["driver", "cloud", "resource", "volume_type"],
            )?,
            quota_limit: families.gauge(
                "quota_limit",
                "The limit of a quota; not there for one without",
                &["driver", "cloud", "resource", "volume_type"],
            )?,
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

    /// Sets everything of a driver; what is no longer there goes.
    pub(super) fn seen(&self, driver: &str, report: &Report, now: Timestamp) {
        let facts = &report.facts;
        for gauge in &self.gauges {
            forget(gauge, driver, |_| true);
        }
        for cloud in &facts.clouds {
            self.cloud(driver, cloud, now);
        }
        let ZoneMismatch { gone, unmatched } = report.zone_mismatch();
        for (side, count) in [("compute", gone), ("volume", unmatched)] {
            self.mismatched_zones
                .with_label_values(&[driver, side])
                .set(as_gauge(count));
        }
        for (kind, count) in [
            ("PersistentVolume", facts.volumes.count.volumes),
            ("VolumeAttachment", facts.volumes.count.attachments),
        ] {
            self.volumes.with_label_values(&[driver, kind]).set(as_gauge(count));
        }
        self.stuck(driver, &facts.volumes.stuck);
    }

    fn cloud(&self, driver: &str, cloud: &CloudView, now: Timestamp) {
        let credential = cloud.state.credential.as_ref().and_then(|(_, end)| *end);
        let ends = [
            ("app_credential", credential),
            ("token", cloud.state.token_ends),
            ("ca", cloud.ca_end(now)),
            ("client_cert", cloud.client_cert_ends.iter().min().copied()),
        ];
        for (kind, end) in ends {
            if let Some(end) = end {
                self.expiry
                    .with_label_values(&[driver, cloud.name.as_str(), kind])
                    .set(end.as_second());
            }
        }
        let broken = |name: &str| cloud.state.troubles.iter().any(|one| one.service == name);
        if cloud.state.is_known {
            for service in ["identity", "block-storage", "compute"] {
                let is_up = !broken("identity") && !broken(service) && !cloud.is_down();
                self.backend_up
                    .with_label_values(&[driver, cloud.name.as_str(), service])
                    .set(i64::from(is_up));
            }
        }
        for quota in &cloud.state.facts.quota {
            let QuotaFact {
                resource,
                volume_type,
                used,
                limit,
            } = quota;
            let volume_type = volume_type.as_deref().unwrap_or_default();
            let labels = [driver, cloud.name.as_str(), resource.as_str(), volume_type];
            let value = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            self.quota_used.with_label_values(&labels).set(value(*used));
            self.quota_limit.with_label_values(&labels).set(value(*limit));
        }
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

/// Removes the series of a family that have this driver and that `is_gone` is true of, by their labels.
pub(super) fn forget(gauge: &IntGaugeVec, driver: &str, is_gone: impl Fn(&HashMap<&str, &str>) -> bool) {
    for family in gauge.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> = metric
                .get_label()
                .iter()
                .map(|label| (label.name(), label.value()))
                .collect();
            if labels.get("driver") == Some(&driver) && is_gone(&labels) {
                // It was there a moment ago.
                let _ = gauge.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinder_operator_core::decide::Facts;

    #[test]
    fn what_is_no_longer_seen_of_a_driver_goes_and_other_drivers_keep_theirs() {
        let metrics = super::super::Metrics::new().expect("metrics").clouds;
        let report = |zone: &str| {
            let cloud = CloudView {
                name: zone.to_owned(),
                ca_ends: vec![Timestamp::from_second(2_000_000_000).expect("a time")],
                ..CloudView::default()
            };
            Report {
                facts: Facts {
                    clouds: vec![cloud],
                    ..Facts::default()
                },
                ..Report::default()
            }
        };
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        metrics.seen("a", &report("east"), now);
        metrics.seen("b", &report("east"), now);
        metrics.seen("a", &report("west"), now);
        let series = |driver: &str| -> Vec<String> {
            let families = metrics.expiry.collect();
            let of = |name: &str, metric: &prometheus::proto::Metric| {
                let label = metric.get_label().iter().find(|label| label.name() == name);
                label.map(|label| label.value().to_owned()).unwrap_or_default()
            };
            families[0]
                .get_metric()
                .iter()
                .filter(|metric| of("driver", metric) == driver)
                .map(|metric| of("cloud", metric))
                .collect()
        };
        assert_eq!(
            (series("a"), series("b")),
            (vec!["west".to_owned()], vec!["east".to_owned()])
        );
    }
}
