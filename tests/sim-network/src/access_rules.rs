// SPDX-License-Identifier: Apache-2.0
//! Checks `config/openstack/access-rules.json`, the access rules for an application credential. Every request that the
//! product sends in a test must match one of its rules.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

use std::sync::LazyLock;

use bytes::Bytes;
use http::Request;
use serde::Deserialize;

/// A kind of request that the rules allow.
#[derive(Debug, Deserialize)]
struct Rule {
    service: String,
    method: String,
    path: String,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let text = include_str!("../../../config/openstack/access-rules.json");
    serde_json::from_str(text).expect("the access rules are JSON")
});

/// Service types in the rules, by path prefix in the simulator.
const SERVICES: [(&str, &str); 3] = [
    ("/volume", "block-storage"),
    ("/compute", "compute"),
    ("/identity", "identity"),
];

/// Panics if no rule allows the request. Logins and requests without a token are not subject to access rules.
pub(crate) fn check(request: &Request<Bytes>) {
    let path = request.uri().path();
    if !request.headers().contains_key("x-auth-token") || path.starts_with("/identity/v3/auth/") {
        return;
    }
    let entry = SERVICES
        .iter()
        .find_map(|(prefix, service)| Some((service, path.strip_prefix(prefix)?)));
    let method = request.method().as_str();
    let allowed = entry.is_some_and(|(service, rest)| {
        let mut rules = RULES.iter();
        rules.any(|rule| rule.service == *service && rule.method == method && matches(&rule.path, rest))
    });
    assert!(
        allowed,
        "config/openstack/access-rules.json has no rule for {method} {path}"
    );
}

/// Compares paths as Keystone's middleware does: `*` matches one segment.
fn matches(rule: &str, path: &str) -> bool {
    let (mut wanted, mut parts) = (rule.split('/'), path.split('/'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some("*"), Some(part)) if !part.is_empty() => {}
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_one_path_segment() {
        assert!(matches("/v3/*/volumes/*", "/v3/project/volumes/detail"));
        assert!(!matches("/v3/*/volumes/*", "/v3/project/volumes/id/action"));
        assert!(!matches("/v3/*/volumes/*", "/v3/project/volumes/"));
        assert!(!matches("/v3/*/volumes", "/v3/project/volumes/detail"));
    }

    #[test]
    #[should_panic(expected = "no rule for DELETE /volume/v3/project/types/id")]
    fn request_without_rule_panics() {
        let request = Request::delete("http://sim/volume/v3/project/types/id").header("x-auth-token", "token");
        check(&request.body(Bytes::new()).expect("a request"));
    }
}
