// SPDX-License-Identifier: Apache-2.0
//! The way of a request from a driver to OpenStack and of its answer back, with what goes wrong on it.

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

use crate::faults::Faults;
use crate::schedule::Schedule;

/// How long a request or answer is on its way where nothing holds it up, at most.
const WAY: Duration = Duration::from_millis(20);

/// The network of one process. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Network {
    process: &'static str,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    schedule: Schedule,
    faults: Mutex<Faults>,
    /// Keystone does not answer.
    keystone_away: Mutex<bool>,
    cloud: SimClient,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    Lost,
    AnswerLost,
    Silence,
    /// Answered with this status, after it had its effect or without one.
    Status {
        status: u16,
        effect: bool,
    },
}

impl Network {
    /// The network of the process of this name.
    pub fn new(schedule: Schedule, cloud: SimClient, faults: Faults) -> Self {
        let shared = Shared {
            schedule,
            faults: Mutex::new(faults),
            keystone_away: Mutex::new(false),
            cloud,
        };
        Self {
            process: "",
            shared: Arc::new(shared),
        }
    }

    /// The same network as another process sees it.
    #[must_use]
    pub fn of(&self, process: &'static str) -> Self {
        Self {
            process,
            shared: self.shared.clone(),
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock() = faults;
    }

    /// What goes wrong now.
    pub fn faults(&self) -> Faults {
        *self.shared.faults.lock()
    }

    /// Takes Keystone away or brings it back.
    pub fn set_keystone_away(&self, away: bool) {
        *self.shared.keystone_away.lock() = away;
    }

    fn fate(&self, request: &Request<Bytes>) -> Fate {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let is_keystone = request.uri().path().starts_with("/identity");
        if is_keystone && *self.shared.keystone_away.lock() {
            return Fate::Status {
                status: 503,
                effect: false,
            };
        }
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD) && !is_keystone;
        let error = schedule.one_of(&[500, 503]);
        let fates = [
            (faults.refused, Fate::Refused),
            (faults.lost, Fate::Lost),
            (faults.answer_lost, Fate::AnswerLost),
            (faults.silence, Fate::Silence),
            (
                faults.throttled,
                Fate::Status {
                    status: 429,
                    effect: false,
                },
            ),
            (
                if changes { faults.conflict } else { 0 },
                Fate::Status {
                    status: 409,
                    effect: false,
                },
            ),
            (
                faults.server_error,
                Fate::Status {
                    status: error,
                    effect: false,
                },
            ),
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

    fn way(&self) -> Duration {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let longest = if schedule.chance(faults.slow) {
            faults.slowest
        } else {
            WAY
        };
        schedule.between(Duration::from_millis(1), longest)
    }

    /// The API node that the request comes to.
    fn node(&self, request: &Request<Bytes>) -> (SimClient, Duration) {
        let (faults, schedule) = (self.faults(), &self.shared.schedule);
        let lag = if *request.method() == Method::GET && schedule.chance(faults.lagging) {
            schedule.between(Duration::ZERO, faults.longest_lag)
        } else {
            Duration::ZERO
        };
        (self.shared.cloud.behind(lag), lag)
    }

    /// The journey of one request. It goes on without its sender.
    async fn exchange(self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let schedule = &self.shared.schedule;
        let fate = self.fate(&request);
        let name = format!("{} {}", request.method(), short(request.uri().path()));
        let error = |sent, reason: &str| SendError {
            sent,
            reason: format!("error sending request: {reason}"),
        };
        if fate == Fate::Refused {
            schedule
                .event(self.way(), || format!("{} {name}: connection refused", self.process))
                .await;
            return Err(error(false, "connection refused"));
        }
        let (way, back) = (self.way(), self.way());
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
            Fate::Status { status, effect: false } => Ok(refusal(status)),
            _ => node.send(request).await,
        };
        let answer = match (fate, answer) {
            (Fate::Status { status, effect: true }, Ok(_)) => Ok(refusal(status)),
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

/// An answer that no service gave.
fn refusal(status: u16) -> Response<Bytes> {
    let body = match status {
        503 => "<html><body><h1>503 Service Unavailable</h1></body></html>".to_owned(),
        409 => json!({"conflictingRequest": {"code": 409, "message": "The resource is being changed."}}).to_string(),
        status => json!({"computeFault": {"code": status, "message": "Something went wrong."}}).to_string(),
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status == 429 {
        let later = http::HeaderValue::from_static("2");
        response.headers_mut().insert(http::header::RETRY_AFTER, later);
    }
    response
}

/// A path without what all of them have: service, version and project.
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

/// The network as one client sees it.
#[derive(Debug)]
struct Line {
    network: Network,
    limit: Duration,
}

impl HttpClient for Line {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        Box::pin(async move {
            // A task of the network: what was sent arrives, whatever becomes of the sender.
            let journey = tokio::spawn(self.network.clone().exchange(request));
            let late = || SendError {
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
