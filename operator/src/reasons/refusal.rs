//! Why credentials are not used, and what the conditions say of it.

use super::{CredentialsValid, Degraded};

/// Why the credentials of a cloud are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    SecretMissing,
    SecretMalformed,
    SecretUnreadable,
    UnknownCloud,
    CABundleMissing,
    ClientCertificateMissing,
    CredentialsRejected,
    CredentialsForbidden,
    ProjectChanged,
    EndpointMissing,
    CloudUnreachable,
    LoginFailed,
}

impl Refusal {
    pub(crate) fn degraded(self) -> Degraded {
        match self {
            Self::SecretMissing => Degraded::SecretMissing,
            Self::SecretMalformed => Degraded::SecretMalformed,
            Self::SecretUnreadable => Degraded::SecretUnreadable,
            Self::UnknownCloud => Degraded::UnknownCloud,
            Self::CABundleMissing => Degraded::CABundleMissing,
            Self::ClientCertificateMissing => Degraded::ClientCertificateMissing,
            Self::CredentialsRejected => Degraded::CredentialsRejected,
            Self::CredentialsForbidden => Degraded::CredentialsForbidden,
            Self::ProjectChanged => Degraded::ProjectChanged,
            Self::EndpointMissing => Degraded::EndpointMissing,
            Self::CloudUnreachable => Degraded::CloudUnreachable,
            Self::LoginFailed => Degraded::LoginFailed,
        }
    }

    /// `None` where the cloud does not answer as it should: that is for BackendReachable to say.
    pub(crate) fn credentials_valid(self) -> Option<CredentialsValid> {
        Some(match self {
            Self::SecretMissing | Self::CABundleMissing | Self::ClientCertificateMissing => {
                CredentialsValid::SecretMissing
            }
            Self::SecretMalformed | Self::UnknownCloud => CredentialsValid::SecretMalformed,
            Self::SecretUnreadable => CredentialsValid::SecretUnreadable,
            Self::CredentialsRejected => CredentialsValid::Unauthorized,
            Self::CredentialsForbidden => CredentialsValid::Forbidden,
            Self::ProjectChanged => CredentialsValid::ProjectChanged,
            Self::EndpointMissing => CredentialsValid::EndpointMissing,
            Self::CloudUnreachable | Self::LoginFailed => return None,
        })
    }
}
