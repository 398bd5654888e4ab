// SPDX-License-Identifier: Apache-2.0
//! What CSI calls alpha and this driver serves all the same, each with a switch that turns it off: `--disable-capability NAME`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use tonic::Status;

use crate::status;

/// A capability that can be turned off, named as in CSI's capability enums.
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
    /// Controller and node: the access modes with a single node and one or many writers.
    SingleNodeMultiWriter,
    /// Plugin: snapshots tell from where they can be reached.
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

    /// CSI's name.
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

/// What is turned off; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DisabledCapabilities {
    off: BTreeSet<AlphaCapability>,
}

impl DisabledCapabilities {
    /// These are off.
    pub fn of(off: impl IntoIterator<Item = AlphaCapability>) -> Self {
        Self {
            off: off.into_iter().collect(),
        }
    }

    /// Whether a capability is served and claimed.
    pub fn allows(&self, capability: AlphaCapability) -> bool {
        !self.off.contains(&capability)
    }

    /// Whether the capability of this CSI name is claimed; those that cannot be turned off always are.
    pub fn advertises(&self, name: &str) -> bool {
        self.off.iter().all(|capability| capability.name() != name)
    }

    /// `UNIMPLEMENTED` for a call whose capability is turned off.
    pub fn check(&self, capability: AlphaCapability) -> Result<(), Status> {
        if self.allows(capability) {
            Ok(())
        } else {
            Err(status::turned_off(capability.name()))
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_capability_that_is_turned_off_is_neither_claimed_nor_served() {
        let disabled = DisabledCapabilities::of([AlphaCapability::GetSnapshot]);
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
    fn names_are_read_back_and_a_wrong_one_is_told_the_right_ones() {
        for capability in AlphaCapability::ALL {
            assert_eq!(capability.name().parse(), Ok(capability));
        }
        let refusal = "CLONE_VOLUME".parse::<AlphaCapability>().expect_err("no alpha");
        assert!(refusal.contains("LIST_VOLUME_HEALTH"), "{refusal}");
    }
}
