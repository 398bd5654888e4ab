// SPDX-License-Identifier: Apache-2.0
//! Tests of a proxy to the cloud, configured by the common environment variables.

use anyhow::{Context as _, Result, ensure};
use openstack_sim::DnsAnswer;
use rcgen::{CertificateParams, KeyPair};
use suites::drivers::Ours;
use suites::expect::{expect_none, expect_parts};
use suites::lab::in_lab;
use suites::simulator::Simulator;

use crate::servers::{Proxy, ServerIdentity, TlsServer};
use crate::site::{KEYSTONE, KEYSTONE_PORT, LOOPBACK, SIMULATOR_PORT, controller, edit_conf, serve_names, try_cloud};

const PROXY: &str = "proxy.example.test";
const PROXY_PORT: u16 = 3128;
const POD: &str = "nameserver 127.0.0.1\nsearch cluster.test openstacklocal\noptions ndots:5\n";
/// The only host that the name server resolves.
const KNOWN: &str = "direct.example.test";

fn identity(names: &[&str]) -> Result<ServerIdentity> {
    let key = KeyPair::generate()?;
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let pem = CertificateParams::new(names)?.self_signed(&key)?.pem();
    Ok(ServerIdentity {
        chain: pem.clone(),
        key: key.serialize_pem(),
        authorities: pem,
    })
}

/// Returns a driver with the proxy for both schemes in its environment.
fn proxied(proxy: &str, direct: &str) -> Result<Ours> {
    let driver = controller()?.flag("--request-timeout=2s");
    let driver = driver.variable("HTTPS_PROXY", proxy).variable("HTTP_PROXY", proxy);
    Ok(driver.variable("NO_PROXY", direct))
}

fn answer(name: &str) -> DnsAnswer {
    if [PROXY, KNOWN].contains(&name) {
        DnsAnswer::Addresses(vec![LOOPBACK])
    } else {
        DnsAnswer::REFUSED
    }
}

#[test]
fn https_cloud_is_reached_through_tunnel() {
    in_lab(async |lab| {
        let _name_server = serve_names(&lab, POD, |question| answer(&question.name)).await?;
        let url = format!("https://{KEYSTONE}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, SIMULATOR_PORT, &url, &[]).await?;
        let identity = identity(&[KEYSTONE])?;
        let _server = TlsServer::start(KEYSTONE_PORT, SIMULATOR_PORT, &identity).await?;
        let file = lab.path("authorities.pem");
        std::fs::write(&file, &identity.authorities).context("cannot write the authorities")?;
        let cloud = edit_conf(&lab, &simulator, &[("ca-file", &file.display().to_string())])?;
        let proxy = Proxy::default().start(PROXY_PORT).await?;
        let driver = proxied(&format!("http://{PROXY}:{PROXY_PORT}"), "")?;

        let (listed, log) = try_cloud(&lab, &driver, &cloud).await?;
        listed.with_context(|| log)?;

        let lines = proxy.take_lines();
        let tunnel = format!("CONNECT {KEYSTONE}:{KEYSTONE_PORT} HTTP/1.1");
        let are_tunnels = lines.iter().all(|line| *line == tunnel);
        ensure!(!lines.is_empty() && are_tunnels, "{lines:?}");

        // Without the proxy's resolution, the cloud's host cannot be resolved.
        let driver = proxied(&format!("http://{PROXY}:{PROXY_PORT}"), ".example.test")?;
        let (listed, _) = try_cloud(&lab, &driver, &cloud).await?;
        let error = listed.err().context("reached directly")?;
        expect_parts(error.message(), &["cannot resolve host"])?;
        expect_none("requests to the proxy", &proxy.take_lines())?;
        simulator.stop().await
    });
}

#[test]
fn http_cloud_is_reached_through_proxy_or_directly() {
    in_lab(async |lab| {
        let _name_server = serve_names(&lab, POD, |question| answer(&question.name)).await?;
        let url = format!("http://{KNOWN}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, KEYSTONE_PORT, &url, &[]).await?;
        let proxy = Proxy::default().start(PROXY_PORT).await?;
        let address = format!("http://{PROXY}:{PROXY_PORT}");
        for (direct, is_proxied) in [
            ("", true),
            (KNOWN, false),
            (".example.test", false),
            ("other.test", true),
        ] {
            let (listed, log) = try_cloud(&lab, &proxied(&address, direct)?, &simulator).await?;
            listed.with_context(|| format!("NO_PROXY={direct}: {log}"))?;
            let lines = proxy.take_lines();
            ensure!(lines.is_empty() != is_proxied, "NO_PROXY={direct}: {lines:?}");
            ensure!(lines.iter().all(|line| line.contains(&url)), "{lines:?}");
        }
        simulator.stop().await
    });
}

#[test]
fn proxy_refusal_is_reported_without_password() {
    in_lab(async |lab| {
        let _name_server = serve_names(&lab, POD, |question| answer(&question.name)).await?;
        let url = format!("https://{KEYSTONE}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, SIMULATOR_PORT, &url, &[]).await?;
        let proxy = Proxy::refusing().start(PROXY_PORT).await?;
        let driver = proxied(&format!("http://user:hunter2@{PROXY}:{PROXY_PORT}"), "")?;
        let (listed, log) = try_cloud(&lab, &driver, &simulator).await?;
        let error = listed.err().context("accepted")?;
        expect_parts(error.message(), &["[network]", "proxy"])?;
        ensure!(!proxy.take_lines().is_empty(), "the proxy was not used");
        let texts = [error.message(), &log];
        let has_password = texts.iter().any(|text| text.contains("hunter2"));
        ensure!(!has_password, "{error}: {log}");
        simulator.stop().await
    });
}
