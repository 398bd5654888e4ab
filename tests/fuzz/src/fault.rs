// SPDX-License-Identifier: Apache-2.0
//! Bodies of OpenStack faults. Checks that any body results in a short, non-empty text of one line.

use cinder_cloud::fault_text;

use crate::{Target, texts};

/// Length of the longest text, including its ellipsis.
const LONGEST: usize = 401;

const SEEDS: &[&str] = &[
    r#"{"itemNotFound": {"code": 404, "message": "Volume 1 could not be found."}}"#,
    r#"{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}"#,
    r#"{"overLimit": {"code": 413, "message": "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded", "retryAfter": "0"}}"#,
    r#"{"errors": [{"status": 503, "detail": "The server is overloaded", "request_id": ""}]}"#,
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1>\r\n<hr>nginx</body></html>",
    "rate limited",
];

pub(crate) const TARGET: Target = Target {
    name: "fault",
    seeds: || texts(SEEDS),
    words: &[
        "{",
        "}",
        "[",
        "]",
        "\"message\":",
        "\"detail\":",
        "\"title\":",
        "\"faultstring\":",
        "null",
        "1e999",
        "\"",
        ",",
        ":",
        "<",
        ">",
        "<br",
        "\\u0000",
        "\\ud800",
        "ü",
        "\u{0}",
        "\r\n",
        "\t",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    for status in [0, 200, 404, 413, 502, 999] {
        let text = fault_text(status, bytes);
        assert!(!text.trim().is_empty(), "a fault without words");
        assert!(text.chars().count() <= LONGEST, "{} characters", text.chars().count());
        assert!(!text.contains(['\n', '\r']), "more than one line: {text:?}");
    }
}
