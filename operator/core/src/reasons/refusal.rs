// SPDX-License-Identifier: Apache-2.0
//! Reasons not to use credentials, and the matching reasons of conditions.

use super::conditions::{CredentialsValid, Degraded};

/// Why the operator does not use the credentials of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The Secret or its key does not exist.
    SecretMissing,
    /// The content of the Secret is not a valid configuration of a cloud.
    SecretMalformed,
    /// The operator cannot read the Secret.
    SecretUnreadable,
    /// `clouds.yaml` has no entry with this name.
    UnknownCloud,
    /// The CA bundle of the spec does not exist.
    CABundleMissing,
    /// The client certificate or its key does not exist.
    ClientCertificateMissing,
    /// Keystone rejects them.
    CredentialsRejected,
    /// The cloud recognizes them, and they lack permissions that the driver needs.
    CredentialsForbidden,
    /// They belong to another project or region, and volumes of the driver exist.
    ProjectChanged,
    /// The service catalogue has no usable endpoint of a service.
    EndpointMissing,
    /// The service catalogue has several regions, and the configuration names none.
    RegionAmbiguous,
    /// The cloud is unavailable.
    CloudUnreachable,
    /// The login failed in another way.
    LoginFailed,
}

impl Refusal {
    /// Returns the matching reason of condition Degraded.
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

    /// Returns the matching reason of condition CredentialsValid.
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
