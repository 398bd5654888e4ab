// SPDX-License-Identifier: Apache-2.0
//! HTTP with Cinder and Nova: session and catalog, microversions, time limits and request ids. Renews the token once
//! after a 401, retries safe requests, and reports each attempt to the observer.

mod message;

use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::time::Instant;

use crate::error::{CloudError, Failure};
use crate::http::auth::{Keystone, Token};
use crate::http::caller_liveness::CallerLiveness;
use crate::http::client::{request_id, retry_after, service_time};
use crate::http::connection::Connection;
use crate::http::observer::Observer;
use crate::http::options::CloudOptions;
use crate::http::retry::Retry;
use crate::http::service::{MicroVersion, Service};
use crate::http::throttle::{Access, NotSent, Throttle, limit_pause};
use crate::http::{catalog, fault};
use crate::last_failure;
use crate::timing::time_after;
pub(crate) use message::{Answer, Request};

/// Adds the probable cause to a 401 for a new token: the access rules of the application credential may not include
/// the request (keystonemiddleware, `validate_allowed_request`). The text of the service does not mention it.
fn explain_rejected_token(failure: Failure, request: &Request<'_>) -> Failure {
    let path = if request.version_root {
        "the address of its version".to_owned()
    } else {
        request.path.join("/")
    };
    let fault = format!(
        "{}; the token is new, so the access rules of the application credential may lack {} {path} of service {}",
        failure.fault,
        request.method,
        request.service.name(),
    );
    Failure { fault, ..failure }
}

/// Sends requests to the services of a cloud.
#[derive(Debug)]
pub(crate) struct Transport {
    connection: RwLock<Arc<Connection>>,
    request_timeout: Duration,
    observer: Arc<dyn Observer>,
    of_request: bool,
    project: Option<String>,
    sources: Sources,
    throttle: Throttle,
}

