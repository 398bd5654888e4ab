// SPDX-License-Identifier: Apache-2.0
//! How the driver comes from one version or spec to the next. Pure: what may be written now, and which node pods are to be
//! replaced, follows from what exists and never from memory.
//!
//! The order is: everything that pods need, the controller, and when all its pods are of the new version, the node pods. Those
//! are not left to the DaemonSet's own rolling update, because that goes by Ready pods. The DaemonSet's strategy is OnDelete,
//! and the operator deletes outdated pods, never more than `maxUnavailable` nodes at once, where a node counts as served only
//! when its pod is of the wanted revision, is Ready, and the node's CSINode lists the driver. Nodes where the new pod does not come up
//! count against `maxUnavailable`: a rollout stops when it has lost so many, and an operator that starts again finds it stopped. Nodes
//! that were without the driver before do not count. The status records them before their pods are deleted, because nothing
//! shows it afterwards.

mod duties;
mod gate;
mod nodes;

pub use duties::without_new_duties;
pub use gate::{Gate, Hold, Release, STANDS_FOR, WORKLOADS, gate, is_workload, stand_in, withhold_updates};
pub use nodes::scaled;
pub use nodes::{NodeRollout, Nodes, Replacement, node_rollout, unrecorded_absences};
