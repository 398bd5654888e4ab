// SPDX-License-Identifier: Apache-2.0
//! Processes a request: fault rules, service, log.

use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;
use http::header::DATE;
use http::{HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use jiff::fmt::rfc2822::DateTimePrinter;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::api::{Body, Fault, Reply, Request, Style, default_message};
use crate::cloud::Cloud;
use crate::faults::{Effect, When};
use crate::held::HeldRequest;
use crate::log::LogEntry;
use crate::microversion::{COMPUTE, VOLUME};
use crate::{admin, cinder, keystone, metadata, nova};

/// Maximum body size, above all requests of these APIs.
const LARGEST_BODY: usize = 1 << 20;

/// Default message of failed work.
const NO_BACKEND: &str = "schedule allocate volume:Could not find any available weighted backend.";

/// A request gets no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// The simulator has ended and does not listen.
    #[error("connection refused")]
    Refused,
    /// A fault rule or the end of the simulator closed the connection.
    #[error("connection closed before message completed")]
    Closed,
    /// A fault rule reset the connection.
    #[error("connection reset by peer")]
    Reset,
}

/// A call of one of the services.
#[derive(Debug)]
enum Call {
    Keystone(keystone::Call),
    Cinder(cinder::Call),
    Nova(nova::Call),
}

impl Call {
    fn service(&self) -> &'static str {
        match self {
            Self::Keystone(_) => "keystone",
            Self::Cinder(_) => "cinder",
            Self::Nova(_) => "nova",
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Keystone(call) => call.name(),
            Self::Cinder(call) => call.name(),
            Self::Nova(call) => call.name(),
        }
    }

    fn style(&self) -> Style {
        match self {
            Self::Keystone(_) => Style::Keystone,
            Self::Cinder(_) | Self::Nova(_) => Style::Compute,
        }
    }

    fn asked_version(&self, request: &Request) -> Option<String> {
        match self {
            Self::Keystone(_) => None,
            Self::Cinder(_) => VOLUME.requested_version(request),
            Self::Nova(_) => COMPUTE.requested_version(request),
        }
    }

    fn answer(&self, cloud: &Arc<Cloud>, request: &Request) -> Reply {
        match self {
            Self::Keystone(call) => {
                keystone::answer(cloud, *call, request).unwrap_or_else(|fault| fault.render(Style::Keystone))
            }
            Self::Cinder(call) => cinder::answer(&seen(cloud, request), call, request),
            Self::Nova(call) => nova::answer(&seen(cloud, request), call, request),
        }
    }
}

/// Returns the cloud as read by the API node that received the request.
fn seen(cloud: &Arc<Cloud>, request: &Request) -> Arc<Cloud> {
    if request.lag.is_zero() || request.method != http::Method::GET {
        return Arc::clone(cloud);
    }
    cloud.behind(request.lag)
}

/// Response of a load balancer for an unreachable service.
const GATEWAY_PAGE: &str =
    "<html><head><title>Bad gateway</title></head><body><h1>The server is not available</h1></body></html>";

/// Reads a request from a connection and handles it.
pub(crate) async fn handle(
    cloud: Arc<Cloud>,
    incoming: http::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let (head, body) = incoming.into_parts();
    let answer = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => {
            let request = http::Request::from_parts(head, body.to_bytes());
            answer(&cloud, request, Duration::ZERO).await?
        }
        Err(error) => {
            let fault = Fault::bad_request(format!("The request body cannot be read: {error}"));
            respond(fault.render(Style::Compute))
        }
    };
    Ok(answer.map(Full::new))
}

/// Handles a request on an API node whose database is `lag` behind.
pub(crate) async fn answer(
    cloud: &Arc<Cloud>,
    request: http::Request<Bytes>,
    lag: Duration,
) -> Result<Response<Bytes>, NoAnswer> {
    let mut response = route(cloud, Request::new(request, lag, &cloud.sources)).await?;
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&cloud.sources.now());
    if let Some(date) = date.ok().and_then(|date| HeaderValue::try_from(date).ok()) {
        response.headers_mut().insert(DATE, date);
    }
    Ok(response)
}

