// SPDX-License-Identifier: Apache-2.0
//! Requests, responses and faults as the services process them.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::listener::Reset;

/// A request with its complete body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path and query, undecoded.
    pub(crate) target: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Request id of the response.
    pub(crate) id: String,
    /// If a fault rule lets the started work fail: the message for the user.
    pub(crate) work_fails: Option<String>,
    /// Replication lag of the API node's database.
    pub(crate) lag: Duration,
    /// Closes the connection with a reset.
    pub(crate) reset: Reset,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Decodes the object under `key` of the body, which is required.
    pub(crate) fn object<T: DeserializeOwned>(&self, key: &str) -> Result<T, Fault> {
        let mut body: Value =
            serde_json::from_slice(&self.body).map_err(|_| Fault::bad_request("Malformed request body"))?;
        let inner = body.get_mut(key).map(Value::take).ok_or_else(|| {
            Fault::bad_request(format!(
                "Invalid input for field/attribute {key}. '{key}' is a required property"
            ))
        })?;
        serde_json::from_value(inner)
            .map_err(|error| Fault::bad_request(format!("Invalid input for field/attribute {key}. {error}")))
    }

    /// Decodes the object under `key` of the body, if present.
    pub(crate) fn optional_object<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Fault> {
        let body: Value =
            serde_json::from_slice(&self.body).map_err(|_| Fault::bad_request("Malformed request body"))?;
        if body.get(key).is_none_or(Value::is_null) {
            return Ok(None);
        }
        self.object(key).map(Some)
    }

    /// Returns the only key of a body such as `{"os-extend": {…}}`.
    pub(crate) fn action(&self) -> Option<String> {
        let body: serde_json::Map<String, Value> = serde_json::from_slice(&self.body).ok()?;
        if body.len() == 1 {
            body.into_iter().next().map(|(name, _)| name)
        } else {
            None
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

/// Body of a response.
#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    Json(Value),
    Html(String),
    /// Truncated JSON.
    Cut(String),
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Json(body),
        }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Empty,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) retry_after: Option<u64>,
}

impl Fault {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    /// Returns Nova's generic error; `class` is the name of the Python exception.
    pub(crate) fn unexpected(class: &str) -> Self {
        Self::new(
            500,
            format!(
                "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and attach the Nova API log \
                 if possible.\n<class '{class}'>"
            ),
        )
    }

    /// Returns the error for an action that the policy forbids to the user.
    pub(crate) fn forbidden(action: &str) -> Self {
        Self::new(403, format!("Policy doesn't allow {action} to be performed."))
    }

    /// Returns Cinder's error for an exhausted quota. Unlike other errors, its message contains the name of the
    /// exception.
    pub(crate) fn over_quota(exception: &str, message: &str) -> Self {
        Self {
            status: 413,
            message: format!("{exception}: {message}"),
            retry_after: Some(0),
        }
    }
}

/// The error format of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `{"error": {"code", "message", "title"}}`
    Keystone,
    /// `{"itemNotFound": {"code", "message"}}`
    Compute,
}

impl Fault {
    pub(crate) fn render(&self, style: Style) -> Reply {
        let body = match style {
            Style::Keystone => {
                json!({"error": {"code": self.status, "message": self.message, "title": reason(self.status)}})
            }
            Style::Compute => {
                let mut fault = json!({"code": self.status, "message": self.message});
                if let (413, Some(seconds)) = (self.status, self.retry_after) {
                    fault["retryAfter"] = json!(seconds.to_string());
                }
                json!({fault_name(self.status): fault})
            }
        };
        let reply = match self.status {
            // A gateway in front of the services generates these, and does not use JSON.
            502 | 504 => self.without_json(),
            _ => Reply::json(self.status, body),
        };
        match self.retry_after {
            Some(seconds) => reply.header("Retry-After", seconds.to_string()),
            None => reply,
        }
    }

    /// Returns the plain form of an error from the router, before any code of a service runs.
    pub(crate) fn without_json(&self) -> Reply {
        Reply {
            status: self.status,
            headers: Vec::new(),
            body: Body::Html(self.html()),
        }
    }

    fn html(&self) -> String {
        let mut text = String::new();
        let _ = write!(
            text,
            "<html><body><h1>{} {}</h1>\n{}\n</body></html>\n",
            self.status,
            reason(self.status),
            self.message
        );
        text
    }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown")
}

fn fault_name(status: u16) -> &'static str {
    match status {
        400 => "badRequest",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "itemNotFound",
        405 => "badMethod",
        409 => "conflictingRequest",
        413 | 429 => "overLimit",
        415 => "badMediaType",
        501 => "notImplemented",
        503 => "serviceUnavailable",
        _ => "computeFault",
    }
}

/// Returns the default message of the services for a status.
pub(crate) fn default_message(status: u16) -> &'static str {
    match status {
        401 => "The request you have made requires authentication.",
        403 => "Policy doesn't allow this action to be performed.",
        404 => "The resource could not be found.",
        409 => "There was a conflict when trying to complete your request.",
        413 | 429 => "This request was rate-limited.",
        500 => "The server has either erred or is incapable of performing the requested operation.",
        502 => "The server returned an invalid or incomplete response.",
        503 => "The server is currently unavailable. Please try again at a later time.",
        504 => "The server didn't respond in time.",
        _ => "The request was refused.",
    }
}

/// Derives a stable UUID from a name.
pub(crate) fn id_of(name: &str) -> String {
    let half = |salt: u8| {
        // DefaultHasher::new uses fixed keys.
        let mut hasher = DefaultHasher::new();
        (salt, name).hash(&mut hasher);
        hasher.finish()
    };
    let bytes = u128::from(half(0)) << 64 | u128::from(half(1));
    let id = uuid::Builder::from_random_bytes(bytes.to_be_bytes());
    id.into_uuid().to_string()
}
