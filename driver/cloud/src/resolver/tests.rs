// SPDX-License-Identifier: Apache-2.0

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use openstack_sim::{DnsAnswer, DnsQuestion, NameServer as SimulatedServer};
use rstest::rstest;
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;

const HOST: &str = "keystone.example.test";
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// As in a pod, with a short timeout for silent name servers.
const POD: &str =
    "nameserver 127.0.0.1\nsearch csi.svc.cluster.test cluster.test openstacklocal\noptions ndots:5 timeout:1\n";

/// A resolver whose files are in a directory of the test.
struct TestResolver {
    directory: TempDir,
    resolver: SystemResolver,
}

impl TestResolver {
    fn new(configuration: &str, port: u16) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let resolver = SystemResolver {
            hosts: directory.path().join("hosts").into(),
            configuration: directory.path().join("resolv.conf").into(),
            port,
        };
        let test = Self { directory, resolver };
        test.write("resolv.conf", configuration);
        test
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.path().join(file), text).expect("written");
    }

    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        self.resolver.resolve(host).await
    }
}

fn start(respond: impl Fn(&DnsQuestion) -> DnsAnswer + Send + Sync + 'static) -> SimulatedServer {
    SimulatedServer::start((Ipv4Addr::LOCALHOST, 0).into(), respond).expect("a name server")
}

/// Starts a second name server at another address with the same port.
fn start_second(first: &SimulatedServer, answer: DnsAnswer) -> SimulatedServer {
    let address = (Ipv4Addr::new(127, 0, 0, 2), first.address().port()).into();
    SimulatedServer::start(address, move |_| answer.clone()).expect("a second name server")
}

fn nothing() -> DnsAnswer {
    DnsAnswer::Addresses(Vec::new())
}

#[rstest]
#[case::servfail(DnsAnswer::SERVFAIL)]
#[case::refused(DnsAnswer::REFUSED)]
#[case::notimp(DnsAnswer::Code(4))]
#[case::nxdomain(DnsAnswer::NXDOMAIN)]
#[case::nodata(nothing())]
#[case::silence(DnsAnswer::Silence)]
#[tokio::test]
async fn continues_after_failed_search_domain(#[case] answer: DnsAnswer) {
    for failing in ["csi.svc.cluster.test", "cluster.test", "openstacklocal"] {
        let answer = answer.clone();
        let server = start(move |question| match question.name.strip_prefix(HOST) {
            Some("") => DnsAnswer::Addresses(vec![V4]),
            Some(domain) if domain == format!(".{failing}") => answer.clone(),
            _ => DnsAnswer::NXDOMAIN,
        });
        let resolver = TestResolver::new(POD, server.address().port());
        assert_eq!(resolver.resolve(HOST).await.expect(failing), [V4]);
    }
}

#[rstest]
#[case::nodata(nothing())]
#[case::servfail(DnsAnswer::SERVFAIL)]
#[case::refused(DnsAnswer::REFUSED)]
#[case::nxdomain(DnsAnswer::NXDOMAIN)]
#[case::silence(DnsAnswer::Silence)]
#[tokio::test]
async fn addresses_of_one_family_suffice(#[case] other: DnsAnswer) {
    for (address, ipv6, limit) in [(V4, false, 3), (V6, true, 7)] {
        let other = other.clone();
        let server = start(move |question| {
            if question.ipv6 == ipv6 {
                DnsAnswer::Addresses(vec![address])
            } else {
                other.clone()
            }
        });
        // The default timeout of five seconds.
        let resolver = TestResolver::new("nameserver 127.0.0.1\n", server.address().port());
        let started = Instant::now();
        assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [address]);
        assert!(
            started.elapsed() < Duration::from_secs(limit),
            "{:?}",
            started.elapsed()
        );
    }
}

