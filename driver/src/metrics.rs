// SPDX-License-Identifier: Apache-2.0
//! The driver's metrics.
//!
//! RPCs follow the convention of the sidecars, and OpenStack requests have the Go driver's names. All other metrics are
//! the driver's own. Label values come from closed sets and never identify an object.

use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::Observer;
use csi_host::device::Holders;
use csi_kit::metrics::{Metrics, MetricsError};
use jiff::Timestamp;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, PullingGauge};
use tonic::Code;

use crate::operations::Operations;

/// The same buckets as in csi-lib-utils, so that one dashboard shows sidecars and driver.
const RPC_BUCKETS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
];
/// From 50 ms to 25.6 s, doubling.
const API_BUCKETS: [f64; 10] = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6];
/// The label value of the cloud without a name.
const DEFAULT_CLOUD: &str = "default";
/// The label value of all unknown methods, which keeps the set of values closed.
const UNKNOWN_METHOD: &str = "unknown";

/// All metric families of the driver. Cheap to clone; clones share the values.
#[derive(Debug, Clone)]
pub struct DriverMetrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    driver_name: String,
    rpcs: HistogramVec,
    api_durations: HistogramVec,
    api_requests: IntCounterVec,
    api_errors: IntCounterVec,
    api_answers: IntCounterVec,
    waits: HistogramVec,
    polls: IntCounterVec,
    tokens: IntCounterVec,
    queues: IntGaugeVec,
    pauses: IntGaugeVec,
    unstaged_in_use: IntCounterVec,
}

impl DriverMetrics {
    /// Registers the metric families.
    pub fn new(metrics: &Metrics, driver_name: &str) -> Result<Self, MetricsError> {
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            metrics.registered(HistogramVec::new(options, labels))
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            metrics.registered(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            metrics.registered(IntGaugeVec::new(Opts::new(name, help), labels))
        };
        Ok(Self {
            families: Arc::new(Families {
                driver_name: driver_name.to_owned(),
                rpcs: histogram(
                    "csi_operations_seconds",
                    "Time of CSI calls, by method and gRPC status code.",
                    &["driver_name", "method_name", "grpc_status_code"],
                    &RPC_BUCKETS,
                )?,
                api_durations: histogram(
                    "openstack_api_request_duration_seconds",
                    "Time of requests to OpenStack.",
                    &["request"],
                    &API_BUCKETS,
                )?,
                api_requests: counter("openstack_api_requests_total", "Requests to OpenStack.", &["request"])?,
                api_errors: counter(
                    "openstack_api_request_errors_total",
                    "Requests to OpenStack that failed; 404 is an answer and no failure.",
                    &["request"],
                )?,
                api_answers: counter(
                    "openstack_api_answers_total",
                    "Answers of OpenStack by cloud, service, request and HTTP status; 0 stands for no answer.",
                    &["cloud", "service", "request", "code"],
                )?,
                waits: histogram(
                    "cinder_csi_wait_seconds",
                    "Time from the first accepted request until OpenStack had finished.",
                    &["cloud", "operation"],
                    &RPC_BUCKETS,
                )?,
                polls: counter(
                    "cinder_csi_wait_polls_total",
                    "Looks at objects that were waited for, shared ones counted for each.",
                    &["cloud", "operation"],
                )?,
                tokens: counter(
                    "cinder_csi_token_requests_total",
                    "Tokens asked of Keystone.",
                    &["cloud", "result"],
                )?,
                queues: gauge(
                    "cinder_csi_queue_depth",
                    "Who waits now: for what OpenStack has accepted (wait), for a turn at a server (attach, detach).",
                    &["cloud", "queue"],
                )?,
                pauses: gauge(
                    "cinder_csi_pause_end_timestamp_seconds",
                    "Unix time until which the driver sends no requests to a service, which has asked for it; in the past without a pause.",
                    &["cloud", "service"],
                )?,
                unstaged_in_use: counter(
                    "cinder_csi_unstaged_in_use_total",
                    "Volumes that were unstaged while something else on the node had their device in use.",
                    &["holder"],
                )?,
            }),
        })
    }

