//! What an error of a cloud means: one word for conditions, and a sentence that stays the same from one try to the next.

use cinder_cloud::{CloudError, Failure};

/// The credentials are refused.
pub const UNAUTHORIZED: &str = "Unauthorized";
/// The service did not answer in time.
pub const TIMEOUT: &str = "Timeout";
/// Its name is not known.
pub const DNS: &str = "DNS";
/// Its certificate is not accepted.
pub const TLS: &str = "TLSVerificationFailed";
/// A certificate has ended.
pub const CA_EXPIRED: &str = "CAExpired";
/// It cannot be reached, or says that it does not work.
pub const UNAVAILABLE: &str = "ServiceUnavailable";
/// It wants fewer requests.
pub const THROTTLED: &str = "Throttled";
/// The catalogue does not have it.
pub const NO_ENDPOINT: &str = "EndpointMissing";

/// What an error says about the service; `None` for one that is about a single request only.
pub fn of(error: &CloudError) -> Option<(&'static str, String)> {
    let said = |failure: &Failure| {
        let fault = failure.fault.trim_end_matches('.');
        match failure.status {
            Some(status) => format!("HTTP {status}: {fault}"),
            None => fault.to_owned(),
        }
    };
    match error {
        CloudError::Auth(failure) | CloudError::Unauthenticated(failure) => Some((UNAUTHORIZED, said(failure))),
        CloudError::Unreachable { failure, .. } => Some((of_connection(&failure.fault), said(failure))),
        CloudError::Server(failure) | CloudError::Decode(failure) => Some((UNAVAILABLE, said(failure))),
        CloudError::Throttled { .. } => Some((THROTTLED, "it wants fewer requests".to_owned())),
        CloudError::NoEndpoint { .. } => Some((NO_ENDPOINT, error.to_string())),
        CloudError::Setup(reason) => Some((UNAVAILABLE, reason.clone())),
        _ => None,
    }
}

/// What broke on the way, by the words of the libraries.
pub fn of_connection(fault: &str) -> &'static str {
    let fault = fault.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| fault.contains(word));
    if has(&[
        "certificate expired",
        "certificate has expired",
        "certificateexpired",
        ": expired",
    ]) {
        CA_EXPIRED
    } else if has(&["certificate", "unknownissuer", "tls", "handshake"]) {
        TLS
    } else if has(&[
        "dns error",
        "failed to lookup",
        "name or service not known",
        "no such host",
    ]) {
        DNS
    } else if has(&["timed out", "timeout", "deadline"]) {
        TIMEOUT
    } else {
        UNAVAILABLE
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "error sending request: client error (Connect): invalid peer certificate: Expired",
        CA_EXPIRED
    )]
    #[case(
        "error sending request: invalid peer certificate: certificate expired: verification time 1 (UNIX)",
        CA_EXPIRED
    )]
    #[case("error sending request: invalid peer certificate: UnknownIssuer", TLS)]
    #[case(
        "error sending request: dns error: failed to lookup address information: Name or service not known",
        DNS
    )]
    #[case("error sending request: operation timed out", TIMEOUT)]
    #[case(
        "error sending request: tcp connect error: Connection refused (os error 111)",
        UNAVAILABLE
    )]
    #[case("error sending request: connection closed before message completed", UNAVAILABLE)]
    fn what_broke_on_the_way_is_told_apart(#[case] fault: &str, #[case] reason: &str) {
        assert_eq!(of_connection(fault), reason);
    }
}