#[rstest]
#[case::servfail(DnsAnswer::SERVFAIL)]
#[case::refused(DnsAnswer::REFUSED)]
#[case::silence(DnsAnswer::Silence)]
#[tokio::test]
async fn second_name_server_answers_for_failed_first(#[case] answer: DnsAnswer) {
    let first = start(move |_| answer.clone());
    let second = start_second(&first, DnsAnswer::Addresses(vec![V4, V6]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\nnameserver 127.0.0.2\n", first.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4, V6]);
    assert!(!second.questions().is_empty());
}

#[tokio::test]
async fn unreachable_name_server_is_skipped() {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    // 127.0.0.3 has no name server, and the other one is an address that is not routed.
    let configuration = "nameserver 127.0.0.3\nnameserver 255.255.255.255\nnameserver 127.0.0.1\n";
    let resolver = TestResolver::new(configuration, server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4]);
}

#[tokio::test]
async fn second_name_server_never_contradicts_first() {
    let first = start(|_| DnsAnswer::NXDOMAIN);
    let second = start_second(&first, DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\nnameserver 127.0.0.2\n", first.address().port());
    let error = resolver.resolve(HOST).await.expect_err("unknown");
    assert!(matches!(error, ResolveError::NoAddress { .. }), "{error:?}");
    assert_eq!(second.questions(), []);
}

#[tokio::test]
async fn truncated_answer_is_read_over_tcp() {
    let many: Vec<IpAddr> = (1..=100).map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))).collect();
    let addresses = many.clone();
    let server = start(move |question| {
        if question.tcp {
            DnsAnswer::Addresses(addresses.clone())
        } else {
            DnsAnswer::Truncated
        }
    });
    let resolver = TestResolver::new("nameserver 127.0.0.1\n", server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), many[..ADDRESSES_MAX]);
}

#[tokio::test]
async fn use_vc_queries_over_tcp_only() {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\noptions use-vc\n", server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4]);
    assert!(server.questions().iter().all(|question| question.tcp));
}

#[tokio::test]
async fn name_server_with_ipv6_address_answers() {
    let server = SimulatedServer::start((Ipv6Addr::LOCALHOST, 0).into(), |_| DnsAnswer::Addresses(vec![V6]));
    let server = server.expect("a name server");
    let resolver = TestResolver::new("nameserver ::1\n", server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V6]);
}

#[tokio::test]
async fn alias_resolves_to_addresses_of_target() {
    let server = start(|_| DnsAnswer::Alias("balancer.example.test".to_owned(), vec![V4, V6]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\n", server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4, V6]);
}

#[rstest]
#[case::few_dots("keystone.openstack", "keystone.openstack.cluster.test")]
#[case::many_dots("a.b.c.d.e.test", "a.b.c.d.e.test")]
#[case::absolute("keystone.", "keystone")]
#[case::underscore("openstack_keystone", "openstack_keystone.cluster.test")]
#[case::upper_case("KEYSTONE.openstack", "keystone.openstack.cluster.test")]
#[tokio::test]
async fn ndots_decides_order_of_names(#[case] host: &str, #[case] expected: &'static str) {
    let server = start(move |question| match question.name.as_str() {
        name if name == expected => DnsAnswer::Addresses(vec![V4]),
        // Another name that must not be preferred.
        "keystone.openstack" | "a.b.c.d.e.test.cluster.test" => DnsAnswer::Addresses(vec![V6]),
        _ => DnsAnswer::NXDOMAIN,
    });
    let resolver = TestResolver::new(POD, server.address().port());
    assert_eq!(resolver.resolve(host).await.expect("resolved"), [V4]);
}

#[tokio::test]
async fn name_with_enough_dots_is_queried_alone() {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\nsearch openstacklocal\n", server.address().port());
    resolver.resolve(HOST).await.expect("resolved");
    assert!(server.questions().iter().all(|question| question.name == HOST));
}

#[tokio::test]
async fn hosts_file_precedes_dns_and_is_reread() {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new(POD, server.address().port());
    resolver.write(
        "hosts",
        &format!("# 192.0.2.8 {HOST}\n::1\n192.0.2.9\tother KEYSTONE.example.test # comment\n2001:db8::9 {HOST}\n"),
    );
    let expected: [IpAddr; 2] = [
        Ipv4Addr::new(192, 0, 2, 9).into(),
        "2001:db8::9".parse().expect("an address"),
    ];
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), expected);
    assert_eq!(server.questions(), []);
    resolver.write("hosts", "");
    let addresses = resolver.resolve(HOST).await.expect("resolved");
    assert_eq!(addresses, [V4]);
}

