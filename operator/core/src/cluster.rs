// SPDX-License-Identifier: Apache-2.0
//! Observed state of the cluster: names and kinds of objects, and the facts derived from them.

mod answers;
mod apis;
mod attached_nodes;
mod attachments;
mod blockers;
mod claims;
mod contents;
mod facts;
mod guarded;
mod index;
mod installation;
pub(crate) mod kinds;
mod labels;
mod managed_fields;
mod names;
mod node_objects;
mod nodes;
mod objects;
mod pods;
mod references;
mod storage_classes;
mod version;
mod volumes;

pub use answers::{ANSWERS_HOLD, Answers, ApiAnswers};
pub use apis::{OptionalApi, OptionalApis};
pub use attached_nodes::{AttachedNode, AttachedNodes, LostNodes, describe_nodes, may_lose_nodes};
pub use attachments::AttachmentObject;
pub use blockers::Blockers;
pub use claims::{ClaimObject, OLD_PROVISIONER, PROVISIONER, SELECTED_NODE};
pub use contents::{ContentsList, SnapshotContents};
pub use facts::{
    AttachmentFact, ClaimFact, ClaimRef, DefaultClassMark, DriverRegistration, NodePod, Owned, VolumeFact,
};
pub use guarded::{GuardedObject, UndecodableObject, unknown_object};
pub use index::{Affected, Index, Indexed, Scope, queries::VolumeCount};
pub use installation::{Installation, NOTE, Note, OldController, OldObject};
pub use kinds::{KINDS, Kind};
pub use labels::{
    COMPONENT_LABEL, CONTROLLER_COMPONENT, DEFAULT_CLASS_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL, NODE_COMPONENT,
    REVISION_LABEL, VERSION_LABEL,
};
pub use managed_fields::{FIELD_MANAGER, is_applied, is_copy};
pub use managed_fields::{own_fields, owns_annotation};
pub use names::{LONGEST_NAME, is_object_name};
pub use node_objects::{NodeObject, RegistrationObject};
pub use nodes::{NodeFacts, NodeTimes, NodesView, eligible_nodes, ready_node_times, ready_nodes, view};
pub use objects::{Key, Owner, RELEASED, key_of, kind, maker_of};
pub use pods::PodObject;
pub use references::{SecretName, SecretReference, annotated_secrets, secret_parameters};
pub use storage_classes::ClassObject;
pub use version::{KubernetesVersion, at_least};
pub use volumes::VolumeObject;
