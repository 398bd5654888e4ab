// SPDX-License-Identifier: Apache-2.0
//! Checks of the driver's responses against the state of the machine.

use std::path::Path;

use csi_proto::csi::v1::NodeGetInfoRequest;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::{NodeExpandVolumeResponse, VolumeCapability};

use super::{Client, Mounting, UNUSED};
use crate::cluster::VolumeMode;

/// Mount options of StorageClasses, constant per volume.
const CLASSES: [&[&str]; 6] = [
    &[],
    &[],
    &["noatime"],
    &["nosuid", "nodev", "nodiratime"],
    &["noexec", "strictatime"],
    &["noatime", "context=\"system_u:object_r:container_file_t:s0:c1,c2\""],
];

impl Mounting {
    /// Returns the mount options of the volume's class.
    fn mount_options(&self) -> &'static [&'static str] {
        let sum: usize = self.claim.volume.bytes().map(usize::from).sum();
        CLASSES.get(sum % CLASSES.len()).copied().unwrap_or_default()
    }

    /// Returns the capability of the volume, with the options of its class.
    pub(super) fn capability(&self) -> VolumeCapability {
        let mut capability = self.claim.capability();
        if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
            mount.mount_flags = self.mount_options().iter().map(|&option| option.to_owned()).collect();
        }
        capability
    }

    /// Checks after an OK that the volume is mounted at this path with all options, unless it was removed since.
    pub(super) fn check_shown(&self, path: &Path, call: &str) {
        let shown = self.machine().volume_at(path);
        let is_shown = shown.as_ref().is_ok_and(|volume| *volume == self.claim.volume);
        if !is_shown && !self.is_excused() {
            self.wrong(&format!("{call} answered OK, and at {} is {shown:?}", path.display()));
        }
        let Some(mount) = self.machine().shown_mount(path).filter(|_| is_shown) else {
            return;
        };
        let mut missing: Vec<&str> = self.mount_options().to_vec();
        missing.retain(|option| !mount.has_option(option));
        let is_read_only = self
            .targets
            .iter()
            .any(|target| target.path == path && target.is_read_only);
        if (is_read_only || self.is_attached_read_only) && !mount.is_read_only() {
            missing.push("ro");
        }
        let recovery = self
            .without_recovery()
            .filter(|_| !mount.is_shared && self.is_attached_read_only);
        missing.extend(recovery.filter(|option| !mount.has_option(option)));
        if !missing.is_empty() {
            self.wrong(&format!(
                "{call} answered OK, and {} lacks the options {missing:?}: {mount:?}",
                path.display()
            ));
        }
    }

    /// Returns the option that prevents a replay of the journal.
    fn without_recovery(&self) -> Option<&'static str> {
        match self.claim.mode {
            VolumeMode::Filesystem("ext4") => Some("noload"),
            VolumeMode::Filesystem("xfs") => Some("norecovery"),
            VolumeMode::Filesystem("btrfs") => Some("rescue=nologreplay"),
            _ => None,
        }
    }

    /// Checks after an OK of NodeExpandVolume that the device has the reported size, and that the file system fills it.
    pub(super) fn check_growth(&self, required: i64, answer: NodeExpandVolumeResponse) {
        let positive = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        let (required, answered) = (positive(required), positive(answer.capacity_bytes));
        let (device, filesystem) = self.machine().sizes(&self.claim.volume);
        let fills = |bytes: Option<u64>, least: u64| bytes.is_some_and(|bytes| bytes + UNUSED > least);
        let is_whole = answered + UNUSED > required && device.is_some_and(|device| device >= answered);
        let has_grown = self.claim.mode == VolumeMode::Block || fills(filesystem, answered);
        if !(self.is_excused() || is_whole && has_grown) {
            self.wrong(&format!(
                "NodeExpandVolume to {required} answered OK with {answered}; the device has {device:?} bytes and its file system \
                 {filesystem:?}"
            ));
        }
    }

    /// Checks that the node does not report a higher volume limit than it supports.
    pub(super) async fn ask_limit(&self) {
        let call = |mut client: Client, request| async move { client.node_get_info(request).await };
        let answer = match self.node.call(NodeGetInfoRequest::default(), call).await {
            Ok(answer) => answer,
            Err(status) => {
                return self.note(&format!("has no limit: {:?}: {}", status.code(), status.message()));
            }
        };
        let room = self.machine().room();
        self.note(&format!("is on a node for {} volumes", answer.max_volumes_per_node));
        let promised = usize::try_from(answer.max_volumes_per_node).unwrap_or_default();
        if promised > room || promised == 0 {
            self.wrong(&format!(
                "NodeGetInfo answered {promised} volumes, and the node has room for {room}"
            ));
        }
    }

    /// Checks that nothing remains of a mount after a final error.
    pub(super) fn check_absent(&self, path: &Path, call: &str, code: tonic::Code) {
        if self.is_mounted(path) {
            self.wrong(&format!(
                "{call} ended with {code:?}, and it is mounted at {}",
                path.display()
            ));
        }
    }
}
