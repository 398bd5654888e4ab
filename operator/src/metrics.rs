//! What the operator counts. All names start with `cinder_csi_operator_`; label sets are closed and small: no node,
//! volume or claim name is ever a label.

mod clouds;

use std::time::Duration;

use cinder_cloud::Observer;
use cinder_csi_crds::{RolloutState, RolloutStatus};
use k8s_openapi::jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::{Error, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::status::{CloudView, Seen};
use crate::teardown::Blockers;
use clouds::CloudMetrics;

/// Every state of a rollout.
const ROLLOUT_STATES: [RolloutState; 7] = [
    RolloutState::Rolling,
    RolloutState::WaitingForApproval,
    RolloutState::WaitingForWindow,
    RolloutState::DowngradeRefused,
    RolloutState::Stopped,
    RolloutState::Paused,
    RolloutState::OnDelete,
];

/// Prefix of every metric here.
const PREFIX: &str = "cinder_csi_operator";

/// Bounds of the durations of reconciles and OpenStack calls, in seconds.
const SECONDS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The operator's metrics, registered in a registry of their own owner.
#[derive(Debug)]
pub struct Metrics {
    reconciles: IntCounterVec,
    reconcile_seconds: Histogram,
    queue_seconds: Histogram,
    reconcile_failures: IntGaugeVec,
    conditions: IntGaugeVec,
    api_writes: IntCounterVec,
    drift_repaired: IntCounterVec,
    credential_valid: IntGaugeVec,
    deletion_blockers: IntGaugeVec,
    rollout_state: IntGaugeVec,
    nodes: IntGaugeVec,
    leader: IntGauge,
    openstack_requests: IntCounterVec,
    openstack_seconds: HistogramVec,
    openstack_tokens: IntCounterVec,
    clouds: CloudMetrics,
}

impl Metrics {
    /// Makes all metrics; fails only when a name is malformed.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            reconciles: counter("reconcile_total", "Reconciles by result", &["result"])?,
            reconcile_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    format!("{PREFIX}_reconcile_duration_seconds"),
                    "How long one reconcile took",
                )
                .buckets(SECONDS.to_vec()),
            )?,
            queue_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    format!("{PREFIX}_queue_duration_seconds"),
                    "How long a change waited for the reconcile that it calls for; of several that wait, the first",
                )
                .buckets(SECONDS.to_vec()),
            )?,
            reconcile_failures: gauge(
                "reconcile_failures",
                "Reconciles of the object that failed one after the other; 0 once one succeeds",
                &["driver"],
            )?,
            conditions: gauge(
                "condition",
                "1 for the present status of each condition, else 0",
                &["driver", "type", "status"],
            )?,
            api_writes: counter(
                "api_writes_total",
                "Writes to the Kubernetes API; none but the Lease at idle",
                &["kind", "verb", "result"],
            )?,
            drift_repaired: counter(
                "drift_repaired_total",
                "Objects that had been changed by others and were put right",
                &["driver", "kind"],
            )?,
            credential_valid: gauge(
                "credential_valid",
                "1 while the credentials that the spec names log in",
                &["driver", "cloud"],
            )?,
            deletion_blockers: gauge(
                "deletion_blockers",
                "Objects that a removal waits for",
                &["driver", "kind"],
            )?,
            rollout_state: gauge(
                "rollout_state",
                "1 for the state that a rollout of the component is in; none while there is nothing to roll out",
                &["driver", "component", "state"],
            )?,
            nodes: gauge(
                "nodes",
                "Nodes by state: desired (should run the driver), registered (kubelet knows it)",
                &["driver", "state"],
            )?,
            leader: IntGauge::with_opts(Opts::new(
                format!("{PREFIX}_leader"),
                "1 while this process holds the Lease",
            ))?,
            openstack_requests: counter(
                "openstack_requests_total",
                "Calls to OpenStack; code 0 is no answer",
                &["service", "operation", "code"],
            )?,
            openstack_seconds: HistogramVec::new(
                HistogramOpts::new(
                    format!("{PREFIX}_openstack_request_duration_seconds"),
                    "How long OpenStack took to answer",
                )
                .buckets(SECONDS.to_vec()),
                &["service", "operation"],
            )?,
            openstack_tokens: counter("openstack_tokens_total", "Logins to Keystone by result", &["result"])?,
            clouds: CloudMetrics::new()?,
        })
    }

    /// Registers everything.
    pub fn register(&self, registry: &Registry) -> Result<(), Error> {
        self.collectors()
            .into_iter()
            .try_for_each(|collector| registry.register(collector))
    }

    /// Names, labels and help texts, in the order of the reference.
    pub fn descriptions(&self) -> Vec<Desc> {
        let collectors = self.collectors();
        let descriptions = collectors.iter().flat_map(|collector| collector.desc());
        descriptions.cloned().collect()
    }

    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let own: Vec<Box<dyn Collector>> = vec![
            Box::new(self.leader.clone()),
            Box::new(self.reconciles.clone()),
            Box::new(self.reconcile_seconds.clone()),
            Box::new(self.queue_seconds.clone()),
            Box::new(self.reconcile_failures.clone()),
            Box::new(self.conditions.clone()),
            Box::new(self.api_writes.clone()),
            Box::new(self.drift_repaired.clone()),
            Box::new(self.nodes.clone()),
            Box::new(self.deletion_blockers.clone()),
            Box::new(self.rollout_state.clone()),
            Box::new(self.credential_valid.clone()),
            Box::new(self.openstack_requests.clone()),
            Box::new(self.openstack_seconds.clone()),
            Box::new(self.openstack_tokens.clone()),
        ];
        own.into_iter().chain(self.clouds.collectors()).collect()
    }

    /// Changed credentials came into use, by `reload` or `restart`.
    pub fn rotated(&self, driver: &str, method: &str) {
        self.clouds.rotated(driver, method);
    }

    /// What was seen of clouds and volumes.
    pub fn seen(&self, driver: &str, seen: &Seen, now: Timestamp) {
        self.clouds.seen(driver, seen, now);
    }

    /// One reconcile ended.
    pub fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.with_label_values(&[result]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// A reconcile begins for which a change has waited so long.
    pub fn queued(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// How many reconciles of an object have failed in a row.
    pub fn reconcile_failures(&self, driver: &str, failures: u32) {
        self.reconcile_failures
            .with_label_values(&[driver])
            .set(failures.into());
    }

    /// The present status (`True`, `False`, `Unknown`) of one condition.
    pub fn condition(&self, driver: &str, condition: &str, status: &str) {
        for candidate in ["True", "False", "Unknown"] {
            self.conditions
                .with_label_values(&[driver, condition, candidate])
                .set(i64::from(candidate == status));
        }
    }

    /// One write to the Kubernetes API.
    pub fn api_write(&self, kind: &str, verb: &str, ok: bool) {
        self.api_writes
            .with_label_values(&[kind, verb, if ok { "success" } else { "error" }])
            .inc();
    }

    /// An object had been changed by somebody else and was put right.
    pub fn drift_repaired(&self, driver: &str, kind: &str) {
        self.drift_repaired.with_label_values(&[driver, kind]).inc();
    }

    /// Whether the credentials of each cloud that the spec names are good. Those of other clouds are forgotten.
    pub fn credentials(&self, driver: &str, clouds: &[CloudView]) {
        let is_gone = |cloud: Option<&&str>| cloud.is_none_or(|cloud| clouds.iter().all(|one| one.name != **cloud));
        clouds::forget(&self.credential_valid, driver, |labels| is_gone(labels.get("cloud")));
        for cloud in clouds {
            self.credential_valid
                .with_label_values(&[driver, cloud.name.as_str()])
                .set(i64::from(cloud.authenticated));
        }
    }

    /// How many objects of a kind a removal waits for.
    pub fn deletion_blockers(&self, driver: &str, kind: &str, count: usize) {
        self.deletion_blockers
            .with_label_values(&[driver, kind])
            .set(as_gauge(count));
    }

    /// The rollout that is under way, waits or has stopped.
    pub fn rollout(&self, driver: &str, rollout: Option<&RolloutStatus>) {
        for component in ["controller", "node"] {
            for state in ROLLOUT_STATES {
                let is_now = rollout.is_some_and(|now| now.component == component && now.state == state);
                let labels = [driver, component, &format!("{state:?}")];
                if is_now {
                    self.rollout_state.with_label_values(&labels).set(1);
                } else {
                    // Was not there before: fine.
                    let _ = self.rollout_state.remove_label_values(&labels);
                }
            }
        }
    }

    /// Nodes that should run the driver, and those of them that the kubelet registered it on.
    pub fn nodes(&self, driver: &str, desired: usize, registered: usize) {
        self.nodes
            .with_label_values(&[driver, "desired"])
            .set(as_gauge(desired));
        self.nodes
            .with_label_values(&[driver, "registered"])
            .set(as_gauge(registered));
    }

    /// Whether this process leads.
    pub fn leading(&self, leading: bool) {
        self.leader.set(i64::from(leading));
    }

    /// Forgets a driver that is gone, so that no gauge of it is left.
    pub fn forget(&self, driver: &str, conditions: &[&str]) {
        self.clouds.forget(driver);
        self.credentials(driver, &[]);
        // Removing a label set that was never used is an error of no interest.
        let _ = self.reconcile_failures.remove_label_values(&[driver]);
        for condition in conditions {
            for status in ["True", "False", "Unknown"] {
                let _ = self.conditions.remove_label_values(&[driver, condition, status]);
            }
        }
        self.rollout(driver, None);
        for kind in Blockers::KINDS {
            let _ = self.deletion_blockers.remove_label_values(&[driver, kind]);
        }
        for state in ["desired", "registered"] {
            let _ = self.nodes.remove_label_values(&[driver, state]);
        }
    }
}

/// The operator's own calls to OpenStack.
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

fn counter(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
    IntCounterVec::new(Opts::new(format!("{PREFIX}_{name}"), help), labels)
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
    IntGaugeVec::new(Opts::new(format!("{PREFIX}_{name}"), help), labels)
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, TextEncoder};

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
    fn exactly_one_status_of_a_condition_is_set_and_nothing_is_left_of_a_forgotten_driver() {
        let (metrics, registry) = (Metrics::new().expect("metrics"), Registry::new());
        metrics.register(&registry).expect("registered");
        metrics.condition("d", "Available", "Unknown");
        metrics.condition("d", "Available", "True");
        metrics.nodes("d", 3, 2);
        metrics.credentials("d", &[mk_cloud("old"), mk_cloud("default")]);
        metrics.credentials("d", &[mk_cloud("default")]);
        metrics.reconcile_failures("d", 2);
        let shown = text(&registry);
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
        metrics.forget("d", &["Available"]);
        assert!(!text(&registry).contains(r#"driver="d""#));
    }

    #[test]
    fn every_name_has_the_prefix_and_a_help_text() {
        let (metrics, registry) = (Metrics::new().expect("metrics"), Registry::new());
        metrics.register(&registry).expect("registered");
        metrics.reconciled("success", Duration::from_millis(3));
        metrics.api_write("Secret", "patch", true);
        metrics.request("identity", "login", 201, Duration::from_millis(3));
        metrics.token_issued(true);
        let families = registry.gather();
        assert!(families.len() >= 5, "{}", families.len());
        for family in families {
            assert!(family.name().starts_with(PREFIX), "{}", family.name());
            assert!(!family.help().is_empty(), "{}", family.name());
        }
    }
}
