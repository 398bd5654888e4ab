// SPDX-License-Identifier: Apache-2.0
//! The faults of OpenStack's services, whose shapes differ by service, age and middleware.

use std::time::Duration;

use csi_sources::UntrustedText;
use serde_json::Value;

use crate::error::{CloudError, Failure, ObjectKind};

const LONGEST_TEXT: usize = 400;

/// Returns the printable text of a fault: `{"itemNotFound":{"message":…}}`, `{"error":{…}}`, `{"message":…}`,
/// `{"errors":[{"detail":…}]}`, else the body without its markup.
pub fn text(status: u16, body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(json) => message(&json).unwrap_or_else(|| json.to_string()),
        Err(_) => without_markup(&String::from_utf8_lossy(body)),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        let reason = http::StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason());
        return reason.unwrap_or("no text").to_owned();
    }
    UntrustedText::with_limit(&text, LONGEST_TEXT).to_string()
}

/// The text of a fault for the requester, who chose the address together with the credentials. It contains only the
/// message of a fault in the shape of a service. The address may belong to another service in the controller's
/// network, and that service's content must not be exposed.
fn text_for_requester(status: u16, body: &[u8]) -> String {
    let body = serde_json::from_slice::<serde_json::Map<String, Value>>(body).unwrap_or_default();
    let message = body.values().find_map(|inner| inner.get("message")?.as_str());
    text(status, message.unwrap_or_default().as_bytes())
}

/// Explains why a body cannot be decoded. The parser repeats values of the body, which may be long and not printable.
/// The requester receives no values, as in [`text_for`].
pub(crate) fn decode_text(is_of_request: bool, error: &serde_json::Error) -> String {
    if is_of_request {
        format!("unexpected JSON at line {} column {}", error.line(), error.column())
    } else {
        UntrustedText::with_limit(&error.to_string(), LONGEST_TEXT).to_string()
    }
}

/// The text of a fault, for the requester of an operation with its own credentials, or for the administrator.
pub(crate) fn text_for(is_of_request: bool, status: u16, body: &[u8]) -> String {
    if is_of_request {
        text_for_requester(status, body)
    } else {
        text(status, body)
    }
}

/// Whether this is a fault in the shape of a service, `{"itemNotFound":{…}}`, and not the page of a gateway. A 404 in
/// any other shape does not prove that the resource was deleted: the gateway may be unable to reach the service.
pub(crate) fn is_service_fault(body: &[u8]) -> bool {
    let body = serde_json::from_slice::<serde_json::Map<String, Value>>(body);
    body.is_ok_and(|body| body.values().any(Value::is_object))
}

/// Whether the body is an HTML page, as gateways send them.
pub(crate) fn is_page(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

fn message(json: &Value) -> Option<String> {
    let object = json.as_object()?;
    for key in ["message", "detail", "faultstring", "title"] {
        if let Some(text) = object.get(key).and_then(Value::as_str) {
            return Some(text.to_owned());
        }
    }
    object.values().find_map(|inner| match inner {
        Value::Array(list) => list.iter().find_map(message),
        other => message(other),
    })
}

fn without_markup(text: &str) -> String {
    let mut plain = String::new();
    let mut in_tag = false;
    for character in text.chars() {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                plain.push(' ');
            }
            _ if !in_tag => plain.push(character),
            _ => {}
        }
    }
    plain
}

