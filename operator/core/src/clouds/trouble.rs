// SPDX-License-Identifier: Apache-2.0
//! What an error of a cloud means: a word for conditions, and a sentence that stays the same from one try to the next.

use cinder_cloud::{CloudError, Failure};

/// What is wrong with a service of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// It refuses the credentials.
    Unauthorized,
    /// It does not answer as it should.
    Backend,
}

/// What an error says about the service; `None` for one that is about a single request only.
pub fn of(error: &CloudError) -> Option<(TroubleKind, String)> {
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
        CloudError::Unreachable { failure, .. } | CloudError::Server(failure) | CloudError::Decode(failure) => {
            Some((Backend, said(failure)))
        }
        CloudError::Throttled { .. } => Some((Backend, "it wants fewer requests".to_owned())),
        CloudError::NoEndpoint { .. } | CloudError::RegionAmbiguous { .. } => Some((Backend, error.to_string())),
        CloudError::Setup(reason) => Some((Backend, reason.clone())),
        _ => None,
    }
}