#[tokio::test]
async fn changed_configuration_is_used_at_once() {
    let first = start(|_| DnsAnswer::REFUSED);
    let _second = start_second(&first, DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new("nameserver 127.0.0.1\n", first.address().port());
    resolver.resolve(HOST).await.expect_err("refused");
    resolver.write("resolv.conf", "nameserver 127.0.0.2\n");
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4]);
}

#[tokio::test]
async fn missing_configuration_means_local_name_server() {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new("", server.address().port());
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4]);
    std::fs::remove_file(resolver.directory.path().join("resolv.conf")).expect("removed");
    assert_eq!(resolver.resolve(HOST).await.expect("resolved"), [V4]);
}

#[rstest]
#[case("127.0.0.1", Ipv4Addr::LOCALHOST.into())]
#[case("::1", Ipv6Addr::LOCALHOST.into())]
#[case("localhost", Ipv4Addr::LOCALHOST.into())]
#[tokio::test]
async fn addresses_and_localhost_need_no_query(#[case] host: &str, #[case] expected: IpAddr) {
    let server = start(|_| DnsAnswer::SERVFAIL);
    let resolver = TestResolver::new(POD, server.address().port());
    assert_eq!(resolver.resolve(host).await.expect("resolved")[0], expected);
    assert_eq!(server.questions(), []);
}

#[tokio::test]
async fn error_names_host_domains_servers_and_remedy() {
    let server = start(|question| match question.name.strip_prefix(HOST) {
        Some(".openstacklocal") => DnsAnswer::SERVFAIL,
        Some(".cluster.test") => DnsAnswer::REFUSED,
        _ => DnsAnswer::NXDOMAIN,
    });
    let resolver = TestResolver::new(POD, server.address().port());
    let error = resolver.resolve(HOST).await.expect_err("unknown").to_string();
    for part in [
        "cannot resolve host keystone.example.test:",
        "keystone.example.test.openstacklocal: SERVFAIL from name server 127.0.0.1",
        "keystone.example.test.cluster.test: REFUSED from name server 127.0.0.1",
        "keystone.example.test: no address",
        "check the name servers and search domains of /etc/resolv.conf",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[rstest]
#[case::all_names_together(
    "ndots:5",
    "keystone.example.test.domain0.test: no answer from name server 127.0.0.1"
)]
#[case::one_name_before_the_others("ndots:1", "no answer in time from name servers 127.0.0.1")]
#[tokio::test]
async fn silent_name_servers_are_named_within_bound(#[case] options: &str, #[case] expected: &str) {
    let server = start(|_| DnsAnswer::Silence);
    let domains: Vec<String> = (0..32).map(|n| format!("domain{n}.test")).collect();
    let configuration = format!(
        "nameserver 127.0.0.1\nsearch {}\noptions {options}\n",
        domains.join(" ")
    );
    let resolver = TestResolver::new(&configuration, server.address().port());
    let started = Instant::now();
    let error = resolver.resolve(HOST).await.expect_err("no answer").to_string();
    assert!(started.elapsed() < TIMING.connect_timeout, "{:?}", started.elapsed());
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn error_lists_few_of_many_names() {
    let server = start(|_| DnsAnswer::SERVFAIL);
    let domains: Vec<String> = (0..40).map(|n| format!("domain{n}.test")).collect();
    let configuration = format!("nameserver 127.0.0.1\nsearch {}\noptions ndots:5\n", domains.join(" "));
    let resolver = TestResolver::new(&configuration, server.address().port());
    let error = resolver.resolve(HOST).await.expect_err("failed").to_string();
    assert!(error.contains("and 27 more"), "{error}");
    assert!(error.len() < 1000, "{error}");
}

#[rstest]
#[case::label_too_long(&"a".repeat(64))]
#[case::name_too_long(&"abc.".repeat(80))]
#[case::empty_label("a..b")]
#[case::empty("")]
#[tokio::test]
async fn invalid_name_is_refused_without_query(#[case] host: &str) {
    let server = start(|_| DnsAnswer::Addresses(vec![V4]));
    let resolver = TestResolver::new(POD, server.address().port());
    let error = resolver.resolve(host).await.expect_err("invalid");
    assert!(matches!(error, ResolveError::Name { .. }), "{error:?}");
    assert_eq!(server.questions(), []);
}
