// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes cluster of real components on one machine, for tests and the demo.
//!
//! etcd, the API server, the controller manager, the scheduler, containerd and the kubelets of one or more nodes run in
//! their own network, mount and PID namespaces. The OpenStack simulator runs next to them; its attachments become loop
//! devices of one node. The cluster does not change the machine's own network. When the init process of the namespaces
//! ends, the kernel ends all other processes. A keeper process ensures that if the owner dies for any reason (see
//! `scripts/teardown.sh`).
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use harness::{Cluster, ClusterConfig, wait_for};
//! use std::time::Duration;
//!
//! let cluster = Cluster::start(ClusterConfig::with_nodes(2)).await?;
//! cluster.install_product().await?;
//! cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: x}}").await?;
//! wait_for("namespace x", Duration::from_secs(10), async || cluster.kubectl(&["get", "namespace", "x"]).await).await?;
//! cluster.stop().await
//! # }
//! ```
//!
//! Needs root, the distribution packages that `tests/tools/apt` installs, and the programs that `tests/tools/build`
//! builds. Cancelling a future of this crate does not change the cluster; dropping the [`Cluster`] removes it.

mod api_server;
mod cluster;
mod command;
mod forward;
mod image;
mod images;
mod node_sidecars;
mod poll;
mod previous;
mod product;
mod programs;
mod progress;
mod prometheus;
mod run;
mod simulator;
mod tools;

pub use api_server::ApiServer;
pub use cluster::{CloudConfig, Cluster, ClusterConfig, Container, Node, NodeConfig};
pub use command::{Answer, Command};
pub use image::{Entry, Image};
pub use images::{BUSYBOX_IMAGE, busybox, listed, sidecar_programs, snapshot_controller};
pub use poll::{wait_for, wait_for_some};
pub use previous::previous_source;
pub use product::{Product, Profile};
pub use programs::{is_fresh, is_of_another_cargo, release_driver, release_operator};
pub use progress::Progress;
pub use prometheus::Prometheus;
pub use run::{DetachedRun, clean_up_all, find_runs};
pub use simulator::{Access, Simulator, SimulatorConfig};
pub use tools::{Tools, workspace_root};
