// SPDX-License-Identifier: Apache-2.0
//! The reason and the message for each failed check of credentials.

use cinder_cloud::{CloudError, CloudErrorKind, EndpointProblem, Failure};
use cinder_operator_core::reasons::{Refusal, Refused};
use csi_sources::UntrustedText;

use super::{
    credential_source::CredentialSource,
    keystone::{LOGIN_LIMIT, TrialError},
};

/// Maximum number of characters of an error response. Services repeat the request in it, without a limit.
const LONGEST_FAULT: usize = 300;

impl CredentialSource {
    /// Why a check failed, without details that differ between attempts (request ids, times).
    pub(super) fn refused(&self, auth_url: &str, error: &TrialError) -> Refused {
        let (service, error) = match error {
            TrialError::Login(error) if error.kind() == CloudErrorKind::RegionAmbiguous => {
                return Refused::new(
                    Refusal::RegionAmbiguous,
                    format!(
                        "the login with {}, cloud {}, works, but {error}, or spec.clouds[].region",
                        self.key(),
                        self.cloud
                    ),
                );
            }
            TrialError::Login(error) => return self.refusal(auth_url, error),
            TrialError::Service(service, error) => (service.as_str(), error),
        };
        let works = format!("the login with {}, cloud {}, works", self.key(), self.cloud);
        match (error.kind(), error.failure()) {
            (CloudErrorKind::NoEndpoint, _) => {
                let fields = match error {
                    CloudError::NoEndpoint {
                        problem: EndpointProblem::Place,
                        ..
                    } => ": region_name or spec.clouds[].region, and interface or spec.clouds[].endpointType",
                    _ => "",
                };
                Refused::new(Refusal::EndpointMissing, format!("{works}, but {error}{fields}"))
            }
            (CloudErrorKind::Credentials | CloudErrorKind::NotPermitted, Some(failure)) => Refused::new(
                Refusal::CredentialsForbidden,
                format!(
                    "{works}, but {service} does not let it list what there is: {}. Give the user or application credential a role in the \
                     project that may use volumes and servers, such as member",
                    answer(failure)
                ),
            ),
            _ => Refused::new(
                Refusal::CloudUnreachable,
                format!("{works}, but {service} does not answer as it should: {}", cause(error)),
            ),
        }
    }

    /// Why a login failed.
    fn refusal(&self, auth_url: &str, error: &CloudError) -> Refused {
        match (error.kind(), error.failure()) {
            // A 404 is also a rejection of the credentials: they were revoked, or the project was deleted.
            (CloudErrorKind::Credentials | CloudErrorKind::NotPermitted, Some(failure))
                if matches!(failure.status, Some(401 | 403 | 404)) =>
            {
                let is_forbidden = failure.status == Some(403);
                Refused::new(
                    if is_forbidden {
                        Refusal::CredentialsForbidden
                    } else {
                        Refusal::CredentialsRejected
                    },
                    format!(
                        "Keystone at {auth_url} does not accept the credentials in {}, cloud {}: {}. Check user or application credential, \
                 project, domain and expiry, and fix the Secret",
                        self.key(),
                        self.cloud,
                        answer(failure)
                    ),
                )
            }
            (CloudErrorKind::Unreachable, Some(failure)) => {
                let (key, fault) = (self.key(), failure.fault.trim_end_matches('.'));
                let message = match error {
                    CloudError::Tls { problem, .. } => {
                        format!("TLS with Keystone at {auth_url}, named by {key}, fails: {fault}: {problem}")
                    }
                    _ => format!(
                        "Keystone at {auth_url}, named by {key}, does not answer: {fault}. Check the auth URL, DNS, routes and \
                         firewalls between the cluster and the cloud, and the CA bundle"
                    ),
                };
                Refused::new(Refusal::CloudUnreachable, message)
            }
            (
                CloudErrorKind::Credentials
                | CloudErrorKind::NotPermitted
                | CloudErrorKind::BadRequest
                | CloudErrorKind::Busy
                | CloudErrorKind::ServiceFailed
                | CloudErrorKind::InvalidResponse
                | CloudErrorKind::Throttled,
                Some(failure),
            ) => Refused::new(
                Refusal::LoginFailed,
                format!(
                    "the login to Keystone at {auth_url} with {} failed: {}. If the URL is that of a Keystone v3, the cloud needs help",
                    self.key(),
                    answer(failure)
                ),
            ),
            (CloudErrorKind::NotFound, _) => Refused::new(
                Refusal::LoginFailed,
                format!(
                    "there is no Keystone v3 at {auth_url}, which {} names; check the auth URL",
                    self.key()
                ),
            ),
            _ => Refused::new(
                Refusal::LoginFailed,
                format!("the login with {} failed: {}", self.key(), cause(error)),
            ),
        }
    }

    /// Why a new content is not checked yet.
    pub(super) fn too_many_rejections(&self, count: u32) -> Refused {
        Refused::new(
            Refusal::LoginFailed,
            format!(
                "{} has changed again after {count} contents that cloud {} refused. The operator waits before the next login, because \
                 Keystone may lock a user after failed logins",
                self.key(),
                self.cloud
            ),
        )
    }

    pub(super) fn no_answer(&self, auth_url: &str) -> Refused {
        Refused::new(
            Refusal::CloudUnreachable,
            format!(
                "Keystone at {auth_url}, named by {}, did not answer within {} s. Check the auth URL, DNS, routes and firewalls between \
             the cluster and the cloud",
                self.key(),
                LOGIN_LIMIT.as_secs()
            ),
        )
    }
}

/// The cause of an error of a service, without request ids and times.
pub(super) fn cause(error: &CloudError) -> String {
    match (error, error.failure()) {
        (CloudError::Throttled { .. }, _) => "it wants fewer requests".to_owned(),
        (CloudError::Tls { problem, .. }, Some(failure)) => format!("{}: {problem}", answer(failure)),
        (_, Some(failure)) => answer(failure),
        _ => error.to_string(),
    }
}

/// Formats the status and fault of a failed request.
fn answer(failure: &Failure) -> String {
    let fault = UntrustedText::with_limit(failure.fault.trim_end_matches('.'), LONGEST_FAULT);
    match failure.status {
        Some(status) => format!("HTTP {status}: {fault}"),
        None => fault.to_string(),
    }
}