async fn route(cloud: &Arc<Cloud>, mut request: Request) -> Result<Response<Bytes>, NoAnswer> {
    let started = Instant::now();
    let path = request.path.clone();
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let call = match segments.as_slice() {
        ["identity", rest @ ..] => Call::Keystone(keystone::Call::route(request.method.as_str(), rest)),
        ["volume", rest @ ..] => Call::Cinder(cinder::Call::route(cloud, &request, rest)),
        ["compute", rest @ ..] => Call::Nova(nova::Call::route(request.method.as_str(), rest)),
        ["elsewhere", ..] => {
            let reply = Fault::new(503, default_message(503)).render(Style::Compute);
            return Ok(respond(reply));
        }
        ["_sim", rest @ ..] => return Ok(respond(admin::answer(cloud, &request, rest))),
        ["metadata", server, rest @ ..] => return Ok(respond(metadata::of_server(cloud, server, rest))),
        _ => return Ok(respond(Fault::not_found(default_message(404)).render(Style::Compute))),
    };
    let effect = cloud.faults().meet(call.name(), request.method.as_str(), &request.path);
    sleep(cloud.latencies().answer).await;
    let reply = apply(cloud, &call, &mut request, effect).await;
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        cloud.saved().await;
        if !matches!(call, Call::Keystone(_)) {
            sleep(cloud.latencies().accept).await;
        }
    }
    cloud.log().push(LogEntry {
        at: cloud.sources.now(),
        service: call.service(),
        method: request.method.to_string(),
        path: request.target.clone(),
        operation: call.name(),
        status: reply.as_ref().map_or(0, |reply| reply.status),
        request_id: request.id.clone(),
        micro_version: call.asked_version(&request),
        user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
        elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    let mut reply = reply?;
    if matches!(reply.body, Body::Html(_)) {
        // A gateway does not know the services' request ids.
        return Ok(respond(reply));
    }
    reply = reply.header("x-openstack-request-id", request.id.clone());
    if !matches!(call, Call::Keystone(_)) {
        reply = reply.header("x-compute-request-id", request.id.clone());
    }
    Ok(respond(reply))
}

/// Handles a call with the effect of its fault rule.
async fn apply(
    cloud: &Arc<Cloud>,
    call: &Call,
    request: &mut Request,
    effect: Option<Effect>,
) -> Result<Reply, NoAnswer> {
    match effect {
        None => Ok(call.answer(cloud, request)),
        Some(Effect::Status {
            status,
            when,
            retry_after,
            message,
        }) => {
            if when == When::After {
                call.answer(cloud, request);
            }
            if status == 401 && message.is_none() && call.style() == Style::Compute {
                return Ok(keystone::unauthorized(cloud));
            }
            let message = message.unwrap_or_else(|| default_message(status).to_owned());
            Ok(Fault {
                status,
                message,
                retry_after,
            }
            .render(call.style()))
        }
        Some(Effect::Cut { when }) => {
            if when == When::After {
                call.answer(cloud, request);
            }
            Err(NoAnswer::Closed)
        }
        Some(Effect::Reset { when }) => {
            if when == When::After {
                call.answer(cloud, request);
            }
            request.reset.set();
            Err(NoAnswer::Reset)
        }
        Some(Effect::Silence { when }) => {
            if when == When::After {
                call.answer(cloud, request);
            }
            cloud.stopped.cancelled().await;
            Err(NoAnswer::Closed)
        }
        Some(Effect::Delay {
            millis,
            when: When::Before,
        }) => {
            let _held = cloud.held.hold(describe_held(call, request, When::Before));
            sleep(Duration::from_millis(millis)).await;
            Ok(call.answer(cloud, request))
        }
        Some(Effect::Delay {
            millis,
            when: When::After,
        }) => {
            let reply = call.answer(cloud, request);
            let _held = cloud.held.hold(describe_held(call, request, When::After));
            sleep(Duration::from_millis(millis)).await;
            Ok(reply)
        }
        Some(Effect::Html { status }) => Ok(Reply {
            status,
            headers: Vec::new(),
            body: Body::Html(GATEWAY_PAGE.to_owned()),
        }),
        Some(Effect::Truncated) => {
            let mut reply = call.answer(cloud, request);
            if let Body::Json(value) = &reply.body {
                let mut text = value.to_string();
                text.truncate(text.floor_char_boundary(text.len() / 2));
                reply.body = Body::Cut(text);
            }
            Ok(reply)
        }
        Some(Effect::WorkFails { message }) => {
            request.work_fails = Some(message.unwrap_or_else(|| NO_BACKEND.to_owned()));
            Ok(call.answer(cloud, request))
        }
    }
}

fn describe_held(call: &Call, request: &Request, when: When) -> HeldRequest {
    HeldRequest {
        method: request.method.to_string(),
        path: request.target.clone(),
        operation: call.name(),
        when,
    }
}

/// Decodes a path before it is split, as WSGI does, so that a segment cannot contain a slash.
fn decoded(path: &str) -> String {
    // A plus sign in a path is not a blank.
    let query = path.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let mut parts = form_urlencoded::parse(query.as_bytes());
    parts.next().map(|(path, _)| path.into_owned()).unwrap_or_default()
}

impl Request {
    fn new(request: http::Request<Bytes>, lag: Duration, sources: &Sources) -> Self {
        let (mut head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        Self {
            method: head.method,
            target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            path: decoded(head.uri.path()),
            query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            headers: head.headers,
            body,
            id: format!("req-{}", sources.uuid()),
            work_fails: None,
            lag,
            // Only requests from a connection have one.
            reset: head.extensions.remove().unwrap_or_default(),
        }
    }
}

fn respond(reply: Reply) -> Response<Bytes> {
    let (kind, bytes) = match reply.body {
        Body::Empty => (None, Bytes::new()),
        Body::Json(value) => (Some("application/json"), Bytes::from(value.to_string())),
        Body::Html(text) => (Some("text/html"), Bytes::from(text)),
        Body::Cut(text) => (Some("application/json"), Bytes::from(text)),
    };
    let mut response = Response::new(bytes);
    *response.status_mut() =
        http::StatusCode::from_u16(reply.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = kind
        .map(|kind| ("content-type", kind.to_owned()))
        .into_iter()
        .chain(reply.headers);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Handles a request to the standalone metadata service, as on the link-local address.
pub(crate) fn answer_metadata(
    document: &serde_json::Value,
    incoming: &http::Request<Incoming>,
) -> Response<Full<Bytes>> {
    let segments: Vec<&str> = incoming
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    respond(metadata::answer(document, &segments)).map(Full::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_decoded_before_it_is_split() {
        for (path, decoded_path) in [
            (
                "/volume/v3/volumes/1/metadata/a%2Fb",
                "/volume/v3/volumes/1/metadata/a/b",
            ),
            ("/a+b/c=d&e/%C3%A9", "/a+b/c=d&e/\u{e9}"),
            ("/", "/"),
        ] {
            assert_eq!(decoded(path), decoded_path);
        }
    }
}
