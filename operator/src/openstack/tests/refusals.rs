// SPDX-License-Identifier: Apache-2.0
//! The reason and the message for each error that a check of credentials can meet.

use std::fmt::Write as _;

use cinder_cloud::{ObjectKind, TlsProblem};

use super::*;

fn mk_endpoint_error(problem: EndpointProblem) -> CloudError {
    CloudError::NoEndpoint {
        service: "block-storage",
        region: None,
        interface: "public",
        known: "volumev2/public/A http://cinder.example/v2".to_owned(),
        problem,
    }
}

/// Returns the errors of the requests of a check, by name.
fn mk_errors() -> Vec<(&'static str, CloudError)> {
    let failure = |status| failure(status, "THE FAULT.", "req-1");
    vec![
        ("Auth 401", CloudError::Auth(failure(Some(401)))),
        ("Auth 403", CloudError::Auth(failure(Some(403)))),
        ("Auth 404", CloudError::Auth(failure(Some(404)))),
        ("Auth without response", CloudError::Auth(failure(None))),
        ("Unauthenticated", CloudError::Unauthenticated(failure(Some(401)))),
        (
            "OtherProject",
            CloudError::OtherProject {
                own: "PROJECT".to_owned(),
                found: "OTHER".to_owned(),
            },
        ),
        ("Forbidden", CloudError::Forbidden(failure(Some(403)))),
        ("Quota", CloudError::Quota(failure(Some(413)))),
        (
            "NotFound",
            CloudError::NotFound {
                kind: ObjectKind::Resource,
                id: "ID".to_owned(),
                request_id: None,
            },
        ),
        ("Conflict", CloudError::Conflict(failure(Some(409)))),
        ("BadRequest", CloudError::BadRequest(failure(Some(400)))),
        (
            "Throttled",
            CloudError::Throttled {
                failure: failure(Some(429)),
                retry_after: None,
            },
        ),
        (
            "Unreachable",
            CloudError::Unreachable {
                failure: failure(None),
                sent: false,
            },
        ),
        (
            "Tls",
            CloudError::Tls {
                failure: failure(None),
                problem: TlsProblem::Expired,
                sent: false,
            },
        ),
        (
            "InsecureEndpoint",
            CloudError::InsecureEndpoint {
                service: "block-storage",
            },
        ),
        ("Server", CloudError::Server(failure(Some(500)))),
        ("Decode", CloudError::Decode(failure(Some(200)))),
        ("ResponseTooLarge", CloudError::ResponseTooLarge(failure(Some(200)))),
        ("NoEndpoint place", mk_endpoint_error(EndpointProblem::Place)),
        ("NoEndpoint service", mk_endpoint_error(EndpointProblem::Service)),
        ("NoEndpoint version", mk_endpoint_error(EndpointProblem::Version)),
        (
            "RegionAmbiguous",
            CloudError::RegionAmbiguous {
                interface: "public",
                regions: "A, B".to_owned(),
            },
        ),
        ("Setup", CloudError::Setup("the CA cannot be read".to_owned())),
    ]
}

fn mk_table(errors: Vec<(&'static str, CloudError)>, wrap: impl Fn(CloudError) -> TrialError) -> String {
    let mut table = String::new();
    for (name, error) in errors {
        let refusal = mk_source().refused("https://keystone.example.org/v3", &wrap(error));
        let _ = writeln!(table, "{name}: {:?}\n  {}", refusal.reason, refusal.message);
    }
    table
}

#[test]
fn login_errors_have_reasons() {
    insta::assert_snapshot!("login", mk_table(mk_errors(), TrialError::Login));
}

#[test]
fn service_errors_have_reasons() {
    let incomplete = CloudError::ListIncomplete(failure(Some(200), "THE FAULT.", "req-1"));
    let errors = mk_errors()
        .into_iter()
        .chain([("ListIncomplete", incomplete)])
        .collect();
    let wrap = |error| TrialError::Service(CloudService::BlockStorage, error);
    insta::assert_snapshot!("service", mk_table(errors, wrap));
}
