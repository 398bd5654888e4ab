// SPDX-License-Identifier: Apache-2.0
//! The session with Keystone.

use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use jiff::Timestamp;
use reqwest::Url;
use serde::Deserialize;
use tokio::sync::{Mutex, RwLock};
use tokio::time::Instant;

use super::body::login_body;
use crate::config::{Auth, CloudConfig};
use crate::error::{CloudError, Failure};
use crate::http::catalog::CatalogEntry;
use crate::http::client::{Http, request_id, retry_after};
use crate::http::fault;
use crate::http::observer::Observer;
use crate::http::options::CloudOptions;
use crate::http::retry::Retry;
use crate::http::throttle::limit_pause;
use crate::timing::{TIMING, time_after};

/// A token and the content of Keystone's response.
pub(crate) struct Token {
    pub(crate) header: HeaderValue,
    pub(crate) generation: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) project_id: String,
    pub(crate) project_name: String,
    pub(crate) user_id: String,
    pub(crate) catalog: Vec<CatalogEntry>,
    /// By the monotonic clock of this machine, from the token's lifetime, so that a wrong wall clock has no effect.
    pub(super) usable_until: Instant,
}

#[derive(Default)]
pub(super) struct TokenState {
    pub(super) token: Option<Arc<Token>>,
    pub(super) renew_at: Option<Instant>,
    pub(super) generation: u64,
    /// Retained when the token is discarded.
    pub(super) project_id: Option<String>,
    /// The last failed login and the time of its failure.
    pub(super) failure: Option<(Instant, CloudError)>,
}

impl TokenState {
    /// The token, unless it has expired.
    pub(super) fn usable_token(&self) -> Option<Arc<Token>> {
        self.token.clone().filter(|token| token.usable_until > Instant::now())
    }
}

/// Logs in with the configured credentials and renews the token. There is one login at a time, whatever the number of
/// callers.
pub(crate) struct Keystone {
    pub(super) url: Url,
    pub(super) auth: Auth,
    pub(super) http: Http,
    pub(super) request_timeout: Duration,
    pub(super) of_request: bool,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) sources: Sources,
    pub(super) state: RwLock<TokenState>,
    pub(super) login: Mutex<()>,
}

impl std::fmt::Debug for Keystone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keystone")
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

impl Keystone {
    pub(crate) fn new(config: &CloudConfig, http: Http, options: &CloudOptions) -> Result<Self, CloudError> {
        Ok(Self {
            url: tokens_url(&config.auth_url)?,
            auth: config.auth.clone(),
            http,
            request_timeout: options.request_timeout,
            of_request: options.credentials_of_request,
            observer: Arc::clone(&options.observer),
            sources: options.sources.clone(),
            state: RwLock::default(),
            login: Mutex::new(()),
        })
    }

    /// Returns a token that remains valid for a while. Logs in when there is no token or when it expires soon. Other
    /// callers use the old token while it works, else they wait for the same login. So a Keystone that does not
    /// answer blocks one of them at most. When a renewal fails, the old token remains in use until it expires. Cancel
    /// safe.
    pub(crate) async fn token(&self) -> Result<Arc<Token>, CloudError> {
        if let Some(token) = self.fresh_token().await {
            return Ok(token);
        }
        let started_at = Instant::now();
        let _login_guard = match self.login.try_lock() {
            Ok(guard) => guard,
            Err(_) => match self.usable_token().await {
                Some(token) => return Ok(token),
                None => self.login.lock().await,
            },
        };
        if let Some(token) = self.fresh_token().await {
            return Ok(token);
        }
        // All callers that waited for a failed login get its error: a login for each of them could lock the account.
        let failure = self.state.read().await.failure.clone();
        if let Some((_, error)) = failure.filter(|(failed_at, _)| *failed_at >= started_at) {
            return Err(error);
        }
        match self.log_in().await {
            Ok(token) => Ok(token),
            Err(error) => {
                let mut state = self.state.write().await;
                if let Some(token) = state.usable_token() {
                    tracing::warn!(%error, "the token could not be renewed; the old one stays in use until it ends");
                    state.renew_at = Some(time_after(Instant::now(), TIMING.token_renewal_retry));
                    Ok(token)
                } else {
                    state.failure = Some((Instant::now(), error.clone()));
                    Err(error)
                }
            }
        }
    }

    /// The project of the last successful login. Sends no request.
    pub(crate) async fn project_id(&self) -> Option<String> {
        let state = self.state.read().await;
        state.project_id.clone()
    }