impl Transport {
    pub(crate) fn new(connection: Connection, options: &CloudOptions) -> Self {
        Self {
            connection: RwLock::new(Arc::new(connection)),
            request_timeout: options.request_timeout,
            observer: Arc::clone(&options.observer),
            of_request: options.credentials_of_request,
            project: options.project.clone(),
            sources: options.sources.clone(),
            throttle: Throttle::new(options.sources.clone()),
        }
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.read())
    }

    pub(crate) fn keystone(&self) -> Arc<Keystone> {
        Arc::clone(self.connection().keystone())
    }

    /// Uses another connection for the next requests and for the next attempt of a request that is retried. Pauses
    /// end, because another endpoint may have requested them.
    pub(crate) fn reconnect(&self, connection: Arc<Connection>) {
        *self.connection.write() = connection;
        self.throttle.resume();
        for service in [Service::BlockStorage, Service::Compute] {
            self.observer().service_paused(service.name(), self.sources.now());
        }
    }

    /// Converts an error for the caller: callers that supplied the credentials learn that the cloud rejected them.
    pub(crate) fn for_caller(&self, error: CloudError) -> CloudError {
        match error {
            CloudError::Auth(failure) if self.of_request => CloudError::Unauthenticated(failure),
            error => error,
        }
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer.as_ref()
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The difference between Cinder's clock and the local clock, from Cinder's last answer. Positive when Cinder is
    /// ahead.
    pub(crate) fn cinder_is_ahead(&self) -> SignedDuration {
        self.throttle.ahead()
    }

    /// The current time by Cinder's clock.
    pub(crate) fn time_of_cinder(&self) -> Timestamp {
        let now = self.sources.now();
        // Returns the local time when the sum exceeds the range of timestamps.
        now.saturating_add(self.cinder_is_ahead()).unwrap_or(now)
    }

    /// Sends a request, with retries within the request time limit. Any request is retried if it certainly did not
    /// reach the service (no connection) or if the service rejected it unread (429). A GET is also retried after a
    /// lost answer or 502, 503 or 504. After a 401, the request is sent once more with a new token. A service that
    /// sends `Retry-After` gets no request of this cloud until then, for at most five minutes.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Answer, CloudError> {
        match self.send_repeatedly(&request).await {
            Ok(answer) => {
                last_failure::answered(request.operation);
                if answer.missing() {
                    last_failure::missed(&request.object, answer.request_id());
                }
                Ok(answer)
            }
            Err(error) => {
                let error = self.for_caller(error);
                last_failure::met(request.operation, &error);
                Err(error)
            }
        }
    }

    /// The project in which the cloud works, if it is fixed.
    pub(crate) fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Checks that the credentials in use lead to [`CloudOptions::project`]. Logs in if the token is missing.
    pub(crate) async fn check_project(&self) -> Result<(), CloudError> {
        if self.project.is_none() {
            return Ok(());
        }
        let token = self.keystone().token().await;
        let token = token.map_err(|error| self.for_caller(error))?;
        self.check_token(&token)
    }

    /// Checks the project of a token. A new token may come from other credentials, or from a project that was
    /// recreated under the same name.
    fn check_token(&self, token: &Token) -> Result<(), CloudError> {
        match &self.project {
            Some(own) if *own != token.project_id => Err(CloudError::OtherProject {
                own: own.clone(),
                found: token.project_id.clone(),
            }),
            _ => Ok(()),
        }
    }

    async fn send_repeatedly(&self, request: &Request<'_>) -> Result<Answer, CloudError> {
        let started = Instant::now();
        let deadline = time_after(started, self.request_timeout);
        let mut retry = Retry::within(self.request_timeout, &self.sources);
        let mut token_renewed = false;
        loop {
            let connection = self.connection();
            let token = connection.keystone().token().await?;
            self.check_token(&token)?;
            let access = if request.method == Method::GET {
                Access::Read
            } else {
                Access::Write
            };
            let slot = self.throttle.acquire(request.service, access, deadline).await;
            let slot = slot.map_err(|reason| not_sent_error(reason, request, started))?;
            if request.creates && !CallerLiveness::is_work_of_task() {
                return Err(unawaited_error(request, started));
            }
            let answer = self.attempt(&connection, request, &token, started).await;
            drop(slot);
            let error = match answer {
                Err(CloudError::Auth(_)) if !token_renewed => {
                    token_renewed = true;
                    connection.keystone().invalidate(token.generation).await;
                    continue;
                }
                Err(CloudError::Auth(failure)) => {
                    return Err(CloudError::Auth(explain_rejected_token(failure, request)));
                }
                Err(error) => error,
                answer => return answer,
            };
            let reading = request.method == Method::GET;
            let pause = match &error {
                CloudError::Unreachable { sent, .. } if reading || !sent => retry.next(None),
                CloudError::Throttled { retry_after, .. } => retry.next(*retry_after),
                CloudError::Server(failure) if reading && matches!(failure.status, Some(502..=504)) => retry.next(None),
                _ => None,
            };
            let Some(pause) = pause else { return Err(error) };
            tracing::debug!(%error, ?pause, "OpenStack request is repeated");
            last_failure::met(request.operation, &error);
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        connection: &Connection,
        request: &Request<'_>,
        token: &Token,
        started: Instant,
    ) -> Result<Answer, CloudError> {
        let mut url = connection.endpoint(request.service, request.path, token).await?;
        if request.version_root {
            url = catalog::version_root(url);
        }
        let failure = |status: Option<u16>, fault: String, request_id: Option<String>| Failure {
            operation: request.operation,
            object: request.object.clone(),
            status,
            fault,
            request_id,
            elapsed: started.elapsed(),
        };
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut http = http::Request::builder()
            .method(request.method.clone())
            .uri(url.as_str())
            .header("x-auth-token", token.header.clone())
            .header("accept", "application/json");
        if let Some(version) = request.version {
            http = http.header(
                "openstack-api-version",
                format!("{} {version}", request.service.version_header()),
            );
        }
        let sent_at = Instant::now();
        let answer = connection
            .http
            .send(request.operation, http, request.body.as_ref())
            .await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let elapsed = sent_at.elapsed();
        self.observer
            .request(request.service.name(), request.operation, code, elapsed);
        let answer = answer.map_err(|error| error.into_cloud_error(|fault| failure(None, fault, None)))?;
        let (head, body) = answer.into_parts();
        let (status, headers) = (head.status, head.headers);
        let id = request_id(&headers);
        tracing::debug!(
            service = request.service.name(),
            operation = request.operation,
            object = request.object,
            status = code,
            openstack_request = id.as_deref(),
            took_ms = elapsed.as_millis(),
            "OpenStack answered"
        );
        if let Some(time) = service_time(&headers).filter(|_| request.service == Service::BlockStorage) {
            self.throttle.set_clock(time);
        }
        let requested_pause = retry_after(&headers, self.sources.now());
        if let Some(pause) = requested_pause.filter(|_| matches!(code, 413 | 429 | 498 | 503)) {
            let id = id.as_deref().unwrap_or("without an id");
            let answer = format!("{} was answered HTTP {code} (request {id})", request.operation);
            if self.throttle.pause(request.service, pause, answer)
                && let Some(pause) = limit_pause(requested_pause)
            {
                let now = self.sources.now();
                let end = now.saturating_add(pause).unwrap_or(now);
                self.observer().service_paused(request.service.name(), end);
            }
        } else {
            self.throttle.note_answer(request.service);
        }
        if status.is_success() && id.is_none() && fault::is_page(&body) {
            // The page comes from another server, so the service has not confirmed any change.
            let fault = format!(
                "a page that is none of the service's: {}",
                fault::text_for(self.of_request, code, &body)
            );
            return Err(CloudError::Decode(failure(Some(code), fault, id)));
        }
        // A service answers 300 to report several versions.
        if status.is_success() || (request.version_root && code == 300) {
            return Ok(Answer {
                body,
                failure: failure(Some(code), String::new(), id),
                of_request: self.of_request,
            });
        }
        let failure = failure(Some(code), fault::text_for(self.of_request, code, &body), id);
        if code == 404 && request.may_be_missing {
            return if fault::is_service_fault(&body) {
                Ok(Answer {
                    body,
                    failure,
                    of_request: self.of_request,
                })
            } else {
                Err(CloudError::Unreachable { failure, sent: true })
            };
        }
        Err(fault::classify(failure, limit_pause(requested_pause)))
    }

    /// The highest microversion of a service; `None` for a service without microversions, or one that the
    /// configuration uses without them. Requested once per connection.
    pub(crate) async fn highest_version(&self, service: Service) -> Result<Option<MicroVersion>, CloudError> {
        let connection = self.connection();
        let Some(cell) = connection.version_cell(service) else {
            return Ok(None);
        };
        cell.get_or_try_init(async || self.discover_version(service).await)
            .await
            .copied()
    }

    /// Requests the highest microversion again and stores a first answer for [`Self::highest_version`].
    pub(crate) async fn ask_version(&self, service: Service) -> Result<Option<MicroVersion>, CloudError> {
        match self.connection().version_cell(service) {
            None => Ok(None),
            Some(cell) => {
                let version = self.discover_version(service).await?;
                // A concurrent request has stored the same version.
                let _ = cell.set(version);
                Ok(version)
            }
        }
    }

    async fn discover_version(&self, service: Service) -> Result<Option<MicroVersion>, CloudError> {
        let mut request = Request::new(service, "version_get", Method::GET, &[], service.name().to_owned());
        request.version_root = true;
        Ok(self.send(request).await?.json::<VersionDocument>()?.highest(service))
    }
}

