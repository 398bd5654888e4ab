// SPDX-License-Identifier: Apache-2.0
//! The kinds of errors that callers distinguish.

/// The tag of refused credentials in a message.
pub(crate) const AUTH_TAG: &str = "[auth]";
/// The tag of an exhausted quota in a message.
pub(crate) const QUOTA_TAG: &str = "[quota]";

/// The kind of a [`CloudError`](crate::CloudError), see [`CloudError::kind`](crate::CloudError::kind).
///
/// The gRPC codes of the driver and the conditions of the operator depend on the kind. They need the variant only for
/// its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloudErrorKind {
    /// Keystone or a service refused the credentials of the driver.
    Credentials,
    /// Keystone or a service refused the credentials of the CSI request.
    RequestCredentials,
    /// The policy of the service does not allow the action.
    NotPermitted,
    /// The client cannot be set up, or its credentials are for another project.
    Misconfigured,
    /// The catalogue has no endpoint that the driver may use.
    NoEndpoint,
    /// The catalogue has several regions, and the configuration names none.
    RegionAmbiguous,
    /// No response arrived.
    Unreachable,
    /// OpenStack limits the rate of requests.
    Throttled,
    /// The driver did not send the request, because no caller waits for its result.
    Unawaited,
    /// The service failed.
    ServiceFailed,
    /// A response does not have the documented form or size.
    InvalidResponse,
    /// OpenStack did not finish in time.
    Timeout,
    /// The object or its source does not exist.
    NotFound,
    /// An object of this name, or an attachment to this server, exists and differs from the request.
    Exists,
    /// The object is in a state that forbids the operation for now.
    Busy,
    /// The object is attached, or has dependents.
    InUse,
    /// The object is in an error status, which does not change by itself.
    Broken,
    /// A quota of the project is exhausted.
    Quota,
    /// The server cannot have another volume.
    ServerFull,
    /// OpenStack does not accept the request.
    BadRequest,
    /// The request of the CSI client can never succeed.
    InvalidArgument,
    /// The requested size is impossible.
    OutOfRange,
    /// This cloud does not support the operation, or not in the present state of the volume.
    Unsupported,
    /// OpenStack accepted the operation and did not complete it.
    Failed,
}

impl CloudErrorKind {
    /// Whether a message of the driver, for instance in an event of Kubernetes, contains the tag of this kind.
    pub fn is_tagged_in(self, message: &str) -> bool {
        match self {
            Self::Credentials | Self::RequestCredentials => message.contains(AUTH_TAG),
            Self::Quota => message.contains(QUOTA_TAG),
            _ => false,
        }
    }
}
