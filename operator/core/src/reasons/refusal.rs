// SPDX-License-Identifier: Apache-2.0
//! Why credentials are not used, and what the conditions say of it.

use super::{CredentialsValid, Degraded};

/// Why the credentials of a cloud are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The Secret, or the key in it, is not there.
    SecretMissing,
    /// What the Secret holds is no configuration of a cloud.
    SecretMalformed,
    /// The API server does not give the Secret out.
    SecretUnreadable,
    /// `clouds.yaml` has no cloud of the name.
    UnknownCloud,
    /// The certificates of the authorities are not where the spec says.
    CABundleMissing,
    /// The client certificate or its key is not where the configuration says.
    ClientCertificateMissing,
    /// Keystone rejects them.
    CredentialsRejected,
    /// The cloud knows them and does not let them do what the driver needs.
    CredentialsForbidden,
    /// They lead to another project or region, and volumes of the driver exist.
    ProjectChanged,
    /// The catalogue has no endpoint of a service that the driver may use.
    EndpointMissing,
    /// The catalogue has several regions, and the configuration names none.
    RegionAmbiguous,
    /// The cloud does not answer.
    CloudUnreachable,
    /// The login failed in another way.
    LoginFailed,
}

impl Refusal {
    /// What condition Degraded says of it.
    pub fn degraded(self) -> Degraded {
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
            Self::RegionAmbiguous => Degraded::RegionAmbiguous,
            Self::CloudUnreachable => Degraded::CloudUnreachable,
            Self::LoginFailed => Degraded::LoginFailed,
        }
    }

    /// The reason of condition CredentialsValid.
    pub fn credentials_valid(self) -> CredentialsValid {
        match self {
            Self::SecretMissing | Self::CABundleMissing | Self::ClientCertificateMissing => {
                CredentialsValid::SecretMissing
            }
            Self::SecretMalformed | Self::UnknownCloud => CredentialsValid::SecretMalformed,
            Self::SecretUnreadable => CredentialsValid::SecretUnreadable,
            Self::CredentialsRejected => CredentialsValid::Unauthorized,
            Self::CredentialsForbidden => CredentialsValid::Forbidden,
            Self::ProjectChanged => CredentialsValid::ProjectChanged,
            Self::EndpointMissing => CredentialsValid::EndpointMissing,
            Self::RegionAmbiguous => CredentialsValid::RegionAmbiguous,
            Self::CloudUnreachable | Self::LoginFailed => CredentialsValid::NotChecked,
        }
    }
}
