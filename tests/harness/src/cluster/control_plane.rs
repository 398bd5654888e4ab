// SPDX-License-Identifier: Apache-2.0
//! etcd, API server, controller manager and scheduler in the namespaces of the first node.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::daemon::Daemon;
use super::network::{API_SERVER, SERVICE_RANGE};
use super::pki::Pki;
use super::{ClusterConfig, Node};
use crate::{Command, wait_for};

/// etcd and the API server need 3–5 s on two idle cores.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(1);

const ETCD: &str = "http://127.0.0.1:2379";

/// Starts etcd and the API server, waits until the API server is ready, then starts the other components.
pub(crate) async fn start(node: &Node, pki: &Pki, config: &ClusterConfig, daemons: &mut Vec<Daemon>) -> Result<()> {
    let mut etcd = node.command("etcd");
    etcd_arguments(&mut etcd, &node.run_directory().join("etcd"));
    daemons.push(Daemon::start("etcd", node.logs(), &mut etcd)?);

    let mut api_server = node.command("kube-apiserver");
    api_server_arguments(&mut api_server, pki, API_SERVER);
    api_server.args([
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
    ]);
    api_server.args(["--kubelet-preferred-address-types=InternalIP"]);
    api_server.args(&config.api_server_args);
    let api_server = Daemon::start("kube-apiserver", node.logs(), &mut api_server)?;
    daemons.push(api_server);

    wait_for("the API server's readiness", START_TIMEOUT, async || {
        node.kubectl()
            .args(["get", "--raw", "/readyz"])
            .timeout(Duration::from_secs(5))
            .output()
            .await
    })
    .await
    .with_context(|| {
        daemons
            .iter_mut()
            .find_map(|daemon| daemon.check().err())
            .map_or_else(String::new, |e| e.to_string())
    })?;

    let kubeconfig = format!("--kubeconfig={}", node.admin_kubeconfig().display());
    let mut controllers = node.command("kube-controller-manager");
    controllers
        .arg(&kubeconfig)
        .arg(format!(
            "--service-account-private-key-file={}",
            pki.file("accounts.key").display()
        ))
        .arg(format!("--root-ca-file={}", pki.file("ca.crt").display()))
        .args([
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ])
        .args(&config.controller_manager_args);
    daemons.push(Daemon::start("kube-controller-manager", node.logs(), &mut controllers)?);
    let mut scheduler = node.command("kube-scheduler");
    scheduler
        .arg(&kubeconfig)
        .args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
    daemons.push(Daemon::start("kube-scheduler", node.logs(), &mut scheduler)?);
    Ok(())
}

/// Adds the arguments of etcd that all uses share. Data need not survive a crash of the machine.
pub(crate) fn etcd_arguments(etcd: &mut std::process::Command, data: &Path) {
    etcd.arg("--data-dir")
        .arg(data)
        .args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD])
        .args(["--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"]);
}

/// Adds the arguments of the API server that all uses share.
pub(crate) fn api_server_arguments(api_server: &mut std::process::Command, pki: &Pki, address: SocketAddrV4) {
    api_server
        .arg(format!("--etcd-servers={ETCD}"))
        .arg(format!("--secure-port={}", address.port()))
        .arg(format!("--advertise-address={}", address.ip()))
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
        .args(["--bind-address=0.0.0.0", "--allow-privileged=true"])
        .arg("--endpoint-reconciler-type=none")
        .arg("--service-account-issuer=https://kubernetes.default.svc");
    for (flag, file) in [
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
        ("client-ca-file", "ca.crt"),
        ("service-account-key-file", "accounts.pub"),
        ("service-account-signing-key-file", "accounts.key"),
        ("token-auth-file", "tokens.csv"),
    ] {
        api_server.arg(format!("--{flag}={}", pki.file(file).display()));
    }
}

/// Returns a kubectl command as the administrator, in the namespaces of the first node.
pub(crate) fn kubectl(node: &Node) -> Command {
    Command::new("nsenter")
        .args(["--target", &node.pid().to_string(), "--net", "--"])
        .arg(node.program("kubectl"))
        .arg("--kubeconfig")
        .arg(node.admin_kubeconfig())
        .arg("--cache-dir")
        .arg(node.run_directory().join("kubectl-cache"))
        .known_as("kubectl")
}
