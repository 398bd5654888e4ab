// SPDX-License-Identifier: Apache-2.0
//! Alpha capabilities of CSI, each of which `--disable-capability NAME` disables. They are enabled by default.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use tonic::Status;

use crate::status;

/// A capability that can be disabled, named as in CSI's enums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlphaCapability {
    /// Controller: ControllerGetVolume.
    GetVolume,
    /// Controller: GetSnapshot.
    GetSnapshot,
    /// Controller and node: ControllerGetVolumeHealth, NodeGetVolumeHealth.
    GetVolumeHealth,
    /// Controller: ControllerListVolumeHealth.
    ListVolumeHealth,
    /// Node: NodeGetStorageHealth.
    GetStorageHealth,
    /// Controller and node: the access modes for a single node with one or several writers.
    SingleNodeMultiWriter,
    /// Plugin: snapshots report their accessible topology.
    SnapshotAccessibilityConstraints,
}

impl AlphaCapability {
    pub const ALL: [Self; 7] = [
        Self::GetVolume,
        Self::GetSnapshot,
        Self::GetVolumeHealth,
        Self::ListVolumeHealth,
        Self::GetStorageHealth,
        Self::SingleNodeMultiWriter,
        Self::SnapshotAccessibilityConstraints,
    ];

    /// Returns the name in CSI's enums.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetVolume => "GET_VOLUME",
            Self::GetSnapshot => "GET_SNAPSHOT",
            Self::GetVolumeHealth => "GET_VOLUME_HEALTH",
            Self::ListVolumeHealth => "LIST_VOLUME_HEALTH",
            Self::GetStorageHealth => "GET_STORAGE_HEALTH",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
            Self::SnapshotAccessibilityConstraints => "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS",
        }
    }
}

impl fmt::Display for AlphaCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AlphaCapability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|capability| capability.name() == text)
            .ok_or_else(|| format!("use one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The disabled capabilities; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DisabledCapabilities {
    off: BTreeSet<AlphaCapability>,
}

impl DisabledCapabilities {
    /// Creates the set of disabled capabilities.
    pub fn new(off: impl IntoIterator<Item = AlphaCapability>) -> Self {
        Self {
            off: off.into_iter().collect(),
        }
    }

    /// Whether a capability is served and advertised.
    pub fn allows(&self, capability: AlphaCapability) -> bool {
        !self.off.contains(&capability)
    }

    /// Whether the capability with this CSI name is advertised. Capabilities that cannot be disabled always are.
    pub fn advertises(&self, name: &str) -> bool {
        self.off.iter().all(|capability| capability.name() != name)
    }

    /// Returns `UNIMPLEMENTED` for a call of a disabled capability.
    pub fn check(&self, capability: AlphaCapability) -> Result<(), Status> {
        if self.allows(capability) {
            Ok(())
        } else {
            Err(status::capability_disabled(capability.name()))
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn disabled_capability_is_not_advertised_or_served() {
        let disabled = DisabledCapabilities::new([AlphaCapability::GetSnapshot]);
        assert!(
            !disabled.advertises("GET_SNAPSHOT")
                && disabled.advertises("GET_VOLUME")
                && disabled.advertises("CLONE_VOLUME")
        );
        let refusal = disabled.check(AlphaCapability::GetSnapshot).expect_err("off");
        assert_eq!(refusal.code(), Code::Unimplemented);
        assert!(refusal.message().contains("GET_SNAPSHOT"), "{refusal}");
        assert!(disabled.check(AlphaCapability::GetVolume).is_ok());
    }

    #[test]
    fn capability_names_round_trip_and_error_lists_them() {
        for capability in AlphaCapability::ALL {
            assert_eq!(capability.name().parse(), Ok(capability));
        }
        let refusal = "CLONE_VOLUME".parse::<AlphaCapability>().expect_err("no alpha");
        assert!(refusal.contains("LIST_VOLUME_HEALTH"), "{refusal}");
    }
}
