// SPDX-License-Identifier: Apache-2.0
//! Facts that the index stores about volumes, attachments, claims, classes, registrations and pods.

use csi_sources::UntrustedText;
use k8s_openapi::jiff::Timestamp;

/// Maximum length of a stored error.
const LONGEST_ERROR: usize = 512;

/// An object that belongs to a driver.
pub trait Owned {
    fn driver(&self) -> &str;
}

/// A stored value whose change affects no driver: text that differs between attempts.
#[derive(Debug, Clone, Default)]
pub struct IgnoredChange<T>(pub T);

impl<T> PartialEq for IgnoredChange<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The claim of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct VolumeFact {
    pub driver: String,
    /// Id of the volume in Cinder.
    pub handle: String,
    /// The claim that the volume is or was bound to.
    pub claim: Option<ClaimRef>,
    /// Whether the volume is restricted to some nodes.
    pub is_zoned: bool,
    /// Whether the data remains in Cinder after the deletion of the object.
    pub is_retained: bool,
    /// The VolumeAttributesClass of the volume.
    pub attributes_class: Option<Box<str>>,
    /// Time since when the volume waits for its deletion.
    pub deleting_since: Option<Timestamp>,
    /// Whether the object is being deleted.
    pub is_terminating: bool,
    /// Whether a claim is bound to the volume.
    pub is_bound: bool,
}

impl Owned for VolumeFact {
    fn driver(&self) -> &str {
        &self.driver
    }
}

/// A VolumeAttachment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttachmentFact {
    pub attacher: String,
    pub node: String,
    /// The PersistentVolume.
    pub volume: String,
    /// Whether the volume is attached.
    pub attached: bool,
    /// Time of the attach request.
    pub created: Option<Timestamp>,
    /// Time of the detach request.
    pub deleted: Option<Timestamp>,
    /// Last reported error.
    pub error: IgnoredChange<Option<String>>,
}

impl Owned for AttachmentFact {
    fn driver(&self) -> &str {
        &self.attacher
    }
}

/// A claim with a pending operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimFact {
    /// The CSI driver that creates the volume.
    pub driver: String,
    pub claim: ClaimRef,
    /// The PersistentVolume, if it exists.
    pub volume: Option<String>,
    /// Time since when the claim waits for a volume.
    pub provisioning_since: Option<Timestamp>,
    /// Time since when the claim waits for an expansion.
    pub resizing_since: Option<Timestamp>,
    /// Whether only the file system expansion is pending, for which a pod must use the volume.
    pub waits_for_node: bool,
    /// The node for which the volume is created.
    pub node: Option<String>,
    /// Last reported error of an expansion.
    pub error: IgnoredChange<Option<String>>,
}

/// A driver that a kubelet has registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverRegistration {
    /// Node id of the driver: the id of the server in Nova.
    pub node_id: String,
    /// Maximum number of volumes of the driver on the node.
    pub limit: Option<u32>,
}

/// A class that is marked as the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultClassMark {
    /// Time of its creation, in the format of Kubernetes.
    pub made: String,
    pub name: String,
    /// The driver whose operator set the annotation. `None` if another client set it.
    pub by: Option<String>,
}

/// The fact that the index stores about a StorageClass.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassFact {
    pub(super) driver: String,
    pub(super) marked: Option<DefaultClassMark>,
}

impl Owned for ClassFact {
    fn driver(&self) -> &str {
        &self.driver
    }
}

/// The relevant facts about a node pod of the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePod {
    pub name: String,
    pub uid: String,
    pub node: String,
    /// Revision of the DaemonSet that the pod was created from.
    pub revision: String,
    pub ready: bool,
    /// Whether the pod is being deleted.
    pub leaving: bool,
    pub created: Option<Timestamp>,
    /// Time of the last change between Ready and not Ready, or of the creation.
    pub since: Option<Timestamp>,
    /// Cause of a delay, in the message of the kubelet or the scheduler.
    pub trouble: Option<String>,
}

/// Facts about a pod: its driver and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFact {
    pub(super) driver: String,
    pub(super) pod: NodePod,
}

pub(super) fn truncate_error(text: &str) -> String {
    UntrustedText::with_limit(text, LONGEST_ERROR).to_string()
}
