// SPDX-License-Identifier: Apache-2.0
//! Removes the startup taint from nodes where the driver is registered.
//!
//! An autoscaler or a node group may create nodes with the taint, so that no pod starts before its volumes can be
//! mounted. The driver's pod on the node could remove it only with a right to write nodes. The operator has that right,
//! and checks the CSINode object, on which the scheduler also relies.

use std::collections::BTreeSet;

use cinder_operator_core::cluster::NodeFacts;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::kubernetes::{GuardedApi, answer};

/// Maximum number of nodes to update per reconcile. The change of a node triggers the next reconcile.
const MOST_NODES: usize = 50;

/// The nodes that have the taint and on which the driver is registered.
pub fn ready_nodes(nodes: &[&NodeFacts], registered: &BTreeSet<String>, key: &str) -> Vec<String> {
    let tainted = |node: &&&NodeFacts| node.taints.iter().any(|(taint, ..)| taint == key);
    nodes
        .iter()
        .filter(tainted)
        .filter(|node| registered.contains(&node.name))
        .take(MOST_NODES)
        .map(|node| node.name.clone())
        .collect()
}

/// Result of the removal of taints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TaintRemoval {
    /// Nodes without the taint after the removal.
    pub nodes: Vec<String>,
    /// Nodes whose update failed, with the message of the API server.
    pub failed: Vec<(String, String)>,
}

/// Removes the taint from each of `nodes`. A node that has changed in the meantime is retried by the next reconcile.
pub async fn remove(client: &Client, nodes: &[String], key: &str) -> TaintRemoval {
    let api: GuardedApi<Node> = GuardedApi::all(client.clone());
    let mut removal = TaintRemoval::default();
    for name in nodes {
        match remove_taint(&api, name, key).await {
            Ok(true) => removal.nodes.push(name.clone()),
            Ok(false) => {}
            Err(error) => removal.failed.push((name.clone(), answer(&error))),
        }
    }
    removal
}

async fn remove_taint(api: &GuardedApi<Node>, name: &str, key: &str) -> Result<bool, kube::Error> {
    let Some(node) = api.get_opt(name).await? else {
        return Ok(false);
    };
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let Some(patch) = patch(&taints, key) else {
        return Ok(false);
    };
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
    match api
        .patch(name, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await
    {
        Ok(_) => Ok(true),
        // Another client changed the taints after the read. The first operation of the patch detected it.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Builds the patch that removes the taint and retains all other taints. It fails if the taints have changed since the
/// read. `None` if the node does not have the taint.
fn patch(taints: &[Taint], key: &str) -> Option<Value> {
    let remaining: Vec<&Taint> = taints.iter().filter(|taint| taint.key != key).collect();
    (remaining.len() < taints.len()).then(|| {
        json!([
            { "op": "test", "path": "/spec/taints", "value": taints },
            { "op": "replace", "path": "/spec/taints", "value": remaining },
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "cinder.csi.openstack.org/agent-not-ready";

    fn mk_node(name: &str, taints: &[&str]) -> NodeFacts {
        NodeFacts {
            name: name.to_owned(),
            taints: taints
                .iter()
                .map(|&key| (key.to_owned(), String::new(), "NoExecute".to_owned()))
                .collect(),
            ready: true,
            ..NodeFacts::default()
        }
    }

    fn mk_taint(key: &str) -> Taint {
        Taint {
            key: key.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        }
    }

    #[test]
    fn taint_is_removed_only_after_registration() {
        let nodes = [
            mk_node("free", &["dedicated"]),
            mk_node("registered", &["dedicated", KEY]),
            mk_node("waiting", &[KEY]),
        ];

        let ready = ready_nodes(
            &nodes.iter().collect::<Vec<_>>(),
            &["free", "registered"].map(str::to_owned).into(),
            KEY,
        );

        assert_eq!(ready, ["registered"]);
    }

    #[test]
    fn other_taints_are_retained() {
        let patch = patch(&[mk_taint("dedicated"), mk_taint(KEY)], KEY).unwrap();

        assert_eq!(patch[0]["op"], "test");
        assert_eq!(patch[0]["value"][1]["key"], KEY);
        assert_eq!(
            patch[1]["value"],
            json!([{ "key": "dedicated", "effect": "NoSchedule" }])
        );
    }

    #[test]
    fn node_without_taint_is_not_written() {
        assert_eq!(patch(&[mk_taint("dedicated")], KEY), None);
    }
}
