// SPDX-License-Identifier: Apache-2.0
//! Common helpers of this suite: programs, a lab with a name server, and a configuration other than the simulator's
//! own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, anyhow};
use csi_proto::csi::v1::ListVolumesRequest;
use csi_proto::csi::v1::controller_client::ControllerClient;
use openstack_sim::{DnsAnswer, DnsQuestion, NameServer};
use suites::cloud::{Cloud, OtherLogin};
use suites::drivers::{Driver, Ours, Role};
use suites::lab::Lab;
use suites::programs::{self, StaticPrograms};
use tonic::Status;

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Port of the simulator. Clients reach it through another server.
pub(crate) const SIMULATOR_PORT: u16 = 8774;
/// Host and port of Keystone for clients.
pub(crate) const KEYSTONE: &str = "keystone.example.test";
pub(crate) const KEYSTONE_PORT: u16 = 5000;

/// Returns the product's programs, built once for all tests.
pub(crate) fn programs() -> Result<&'static StaticPrograms> {
    static PROGRAMS: LazyLock<Result<StaticPrograms>> = LazyLock::new(programs::build_static);
    PROGRAMS.as_ref().map_err(|error| anyhow!("{error:#}"))
}

/// Starts a name server at port 53 of the lab, and configures the lab to use it.
pub(crate) async fn serve_names(
    lab: &Lab,
    configuration: &str,
    respond: impl Fn(&DnsQuestion) -> DnsAnswer + Send + Sync + 'static,
) -> Result<NameServer> {
    let server = NameServer::start((LOOPBACK, 53).into(), respond).context("cannot start a name server")?;
    replace_file(lab, "/etc/resolv.conf", configuration).await?;
    Ok(server)
}

/// Mounts a file with this content over a system file. Returns its path, for later changes.
pub(crate) async fn replace_file(lab: &Lab, system: &str, content: &str) -> Result<PathBuf> {
    let path = lab.path(&system.trim_start_matches('/').replace('/', "-"));
    std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    lab.shell(&format!("mount --bind {} {system}", path.display())).await?;
    Ok(path)
}

/// Returns a cloud's `cloud.conf` with other values of these keys. An empty value removes the key.
pub(crate) fn edit_conf(lab: &Lab, cloud: &impl Cloud, keys: &[(&str, &str)]) -> Result<OtherLogin> {
    let text = std::fs::read_to_string(cloud.cloud_conf()).context("cannot read cloud.conf")?;
    let is_kept = |line: &&str| !keys.iter().any(|(key, _)| line.starts_with(&format!("{key} = ")));
    let lines: Vec<&str> = text.lines().filter(is_kept).collect();
    let set = keys.iter().filter(|(_, value)| !value.is_empty());
    let set: Vec<String> = set.map(|(key, value)| format!("{key} = \"{value}\"\n")).collect();
    let edited = lines
        .join("\n")
        .replace("[Global]\n", &format!("[Global]\n{}", set.concat()));
    let conf = lab.path("edited-cloud.conf");
    std::fs::write(&conf, edited).context("cannot write cloud.conf")?;
    Ok(OtherLogin { conf })
}

/// Returns a controller of the static program.
pub(crate) fn controller() -> Result<Ours> {
    Ok(Ours::new(Role::Controller).program(programs()?.driver.clone()))
}

/// Lists volumes through a driver, which requires a login and the catalog.
pub(crate) async fn list_volumes(driver: &Driver) -> Result<(), Status> {
    let request = ListVolumesRequest::default();
    let listed = ControllerClient::new(driver.channel()).list_volumes(request).await;
    listed.map(drop)
}

/// Starts the driver, lists volumes, and stops it. Returns the result and the log.
pub(crate) async fn try_cloud(
    lab: &Lab,
    driver: &Ours,
    cloud: &impl Cloud,
) -> Result<(std::result::Result<(), Status>, String)> {
    let driver = driver.start(lab, cloud).await?;
    let listed = list_volumes(&driver).await;
    let log = driver.log()?;
    driver.stop().await?;
    Ok((listed, log))
}

/// Whether a program has no dynamic linker, and therefore does not use glibc's `getaddrinfo`.
pub(crate) fn is_static(program: &Path) -> Result<bool> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let linker = b"/ld-linux";
    Ok(!bytes.windows(linker.len()).any(|window| window == linker))
}