/// The error of a request that was not sent.
fn not_sent_error(reason: NotSent, request: &Request<'_>, started: Instant) -> CloudError {
    let (fault, retry_after) = match reason {
        NotSent::Probing { answer } => {
            let service = request.service.name();
            let fault =
                format!("not sent: another request finds out whether {service} accepts requests again, after {answer}");
            (fault, None)
        }
        NotSent::Paused { remaining, answer } => {
            let (service, seconds) = (request.service.name(), remaining.as_secs_f64().ceil());
            (
                format!("not asked: {service} wants no request for another {seconds} s, since {answer}"),
                Some(remaining),
            )
        }
        NotSent::Crowded => (
            format!(
                "not sent: too many requests to {} are waiting for an answer",
                request.service.name()
            ),
            None,
        ),
    };
    CloudError::Throttled {
        failure: Failure {
            operation: request.operation,
            object: request.object.clone(),
            status: None,
            fault,
            request_id: None,
            elapsed: started.elapsed(),
        },
        retry_after,
    }
}

fn unawaited_error(request: &Request<'_>, started: Instant) -> CloudError {
    CloudError::Unawaited(Failure {
        operation: request.operation,
        object: request.object.clone(),
        status: None,
        fault: "its caller went away while something else had to end first".to_owned(),
        request_id: None,
        elapsed: started.elapsed(),
    })
}

/// The document of an API version: Cinder sends a list, Nova a single version.
#[derive(Deserialize)]
struct VersionDocument {
    #[serde(default)]
    versions: Vec<Version>,
    #[serde(default)]
    version: Option<Version>,
}

#[derive(Deserialize)]
struct Version {
    id: String,
    #[serde(default)]
    version: String,
}

impl VersionDocument {
    fn highest(self, service: Service) -> Option<MicroVersion> {
        let major = match service {
            Service::BlockStorage => "v3.",
            Service::Compute => "v2.1",
        };
        self.version
            .into_iter()
            .chain(self.versions)
            .find(|version| version.id.starts_with(major))
            .and_then(|version| MicroVersion::parse(&version.version))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        Service::BlockStorage,
        r#"{"versions":[{"id":"v3.0","version":"3.71","min_version":"3.0"}]}"#,
        Some(MicroVersion(3, 71))
    )]
    #[case(
        Service::Compute,
        r#"{"version":{"id":"v2.1","version":"2.90","min_version":"2.1"}}"#,
        Some(MicroVersion(2, 90))
    )]
    #[case(Service::BlockStorage, r#"{"versions":[{"id":"v2.0","version":""}]}"#, None)]
    fn reads_highest_microversion(
        #[case] service: Service,
        #[case] body: &str,
        #[case] expected: Option<MicroVersion>,
    ) {
        let document: VersionDocument = serde_json::from_str(body).expect("json");
        assert_eq!(document.highest(service), expected);
    }

    #[test]
    fn microversions_compare_as_numbers() {
        assert!(MicroVersion(3, 8) < MicroVersion(3, 27));
    }
}
