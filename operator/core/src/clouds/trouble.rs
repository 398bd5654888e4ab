// SPDX-License-Identifier: Apache-2.0
//! What an error of a cloud means: a word for conditions, and a sentence that stays the same from one try to the next.

use cinder_cloud::{CloudError, Failure};

use crate::reasons::BackendReachable;

/// What is wrong with a service of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// It refuses the credentials.
    Unauthorized,
    /// It does not answer as it should.
    Backend(BackendReachable),
}

/// What an error says about the service; `None` for one that is about a single request only.
pub fn of(error: &CloudError) -> Option<(TroubleKind, String)> {
    use BackendReachable::{EndpointMissing, ServiceUnavailable, Throttled};
    use TroubleKind::{Backend, Unauthorized};
    let said = |failure: &Failure| {
        let fault = failure.fault.trim_end_matches('.');
        match failure.status {
            Some(status) => format!("HTTP {status}: {fault}"),
            None => fault.to_owned(),
        }
    };
    match error {
        CloudError::Auth(failure) | CloudError::Unauthenticated(failure) => Some((Unauthorized, said(failure))),
        CloudError::Unreachable { failure, .. } => Some((Backend(of_connection(&failure.fault)), said(failure))),
        CloudError::Server(failure) | CloudError::Decode(failure) => Some((Backend(ServiceUnavailable), said(failure))),
        CloudError::Throttled { .. } => Some((Backend(Throttled), "it wants fewer requests".to_owned())),
        CloudError::NoEndpoint { .. } | CloudError::RegionAmbiguous { .. } => {
            Some((Backend(EndpointMissing), error.to_string()))
        }
        CloudError::Setup(reason) => Some((Backend(ServiceUnavailable), reason.clone())),
        _ => None,
    }
}

/// What broke on the way, by the words of the libraries.
pub fn of_connection(fault: &str) -> BackendReachable {
    let fault = fault.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| fault.contains(word));
    // First, because a host name may have any of the other words in it.
    if has(&[
        "dns error",
        "failed to lookup",
        "name or service not known",
        "no such host",
    ]) {
        BackendReachable::Dns
    } else if has(&[
        "certificate expired",
        "certificate has expired",
        "certificateexpired",
        ": expired",
    ]) {
        BackendReachable::CAExpired
    } else if has(&["certificate", "unknownissuer", "tls", "handshake"]) {
        BackendReachable::TLSVerificationFailed
    } else if has(&["timed out", "timeout", "deadline"]) {
        BackendReachable::Timeout
    } else {
        BackendReachable::ServiceUnavailable
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "error sending request: client error (Connect): invalid peer certificate: Expired",
        BackendReachable::CAExpired
    )]
    #[case(
        "error sending request: invalid peer certificate: certificate expired: verification time 1 (UNIX)",
        BackendReachable::CAExpired
    )]
    #[case(
        "error sending request: invalid peer certificate: UnknownIssuer",
        BackendReachable::TLSVerificationFailed
    )]
    #[case(
        "error sending request: dns error: failed to lookup address information: Name or service not known",
        BackendReachable::Dns
    )]
    #[case(
        "error sending request: dns error: cannot resolve host keystone.tls.example: no answer in time",
        BackendReachable::Dns
    )]
    #[case("error sending request: operation timed out", BackendReachable::Timeout)]
    #[case(
        "error sending request: tcp connect error: Connection refused (os error 111)",
        BackendReachable::ServiceUnavailable
    )]
    #[case(
        "error sending request: connection closed before message completed",
        BackendReachable::ServiceUnavailable
    )]
    fn what_broke_on_the_way_is_told_apart(#[case] fault: &str, #[case] reason: BackendReachable) {
        assert_eq!(of_connection(fault), reason);
    }
}
