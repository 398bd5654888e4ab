// SPDX-License-Identifier: Apache-2.0
//! Takes the startup taint away from nodes where the driver is registered.
//!
//! Whoever makes nodes (an autoscaler, a node group) may put the taint on new ones, so that no pod comes before its volumes can be
//! mounted. The node's own pod could not take it away without a right to write on nodes; the operator has that right and looks at
//! the CSINode entry, which is what the scheduler goes by too.

use std::collections::BTreeSet;

use cinder_operator_core::cluster::NodeFacts;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::kubernetes::{GuardedApi, answer};

/// How many nodes are freed in one reconcile. The change of a node brings the next one.
const AT_ONCE: usize = 50;

/// The nodes that can be freed now: they have the taint, and the driver is registered on them.
pub fn ready_nodes(nodes: &[&NodeFacts], registered: &BTreeSet<String>, key: &str) -> Vec<String> {
    let tainted = |node: &&&NodeFacts| node.taints.iter().any(|(found, ..)| found == key);
    nodes
        .iter()
        .filter(tainted)
        .filter(|node| registered.contains(&node.name))
        .take(AT_ONCE)
        .map(|node| node.name.clone())
        .collect()
}

/// What became of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Where the taint was taken away.
    pub nodes: Vec<String>,
    /// Where it could not be, with the API server's sentence.
    pub failed: Vec<(String, String)>,
}

/// Takes the taint away from each of `nodes`. A node that changed meanwhile is left for the next reconcile.
pub async fn remove(client: &Client, nodes: &[String], key: &str) -> Freed {
    let api: GuardedApi<Node> = GuardedApi::all(client.clone());
    let mut freed = Freed::default();
    for name in nodes {
        match free_one(&api, name, key).await {
            Ok(true) => freed.nodes.push(name.clone()),
            Ok(false) => {}
            Err(error) => freed.failed.push((name.clone(), answer(&error))),
        }
    }
    freed
}

async fn free_one(api: &GuardedApi<Node>, name: &str, key: &str) -> Result<bool, kube::Error> {
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
        // Somebody changed the taints in between, which the first operation found.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The write that leaves all other taints as they are: it fails if they are not what was read. None if there is nothing to do.
fn patch(taints: &[Taint], key: &str) -> Option<Value> {
    let left: Vec<&Taint> = taints.iter().filter(|taint| taint.key != key).collect();
    (left.len() < taints.len()).then(|| {
        json!([
            { "op": "test", "path": "/spec/taints", "value": taints },
            { "op": "replace", "path": "/spec/taints", "value": left },
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
    fn a_node_is_freed_when_the_driver_is_registered_and_not_before() {
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
    fn the_taints_of_others_stay() {
        let patch = patch(&[mk_taint("dedicated"), mk_taint(KEY)], KEY).unwrap();

        assert_eq!(patch[0]["op"], "test");
        assert_eq!(patch[0]["value"][1]["key"], KEY);
        assert_eq!(
            patch[1]["value"],
            json!([{ "key": "dedicated", "effect": "NoSchedule" }])
        );
    }

    #[test]
    fn where_the_taint_is_gone_nothing_is_written() {
        assert_eq!(patch(&[mk_taint("dedicated")], KEY), None);
    }
}
