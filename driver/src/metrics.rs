//! The driver's metrics: RPCs under the sidecars' convention, OpenStack requests under the Go driver's names, and what it
//! has none for. Labels come from closed sets; no object is ever named in one.

use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::Observer;
use csi_kit::metrics::{Metrics, MetricsError};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use tonic::Code;

/// As in csi-lib-utils, so that one dashboard shows sidecars and driver.
const RPC_BUCKETS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
];
/// From 50 ms to 25.6 s, doubling.
const API_BUCKETS: [f64; 10] = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6];
/// Methods that nobody serves are one value of the label, whatever they are called.
const UNKNOWN_METHOD: &str = "unknown";

/// All families of the driver. Cheap to clone; clones count together.
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
}

impl DriverMetrics {
    /// Registers the families in the process's registry.
    pub fn new(metrics: &Metrics, driver_name: &str) -> Result<Self, MetricsError> {
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels).map_err(
                |source| MetricsError::Register {
                    name: name.to_owned(),
                    source,
                },
            )?;
            metrics.register(family.clone()).map(|()| family)
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let family =
                IntCounterVec::new(Opts::new(name, help), labels).map_err(|source| MetricsError::Register {
                    name: name.to_owned(),
                    source,
                })?;
            metrics.register(family.clone()).map(|()| family)
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
                    "Answers of OpenStack by service and HTTP status; 0 stands for no answer.",
                    &["service", "request", "code"],
                )?,
                waits: histogram(
                    "cinder_csi_wait_seconds",
                    "Time from the first accepted request until OpenStack had finished.",
                    &["operation"],
                    &RPC_BUCKETS,
                )?,
                polls: counter(
                    "cinder_csi_wait_polls_total",
                    "Looks at volumes that were waited for, shared ones counted for each.",
                    &["operation"],
                )?,
                tokens: counter(
                    "cinder_csi_token_requests_total",
                    "Tokens asked of Keystone.",
                    &["result"],
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
}

impl Observer for DriverMetrics {
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
            .with_label_values(&[service, operation, &code.to_string()])
            .inc();
    }

    fn token_issued(&self, ok: bool) {
        self.families
            .tokens
            .with_label_values(&[if ok { "issued" } else { "refused" }])
            .inc();
    }

    fn wait_finished(&self, operation: &'static str, waited: Duration, polls: u32) {
        self.families
            .waits
            .with_label_values(&[operation])
            .observe(waited.as_secs_f64());
        self.families.polls.with_label_values(&[operation]).inc_by(polls.into());
    }
}

/// The names that Go's gRPC library and so the sidecars use.
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

    fn text(use_it: impl FnOnce(&DriverMetrics)) -> String {
        let build = BuildInfo {
            program: "cinder_csi_driver",
            version: "0.0.0",
            revision: "",
        };
        let registry = Metrics::new(build).expect("a registry");
        let metrics = DriverMetrics::new(&registry, "d").expect("families");
        use_it(&metrics);
        registry.encode().expect("text")
    }

    #[test]
    fn an_rpc_is_counted_under_the_sidecars_names() {
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
    fn methods_that_nobody_serves_share_one_label() {
        let text = text(|metrics| {
            metrics.rpc_finished("/evil/1", Code::Unimplemented, Duration::ZERO);
            metrics.rpc_finished("/csi.v1.Evil/2", Code::Unimplemented, Duration::ZERO);
        });
        assert!(!text.to_lowercase().contains("evil"), "{text}");
        assert!(text.contains(r#"method_name="unknown"} 2"#), "{text}");
    }

    #[test]
    fn requests_are_counted_under_the_go_drivers_names_and_a_404_is_no_error() {
        let text = text(|metrics| {
            metrics.request("block-storage", "volume_get", 404, Duration::from_millis(1));
            metrics.request("block-storage", "volume_get", 0, Duration::from_millis(1));
        });
        for line in [
            r#"openstack_api_requests_total{request="volume_get"} 2"#,
            r#"openstack_api_request_errors_total{request="volume_get"} 1"#,
            r#"openstack_api_request_duration_seconds_count{request="volume_get"} 2"#,
            r#"openstack_api_answers_total{code="0",request="volume_get",service="block-storage"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