    /// Discards the token of this generation, which a service rejected. A newer token remains.
    pub(crate) async fn invalidate(&self, generation: u64) {
        let mut state = self.state.write().await;
        if state.token.as_ref().is_some_and(|token| token.generation == generation) {
            state.token = None;
            state.renew_at = None;
        }
    }

    pub(super) async fn fresh_token(&self) -> Option<Arc<Token>> {
        let state = self.state.read().await;
        let due = state.renew_at?;
        (Instant::now() < due).then(|| state.token.clone()).flatten()
    }

    pub(super) async fn usable_token(&self) -> Option<Arc<Token>> {
        self.state.read().await.usable_token()
    }

    pub(super) async fn log_in(&self) -> Result<Arc<Token>, CloudError> {
        let started = Instant::now();
        let mut retry = Retry::within(self.request_timeout, &self.sources);
        loop {
            // A login changes nothing in the cloud, so it may be repeated after any failure.
            let (error, desired) = match self.request_token(started).await {
                Ok(token) => return Ok(token),
                Err(CloudError::Throttled { failure, retry_after }) => {
                    (CloudError::Throttled { failure, retry_after }, retry_after)
                }
                // Another server answers at this address. That does not change within seconds.
                Err(error @ (CloudError::ResponseTooLarge(_) | CloudError::Tls { .. })) => return Err(error),
                Err(error) if error.is_transient() => (error, None),
                Err(error) => return Err(error),
            };
            match retry.next(desired) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(error),
            }
        }
    }

    pub(super) async fn request_token(&self, started: Instant) -> Result<Arc<Token>, CloudError> {
        let started_at = Instant::now();
        let failure = |status: Option<u16>, fault: String, request_id: Option<String>| Failure {
            operation: OPERATION,
            object: format!("Keystone at {}", self.url),
            status,
            fault,
            request_id,
            elapsed: started.elapsed(),
        };
        // The response is used in full and at once. A compressed body would only hide its size.
        let request = http::Request::post(self.url.as_str()).header(ACCEPT_ENCODING, "identity");
        let answer = self.http.send(OPERATION, request, Some(&login_body(&self.auth))).await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.observer.request("identity", OPERATION, code, started_at.elapsed());
        self.observer.token_issued((200..300).contains(&code));
        let answer = answer.map_err(|error| error.into_cloud_error(|fault| failure(None, fault, None)))?;
        let (status, headers, body) = (answer.status(), answer.headers(), answer.body());
        let id = request_id(headers);
        tracing::debug!(
            service = "identity",
            operation = OPERATION,
            status = code,
            openstack_request = id.as_deref(),
            "OpenStack answered"
        );
        if !status.is_success() {
            let pause = limit_pause(retry_after(headers, self.sources.now()));
            return Err(
                match fault::classify(
                    failure(Some(code), fault::text_for(self.of_request, code, body), id),
                    pause,
                ) {
                    // Keystone's own 404 and 403 concern credentials: a deleted credential, an unknown project, a
                    // disabled user.
                    CloudError::Forbidden(failure) => CloudError::Auth(failure),
                    CloudError::NotFound { request_id, .. } if fault::is_service_fault(body) => CloudError::Auth(
                        failure(Some(code), fault::text_for(self.of_request, code, body), request_id),
                    ),
                    CloudError::NotFound { .. } => CloudError::Setup(format!(
                        "there is no Keystone v3 at {}, the answer is HTTP {code}: {}; check auth-url",
                        self.url,
                        fault::text_for(self.of_request, code, body)
                    )),
                    other => other,
                },
            );
        }
        let decode = |reason: String| CloudError::Decode(failure(Some(code), reason, id.clone()));
        let mut header = headers
            .get("x-subject-token")
            .cloned()
            .ok_or_else(|| decode("the answer has no X-Subject-Token".to_owned()))?;
        header.set_sensitive(true);
        let TokenBody { token } =
            serde_json::from_slice(body).map_err(|error| decode(fault::decode_text(self.of_request, &error)))?;
        let life = Duration::try_from(token.expires_at.duration_since(token.issued_at)).unwrap_or_default();
        let mut state = self.state.write().await;
        state.generation = state.generation.wrapping_add(1);
        let token = Arc::new(Token {
            header,
            generation: state.generation,
            expires_at: token.expires_at,
            project_id: token.project.id,
            project_name: token.project.name,
            user_id: token.user.id,
            catalog: token.catalog,
            usable_until: time_after(started_at, life),
        });
        state.renew_at = Some(time_after(started_at, renew_after(life)));
        state.project_id = Some(token.project_id.clone());
        state.token = Some(Arc::clone(&token));
        state.failure = None;
        Ok(token)
    }
}

