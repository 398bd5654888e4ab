// SPDX-License-Identifier: Apache-2.0
//! Decodes the fields of requests to the node service.

use std::path::{Component, Path, PathBuf};

use cinder_cloud::VolumeId;
use csi_host::{FsType, MountOptions};
use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Status;

use crate::capability::Access;
use crate::{fields, status};

/// Linux's PATH_MAX without the final zero. Paths may be longer than other strings.
const PATH_LIMIT: usize = 4095;

/// How a volume is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeUse {
    Block,
    /// As a file system of this type, or of any type if `None`, with these mount options.
    Filesystem(Option<FsType>, MountOptions),
}

/// A decoded capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeCapability {
    pub(super) usage: VolumeUse,
    pub(super) mode: Mode,
}

impl NodeCapability {
    /// Whether the access mode or a mount option excludes writes.
    pub(super) fn reads_only(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
            || matches!(&self.usage, VolumeUse::Filesystem(_, options) if options.is_read_only())
    }
}

/// Checks the id of a volume to read, expand or unpublish. It need not be a UUID, because no device matches another id.
pub(super) fn volume_id(value: &str) -> Result<String, Status> {
    fields::required("volume_id", value).map(str::to_owned)
}

/// Checks the id of a volume to stage, unstage or publish.
///
/// The id must be a UUID. Devices are found by the first 20 characters of an id, so any text with that prefix would
/// match.
pub(super) fn volume_uuid(value: &str) -> Result<String, Status> {
    const FIELD: &str = "volume_id";
    let id = fields::required(FIELD, value)?;
    if VolumeId::new(id).is_uuid() {
        return Ok(id.to_owned());
    }
    Err(status::invalid(
        FIELD,
        format_args!(
            "{id:?} is no UUID, and Cinder gives no other ids: use the id of the volume as the handle of its PV"
        ),
    ))
}

/// Checks a required path. It may be relative.
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

/// Checks a mount point: an absolute path, not the root directory, and below the kubelet's directory if it is
/// configured.
///
/// Only for RPCs that change the machine. Queries for other paths report that the volume is not there.
pub(super) fn mount_point(field: &str, path: PathBuf, kubelet_dir: Option<&Path>) -> Result<PathBuf, Status> {
    let refused = |problem: &str| Err(status::invalid(field, format_args!("{} {problem}", path.display())));
    if !path.is_absolute() {
        return refused("is not an absolute path: it has no meaning in another process");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return refused("has a component \"..\": name the directory where it leads");
    }
    if path.components().all(|part| part == Component::RootDir) {
        return refused("is the root directory: name one of the volume's own");
    }
    match kubelet_dir {
        // The kubelet's directory itself contains the volumes of all pods.
        Some(dir) if !path.starts_with(dir) || path.components().eq(dir.components()) => refused(&format!(
            "is not below the kubelet's directory {}: --kubelet-dir has to be the kubelet's --root-dir",
            dir.display()
        )),
        _ => Ok(path),
    }
}

/// Decodes the capability of a request.
pub(super) fn capability(capability: Option<&VolumeCapability>) -> Result<NodeCapability, Status> {
    const FIELD: &str = "volume_capability";
    let capability = capability.ok_or_else(|| status::invalid(FIELD, "it is required and missing"))?;
    // An attached volume is staged even if CreateVolume would refuse its capability now.
    Access::decode_existing(FIELD, capability)?;
    let mode = capability
        .access_mode
        .as_ref()
        .map_or(Mode::Unknown, csi_proto::csi::v1::volume_capability::AccessMode::mode);
    let usage = match &capability.access_type {
        Some(AccessType::Mount(mount)) => {
            // An empty name was accepted above, an unknown one was refused.
            let fs_type = FsType::from_name(&mount.fs_type);
            let options = MountOptions::parse(&mount.mount_flags).map_err(|error| status::invalid(FIELD, error))?;
            VolumeUse::Filesystem(fs_type, options)
        }
        _ => VolumeUse::Block,
    };
    Ok(NodeCapability { usage, mode })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tonic::Code;

    use super::*;

    #[test]
    fn serves_shared_filesystem_of_go_driver() {
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
    #[case("0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10", true)]
    // The first 20 characters are those of the volume's id.
    #[case("0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10/../x", false)]
    #[case("0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("\0", false)]
    #[case("*", false)]
    #[case("-rf", false)]
    #[case("\n", false)]
    #[case("", false)]
    fn stage_requires_uuid_as_volume_id(#[case] id: &str, #[case] good: bool) {
        let refused = volume_uuid(id).err();
        assert_eq!(refused.is_none(), good, "{refused:?}");
        if let Some(status) = refused {
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().starts_with("volume_id: "), "{status}");
        }
    }

    #[rstest]
    #[case("/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount", None)]
    #[case("/var/lib/kubelet//pods/./1/", None)]
    #[case("/var/lib/kubelet", Some("--kubelet-dir"))]
    #[case("/var/lib/kubelet/", Some("--kubelet-dir"))]
    #[case("/var/lib/kubelet2/pods/1", Some("--kubelet-dir"))]
    #[case("/etc", Some("--kubelet-dir"))]
    #[case("/var/lib/kubelet/../../../etc", Some("\"..\""))]
    #[case("pods/1", Some("absolute"))]
    #[case("/", Some("root directory"))]
    #[case("//", Some("root directory"))]
    #[case("/.", Some("root directory"))]
    fn mount_point_must_be_below_kubelet_directory(#[case] path: &str, #[case] problem: Option<&str>) {
        let dir = Path::new("/var/lib/kubelet/");
        let refused = mount_point("target_path", path.into(), Some(dir)).err();
        assert_eq!(refused.is_some(), problem.is_some(), "{refused:?}");
        if let (Some(status), Some(problem)) = (refused, problem) {
            assert_eq!(status.code(), Code::InvalidArgument);
            let message = status.message();
            assert!(
                message.starts_with(&format!("target_path: {path} ")) && message.contains(problem),
                "{message}"
            );
        }
        // The directory of another orchestrator is unknown.
        assert_eq!(
            mount_point("target_path", path.into(), None).is_ok(),
            problem.is_none_or(|problem| problem == "--kubelet-dir")
        );
    }

    #[rstest]
    #[case(Mode::SingleNodeWriter, &[], false)]
    #[case(Mode::SingleNodeWriter, &["noatime"], false)]
    // A volume that is read-only because of its class is published read-only, and the next call must recognize the
    // mount.
    #[case(Mode::SingleNodeWriter, &["noatime", "ro"], true)]
    #[case(Mode::SingleNodeReaderOnly, &[], true)]
    #[case(Mode::MultiNodeReaderOnly, &["rw"], true)]
    fn access_mode_or_mount_option_excludes_writes(
        #[case] mode: Mode,
        #[case] options: &[&str],
        #[case] reads_only: bool,
    ) {
        let options = MountOptions::parse(options).expect("they are known");
        let usage = VolumeUse::Filesystem(None, options);
        assert_eq!(NodeCapability { usage, mode }.reads_only(), reads_only);
    }
}
