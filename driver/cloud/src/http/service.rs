// SPDX-License-Identifier: Apache-2.0
//! The services that the driver uses, and their microversions.

use openstack::session::ServiceType;

/// A service that the driver uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    BlockStorage,
    Compute,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BlockStorage => "block-storage",
            Self::Compute => "compute",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The service's name in `OpenStack-API-Version`.
    pub(crate) fn version_header(self) -> &'static str {
        match self {
            Self::BlockStorage => "volume",
            Self::Compute => "compute",
        }
    }
}

impl ServiceType for Service {
    fn catalog_type(&self) -> &'static str {
        self.name()
    }

    /// No: discovery follows the version's own link, which lacks the project that Cinder before 3.67 needs in every
    /// path.
    fn version_discovery_supported(&self) -> bool {
        false
    }
}

/// A microversion, for example 3.27 or 2.60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MicroVersion(pub(crate) u16, pub(crate) u16);

impl std::fmt::Display for MicroVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl MicroVersion {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}