pub(super) const OPERATION: &str = "token_create";

/// Computes the time after which a token of this lifetime is renewed.
pub(super) fn renew_after(life: Duration) -> Duration {
    life.mul_f64(0.8).max(life.saturating_sub(TIMING.token_renewal))
}

#[derive(Deserialize)]
pub(super) struct TokenBody {
    pub(super) token: TokenDocument,
}

#[derive(Deserialize)]
pub(super) struct TokenDocument {
    pub(super) issued_at: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) user: NamedRef,
    pub(super) project: NamedRef,
    #[serde(default)]
    pub(super) catalog: Vec<CatalogEntry>,
}

#[derive(Deserialize)]
pub(super) struct NamedRef {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
}

pub(super) fn tokens_url(auth_url: &str) -> Result<Url, CloudError> {
    let setup = |reason: String| CloudError::Setup(format!("auth-url {auth_url:?}: {reason}"));
    let mut url = Url::parse(auth_url).map_err(|error| setup(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(setup("it must begin with https:// or http://".to_owned()));
    }
    let last = url
        .path()
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let mut path = url
        .path_segments_mut()
        .map_err(|()| setup("it has no host".to_owned()))?;
    path.pop_if_empty();
    if last == "v2.0" {
        path.pop();
    }
    if last != "v3" {
        path.push("v3");
    }
    path.extend(["auth", "tokens"]);
    drop(path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use rstest::rstest;

    use super::*;
    use crate::http::options::CloudOptions;

    #[tokio::test(start_paused = true)]
    async fn valid_token_is_used_during_hanging_renewal() {
        // A second installation in this process changes nothing.
        drop(rustls::crypto::ring::default_provider().install_default());
        let conf = "[Global]\nauth-url=http://127.0.0.1:9\nuser-id=u\npassword=p\ntenant-id=t\n";
        let config = CloudConfig::from_cloud_conf(conf).expect("good");
        let options = CloudOptions::default();
        let keystone =
            Keystone::new(&config, Http::connect(&config, &options).expect("a client"), &options).expect("good");
        let token = Arc::new(Token {
            header: HeaderValue::from_static("token"),
            generation: 1,
            expires_at: Timestamp::MAX,
            project_id: "t".to_owned(),
            project_name: String::new(),
            user_id: "u".to_owned(),
            catalog: Vec::new(),
            usable_until: Instant::now() + TIMING.token_renewal,
        });
        {
            let mut state = keystone.state.write().await;
            state.renew_at = Some(Instant::now());
            state.token = Some(token);
        }
        let _renewal = keystone.login.lock().await;
        let old = keystone
            .token()
            .now_or_never()
            .expect("waits for nobody")
            .expect("works");
        assert_eq!(old.generation, 1);
        tokio::time::advance(TIMING.token_renewal).await;
        assert!(
            keystone.token().now_or_never().is_none(),
            "it has ended: only a login helps"
        );
    }

    #[rstest]
    #[case("https://keystone.example:5000", "https://keystone.example:5000/v3/auth/tokens")]
    #[case("https://keystone.example:5000/v3", "https://keystone.example:5000/v3/auth/tokens")]
    #[case(
        "https://keystone.example/identity/v3/",
        "https://keystone.example/identity/v3/auth/tokens"
    )]
    #[case(
        "http://keystone.example/identity/v2.0",
        "http://keystone.example/identity/v3/auth/tokens"
    )]
    fn accepts_auth_url_with_or_without_version(#[case] auth_url: &str, #[case] expected: &str) {
        assert_eq!(tokens_url(auth_url).expect("good").as_str(), expected);
    }

    #[rstest]
    #[case("keystone.example:5000")]
    #[case("ftp://keystone.example")]
    #[case("")]
    fn rejects_auth_url_without_http(#[case] auth_url: &str) {
        let error = tokens_url(auth_url).expect_err("refused").to_string();
        assert!(error.contains("auth-url"), "{error}");
    }

    #[rstest]
    #[case(Duration::from_hours(1), Duration::from_mins(55))]
    #[case(Duration::from_mins(10), Duration::from_mins(8))]
    #[case(Duration::ZERO, Duration::ZERO)]
    fn token_renewal_precedes_expiry(#[case] life: Duration, #[case] after: Duration) {
        assert_eq!(renew_after(life), after);
    }
}
