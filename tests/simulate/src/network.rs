// SPDX-License-Identifier: Apache-2.0
//! Transports requests from a driver to OpenStack and the responses back, with faults.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cinder_cloud::{CloudConfig, CloudError, CloudOptions, Connect, HttpClient, SendError};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use openstack_sim::{NoAnswer, SimClient};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;

use crate::clouds::{ELSEWHERE, HOME};
use crate::faults::Faults;
use crate::outages::{FailureKind, Outage, is_growth};
use crate::schedule::Schedule;

/// Maximum latency of a request or response without faults.
const WAY: Duration = Duration::from_millis(20);

/// The network of one process. Clones share the same network.
#[derive(Debug, Clone)]
pub struct Network {
    process: &'static str,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    schedule: Schedule,
    faults: Mutex<Faults>,
    /// Parts of the cloud that currently fail.
    outages: Mutex<Vec<Outage>>,
    /// Whether logins to the first cloud are redirected to another one.
    is_misled: Mutex<bool>,
    /// Clients by URL.
    clouds: [(&'static str, SimClient); 3],
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    Lost,
    /// The request has no effect, and no response arrives.
    Hangs,
    AnswerLost,
    Silence,
    /// A response with this status; `effect` is whether the request took effect.
    Status {
        status: u16,
        effect: bool,
    },
}

impl Network {
    /// Creates the network of a process.
    pub fn new(schedule: Schedule, clouds: [(&'static str, SimClient); 3], faults: Faults) -> Self {
        let shared = Shared {
            schedule,
            faults: Mutex::new(faults),
            outages: Mutex::default(),
            is_misled: Mutex::default(),
            clouds,
        };
        Self {
            process: "",
            shared: Arc::new(shared),
        }
    }

    /// Returns the same network for another process.
    #[must_use]
    pub fn for_process(&self, process: &'static str) -> Self {
        Self {
            process,
            shared: self.shared.clone(),
        }
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock() = faults;
    }

    /// Returns the current faults.
    pub fn faults(&self) -> Faults {
        *self.shared.faults.lock()
    }

    /// Starts an outage.
    pub fn begin(&self, outage: Outage) {
        self.shared.outages.lock().push(outage);
    }

    /// Ends an outage.
    pub fn end(&self, outage: &Outage) {
        self.shared.outages.lock().retain(|other| other != outage);
    }

    /// Ends all outages.
    pub fn end_all(&self) {
        self.shared.outages.lock().clear();
    }

    /// Sets whether logins to the first cloud are redirected to another one.
    pub fn set_misled(&self, is_misled: bool) {
        *self.shared.is_misled.lock() = is_misled;
    }

    /// Returns the cloud that a request reaches.
    fn cloud(&self, request: &Request<Bytes>) -> &SimClient {
        let uri = request.uri();
        let host = uri.host().unwrap_or_default();
        let clouds = &self.shared.clouds;
        let by_address = |address: &str| clouds.iter().find(|(known, _)| *known == address);
        // The driver cannot check the project of credentials from a class.
        let is_password = request.body().windows(16).all(|part| part != b"application_cred");
        let is_misled = *self.shared.is_misled.lock() && is_keystone(request) && is_password && HOME.ends_with(host);
        let target = if is_misled {
            by_address(ELSEWHERE)
        } else {
            clouds.iter().find(|(address, _)| address.ends_with(host))
        };
        target.map_or(&clouds[0].1, |(_, client)| client)
    }

    fn outage(&self, request: &Request<Bytes>) -> Option<FailureKind> {
        let outages = self.shared.outages.lock();
        outages
            .iter()
            .find(|outage| outage.meets(request))
            .map(|outage| outage.manner)
    }

    fn fate(&self, request: &Request<Bytes>) -> Fate {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let refusal = |status| Fate::Status { status, effect: false };
        match self.outage(request) {
            Some(FailureKind::Refused) => return Fate::Refused,
            Some(FailureKind::Unavailable) => return refusal(503),
            Some(FailureKind::Hangs) => return Fate::Hangs,
            Some(FailureKind::Quota) => return refusal(413),
            Some(FailureKind::Policy) => return refusal(403),
            None => {}
        }
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD) && !is_keystone(request);
        let grows = is_growth(request);
        let error = schedule.one_of(&[500, 503]);
        let fates = [
            (faults.refused, Fate::Refused),
            (faults.lost, Fate::Lost),
            (faults.answer_lost, Fate::AnswerLost),
            (faults.silence, Fate::Silence),
            (faults.throttled, refusal(429)),
            (if changes { faults.conflict } else { 0 }, refusal(409)),
            (if grows { faults.quota } else { 0 }, refusal(413)),
            (if changes { faults.policy } else { 0 }, refusal(403)),
            (if grows { faults.invalid } else { 0 }, refusal(400)),
            (faults.server_error, refusal(error)),
            (
                faults.false_error,
                Fate::Status {
                    status: error,
                    effect: true,
                },
            ),
        ];
        let mut draw = schedule.below(1_000);
        for (chance, fate) in fates {
            if draw < chance {
                return fate;
            }
            draw -= chance;
        }
        Fate::Answered
    }

    fn draw_latency(&self) -> Duration {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let longest = if schedule.chance(faults.slow) {
            faults.slowest
        } else {
            WAY
        };
        schedule.between(Duration::from_millis(1), longest)
    }

    /// Returns the API node that receives a request, and its lag.
    fn node(&self, request: &Request<Bytes>) -> (SimClient, Duration) {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let lag = if !is_keystone(request) && schedule.chance(faults.lagging) {
            schedule.between(Duration::ZERO, faults.longest_lag)
        } else {
            Duration::ZERO
        };
        (self.cloud(request).behind(lag), lag)
    }

    /// Transports one request. It arrives even if the sender has ended.
    async fn exchange(self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let schedule = &self.shared.schedule;
        let fate = self.fate(&request);
        let name = format!("{} {}", request.method(), short(request.uri().path()));
        let error = |sent, reason: &str| SendError::NoAnswer {
            sent,
            reason: format!("error sending request: {reason}"),
        };
        if fate == Fate::Refused {
            schedule
                .event(self.draw_latency(), || {
                    format!("{} {name}: connection refused", self.process)
                })
                .await;
            return Err(error(false, "connection refused"));
        }
        let (way, back) = (self.draw_latency(), self.draw_latency());
        let (node, lag) = self.node(&request);
        let behind = if lag.is_zero() {
            String::new()
        } else {
            format!(" by the node {} ms behind", lag.as_millis())
        };
        let query = request
            .uri()
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        schedule
            .event(way, || format!("{} → {name}{query}{behind}", self.process))
            .await;
        let answer = match fate {
            Fate::Lost => Err(NoAnswer::Reset),
            Fate::Hangs => return std::future::pending().await,
            Fate::Status { status, effect: false } => Ok(answer_of(status)),
            _ => send(&node, lag, request).await,
        };
        let answer = match (fate, answer) {
            (Fate::Status { status, effect: true }, Ok(_)) => Ok(answer_of(status)),
            (_, answer) => answer,
        };
        let outcome = match (&answer, fate) {
            (_, Fate::AnswerLost) => "answer lost".to_owned(),
            (_, Fate::Silence) => "no answer".to_owned(),
            (Ok(answer), _) => answer.status().as_u16().to_string(),
            (Err(reason), _) => reason.to_string(),
        };
        schedule
            .event(back, || format!("{} ← {name}: {outcome}", self.process))
            .await;
        match (answer, fate) {
            (_, Fate::AnswerLost) => Err(error(true, "connection closed before message completed")),
            (_, Fate::Silence) => std::future::pending().await,
            (Ok(answer), _) => Ok(answer),
            (Err(reason), _) => Err(error(reason != NoAnswer::Refused, &reason.to_string())),
        }
    }
}

/// Sends a request to an API node. If its database lags, the node does not find newer resources, and responds with 404
/// before the request takes effect.
async fn send(node: &SimClient, lag: Duration, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
    if let Some(lookup) = lookup(&request).filter(|_| !lag.is_zero()) {
        let existing = node.send(lookup).await?;
        if existing.status() == StatusCode::NOT_FOUND {
            return Ok(existing);
        }
    }
    node.send(request).await
}

/// Returns the query for the resource that a request changes, as the API node sends it to its own database.
fn lookup(request: &Request<Bytes>) -> Option<Request<Bytes>> {
    if matches!(*request.method(), Method::GET | Method::HEAD) || is_keystone(request) {
        return None;
    }
    let path = request.uri().path();
    let resource = path.strip_suffix("/action").unwrap_or(path);
    let is_collection = [
        "volumes",
        "snapshots",
        "backups",
        "groups",
        "group_snapshots",
        "os-volume_attachments",
    ]
    .iter()
    .any(|name| resource.rsplit('/').next() == Some(name));
    let resource = match resource.strip_suffix("/os-volume_attachments") {
        Some(server) => server,
        None if is_collection => return None,
        None => resource,
    };
    let mut lookup = Request::builder().uri(resource);
    for (name, value) in request.headers() {
        lookup = lookup.header(name, value);
    }
    lookup.body(Bytes::new()).ok()
}

fn is_keystone(request: &Request<Bytes>) -> bool {
    request.uri().path().starts_with("/identity")
}

/// Returns the response of the service or a gateway to a request without effect.
fn answer_of(status: u16) -> Response<Bytes> {
    let fault = |name: &str, message: &str| json!({name: {"code": status, "message": message}}).to_string();
    let body = match status {
        503 => "<html><body><h1>503 Service Unavailable</h1></body></html>".to_owned(),
        400 => fault("badRequest", "Invalid input received."),
        403 => fault("forbidden", "Policy doesn't allow the action to be performed."),
        409 => fault("conflictingRequest", "The resource is being changed."),
        413 => fault(
            "overLimit",
            "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.",
        ),
        _ => fault("computeFault", "Something went wrong."),
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry_after = match status {
        429 => Some("2"),
        // Cinder's quota error has this value, unlike a rate limit.
        413 => Some("0"),
        _ => None,
    };
    if let Some(seconds) = retry_after {
        let seconds = http::HeaderValue::from_static(seconds);
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds);
    }
    response
}

/// Removes the parts that all paths share: service, version and project.
fn short(path: &str) -> &str {
    if let Some(rest) = path.strip_prefix("/volume/v3/") {
        return rest.split_once('/').map_or(rest, |(_, rest)| rest);
    }
    path.strip_prefix("/compute/v2.1/").unwrap_or(path)
}

impl Connect for Network {
    fn connect(&self, _: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(Line {
            network: self.clone(),
            limit: options.request_timeout,
        }))
    }
}

/// The HTTP client of one process.
#[derive(Debug)]
struct Line {
    network: Network,
    limit: Duration,
}

impl HttpClient for Line {
    fn send(&self, request: Request<Bytes>, _limit: usize) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        Box::pin(async move {
            // A task of the network, so that a sent request arrives even if the sender ends.
            let journey = tokio::spawn(self.network.clone().exchange(request));
            let late = || SendError::NoAnswer {
                sent: true,
                reason: "error sending request: operation timed out".to_owned(),
            };
            match timeout(self.limit, journey).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) | Err(_) => Err(late()),
            }
        })
    }
}
