// SPDX-License-Identifier: Apache-2.0
//! Rules that make the cloud misbehave.

use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A rule: which requests it meets, how often, and what happens to them. The first rule that meets a request is used.
///
/// ```
/// use openstack_sim::{Fault, Effect, When};
/// let busy = Fault::on("create_volume").times(2).effect(Effect::status(503).retry_after(1));
/// let lost = Fault::on("attach_volume").times(1).effect(Effect::cut(When::After));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Name of the operation as in the request log, for instance `create_volume`; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// HTTP method; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Regular expression that the path (without the query) contains; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many matching requests pass unharmed first.
    #[serde(default)]
    pub skip: u32,
    /// How many requests it meets; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// What happens to them.
    pub effect: Effect,
}

/// Whether a fault comes before the request took effect or after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Nothing is done.
    #[default]
    Before,
    /// All is done, only the answer is lost.
    After,
}

/// What a fault does to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// An answer with this status, in the format of the service.
    Status {
        /// The HTTP status.
        status: u16,
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
        /// Value of `Retry-After`, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
        /// Text of the fault; the service's own for that status when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The connection ends without an answer.
    Cut {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// The request takes this much longer.
    Delay {
        /// Milliseconds.
        millis: u64,
        /// Whether it waits before it takes effect or after.
        #[serde(default)]
        when: When,
    },
    /// The connection is reset (TCP RST) without an answer.
    Reset {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// No answer comes, and the connection stays open until the client or the simulator gives up.
    Silence {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// A page of a gateway that stands before the service, instead of the request's effect.
    Html {
        /// The HTTP status.
        status: u16,
    },
    /// All is done, and half of the answer's JSON comes. An answer without a body stays whole.
    Truncated,
    /// The call is accepted, and the work that it started fails: a volume ends in `error` (create), `error_deleting`
    /// (delete) or `error_extending` (extend); an attachment is undone (attach), a detachment is rolled back (detach).
    WorkFails {
        /// Text of the user message that tells of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

impl Effect {
    /// An answer with this status instead of the request's effect.
    pub fn status(status: u16) -> Self {
        Self::Status {
            status,
            when: When::Before,
            retry_after: None,
            message: None,
        }
    }

    /// An answer with this status after the request took effect.
    pub fn status_after(status: u16) -> Self {
        Self::Status {
            status,
            when: When::After,
            retry_after: None,
            message: None,
        }
    }

    /// The connection ends without an answer.
    pub fn cut(when: When) -> Self {
        Self::Cut { when }
    }

    /// The connection is reset without an answer.
    pub fn reset(when: When) -> Self {
        Self::Reset { when }
    }

    /// No answer comes.
    pub fn silence(when: When) -> Self {
        Self::Silence { when }
    }

    /// The policy of the service forbids it: 403, with the name of the rule, for instance `volume:create`.
    pub fn policy(rule: &str) -> Self {
        Self::status(403).message(format!("Policy doesn't allow {rule} to be performed."))
    }

    /// Cinder's quota is exhausted: 413 with `Retry-After: 0`, and the text that tells it from a rate limit.
    pub fn quota() -> Self {
        let text = "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.";
        Self::status(413).retry_after(0).message(text)
    }

    /// A rate limit: 413 in the older way, as Cinder's own limiter answers.
    pub fn over_limit(seconds: u64) -> Self {
        Self::status(413)
            .retry_after(seconds)
            .message("This request was rate-limited.")
    }

    /// A page of a gateway with this status.
    pub fn html(status: u16) -> Self {
        Self::Html { status }
    }

    /// The request takes effect this much later.
    pub fn delay(by: Duration) -> Self {
        Self::Delay {
            millis: u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
            when: When::Before,
        }
    }

    /// The work that the call started fails.
    pub fn work_fails() -> Self {
        Self::WorkFails { message: None }
    }

    /// Adds a `Retry-After` of so many seconds to a status; other effects stay as they are.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        if let Self::Status { retry_after, .. } = &mut self {
            *retry_after = Some(seconds);
        }
        self
    }

    /// Sets the text of a status or of failed work; other effects stay as they are.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        if let Self::Status { message, .. } | Self::WorkFails { message } = &mut self {
            *message = Some(text.into());
        }
        self
    }
}

impl Fault {
    /// A rule for an operation, by its name in the request log. Its effect is 500 until [`Fault::effect`] says otherwise.
    pub fn on(operation: impl Into<String>) -> Self {
        Self {
            operation: Some(operation.into()),
            ..Self::everywhere()
        }
    }

    /// A rule for requests whose path contains this regular expression.
    pub fn on_path(method: Option<&str>, path: impl Into<String>) -> Self {
        Self {
            method: method.map(str::to_owned),
            path: Some(path.into()),
            ..Self::everywhere()
        }
    }

    /// A rule for every request.
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

    /// Meets so many requests and then no more.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// Lets so many requests pass first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// What it does.
    #[must_use]
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }
}

/// Why a rule was not taken.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The path of a rule is no regular expression.
    #[error("the path `{path}` of the fault is no regular expression")]
    CompilePath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        source: regex::Error,
    },
}

/// The rules in force.
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

    /// The effect for this request, which counts as met by that.
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
