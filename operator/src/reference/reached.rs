//! Whether tests reach every word of the reference. From situations, the operator's own code makes statuses, events and series;
//! a word that no situation leads to is named.

use std::collections::BTreeSet;

use cinder_csi_crds::CinderCSIDriverStatus;
use prometheus::proto::MetricFamily;

use super::{CONDITIONS, EVENTS};
use crate::{controller, events::Notice, metrics::Metrics, status};

/// Metrics that only a whole program has: it leads or does not. The scenarios `leaders` of the suites `operator` and `cluster` ask
/// for this one.
const ELSEWHERE: &[&str] = &["cinder_csi_operator_leader"];

/// What situations have led to.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// `Type=Status/Reason`.
    conditions: BTreeSet<String>,
    /// `Normal Reason` or `Warning Reason`.
    events: BTreeSet<String>,
    /// Names of metrics with a series that is not 0.
    metrics: BTreeSet<String>,
}

impl Reached {
    pub(crate) fn status(&mut self, status: &CinderCSIDriverStatus) {
        let words = status.conditions.iter();
        self.conditions
            .extend(words.map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)));
    }

    pub(crate) fn notices(&mut self, notices: &[Notice]) {
        self.events
            .extend(notices.iter().map(|one| format!("{:?} {}", one.severity, one.reason)));
    }

    /// Events that were sent, as `Normal Reason`.
    pub(crate) fn sent(&mut self, events: impl IntoIterator<Item = String>) {
        self.events.extend(events);
    }

    pub(crate) fn metrics(&mut self, metrics: &Metrics) {
        let families = metrics.registry().gather();
        let told = families.iter().filter(|family| is_told(family));
        self.metrics.extend(told.map(|family| family.name().to_owned()));
    }
}

fn is_told(family: &MetricFamily) -> bool {
    family.get_metric().iter().any(|series| {
        series.get_gauge().get_value() != 0.0
            || series.get_counter().get_value() != 0.0
            || series.get_histogram().get_sample_count() > 0
    })
}

#[tokio::test]
async fn every_condition_event_and_metric_is_reached() {
    let mut reached = Reached::default();
    status::tests::reached::reach(&mut reached);
    Box::pin(controller::tests::reached::reach(&mut reached)).await;

    let conditions = CONDITIONS
        .iter()
        .map(|row| format!("{}={}/{}", row.type_, row.status, row.reason));
    let events = EVENTS.iter().map(|row| format!("{:?} {}", row.severity, row.reason));
    let metrics = Metrics::new().expect("metrics");
    let metrics = metrics.descriptions().iter();
    let metrics = metrics.map(|description| description.fq_name.clone());
    let metrics = metrics.filter(|name| !ELSEWHERE.contains(&name.as_str()));
    let missing =
        |all: BTreeSet<String>, found: &BTreeSet<String>| -> Vec<String> { all.difference(found).cloned().collect() };
    let missing = [
        missing(conditions.collect(), &reached.conditions),
        missing(events.collect(), &reached.events),
        missing(metrics.collect(), &reached.metrics),
    ]
    .concat();
    assert!(missing.is_empty(), "no situation leads to:\n{}", missing.join("\n"));
}
