// SPDX-License-Identifier: Apache-2.0
//! The static programs with the name servers that clusters have.
//!
//! musl's `getaddrinfo` ends a lookup at a search domain that is answered with SERVFAIL or REFUSED, so that only these builds show
//! whether the programs resolve names without it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::http::StatusCode;
use csi_proto::csi::v1::ListVolumesRequest;
use csi_proto::csi::v1::controller_client::ControllerClient;
use openstack_sim::{DnsAnswer, DnsQuestion, NameServer};
use parking_lot::Mutex;
use suites::drivers::{Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::process::Process;
use suites::programs;
use suites::simulator::Simulator;

const KEYSTONE: &str = "keystone.example.test";
const KEYSTONE_PORT: u16 = 5000;
const API_SERVER: &str = "kubernetes.example.test";
const API_SERVER_PORT: u16 = 6443;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A resolution takes 8 s at most.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// As in a pod on an OpenStack server.
const POD: &str =
    "nameserver 127.0.0.1\nsearch csi.svc.cluster.test svc.cluster.test cluster.test openstacklocal\noptions ndots:5\n";

/// A name server's behaviour, by the question.
type Behaviour = fn(&DnsQuestion) -> DnsAnswer;

fn is_host(question: &DnsQuestion) -> bool {
    [KEYSTONE, API_SERVER].contains(&question.name.as_str())
}

/// Knows the hosts, and answers questions about the search domain of OpenStack's servers in this way.
fn answer_domain(question: &DnsQuestion, answer: DnsAnswer) -> DnsAnswer {
    if is_host(question) {
        DnsAnswer::Addresses(vec![LOOPBACK])
    } else if question.name.ends_with(".openstacklocal") {
        answer
    } else {
        DnsAnswer::NXDOMAIN
    }
}

/// Knows the IPv4 address of the hosts, and answers AAAA queries in this way.
fn answer_ipv6(question: &DnsQuestion, answer: DnsAnswer) -> DnsAnswer {
    if question.ipv6 {
        answer
    } else {
        answer_domain(question, DnsAnswer::NXDOMAIN)
    }
}

const CASES: [(&str, &str, Behaviour); 9] = [
    ("search domain NXDOMAIN", POD, |question| {
        answer_domain(question, DnsAnswer::NXDOMAIN)
    }),
    ("search domain NODATA", POD, |question| {
        answer_domain(question, DnsAnswer::Addresses(Vec::new()))
    }),
    ("search domain SERVFAIL", POD, |question| {
        answer_domain(question, DnsAnswer::SERVFAIL)
    }),
    ("search domain REFUSED", POD, |question| {
        answer_domain(question, DnsAnswer::REFUSED)
    }),
    ("search domain silent", POD, |question| {
        answer_domain(question, DnsAnswer::Silence)
    }),
    ("AAAA SERVFAIL", POD, |question| {
        answer_ipv6(question, DnsAnswer::SERVFAIL)
    }),
    ("AAAA silent", POD, |question| answer_ipv6(question, DnsAnswer::Silence)),
    (
        "first name server dead",
        "nameserver 127.0.0.9\nnameserver 127.0.0.1\n",
        |question| answer_domain(question, DnsAnswer::NXDOMAIN),
    ),
    ("truncated answer", POD, |question| {
        if is_host(question) && !question.tcp {
            DnsAnswer::Truncated
        } else {
            answer_domain(question, DnsAnswer::SERVFAIL)
        }
    }),
];

#[test]
fn static_programs_resolve_names_as_glibc_does() {
    let (driver, operator) = programs::static_driver_and_operator().expect("static programs");
    in_lab(async |lab| {
        for program in [&driver, &operator] {
            ensure!(is_static(program)?, "{} needs a dynamic linker", program.display());
        }
        let behaviour = Arc::new(Mutex::new(CASES[0].2));
        let answering = Arc::clone(&behaviour);
        let _name_server = NameServer::start((LOOPBACK, 53).into(), move |question| {
            let behave = *answering.lock();
            behave(question)
        })?;
        let requests = serve_api().await?;
        let resolv_conf = lab.path("resolv.conf");
        std::fs::write(&resolv_conf, POD).context("cannot write resolv.conf")?;
        lab.shell(&format!("mount --bind {} /etc/resolv.conf", resolv_conf.display()))
            .await?;
        let simulator = Simulator::start_with_name(&lab, KEYSTONE, KEYSTONE_PORT).await?;

        for (case, configuration, behave) in CASES {
            std::fs::write(&resolv_conf, configuration).context("cannot write resolv.conf")?;
            *behaviour.lock() = behave;
            list_volumes(&lab, &driver, &simulator).await.context(case)?;
            let before = requests();
            run_plugin(&lab, &operator).await.context(case)?;
            ensure!(requests() > before, "{case}: the operator did not reach the API server");
        }
        simulator.stop().await
    });
}

/// Whether a program has no dynamic linker, and so not glibc's `getaddrinfo`.
fn is_static(program: &Path) -> Result<bool> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let linker = b"/ld-linux";
    Ok(!bytes.windows(linker.len()).any(|window| window == linker))
}

/// Starts the driver, which logs in, and has it list volumes, for which it resolves the name in the catalogue.
async fn list_volumes(lab: &Lab, program: &Path, simulator: &Simulator) -> Result<()> {
    let driver = Ours::new(Role::Controller)
        .program(program.to_owned())
        .start(lab, simulator)
        .await?;
    let listed = ControllerClient::new(driver.channel())
        .list_volumes(ListVolumesRequest::default())
        .await;
    listed.with_context(|| driver.tail())?;
    driver.stop().await
}

/// Serves an API that knows nothing. Returns the number of requests so far.
async fn serve_api() -> Result<impl Fn() -> usize> {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let app = Router::new().fallback(move || {
        *counted.lock() += 1;
        std::future::ready(StatusCode::NOT_FOUND)
    });
    let listener = tokio::net::TcpListener::bind((LOOPBACK, API_SERVER_PORT)).await;
    let listener = listener.context("cannot listen")?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(move || *count.lock())
}

/// Runs the operator's program as a plugin of kubectl, which reads from the API server.
async fn run_plugin(lab: &Lab, operator: &Path) -> Result<()> {
    let kubeconfig = lab.path("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \
         'http://{API_SERVER}:{API_SERVER_PORT}'}}}}]\nusers: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, \
         user: u}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).context("cannot write the kubeconfig")?;
    let program = lab.path("kubectl-cinder_csi");
    if !program.exists() {
        std::os::unix::fs::symlink(operator, &program).context("cannot make a link")?;
    }
    let mut command = lab.command(&program)?;
    command.args(["status", "--kubeconfig"]).arg(&kubeconfig);
    let plugin = Process::spawn("plugin", command, &lab.path("plugin.log"))?;
    // Whatever it reports: the API server knows nothing.
    plugin.wait(PLUGIN_TIMEOUT).await.map(drop)
}
