// SPDX-License-Identifier: Apache-2.0
//! Fault rules: requests that fail or are delayed.

use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A rule that selects requests, their number, and an effect. The first rule that matches a request is used.
///
/// ```
/// use openstack_sim::{Fault, Effect, When};
/// let busy = Fault::on("create_volume").times(2).effect(Effect::status(503).retry_after(1));
/// let lost = Fault::on("attach_volume").times(1).effect(Effect::cut(When::After));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Operation name as in the request log, for example `create_volume`; matches any operation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// HTTP method; matches any method if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Regular expression for a part of the path without the query; matches any path if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Number of matching requests to skip first.
    #[serde(default)]
    pub skip: u32,
    /// Number of requests to affect; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    pub effect: Effect,
}

/// Whether a fault occurs before or after the request takes effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// The request has no effect.
    #[default]
    Before,
    /// The request takes effect, only the response is lost.
    After,
}

/// The effect of a fault rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// Responds with this status, in the error format of the service.
    Status {
        /// HTTP status.
        status: u16,
        #[serde(default)]
        when: When,
        /// Value of `Retry-After`, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
        /// Error message; defaults to the service's message for the status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Closes the connection without a response.
    Cut {
        #[serde(default)]
        when: When,
    },
    /// Delays the request.
    Delay {
        /// Duration in milliseconds.
        millis: u64,
        /// Whether the delay is before or after the request takes effect.
        #[serde(default)]
        when: When,
    },
    /// Resets the connection (TCP RST) without a response.
    Reset {
        #[serde(default)]
        when: When,
    },
    /// Sends no response. The connection stays open until the client or the simulator closes it.
    Silence {
        #[serde(default)]
        when: When,
    },
    /// Responds with the HTML page of a gateway; the request has no effect.
    Html {
        /// HTTP status.
        status: u16,
    },
    /// The request takes effect, and the JSON of the response is cut in half. A response without a body is unchanged.
    Truncated,
    /// The call is accepted, and the started work fails. A volume ends in `error` (create), `error_deleting` (delete)
    /// or `error_extending` (extend). An attach is undone, and a detach is rolled back.
    WorkFails {
        /// Text of the user message about the failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

impl Effect {
    /// Responds with this status; the request has no effect.
    pub fn status(status: u16) -> Self {
        Self::Status {
            status,
            when: When::Before,
            retry_after: None,
            message: None,
        }
    }

    /// Responds with this status after the request took effect.
    pub fn status_after(status: u16) -> Self {
        Self::Status {
            status,
            when: When::After,
            retry_after: None,
            message: None,
        }
    }

    /// Closes the connection without a response.
    pub fn cut(when: When) -> Self {
        Self::Cut { when }
    }

    /// Resets the connection without a response.
    pub fn reset(when: When) -> Self {
        Self::Reset { when }
    }

    /// Sends no response.
    pub fn silence(when: When) -> Self {
        Self::Silence { when }
    }

    /// Responds as if the policy forbids the request: 403 with the rule name, for example `volume:create`.
    pub fn policy(rule: &str) -> Self {
        Self::status(403).message(format!("Policy doesn't allow {rule} to be performed."))
    }

    /// Responds as if Cinder's quota is exhausted: 413 with `Retry-After: 0`, and a message that a rate limit does not
    /// have.
    pub fn quota() -> Self {
        let text = "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.";
        Self::status(413).retry_after(0).message(text)
    }

    /// Responds with a rate limit: 413 in the older format of Cinder's own limiter.
    pub fn over_limit(seconds: u64) -> Self {
        Self::status(413)
            .retry_after(seconds)
            .message("This request was rate-limited.")
    }

    /// Responds with the page of a gateway with this status.
    pub fn html(status: u16) -> Self {
        Self::Html { status }
    }

    /// Delays the request before it takes effect.
    pub fn delay(by: Duration) -> Self {
        Self::Delay {
            millis: u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
            when: When::Before,
        }
    }

    /// Lets the work fail that the call started.
    pub fn work_fails() -> Self {
        Self::WorkFails { message: None }
    }

    /// Adds `Retry-After` in seconds to a status; does not change other effects.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        if let Self::Status { retry_after, .. } = &mut self {
            *retry_after = Some(seconds);
        }
        self
    }

    /// Sets the message of a status or of failed work; does not change other effects.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        if let Self::Status { message, .. } | Self::WorkFails { message } = &mut self {
            *message = Some(text.into());
        }
        self
    }
}

impl Fault {
    /// Creates a rule for an operation, by its name in the request log. The default effect is status 500, see
    /// [`Fault::effect`].
    pub fn on(operation: impl Into<String>) -> Self {
        Self {
            operation: Some(operation.into()),
            ..Self::everywhere()
        }
    }

    /// Creates a rule for requests whose path matches this regular expression.
    pub fn on_path(method: Option<&str>, path: impl Into<String>) -> Self {
        Self {
            method: method.map(str::to_owned),
            path: Some(path.into()),
            ..Self::everywhere()
        }
    }

    /// Creates a rule for every request.
    pub fn everywhere() -> Self {
        Self {
            operation: None,
            method: None,
            path: None,
            skip: 0,
            times: None,
            effect: Effect::status(500),
        }
    }

    /// Limits the number of requests.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// Skips this number of requests first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Sets the effect.
    #[must_use]
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }
}

/// A rule was refused.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The path of a rule is not a regular expression.
    #[error("the path `{path}` of the fault is no regular expression")]
    CompilePath { path: String, source: regex::Error },
}

/// The active rules.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<(Fault, Option<Regex>)>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> Result<(), FaultError> {
        let path = match &fault.path {
            Some(path) => Some(Regex::new(path).map_err(|source| FaultError::CompilePath {
                path: path.clone(),
                source,
            })?),
            None => None,
        };
        self.rules.push((fault, path));
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn list(&self) -> Vec<Fault> {
        self.rules.iter().map(|(fault, _)| fault.clone()).collect()
    }

    /// Returns the effect for this request, and counts the request.
    pub(crate) fn meet(&mut self, operation: &str, method: &str, path: &str) -> Option<Effect> {
        let position = self.rules.iter_mut().position(|(fault, pattern)| {
            let matches = fault.operation.as_deref().is_none_or(|name| name == operation)
                && fault
                    .method
                    .as_deref()
                    .is_none_or(|name| name.eq_ignore_ascii_case(method))
                && pattern.as_ref().is_none_or(|pattern| pattern.is_match(path));
            if matches && fault.skip > 0 {
                fault.skip -= 1;
                return false;
            }
            matches
        })?;
        let (fault, _) = &mut self.rules[position];
        let effect = fault.effect.clone();
        if let Some(times) = &mut fault.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.rules.remove(position);
            }
        }
        Some(effect)
    }
}
