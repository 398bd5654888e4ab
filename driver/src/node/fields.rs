//! Fields of the requests to a node, decoded.

use std::path::PathBuf;

use csi_host::{FsType, MountOptions};
use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Status;

use crate::capability::Access;
use crate::{fields, status};

/// Linux's PATH_MAX less the final zero: paths may be longer than other strings.
const PATH_LIMIT: usize = 4095;

/// What a volume is used as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    /// As a block device.
    Block,
    /// As a file system: of this type where one was named, mounted with these options.
    Filesystem(Option<FsType>, MountOptions),
}

/// A capability, decoded for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) usage: Use,
    pub(super) mode: Mode,
}

impl Wanted {
    /// Whether the access mode or a mount option, whatever else is asked, excludes writes.
    pub(super) fn reads_only(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
            || matches!(&self.usage, Use::Filesystem(_, options) if options.is_read_only())
    }
}

/// The id of a volume. Whether it can be one of Cinder's is for nobody to ask here: the device tells.
pub(super) fn volume_id(value: &str) -> Result<String, Status> {
    fields::required("volume_id", value).map(str::to_owned)
}

/// A required absolute path.
pub(super) fn path(field: &str, value: &str) -> Result<PathBuf, Status> {
    if value.is_empty() {
        return Err(status::invalid(field, "it is required and missing"));
    }
    if value.len() > PATH_LIMIT {
        return Err(status::invalid(
            field,
            format_args!("it has {} bytes, and {PATH_LIMIT} are allowed", value.len()),
        ));
    }
    if value.contains('\0') {
        return Err(status::invalid(field, "it contains a zero byte"));
    }
    Ok(PathBuf::from(value))
}

/// Refuses a relative path, which has no meaning between processes. Only for what changes the machine: a question about a
/// relative path has an answer, that the volume is not there.
pub(super) fn absolute(field: &str, path: PathBuf) -> Result<PathBuf, Status> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(status::invalid(field, "it is not an absolute path"))
    }
}

/// The capability of a request.
pub(super) fn capability(capability: Option<&VolumeCapability>) -> Result<Wanted, Status> {
    const FIELD: &str = "volume_capability";
    let capability = capability.ok_or_else(|| status::invalid(FIELD, "it is required and missing"))?;
    // One that the controller attached is staged, also where no such volume would be made any more.
    Access::of_existing(FIELD, capability)?;
    let mode = capability
        .access_mode
        .as_ref()
        .map_or(Mode::Unknown, csi_proto::csi::v1::volume_capability::AccessMode::mode);
    let usage = match &capability.access_type {
        Some(AccessType::Mount(mount)) => {
            // An empty name was let pass above, an unknown one was not.
            let fs_type = FsType::from_name(&mount.fs_type);
            let options = MountOptions::parse(&mount.mount_flags).map_err(|error| status::invalid(FIELD, error))?;
            Use::Filesystem(fs_type, options)
        }
        _ => Use::Block,
    };
    Ok(Wanted { usage, mode })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_file_system_for_several_writers_that_the_go_driver_made_is_served() {
        let mount = csi_proto::csi::v1::volume_capability::MountVolume::default();
        let asked = VolumeCapability {
            access_mode: Some(csi_proto::csi::v1::volume_capability::AccessMode {
                mode: Mode::MultiNodeMultiWriter.into(),
            }),
            access_type: Some(AccessType::Mount(mount)),
        };
        let wanted = capability(Some(&asked)).expect("it is served");
        assert_eq!(wanted.mode, Mode::MultiNodeMultiWriter);
    }

    #[rstest]
    #[case(Mode::SingleNodeWriter, &[], false)]
    #[case(Mode::SingleNodeWriter, &["noatime"], false)]
    // What is mounted read-only because of its class is published read-only, and found so by the next call.
    #[case(Mode::SingleNodeWriter, &["noatime", "ro"], true)]
    #[case(Mode::SingleNodeReaderOnly, &[], true)]
    #[case(Mode::MultiNodeReaderOnly, &["rw"], true)]
    fn writes_are_excluded_by_the_access_mode_and_by_the_mount_options(
        #[case] mode: Mode,
        #[case] options: &[&str],
        #[case] reads_only: bool,
    ) {
        let options = MountOptions::parse(options).expect("they are known");
        let usage = Use::Filesystem(None, options);
        assert_eq!(Wanted { usage, mode }.reads_only(), reads_only);
    }
}