/// Classifies a response that is not a success.
pub(crate) fn classify(failure: Failure, retry_after: Option<Duration>) -> CloudError {
    let fault = failure.fault.to_ascii_lowercase();
    match failure.status.unwrap_or_default() {
        401 => CloudError::Auth(failure),
        // Nova reports its quotas as 403.
        403 if fault.contains("quota") => CloudError::Quota(failure),
        403 => CloudError::Forbidden(failure),
        404 => CloudError::NotFound {
            kind: ObjectKind::Resource,
            id: format!("{} ({})", failure.object, failure.fault),
            request_id: failure.request_id,
        },
        409 => CloudError::Conflict(failure),
        // Cinder reports its quotas as 413; old middleware and gateways report rate limits as 413, too.
        413 if fault.contains("quota")
            || (fault.contains("exceed") || fault.contains("maximum")) && !fault.contains("rate") =>
        {
            CloudError::Quota(failure)
        }
        413 | 429 | 498 => CloudError::Throttled { failure, retry_after },
        500.. => CloudError::Server(failure),
        _ => CloudError::BadRequest(failure),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"{"itemNotFound":{"code":404,"message":"Volume x could not be found."}}"#, true)]
    #[case("<html><body><h1>404 Not Found</h1></body></html>", false)]
    #[case("default backend - 404", false)]
    #[case(r#"{"message":"no Route matched with those values"}"#, false)]
    #[case("", false)]
    fn gateway_page_is_not_service_fault(#[case] body: &str, #[case] expected: bool) {
        assert_eq!(is_service_fault(body.as_bytes()), expected);
    }

    #[rstest]
    #[case(
        404,
        r#"{"itemNotFound":{"code":404,"message":"Volume x could not be found."}}"#,
        "Volume x could not be found."
    )]
    #[case(
        401,
        r#"{"error":{"code":401,"message":"Authentication required","title":"Unauthorized"}}"#,
        "Authentication required"
    )]
    #[case(400, r#"{"message":"bad"}"#, "bad")]
    #[case(
        406,
        r#"{"errors":[{"status":406,"detail":"Version 9.9 is not supported"}]}"#,
        "Version 9.9 is not supported"
    )]
    #[case(
        503,
        "<html><body><h1>503 Service\nUnavailable</h1></body></html>",
        "503 Service Unavailable"
    )]
    #[case(502, "", "Bad Gateway")]
    #[case(418, "[]", "[]")]
    fn finds_fault_text_in_every_shape(#[case] status: u16, #[case] body: &str, #[case] expected: &str) {
        assert_eq!(text(status, body.as_bytes()), expected);
    }

    #[test]
    fn long_fault_is_cut_between_characters() {
        let body = "ä".repeat(LONGEST_TEXT + 1);
        let shown = text(500, body.as_bytes());
        assert!(
            shown.chars().count() <= LONGEST_TEXT && shown.ends_with("… (401 characters)"),
            "{shown}"
        );
    }

    #[test]
    fn fault_is_printable() {
        let shown = text(
            500,
            r#"{"error": {"message": "\u001b]52;c;eA==\u0007 \u202e no\u009b2J"}}"#.as_bytes(),
        );
        assert_eq!(shown, "\\u{1b}]52;c;eA==\\u{7} \\u{202e} no\\u{9b}2J");
    }

    #[rstest]
    #[case(
        401,
        r#"{"error":{"code":401,"message":"Authentication required"}}"#,
        "Authentication required"
    )]
    #[case(404, "<html>the secret of another service</html>", "Not Found")]
    #[case(400, r#"{"message":"the secret","metadata":{}}"#, "Bad Request")]
    #[case(500, r#"["the secret"]"#, "Internal Server Error")]
    fn foreign_pages_are_hidden_from_requester(#[case] status: u16, #[case] body: &str, #[case] expected: &str) {
        assert_eq!(text_for(true, status, body.as_bytes()), expected);
        assert_ne!(text_for(false, status, body.as_bytes()), "");
    }

    #[test]
    fn decode_error_is_bounded_and_hides_foreign_values() {
        let body = format!("\"the secret \\u001b{}\"", "x".repeat(1_000));
        let error = serde_json::from_str::<u32>(&body).expect_err("a text");
        let (shown, hidden) = (decode_text(false, &error), decode_text(true, &error));
        assert!(shown.contains("the secret"), "{shown}");
        assert!(
            shown.chars().count() <= LONGEST_TEXT && shown.chars().all(csi_sources::is_printable),
            "{shown}"
        );
        assert!(hidden.starts_with("unexpected JSON at line 1 column "), "{hidden}");
    }

    fn classified(status: u16, fault: &str) -> CloudError {
        let failure = Failure {
            operation: "volume_create",
            object: "volume pvc-1".to_owned(),
            status: Some(status),
            fault: fault.to_owned(),
            request_id: Some("req-1".to_owned()),
            elapsed: Duration::ZERO,
        };
        classify(failure, None)
    }

    #[rstest]
    #[case(400, "Invalid input", "BadRequest")]
    #[case(401, "Authentication required", "Auth")]
    #[case(403, "Policy doesn't allow volume:create to be performed.", "Forbidden")]
    #[case(403, "Quota exceeded for instances", "Quota")]
    #[case(404, "Volume could not be found.", "NotFound")]
    #[case(409, "Cannot 'attach_volume' while in task_state rebooting", "Conflict")]
    #[case(
        413,
        "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.",
        "Quota"
    )]
    #[case(
        413,
        "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota.",
        "Quota"
    )]
    #[case(413, "This request was rate-limited.", "Throttled")]
    #[case(413, "API rate limit exceeded", "Throttled")]
    #[case(429, "Too many requests", "Throttled")]
    #[case(500, "The server has either erred", "Server")]
    #[case(504, "Gateway Time-out", "Server")]
    fn each_status_has_one_meaning(#[case] status: u16, #[case] fault: &str, #[case] expected: &str) {
        let error = classified(status, fault);
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        assert_eq!(error.request_id(), Some("req-1"));
    }

    #[test]
    fn error_names_operation_status_and_request_id() {
        assert_eq!(
            classified(500, "boom").to_string(),
            "volume_create of volume pvc-1: HTTP 500: boom (after 0.0 s, request req-1)"
        );
    }
}
