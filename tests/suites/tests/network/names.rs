// SPDX-License-Identifier: Apache-2.0
//! Name servers of clusters and machines.
//!
//! musl's `getaddrinfo` ends a lookup if the response for a search domain is SERVFAIL or REFUSED.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::http::StatusCode;
use openstack_sim::{DnsAnswer, DnsQuestion};
use parking_lot::Mutex;
use suites::expect::expect_parts;
use suites::lab::{Lab, in_lab};
use suites::process::Process;
use suites::programs::StaticPrograms;
use suites::simulator::Simulator;

use crate::site::{
    KEYSTONE, KEYSTONE_PORT, LOOPBACK, controller, edit_conf, is_static, programs, replace_file, serve_names, try_cloud,
};

const API_SERVER: &str = "kubernetes.example.test";
const API_SERVER_PORT: u16 = 6443;
/// Longer than a resolution, which takes at most 8 s.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Response time of a slow name server, which handles one query at a time.
const SLOW_ANSWER: Duration = Duration::from_millis(300);
/// As in a pod on an OpenStack server.
const POD: &str =
    "nameserver 127.0.0.1\nsearch csi.svc.cluster.test svc.cluster.test cluster.test openstacklocal\noptions ndots:5\n";
/// As on the server itself.
const SERVER: &str = "nameserver 127.0.0.1\nsearch openstacklocal\n";
/// As on the server itself, with a search domain of the cloud.
const SERVER_OF_CLOUD: &str = "nameserver 127.0.0.1\nsearch openstacklocal example.test\n";

/// Behavior of a name server by query.
type Behaviour = fn(&DnsQuestion) -> DnsAnswer;

fn is_host(question: &DnsQuestion) -> bool {
    [KEYSTONE, API_SERVER].contains(&question.name.as_str())
}

/// Resolves the hosts, and sends this response for the search domain of OpenStack's servers.
fn answer_domain(question: &DnsQuestion, answer: DnsAnswer) -> DnsAnswer {
    if is_host(question) {
        DnsAnswer::Addresses(vec![LOOPBACK])
    } else if question.name.ends_with(".openstacklocal") {
        answer
    } else {
        DnsAnswer::NXDOMAIN
    }
}

/// Resolves the hosts to IPv4, and sends this response to AAAA queries.
fn answer_ipv6(question: &DnsQuestion, answer: DnsAnswer) -> DnsAnswer {
    if question.ipv6 {
        answer
    } else {
        answer_domain(question, DnsAnswer::NXDOMAIN)
    }
}

const CASES: [(&str, &str, Behaviour); 11] = [
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
    ("search domain slow", POD, |question| {
        if question.name.ends_with(".openstacklocal") {
            sleep(SLOW_ANSWER);
        }
        answer_domain(question, DnsAnswer::SERVFAIL)
    }),
    ("outside of pods", SERVER, |question| {
        answer_domain(question, DnsAnswer::REFUSED)
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
fn static_programs_resolve_names_like_glibc() {
    let StaticPrograms {
        driver,
        operator,
        plugin,
    } = programs().expect("static programs");
    in_lab(async |lab| {
        for program in [driver, operator, plugin] {
            ensure!(is_static(program)?, "{} needs a dynamic linker", program.display());
        }
        let behaviour = Arc::new(Mutex::new(CASES[0].2));
        let answering = Arc::clone(&behaviour);
        let _name_server = serve_names(&lab, POD, move |question| {
            let behave = *answering.lock();
            behave(question)
        })
        .await?;
        let requests = serve_api().await?;
        let url = format!("http://{KEYSTONE}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, KEYSTONE_PORT, &url, &[]).await?;
        let driver = controller()?;

        for (case, configuration, behave) in CASES {
            std::fs::write(lab.path("etc-resolv.conf"), configuration).context("cannot write resolv.conf")?;
            *behaviour.lock() = behave;
            let (listed, log) = try_cloud(&lab, &driver, &simulator).await.context(case)?;
            listed.with_context(|| format!("{case}: {log}"))?;
            let before = requests();
            run_plugin(&lab, plugin).await.context(case)?;
            ensure!(requests() > before, "{case}: the plugin did not reach the API server");
        }
        simulator.stop().await
    });
}

#[test]
fn static_driver_resolves_hosts_file_and_short_names() {
    in_lab(async |lab| {
        let _name_server = serve_names(&lab, SERVER_OF_CLOUD, |question| {
            if question.name == KEYSTONE {
                DnsAnswer::Addresses(vec![LOOPBACK])
            } else {
                DnsAnswer::REFUSED
            }
        })
        .await?;
        replace_file(&lab, "/etc/hosts", "127.0.0.1 localhost hosts-keystone\n").await?;
        let url = format!("http://{KEYSTONE}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, KEYSTONE_PORT, &url, &[]).await?;
        for host in ["keystone", "hosts-keystone", "localhost"] {
            let address = format!("http://{host}:{KEYSTONE_PORT}/identity/v3");
            let cloud = edit_conf(&lab, &simulator, &[("auth-url", &address)])?;
            let (listed, log) = try_cloud(&lab, &controller()?, &cloud).await.context(host)?;
            listed.with_context(|| format!("{host}: {log}"))?;
        }
        let unknown = format!("http://nowhere.example.test:{KEYSTONE_PORT}/identity/v3");
        let cloud = edit_conf(&lab, &simulator, &[("auth-url", &unknown)])?;
        let driver = controller()?.flag("--request-timeout=2s");
        let (listed, _) = try_cloud(&lab, &driver, &cloud).await?;
        let error = listed.err().context("there is no such host")?;
        let parts = ["nowhere.example.test.openstacklocal", "REFUSED", "127.0.0.1"];
        expect_parts(error.message(), &parts)?;
        simulator.stop().await
    });
}

/// Serves an empty API. Returns the number of requests so far.
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

/// Runs the kubectl plugin, which reads from the API server with the same client as the operator.
async fn run_plugin(lab: &Lab, program: &Path) -> Result<()> {
    let kubeconfig = lab.path("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \
         'http://{API_SERVER}:{API_SERVER_PORT}'}}}}]\nusers: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, \
         user: u}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).context("cannot write the kubeconfig")?;
    let mut command = lab.command(program)?;
    command.args(["status", "--kubeconfig"]).arg(&kubeconfig);
    let plugin = Process::spawn("plugin", command, &lab.path("plugin.log"))?;
    // Any result is valid, because the API is empty.
    plugin.wait(PLUGIN_TIMEOUT).await.map(drop)
}
