// SPDX-License-Identifier: Apache-2.0
//! Parses volume capabilities and rejects unsupported ones.

use csi_host::FsType;
use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Status;

use crate::status;

/// A supported capability. If several nodes are requested, the volume type must allow it as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether the volume may be attached to several nodes at once.
    pub multi_node: bool,
    /// Whether the volume is used as a raw block device.
    pub block: bool,
    /// Whether a file system was requested for several writers. The driver restricts such an existing volume to one
    /// node.
    pub single_node_only: bool,
}

/// Why a file system is restricted to one node.
pub const ONE_WRITER: &str = "a file system cannot be written by several nodes: each keeps its own idea of it; use volumeMode: Block or \
                              access mode ReadWriteOnce";

/// A sentence that explains why a capability is not supported.
type Reason = String;

impl Access {
    /// Parses one capability. `INVALID_ARGUMENT` names `field` and the problem.
    pub fn decode(field: &str, capability: &VolumeCapability) -> Result<Self, Status> {
        Self::parse(capability).map_err(|reason| status::invalid(field, reason))
    }

    /// Parses the capability of an existing volume.
    ///
    /// The Go driver creates volumes with a file system for several writers. This driver serves them on one node.
    pub fn decode_existing(field: &str, capability: &VolumeCapability) -> Result<Self, Status> {
        Self::parse_existing(capability).map_err(|reason| status::invalid(field, reason))
    }

    /// Parses all capabilities of a request, of which at least one is required.
    pub fn decode_all(field: &str, capabilities: &[VolumeCapability]) -> Result<Vec<Self>, Status> {
        if capabilities.is_empty() {
            return Err(status::invalid(field, "at least one is required"));
        }
        capabilities
            .iter()
            .map(|capability| Self::decode(field, capability))
            .collect()
    }

    /// Parses one capability. The error explains why it is not supported.
    pub fn parse(capability: &VolumeCapability) -> Result<Self, Reason> {
        let access = Self::parse_existing(capability)?;
        if access.single_node_only {
            return Err(ONE_WRITER.into());
        }
        Ok(access)
    }

    fn parse_existing(capability: &VolumeCapability) -> Result<Self, Reason> {
        let block = match &capability.access_type {
            None => return Err("an access type, block or mount, is required".into()),
            Some(AccessType::Block(_)) => true,
            Some(AccessType::Mount(mount)) => {
                // The file systems that nodes can format and mount. An empty name selects the node's default.
                if !mount.fs_type.is_empty() && FsType::from_name(&mount.fs_type).is_none() {
                    return Err(format!(
                        "file system {:?} is not served; use {}, {} or {}",
                        mount.fs_type,
                        FsType::Ext4,
                        FsType::Xfs,
                        FsType::Btrfs
                    ));
                }
                false
            }
        };
        let mode = capability.access_mode.as_ref().map_or(0, |access| access.mode);
        let (multi_node, single_node_only) = match Mode::try_from(mode) {
            Ok(Mode::Unknown) => return Err("an access mode is required".into()),
            Err(_) => return Err(format!("access mode {mode} is not known to this driver")),
            Ok(
                Mode::SingleNodeWriter
                | Mode::SingleNodeReaderOnly
                | Mode::SingleNodeSingleWriter
                | Mode::SingleNodeMultiWriter,
            ) => (false, false),
            Ok(Mode::MultiNodeReaderOnly) => (true, false),
            Ok(Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => (block, !block),
        };
        Ok(Self {
            multi_node,
            block,
            single_node_only,
        })
    }
}

#[cfg(test)]
mod tests {
    use csi_proto::csi::v1::volume_capability::{AccessMode, BlockVolume, MountVolume};
    use rstest::rstest;

    use super::*;

    fn mount(fs_type: &str) -> AccessType {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.into(),
            ..MountVolume::default()
        })
    }

    fn block() -> AccessType {
        AccessType::Block(BlockVolume {})
    }

    fn capability(access_type: Option<AccessType>, mode: i32) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode }),
            access_type,
        }
    }

    #[rstest]
    #[case(Some(mount("")), Mode::SingleNodeWriter, Some(false))]
    #[case(Some(mount("ext4")), Mode::SingleNodeReaderOnly, Some(false))]
    // Volumes that the Go driver formatted.
    #[case(Some(mount("ext3")), Mode::SingleNodeWriter, Some(false))]
    #[case(Some(mount("ext2")), Mode::SingleNodeWriter, Some(false))]
    #[case(Some(mount("xfs")), Mode::SingleNodeSingleWriter, Some(false))]
    #[case(Some(block()), Mode::SingleNodeMultiWriter, Some(false))]
    #[case(Some(mount("")), Mode::MultiNodeReaderOnly, Some(true))]
    #[case(Some(block()), Mode::MultiNodeMultiWriter, Some(true))]
    #[case(Some(block()), Mode::MultiNodeSingleWriter, Some(true))]
    #[case(Some(mount("")), Mode::MultiNodeMultiWriter, None)]
    #[case(Some(mount("")), Mode::MultiNodeSingleWriter, None)]
    #[case(Some(mount("ntfs")), Mode::SingleNodeWriter, None)]
    #[case(Some(mount("")), Mode::Unknown, None)]
    #[case(None, Mode::SingleNodeWriter, None)]
    fn accepts_supported_modes_and_access_types(
        #[case] access_type: Option<AccessType>,
        #[case] mode: Mode,
        #[case] multi_node: Option<bool>,
    ) {
        let read = Access::parse(&capability(access_type, mode as i32));
        assert_eq!(
            read.as_ref().ok().map(|access| access.multi_node),
            multi_node,
            "{read:?}"
        );
    }

    #[rstest]
    #[case(mount(""), Mode::MultiNodeMultiWriter, (false, true))]
    #[case(mount("xfs"), Mode::MultiNodeSingleWriter, (false, true))]
    #[case(mount(""), Mode::SingleNodeWriter, (false, false))]
    #[case(block(), Mode::MultiNodeMultiWriter, (true, false))]
    fn existing_shared_filesystem_is_limited_to_one_node(
        #[case] access_type: AccessType,
        #[case] mode: Mode,
        #[case] expected: (bool, bool),
    ) {
        let read = Access::decode_existing("volume_capability", &capability(Some(access_type), mode as i32));
        let read = read.expect("served");
        assert_eq!((read.multi_node, read.single_node_only), expected);
    }

    #[test]
    fn unknown_access_mode_is_reported_by_number() {
        let reason = Access::parse(&capability(Some(block()), 99)).expect_err("unknown");
        assert!(reason.contains("99"), "{reason}");
    }

    #[test]
    fn rejects_request_without_capabilities() {
        assert!(Access::decode_all("volume_capabilities", &[]).is_err());
    }
}
