// SPDX-License-Identifier: Apache-2.0
//! `config/openstack/access-rules.json`, which an administrator gives to an application credential: all that tests make the product ask
//! has to be in it.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

use std::sync::LazyLock;

use bytes::Bytes;
use http::Request;
use serde::Deserialize;

/// One kind of request that a credential with rules may make.
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

/// The types by which rules know the services, by where the simulator has them.
const SERVICES: [(&str, &str); 3] = [
    ("/volume", "block-storage"),
    ("/compute", "compute"),
    ("/identity", "identity"),
];

/// Fails a test whose request no rule allows. What needs no token is not subject to rules, nor is a login.
pub(crate) fn check(request: &Request<Bytes>) {
    let path = request.uri().path();
    if !request.headers().contains_key("x-auth-token") || path.starts_with("/identity/v3/auth/") {
        return;
    }
    let found = SERVICES
        .iter()
        .find_map(|(prefix, service)| Some((service, path.strip_prefix(prefix)?)));
    let method = request.method().as_str();
    let allowed = found.is_some_and(|(service, rest)| {
        let mut rules = RULES.iter();
        rules.any(|rule| rule.service == *service && rule.method == method && matches(&rule.path, rest))
    });
    assert!(
        allowed,
        "config/openstack/access-rules.json has no rule for {method} {path}"
    );
}

/// As Keystone's middleware compares them: `*` is one part of a path.
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
    fn a_star_is_one_part_of_a_path() {
        assert!(matches("/v3/*/volumes/*", "/v3/project/volumes/detail"));
        assert!(!matches("/v3/*/volumes/*", "/v3/project/volumes/id/action"));
        assert!(!matches("/v3/*/volumes/*", "/v3/project/volumes/"));
        assert!(!matches("/v3/*/volumes", "/v3/project/volumes/detail"));
    }

    #[test]
    #[should_panic(expected = "no rule for DELETE /volume/v3/project/types/id")]
    fn a_request_without_a_rule_fails_the_test() {
        let request = Request::delete("http://sim/volume/v3/project/types/id").header("x-auth-token", "token");
        check(&request.body(Bytes::new()).expect("a request"));
    }
}
