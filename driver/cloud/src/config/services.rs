// SPDX-License-Identifier: Apache-2.0
//! Where Cinder and Nova are, if not where the catalogue has them for the region and the interface of the cloud.

/// The settings of the two services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Services {
    pub block_storage: ServiceAccess,
    pub compute: ServiceAccess,
}

/// The settings of one service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceAccess {
    /// Its address, in place of the one in the catalogue. `%(project_id)s` is a placeholder of the project.
    pub endpoint: Option<String>,
    /// Its region. Always `None` for block storage: the region of the cloud is that of the volumes.
    pub region: Option<String>,
    /// Its interface.
    pub interface: Option<Interface>,
}

/// Which of a service's endpoints to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interface {
    /// The one for users.
    #[default]
    Public,
    /// The one inside the cloud's own network.
    Internal,
    /// The one for administrators.
    Admin,
}

impl Interface {
    /// The name in the catalogue.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}
