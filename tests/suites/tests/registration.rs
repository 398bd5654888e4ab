// SPDX-License-Identifier: Apache-2.0
//! Tests our registration socket with the kubelet's own client.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for_some;
use suites::contracts::{self, PluginInfo};
use suites::drivers::{Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::process::Process;
use suites::simulator::Simulator;

const DRIVER: &str = "cinder.csi.openstack.org";
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn kubelet_client_registers_driver_before_and_after_kill() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let Kubelet { endpoint, link, node } = Kubelet::make(&lab)?;
        let expected = PluginInfo {
            kind: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        };

        let first = node.start(&lab, &simulator).await?;
        registered(&link).await?;
        ensure!(contracts::register(&link).await? == expected);
        let made = identity(&link)?;
        first.kill().await?;

        let second = node.start(&lab, &simulator).await?;
        wait_for_some("the new process to answer", REGISTER_TIMEOUT, async || {
            Ok(contracts::register(&link).await.ok().filter(|info| *info == expected))
        })
        .await?;
        ensure!(
            identity(&link)? == made,
            "the link was made anew: the kubelet would have dropped the node for a second"
        );
        second.stop().await?;
        ensure!(
            identity(&link)? == made,
            "the link went with the process: the kubelet drops the node while it restarts"
        );
        simulator.stop().await
    });
}

#[test]
fn driver_waits_for_used_socket_and_takes_over() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let Kubelet { endpoint, link, node } = Kubelet::make(&lab)?;
        // Like the Go driver's node plugin, which a sidecar registers.
        let other = Ours::new(Role::Node)
            .socket(endpoint.clone())
            .start(&lab, &simulator)
            .await?;
        let ours = node.start(&lab, &simulator).await?;
        wait_for_some("our driver to wait", REGISTER_TIMEOUT, async || {
            Ok(ours
                .log()?
                .contains("another process serves the CSI socket")
                .then_some(()))
        })
        .await?;
        ensure!(!link.exists(), "it registered beside the one that serves");
        other.kill().await?;
        registered(&link).await?;
        ensure!(contracts::register(&link).await?.endpoint == endpoint.display().to_string());
        ours.stop().await?;
        simulator.stop().await
    });
}

#[test]
fn registrar_stand_in_registers_and_unregisters_driver() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let registry = lab.path("plugins_registry");
        std::fs::create_dir(&registry).context("cannot make the kubelet's directory")?;
        let driver = Ours::new(Role::Node).start(&lab, &simulator).await?;
        let program = lab.path("csi-node-driver-registrar");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_node-sidecars"), &program).context("cannot make a link")?;
        let mut command = lab.command(&program)?;
        command
            .arg(format!("--csi-address={}", driver.socket().display()))
            .arg("--kubelet-registration-path=/var/lib/kubelet/plugins/x/csi.sock")
            .arg(format!("--plugin-registration-path={}", registry.display()));
        let registrar = Process::spawn("registrar", command, &lab.path("registrar.log"))?;
        let socket = registry.join(format!("{DRIVER}-registrar@reg.sock"));
        registered(&socket).await?;
        let info = contracts::register(&socket).await?;
        ensure!(info.name == DRIVER && info.endpoint == "/var/lib/kubelet/plugins/x/csi.sock");
        registrar.stop().await?;
        ensure!(
            !socket.exists(),
            "its socket outlives it: the kubelet would keep the driver"
        );
        driver.stop().await?;
        simulator.stop().await
    });
}

/// The directory of a kubelet without plugins, and a driver that registers itself there.
struct Kubelet {
    /// The driver's CSI socket.
    endpoint: PathBuf,
    /// The registration socket for the kubelet.
    link: PathBuf,
    node: Ours,
}

impl Kubelet {
    fn make(lab: &Lab) -> Result<Self> {
        let kubelet = lab.path("kubelet");
        for directory in ["plugins", "plugins_registry"] {
            std::fs::create_dir_all(kubelet.join(directory)).context("cannot make the kubelet's directories")?;
        }
        let endpoint = kubelet.join("plugins").join(DRIVER).join("csi.sock");
        Ok(Self {
            node: Ours::new(Role::Node)
                .socket(endpoint.clone())
                .flag("--register")
                .flag(format!("--kubelet-dir={}", kubelet.display())),
            link: kubelet.join("plugins_registry").join(format!("{DRIVER}@reg.sock")),
            endpoint,
        })
    }
}

async fn registered(link: &Path) -> Result<()> {
    wait_for_some("the registration socket", REGISTER_TIMEOUT, async || {
        Ok(link.exists().then_some(()))
    })
    .await
}

/// Distinguishes two links with the same name.
fn identity(link: &Path) -> Result<(u64, i64, i64)> {
    let metadata = std::fs::symlink_metadata(link).with_context(|| format!("cannot look at {}", link.display()))?;
    Ok((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}
