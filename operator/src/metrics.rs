// SPDX-License-Identifier: Apache-2.0
//! The operator's metrics. All names start with `cinder_csi_operator_`. Label sets are closed and small: no label
//! contains the name of a node, volume or claim.

mod clouds;
mod families;
mod index;

use std::{collections::HashMap, time::Duration};

use cinder_cloud::Observer;
use cinder_csi_crds::RolloutStatus;
use cinder_operator_core::decide::{CloudView, Outcome, Report};
use cinder_operator_core::status;
use prometheus::core::Desc;
use prometheus::{Error, Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use clouds::{CloudMetrics, forget};
use families::{Families, as_gauge, options, seconds};
use index::IndexAge;

#[derive(Debug)]
pub struct Metrics {
    families: Families,
    leader: IntGauge,
    reconciles: IntCounterVec,
    reconcile_seconds: Histogram,
    queue_seconds: Histogram,
    reconcile_failures: IntGaugeVec,
    conditions: IntGaugeVec,
    api_writes: IntCounterVec,
    drift_repaired: IntCounterVec,
    nodes: IntGaugeVec,
    deletion_blockers: IntGaugeVec,
    rollout_state: IntGaugeVec,
    credential_valid: IntGaugeVec,
    openstack_requests: IntCounterVec,
    openstack_seconds: HistogramVec,
    openstack_tokens: IntCounterVec,
    undecodable_objects: IntGaugeVec,
    failing_watches: IntGaugeVec,
    index_age: IndexAge,
    clouds: CloudMetrics,
}

impl Metrics {
    /// Creates the metrics in a new registry.
    pub fn new() -> Result<Self, Error> {
        Self::within(Registry::new())
    }

    /// Creates the metrics in a registry, in the order of the reference. Fails only if a name is malformed or already
    /// registered.
    pub fn within(registry: Registry) -> Result<Self, Error> {
        let mut families = Families {
            registry,
            descriptions: Vec::new(),
            gauges: Vec::new(),
        };
        Ok(Self {
            leader: families.registered(IntGauge::with_opts(options(
                "leader",
                "1 while this process holds the Lease and has listed every kind that it watches",
            )))?,
            reconciles: families.counter("reconcile_total", "Reconciles by result", &["result"])?,
            reconcile_seconds: families.registered(Histogram::with_opts(seconds(
                "reconcile_duration_seconds",
                "How long one reconcile took",
            )))?,
            queue_seconds: families.registered(Histogram::with_opts(seconds(
                "queue_duration_seconds",
                "How long a change waited for the reconcile that it calls for; of several that wait, the first",
            )))?,
            reconcile_failures: families.gauge(
                "reconcile_failures",
                "Reconciles of the object that failed one after the other; 0 once one succeeds",
                &["driver"],
            )?,
            conditions: families.gauge(
                "condition",
                "1 for the present status of each condition, else 0",
                &["driver", "type", "status"],
            )?,
            api_writes: families.counter(
                "api_writes_total",
                "Writes to the Kubernetes API; none but the Lease at idle",
                &["kind", "verb", "result"],
            )?,
            drift_repaired: families.counter(
                "drift_repaired_total",
                "Objects that another client had changed and the operator restored",
                &["driver", "kind"],
            )?,
            nodes: families.gauge(
                "nodes",
                "Nodes by state: desired (should run the driver), registered (kubelet knows it), lost (without the driver for longer than the registration deadline)",
                &["driver", "state"],
            )?,
            deletion_blockers: families.gauge(
                "deletion_blockers",
                "Objects that a removal waits for",
                &["driver", "kind"],
            )?,
            rollout_state: families.gauge(
                "rollout_state",
                "1 for the state that a rollout of the component is in; none while there is nothing to roll out",
                &["driver", "component", "state"],
            )?,
            credential_valid: families.gauge(
                "credential_valid",
                "1 while login with the credentials that the spec names works",
                &["driver", "cloud"],
            )?,
            openstack_requests: families.counter(
                "openstack_requests_total",
                "Calls to OpenStack; code 0 is no answer",
                &["service", "operation", "code"],
            )?,
            openstack_seconds: families.registered(HistogramVec::new(
                seconds(
                    "openstack_request_duration_seconds",
                    "How long OpenStack took to answer",
                ),
                &["service", "operation"],
            ))?,
            openstack_tokens: families.counter(
                "openstack_tokens_total",
                "Logins to Keystone by result",
                &["result"],
            )?,
            undecodable_objects: families.registered(IntGaugeVec::new(
                options(
                    "undecodable_objects",
                    "Objects of a watched kind that do not decode, and that count as existing and in use",
                ),
                &["kind"],
            ))?,
            failing_watches: families.registered(IntGaugeVec::new(
                options(
                    "failing_watches",
                    "Watches of the kind that have failed repeatedly; what they show is old",
                ),
                &["kind"],
            ))?,
            index_age: families.registered(IndexAge::new(options(
                "index_age_seconds",
                "How long the index of the kind has been incomplete, because its list is under way or its watch fails; else 0",
            )))?,
            clouds: CloudMetrics::new(&mut families)?,
            families,
        })
    }

    /// The registry with all metrics.
    pub fn registry(&self) -> &Registry {
        &self.families.registry
    }

    /// Names, labels and help texts, in the order of the reference.
    pub fn descriptions(&self) -> &[Desc] {
        &self.families.descriptions
    }

    /// Exports the zones and volumes of a report.
    pub fn export(&self, driver: &str, report: &Report<'_>) {
        self.clouds.export(driver, report);
    }

    /// Records the end of a reconcile.
    pub fn reconciled(&self, result: &'static str, elapsed: Duration) {
        self.reconciles.with_label_values(&[result]).inc();
        self.reconcile_seconds.observe(elapsed.as_secs_f64());
    }

    /// Records the start of a reconcile, and the time that its trigger has waited.
    pub fn queued(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// Sets the number of consecutive failed reconciles of an object.
    pub fn reconcile_failures(&self, driver: &str, failures: u32) {
        self.reconcile_failures
            .with_label_values(&[driver])
            .set(failures.into());
    }

    /// Sets the present status (`True`, `False`, `Unknown`) of a condition.
    pub fn condition(&self, driver: &str, condition: &str, status: &str) {
        for candidate in ["True", "False", "Unknown"] {
            self.conditions
                .with_label_values(&[driver, condition, candidate])
                .set(i64::from(candidate == status));
        }
    }

    /// Counts a write to the Kubernetes API.
    pub fn api_write(&self, kind: &str, verb: &str, ok: bool) {
        self.api_writes
            .with_label_values(&[kind, verb, if ok { "success" } else { "error" }])
            .inc();
    }

    /// Counts the repair of an object that another client had changed.
    pub fn drift_repaired(&self, driver: &str, kind: &str) {
        self.drift_repaired.with_label_values(&[driver, kind]).inc();
    }

    /// Sets the validity of the credentials of each cloud in the spec, and removes the series of other clouds.
    pub fn credentials(&self, driver: &str, clouds: &[CloudView]) {
        let is_gone = |cloud: Option<&&str>| cloud.is_none_or(|cloud| clouds.iter().all(|one| one.name != **cloud));
        forget(&self.credential_valid, driver, |labels| is_gone(labels.get("cloud")));
        for cloud in clouds {
            self.credential_valid
                .with_label_values(&[driver, cloud.name.as_str()])
                .set(i64::from(cloud.authenticated));
        }
    }

    /// Sets the number of objects of a kind that block a removal.
    pub fn deletion_blockers(&self, driver: &str, kind: &str, count: usize) {
        self.deletion_blockers
            .with_label_values(&[driver, kind])
            .set(as_gauge(count));
    }

    /// Sets the state of the current rollout, which may be in progress, waiting or stopped.
    pub fn rollout(&self, driver: &str, rollout: Option<&RolloutStatus>) {
        let now = rollout.map(|now| [now.component.clone(), format!("{:?}", now.state)]);
        let is_now = |labels: &HashMap<&str, &str>| {
            now.as_ref()
                .is_some_and(|[component, state]| labels["component"] == component && labels["state"] == state)
        };
        forget(&self.rollout_state, driver, |labels| !is_now(labels));
        if let Some([component, state]) = &now {
            self.rollout_state.with_label_values(&[driver, component, state]).set(1);
        }
    }

    /// Sets the numbers of nodes that should run the driver, that have a registration, and that have lacked the driver
    /// for too long.
    pub fn nodes(&self, driver: &str, outcome: &Outcome) {
        let states = [
            ("desired", outcome.nodes.needed()),
            ("registered", outcome.nodes.registered),
            ("lost", status::absent_nodes(outcome)),
        ];
        for (state, count) in states {
            self.nodes.with_label_values(&[driver, state]).set(as_gauge(count));
        }
    }

    /// Sets the number of objects of a kind, by its plural name, that cannot be decoded.
    pub fn undecodable_objects(&self, kind: &str, count: usize) {
        self.undecodable_objects.with_label_values(&[kind]).set(as_gauge(count));
    }

    /// Sets the number of watches of a kind that have failed repeatedly.
    pub fn failing_watches(&self, kind: &str, count: usize) {
        self.failing_watches.with_label_values(&[kind]).set(as_gauge(count));
    }

    /// Sets whether the index of a watch is complete and current.
    pub fn index(&self, watch: &str, kind: &'static str, is_current: bool) {
        self.index_age.set(watch, kind, is_current);
    }

    /// Removes the index of a watch that ended.
    pub fn remove_index(&self, watch: &str) {
        self.index_age.remove(watch);
    }

    /// Whether this process leads.
    pub fn leading(&self, leading: bool) {
        self.leader.set(i64::from(leading));
    }

    /// Removes all series of a deleted driver.
    pub fn forget(&self, driver: &str) {
        for gauge in &self.families.gauges {
            forget(gauge, driver, |_| true);
        }
    }
}

/// Records the operator's own requests to OpenStack.
impl Observer for Metrics {
    fn request(&self, service: &'static str, operation: &'static str, code: u16, elapsed: Duration) {
        self.openstack_requests
            .with_label_values(&[service, operation, &code.to_string()])
            .inc();
        self.openstack_seconds
            .with_label_values(&[service, operation])
            .observe(elapsed.as_secs_f64());
    }

    fn token_issued(&self, ok: bool) {
        self.openstack_tokens
            .with_label_values(&[if ok { "success" } else { "error" }])
            .inc();
    }
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::cluster::NodesView;
    use prometheus::{Encoder, TextEncoder};

    use super::families::PREFIX;
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut out = Vec::new();
        TextEncoder::new()
            .encode(&registry.gather(), &mut out)
            .expect("encoded");
        String::from_utf8(out).expect("text")
    }

    fn mk_cloud(name: &str) -> CloudView {
        CloudView {
            name: name.to_owned(),
            ..CloudView::default()
        }
    }

    #[test]
    fn series_follow_state_and_end_with_driver() {
        let metrics = Metrics::new().expect("metrics");
        metrics.condition("d", "Available", "Unknown");
        metrics.condition("d", "Available", "True");
        let nodes = NodesView {
            desired: 3,
            registered: 2,
            ..NodesView::default()
        };
        let outcome = Outcome {
            nodes,
            ..Outcome::default()
        };
        metrics.nodes("d", &outcome);
        metrics.credentials("d", &[mk_cloud("old"), mk_cloud("default")]);
        metrics.credentials("d", &[mk_cloud("default")]);
        metrics.reconcile_failures("d", 2);
        let shown = text(metrics.registry());
        assert!(
            shown.contains(r#"condition{driver="d",status="True",type="Available"} 1"#),
            "{shown}"
        );
        assert!(
            shown.contains(r#"condition{driver="d",status="Unknown",type="Available"} 0"#),
            "{shown}"
        );
        assert!(shown.contains(r#"nodes{driver="d",state="registered"} 2"#), "{shown}");
        assert!(
            shown.contains(r#"credential_valid{cloud="default",driver="d"} 0"#) && !shown.contains(r#"cloud="old""#),
            "{shown}"
        );
        metrics.forget("d");
        assert!(!text(metrics.registry()).contains(r#"driver="d""#));
    }

    #[test]
    fn every_metric_has_prefix_and_help() {
        let metrics = Metrics::new().expect("metrics");
        metrics.reconciled("success", Duration::from_millis(3));
        metrics.api_write("Secret", "patch", true);
        metrics.request("identity", "login", 201, Duration::from_millis(3));
        metrics.token_issued(true);
        let families = metrics.registry().gather();
        assert!(families.len() >= 5, "{}", families.len());
        for family in families {
            assert!(family.name().starts_with(PREFIX), "{}", family.name());
            assert!(!family.help().is_empty(), "{}", family.name());
        }
    }
}
