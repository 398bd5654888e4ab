// SPDX-License-Identifier: Apache-2.0
//! What a volume capability asks for, and which ones can be met.

use csi_host::FsType;
use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Status;

use crate::status;

/// A capability that this driver can meet, provided that the volume's type allows several servers where that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether the volume may be on several nodes at once.
    pub multi_node: bool,
    /// Whether it is used as a raw block device.
    pub block: bool,
    /// Whether several nodes were to write a file system: such a volume is kept to one node. Only volumes that exist have it.
    pub kept_to_one: bool,
}

/// Why a file system is kept to one node.
pub const ONE_WRITER: &str = "a file system cannot be written by several nodes: each keeps its own idea of it; use volumeMode: Block or \
                              access mode ReadWriteOnce";

/// Why a capability cannot be met, as a sentence.
type Reason = String;

impl Access {
    /// Reads one capability; `INVALID_ARGUMENT` names `field` and what is wrong with it.
    pub fn of(field: &str, capability: &VolumeCapability) -> Result<Self, Status> {
        Self::read(capability).map_err(|reason| status::invalid(field, reason))
    }

    /// The same of a volume that exists: the Go driver makes volumes with a file system for several writers, and they are served at one
    /// node.
    pub fn of_existing(field: &str, capability: &VolumeCapability) -> Result<Self, Status> {
        Self::read_existing(capability).map_err(|reason| status::invalid(field, reason))
    }

    /// Reads all capabilities of a request, of which there must be one.
    pub fn of_all(field: &str, capabilities: &[VolumeCapability]) -> Result<Vec<Self>, Status> {
        if capabilities.is_empty() {
            return Err(status::invalid(field, "at least one is required"));
        }
        capabilities
            .iter()
            .map(|capability| Self::of(field, capability))
            .collect()
    }

    /// Reads one capability; the error is the reason why it cannot be met.
    pub fn read(capability: &VolumeCapability) -> Result<Self, Reason> {
        let access = Self::read_existing(capability)?;
        if access.kept_to_one {
            return Err(ONE_WRITER.into());
        }
        Ok(access)
    }

    fn read_existing(capability: &VolumeCapability) -> Result<Self, Reason> {
        let block = match &capability.access_type {
            None => return Err("an access type, block or mount, is required".into()),
            Some(AccessType::Block(_)) => true,
            Some(AccessType::Mount(mount)) => {
                // What nodes can make and mount; without a name they take their default.
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
        let (multi_node, kept_to_one) = match Mode::try_from(mode) {
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
            kept_to_one,
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
    fn each_mode_and_access_type_is_met_or_refused(
        #[case] access_type: Option<AccessType>,
        #[case] mode: Mode,
        #[case] multi_node: Option<bool>,
    ) {
        let read = Access::read(&capability(access_type, mode as i32));
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
    fn a_file_system_that_exists_for_several_writers_is_kept_to_one_node(
        #[case] access_type: AccessType,
        #[case] mode: Mode,
        #[case] expected: (bool, bool),
    ) {
        let read = Access::of_existing("volume_capability", &capability(Some(access_type), mode as i32));
        let read = read.expect("served");
        assert_eq!((read.multi_node, read.kept_to_one), expected);
    }

    #[test]
    fn a_mode_of_a_later_specification_is_refused_by_its_number() {
        let reason = Access::read(&capability(Some(block()), 99)).expect_err("unknown");
        assert!(reason.contains("99"), "{reason}");
    }

    #[test]
    fn a_request_without_capabilities_is_refused() {
        assert!(Access::of_all("volume_capabilities", &[]).is_err());
    }
}
