// SPDX-License-Identifier: Apache-2.0
//! Settings of Cinder and Nova that override the catalog, the region and the interface of the cloud.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Services {
    pub block_storage: ServiceAccess,
    pub compute: ServiceAccess,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceAccess {
    /// Its URL, in place of the catalog's. `%(project_id)s` is a placeholder of the project.
    pub endpoint: Option<String>,
    /// Its region. Always `None` for block storage, because the region of the cloud is that of the volumes.
    pub region: Option<String>,
    pub interface: Option<Interface>,
}

/// The interface of a service's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interface {
    /// For users.
    #[default]
    Public,
    /// For the cloud's own network.
    Internal,
    /// For administrators.
    Admin,
}

impl Interface {
    /// The name in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}