    /// Counts one finished RPC. `method` is the path of the request, such as `/csi.v1.Identity/Probe`.
    pub fn rpc_finished(&self, method: &str, code: Code, elapsed: Duration) {
        let served = method.starts_with("/csi.v1.") && code != Code::Unimplemented;
        let method = if served { method } else { UNKNOWN_METHOD };
        let labels = [self.families.driver_name.as_str(), method, code_name(code)];
        self.families
            .rpcs
            .with_label_values(&labels)
            .observe(elapsed.as_secs_f64());
    }

    /// Counts a volume that was unstaged although its device remained in use.
    pub fn unstaged_in_use(&self, holders: &Holders) {
        let labels = [holders.kind()];
        self.families.unstaged_in_use.with_label_values(&labels).inc();
    }
}

/// Returns the label value of a configured cloud.
pub(crate) fn cloud_label(name: &str) -> &str {
    if name.is_empty() { DEFAULT_CLOUD } else { name }
}

/// The metrics of the requests to one cloud.
#[derive(Debug, Clone)]
pub struct CloudMetrics {
    families: Arc<Families>,
    cloud: String,
}

impl DriverMetrics {
    /// Returns the metrics of one configured cloud. The label value of the unnamed cloud is `default`.
    pub fn of_cloud(&self, name: &str) -> CloudMetrics {
        CloudMetrics {
            families: self.families.clone(),
            cloud: cloud_label(name).to_owned(),
        }
    }

    /// Registers a gauge of the running operations, which is computed at each scrape.
    pub fn watch_operations(metrics: &Metrics, operations: &Operations) -> Result<(), MetricsError> {
        let operations = operations.clone();
        let running = PullingGauge::new(
            "cinder_csi_operations_running",
            "Operations that run now, with or without a call that waits.",
            Box::new(move || operations.running() as f64),
        );
        metrics.registered(running).map(drop)
    }
}

impl Observer for CloudMetrics {
    fn request(&self, service: &'static str, operation: &'static str, code: u16, elapsed: Duration) {
        let families = &self.families;
        families
            .api_durations
            .with_label_values(&[operation])
            .observe(elapsed.as_secs_f64());
        families.api_requests.with_label_values(&[operation]).inc();
        if code == 0 || (code >= 400 && code != 404) {
            families.api_errors.with_label_values(&[operation]).inc();
        }
        families
            .api_answers
            .with_label_values(&[self.cloud.as_str(), service, operation, &code.to_string()])
            .inc();
    }

    fn token_issued(&self, ok: bool) {
        let result = if ok { "issued" } else { "refused" };
        self.families
            .tokens
            .with_label_values(&[self.cloud.as_str(), result])
            .inc();
    }

    fn wait_finished(&self, operation: &'static str, waited: Duration, polls: u32) {
        let labels = [self.cloud.as_str(), operation];
        self.families
            .waits
            .with_label_values(&labels)
            .observe(waited.as_secs_f64());
        self.families.polls.with_label_values(&labels).inc_by(polls.into());
    }

    fn queue_changed(&self, queue: &'static str, change: i8) {
        self.families
            .queues
            .with_label_values(&[self.cloud.as_str(), queue])
            .add(change.into());
    }

    fn service_paused(&self, service: &'static str, end: Timestamp) {
        self.families
            .pauses
            .with_label_values(&[self.cloud.as_str(), service])
            .set(end.as_second());
    }
}

