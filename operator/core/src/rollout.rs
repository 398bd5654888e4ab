// SPDX-License-Identifier: Apache-2.0
//! Controls how the driver changes to another version or spec. The functions are pure. They derive the permitted
//! writes and the node pods to replace from existing objects only.
//!
//! The order is: the objects that pods need, the controller, and, when all its pods are updated, the node pods. The
//! rolling update of the DaemonSet itself is not used, because it considers only Ready pods. The strategy of the
//! DaemonSet is OnDelete, and the operator deletes outdated pods on at most `maxUnavailable` nodes at once.
//!
//! A node counts as served only when its pod has the desired revision, is Ready, and the node's CSINode lists the
//! driver. Nodes where the new pod does not become ready count against `maxUnavailable`. A rollout stops when it has
//! lost that many nodes, and is still stopped after a restart of the operator.
//!
//! Nodes that lacked the driver before the rollout do not count. The status records them before their pods are
//! deleted, because no object shows it afterwards.

mod duties;
mod gate;
mod nodes;

pub use duties::without_new_duties;
pub use gate::{Gate, Hold, Release, STANDS_FOR, WORKLOADS, gate, is_workload, stand_in, withhold_updates};
pub use nodes::scaled;
pub use nodes::{NodeRollout, Nodes, Replacement, node_rollout, unrecorded_absences};
