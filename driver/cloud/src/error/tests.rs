// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;

use super::*;

fn failure(status: Option<u16>) -> Failure {
    Failure {
        operation: "volume_create",
        object: String::new(),
        status,
        fault: "THE FAULT".to_owned(),
        request_id: None,
        elapsed: Duration::ZERO,
    }
}

fn unreachable(sent: bool) -> CloudError {
    let failure = failure(None);
    CloudError::Unreachable { failure, sent }
}

fn tls(sent: bool) -> CloudError {
    CloudError::Tls {
        failure: failure(None),
        problem: TlsProblem::Expired,
        sent,
    }
}

fn throttled() -> CloudError {
    CloudError::Throttled {
        failure: failure(Some(429)),
        retry_after: None,
    }
}

#[rstest]
#[case::before_request(unreachable(false), false)]
#[case::without_response(unreachable(true), true)]
#[case::before_tls_request(tls(false), false)]
#[case::broken_tls(tls(true), true)]
#[case::service_failure(CloudError::Server(failure(Some(500))), true)]
#[case::undecodable(CloudError::Decode(failure(Some(202))), true)]
#[case::large_response(CloudError::ResponseTooLarge(failure(Some(202))), true)]
#[case::incomplete_list(CloudError::ListIncomplete(failure(Some(200))), false)]
#[case::throttled(throttled(), false)]
#[case::unawaited(CloudError::Unawaited(failure(None)), false)]
fn transient_error_may_be_uncertain(#[case] error: CloudError, #[case] is_uncertain: bool) {
    assert!(error.is_transient());
    assert_eq!(error.is_uncertain(), is_uncertain);
}

#[rstest]
#[case::credentials(CloudError::Auth(failure(Some(401))))]
#[case::policy(CloudError::Forbidden(failure(Some(403))))]
#[case::quota(CloudError::Quota(failure(Some(413))))]
#[case::conflict(CloudError::Conflict(failure(Some(409))))]
#[case::bad_request(CloudError::BadRequest(failure(Some(400))))]
fn refusal_is_certain_and_permanent(#[case] error: CloudError) {
    assert!(!error.is_uncertain() && !error.is_transient(), "{error}");
}

#[rstest]
#[case::credentials(CloudError::Auth(failure(Some(401))), &[CloudErrorKind::Credentials])]
#[case::request(CloudError::Unauthenticated(failure(Some(401))), &[CloudErrorKind::Credentials])]
#[case::quota(CloudError::Quota(failure(Some(413))), &[CloudErrorKind::Quota])]
#[case::policy(CloudError::Forbidden(failure(Some(403))), &[])]
fn messages_have_tags(#[case] error: CloudError, #[case] expected: &[CloudErrorKind]) {
    let message = format!("rpc error: code = Unavailable desc = {error}");
    for kind in [
        CloudErrorKind::Credentials,
        CloudErrorKind::Quota,
        CloudErrorKind::NotPermitted,
    ] {
        assert_eq!(
            kind.is_tagged_in(&message),
            expected.contains(&kind),
            "{kind:?} in {message}"
        );
    }
}
