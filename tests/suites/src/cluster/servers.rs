// SPDX-License-Identifier: Apache-2.0
//! Changes the servers of nodes on the real OpenStack.

use anyhow::{Result, ensure};
use harness::{Node, NodeConfig, wait_for};

use super::{DRIVER, PATIENCE, World};

/// Label with the zone of a node.
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";

impl World {
    /// Changes the server of a node to one of the other zone, and returns its configuration. [`World::move_home`]
    /// reverts it.
    pub async fn move_far(&self, node: &Node) -> Result<NodeConfig> {
        let far = self.openstack()?.far(node.name())?;
        self.become_server(node, &far).await?;
        Ok(far)
    }

    /// Reverts a node to its original server.
    pub async fn move_home(&self, node: &Node) -> Result<()> {
        let near = self.openstack()?.near(node)?;
        self.become_server(node, &near).await
    }

    /// Reverts all nodes to their original servers.
    pub(super) async fn all_home(&self) -> Result<()> {
        let nodes = self.openstack.as_ref().map(|_| self.cluster.nodes());
        for node in nodes.unwrap_or_default() {
            let labels = self.get(&["node", node.name()]).await?["metadata"]["labels"].take();
            if labels[ZONE_LABEL] != node.zone() {
                self.move_home(node).await?;
            }
        }
        Ok(())
    }

    async fn become_server(&self, node: &Node, server: &NodeConfig) -> Result<()> {
        let name = node.name();
        self.cluster.replace_server(server).await?;
        // A new server would have booted, which nodes that share this machine's kernel cannot simulate. The driver
        // refuses another identity in the same boot unless an administrator deletes its record.
        let record = format!("/var/lib/kubelet/plugins/{DRIVER}/node-identity");
        node.exec(&["rm", "--force", &record]).await?;
        // The kubelet does not change an existing value.
        let without = format!("{ZONE_LABEL}-");
        self.kubectl(&["label", "node", name, &without]).await?;
        self.kill_plugin(node).await?;
        wait_for("the node's new server and zone", PATIENCE, async || {
            let labels = self.get(&["node", name]).await?["metadata"]["labels"].take();
            ensure!(labels[ZONE_LABEL] == server.zone.as_str(), "its labels are {labels}");
            let entry = self.registration(node).await?;
            ensure!(entry["nodeID"] == server.server_id, "its CSINode has {entry}");
            Ok(())
        })
        .await?;
        self.healthy().await
    }
}
