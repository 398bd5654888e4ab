// SPDX-License-Identifier: Apache-2.0
//! Addresses of the cluster, and links between the nodes' network namespaces.
//!
//! The first node has a bridge, `fabric0`; every other node is connected to it by a veth pair. Pods of node N are in
//! 10.88.N.0/24 behind `cni0`. There is no route to outside networks: connections to them fail immediately.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};

use crate::Command;

/// The service address of the API server: the first one of the service range.
pub(crate) const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/24";
pub(crate) const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const BRIDGE: &str = "fabric0";

/// The address of the API server for nodes and pods.
pub(crate) const API_SERVER: SocketAddrV4 = SocketAddrV4::new(node_address(1), 6443);

/// Returns the address of node `number`, counted from 1.
pub(crate) const fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 87, 0, number)
}

/// Returns the address range of the pods of node `number`.
pub(crate) fn pod_range(number: u8) -> String {
    format!("10.88.{number}.0/24")
}

/// Creates the bridge of the first node, whose init process is `pid`.
pub(crate) async fn join_first(pid: u32) -> Result<()> {
    inside(pid, &["ip", "link", "add", BRIDGE, "type", "bridge"]).await?;
    inside(
        pid,
        &["ip", "addr", "add", &format!("{}/24", node_address(1)), "dev", BRIDGE],
    )
    .await?;
    inside(pid, &["ip", "link", "set", BRIDGE, "up"]).await?;
    // The route exists only so that connections to service addresses are not refused; iptables rewrites their
    // destination.
    inside(pid, &["ip", "route", "add", SERVICE_RANGE, "dev", BRIDGE]).await?;
    common(pid).await
}

/// Connects node `number`, whose init process is `pid`, with the bridge of the first node.
pub(crate) async fn join(number: u8, pid: u32, first_pid: u32) -> Result<()> {
    let port = format!("port{number}");
    let peer = pid.to_string();
    inside(
        first_pid,
        &[
            "ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &peer,
        ],
    )
    .await?;
    inside(first_pid, &["ip", "link", "set", &port, "master", BRIDGE, "up"]).await?;
    let gateway = node_address(1).to_string();
    inside(
        pid,
        &[
            "ip",
            "addr",
            "add",
            &format!("{}/24", node_address(number)),
            "dev",
            "eth0",
        ],
    )
    .await?;
    inside(pid, &["ip", "link", "set", "eth0", "up"]).await?;
    inside(pid, &["ip", "route", "add", SERVICE_RANGE, "via", &gateway]).await?;
    common(pid).await
}

/// Adds routes from every node to the pods of every other node. `nodes` has the node numbers and init processes.
pub(crate) async fn add_pod_routes(nodes: &[(u8, u32)]) -> Result<()> {
    for (number, pid) in nodes {
        for (other, _) in nodes.iter().filter(|(other, _)| other != number) {
            let via = node_address(*other).to_string();
            inside(*pid, &["ip", "route", "add", &pod_range(*other), "via", &via]).await?;
        }
    }
    Ok(())
}

/// Configures the service address of the API server, in place of kube-proxy, and the address of the metadata service.
async fn common(pid: u32) -> Result<()> {
    inside(
        pid,
        &["ip", "addr", "add", &format!("{METADATA_ADDRESS}/32"), "dev", "lo"],
    )
    .await?;
    for chain in ["PREROUTING", "OUTPUT"] {
        let service = format!("{SERVICE_ADDRESS}/32");
        let server = API_SERVER.to_string();
        inside(
            pid,
            &[
                "iptables",
                "--wait",
                "10",
                "-t",
                "nat",
                "-A",
                chain,
                "-d",
                &service,
                "-p",
                "tcp",
                "--dport",
                "443",
                "-j",
                "DNAT",
                "--to-destination",
                &server,
            ],
        )
        .await?;
    }
    Ok(())
}

/// Runs a command of this machine in a network namespace.
async fn inside(pid: u32, words: &[&str]) -> Result<()> {
    let target = pid.to_string();
    // `iptables` has its lock file in /run, which is separate on each node.
    let command = Command::new("nsenter")
        .args(["--target", &target, "--net", "--mount", "--"])
        .args(words);
    command
        .output()
        .await
        .map(drop)
        .context("cannot set up the network of a node")
}
