// SPDX-License-Identifier: Apache-2.0

use std::convert::Infallible;

use csi_kit::metrics::{BuildInfo, Metrics};
use futures::FutureExt;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::*;

const METHOD: &str = "/csi.v1.Controller/CreateVolume";

fn metrics() -> (Metrics, DriverMetrics) {
    let build = BuildInfo {
        program: "test",
        version: "0",
        revision: "",
    };
    let registry = Metrics::new(build).expect("a registry");
    let metrics = DriverMetrics::new(&registry, "d").expect("families");
    (registry, metrics)
}

fn counted(registry: &Metrics, code: &str) -> bool {
    let line = format!(
        r#"csi_operations_seconds_count{{driver_name="d",grpc_status_code="{code}",method_name="{METHOD}"}} 1"#
    );
    registry.encode().expect("text").contains(&line)
}

fn request() -> http::Request<()> {
    http::Request::builder().uri(METHOD).body(()).expect("a request")
}

#[allow(clippy::unused_async, reason = "it panics when it is polled, as a handler does")]
async fn broken() -> Result<http::Response<Body>, Infallible> {
    panic!("on purpose")
}

#[tokio::test]
async fn panic_ends_one_call_and_is_counted() {
    let (registry, metrics) = metrics();
    let service = ServiceBuilder::new()
        .layer(RpcLayer::new(metrics, Sources::system()))
        .layer(catch_panic())
        .service(service_fn(|_: http::Request<()>| broken()));
    let answer = service.oneshot(request()).await.expect("an answer");
    let status = Status::from_header_map(answer.headers()).expect("a status");
    assert_eq!(status.code(), Code::Internal);
    assert!(
        !status.message().contains("on purpose"),
        "the text of a panic is for the log"
    );
    assert!(counted(&registry, "Internal"));
}

#[tokio::test]
async fn calls_are_counted_by_status_code() {
    let (registry, metrics) = metrics();
    for status in [None, Some(Status::not_found("gone"))] {
        let service = RpcLayer::new(metrics.clone(), Sources::system()).layer(service_fn(|_: http::Request<()>| {
            let answer = status
                .clone()
                .map_or_else(|| http::Response::new(Body::empty()), Status::into_http);
            async { Ok::<_, Infallible>(answer) }
        }));
        service.oneshot(request()).await.expect("an answer");
    }
    assert!(counted(&registry, "OK") && counted(&registry, "NotFound"));
}

#[tokio::test]
async fn disconnected_call_is_counted_as_cancelled() {
    let (registry, metrics) = metrics();
    let service = RpcLayer::new(metrics, Sources::system()).layer(service_fn(|_: http::Request<()>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    }));
    assert!(service.oneshot(request()).now_or_never().is_none());
    assert!(counted(&registry, "Canceled"));
}

#[tokio::test]
async fn random_numbers_do_not_depend_on_logging() {
    let (_, metrics) = metrics();
    let seeded = || Sources::seeded(7, jiff::Timestamp::UNIX_EPOCH);
    let (sources, expected) = (seeded(), seeded());
    let silent = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let answer = service_fn(|_: http::Request<()>| async { Ok::<_, Infallible>(http::Response::new(Body::empty())) });
    let service = RpcLayer::new(metrics, sources.clone()).layer(answer);
    service.oneshot(request()).await.expect("an answer");
    drop(silent);
    expected.random();
    assert_eq!(sources.random(), expected.random());
}