/// Returns the name of a code in Go's gRPC library, which the sidecars use.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use csi_kit::metrics::BuildInfo;

    use super::*;

    fn registered() -> (Metrics, DriverMetrics) {
        let build = BuildInfo {
            program: "cinder_csi_driver",
            version: "0.0.0",
            revision: "",
        };
        let registry = Metrics::new(build).expect("a registry");
        let metrics = DriverMetrics::new(&registry, "d").expect("families");
        (registry, metrics)
    }

    fn text(use_it: impl FnOnce(&DriverMetrics)) -> String {
        let (registry, metrics) = registered();
        use_it(&metrics);
        registry.encode().expect("text")
    }

    #[test]
    fn metric_names_and_labels_are_stable() {
        let (registry, metrics) = registered();
        DriverMetrics::watch_operations(&registry, &Operations::new(crate::operations::Limits::default()))
            .expect("a family");
        metrics.rpc_finished("/csi.v1.Identity/Probe", Code::Ok, Duration::ZERO);
        metrics.unstaged_in_use(&Holders::default());
        let cloud = metrics.of_cloud("");
        cloud.request("cinder", "volume_get", 200, Duration::ZERO);
        cloud.request("cinder", "volume_get", 0, Duration::ZERO);
        cloud.token_issued(true);
        cloud.queue_changed("wait", 1);
        cloud.service_paused("compute", Timestamp::UNIX_EPOCH);
        cloud.wait_finished("create", Duration::ZERO, 1);
        let text = registry.encode().expect("text");
        // The first sample of each family, without buckets and sums.
        let names = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, _) = line.rsplit_once(' ').unwrap_or((line, ""));
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            let labels = labels
                .trim_end_matches('}')
                .split(',')
                .filter_map(|label| Some(label.split_once('=')?.0));
            let labels: Vec<&str> = labels.filter(|label| *label != "le").collect();
            format!("{name} {}", labels.join(" "))
        });
        let names: std::collections::BTreeSet<String> = names.filter(|name| !name.starts_with("process_")).collect();
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            [
                "cinder_csi_driver_build_info revision version",
                "cinder_csi_operations_running ",
                "cinder_csi_pause_end_timestamp_seconds cloud service",
                "cinder_csi_queue_depth cloud queue",
                "cinder_csi_token_requests_total cloud result",
                "cinder_csi_unstaged_in_use_total holder",
                "cinder_csi_wait_polls_total cloud operation",
                "cinder_csi_wait_seconds cloud operation",
                "csi_operations_seconds driver_name grpc_status_code method_name",
                "openstack_api_answers_total cloud code request service",
                "openstack_api_request_duration_seconds request",
                "openstack_api_request_errors_total request",
                "openstack_api_requests_total request",
            ]
        );
    }

    #[test]
    fn rpcs_are_counted_under_sidecar_names() {
        let text = text(|metrics| {
            metrics.rpc_finished(
                "/csi.v1.Controller/CreateVolume",
                Code::Aborted,
                Duration::from_millis(70),
            );
        });
        let line = r#"csi_operations_seconds_bucket{driver_name="d",grpc_status_code="Aborted",method_name="/csi.v1.Controller/CreateVolume",le="0.1"} 1"#;
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn unknown_methods_share_one_label() {
        let text = text(|metrics| {
            metrics.rpc_finished("/evil/1", Code::Unimplemented, Duration::ZERO);
            metrics.rpc_finished("/csi.v1.Evil/2", Code::Unimplemented, Duration::ZERO);
        });
        assert!(!text.to_lowercase().contains("evil"), "{text}");
        assert!(text.contains(r#"method_name="unknown"} 2"#), "{text}");
    }

    #[test]
    fn request_metrics_match_go_driver_issue_913() {
        let text = text(|metrics| {
            let cloud = metrics.of_cloud("");
            cloud.request("block-storage", "volume_get", 404, Duration::from_millis(1));
            cloud.request("block-storage", "volume_get", 0, Duration::from_millis(1));
        });
        for line in [
            r#"openstack_api_requests_total{request="volume_get"} 2"#,
            r#"openstack_api_request_errors_total{request="volume_get"} 1"#,
            r#"openstack_api_request_duration_seconds_count{request="volume_get"} 2"#,
            r#"openstack_api_answers_total{cloud="default",code="0",request="volume_get",service="block-storage"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }

    #[test]
    fn requests_are_counted_per_cloud() {
        let text = text(|metrics| {
            let (one, other) = (metrics.of_cloud("east"), metrics.of_cloud("west"));
            one.request("compute", "server_get", 200, Duration::ZERO);
            other.token_issued(false);
            other.wait_finished("attach", Duration::from_secs(1), 3);
            one.queue_changed("wait", 1);
            one.queue_changed("wait", 1);
            one.queue_changed("wait", -1);
        });
        for line in [
            r#"openstack_api_answers_total{cloud="east",code="200",request="server_get",service="compute"} 1"#,
            r#"cinder_csi_token_requests_total{cloud="west",result="refused"} 1"#,
            r#"cinder_csi_wait_seconds_count{cloud="west",operation="attach"} 1"#,
            r#"cinder_csi_wait_polls_total{cloud="west",operation="attach"} 3"#,
            r#"cinder_csi_queue_depth{cloud="east",queue="wait"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
