// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::Proxy;

use super::*;

const PROXY: &str = "http://proxy.example.org:3128";

fn mk_proxy_spec(https: Option<&str>, http: Option<&str>, direct: &[&str]) -> CinderCSIDriverSpec {
    let mut spec = mk_spec();
    spec.proxy = (https.is_some() || http.is_some()).then(|| Proxy {
        https_proxy: https.map(str::to_owned),
        http_proxy: http.map(str::to_owned),
        no_proxy: direct.iter().map(|&host| host.to_owned()).collect(),
        ca_bundle_ref: None,
    });
    spec
}

fn mk_variables(pairs: &[(&str, &str)]) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in pairs {
        variables.set(*name, VariableValue::Plain((*value).to_owned()));
    }
    variables
}

/// Returns the findings of a controller with these variables. Keystone has TLS.
fn check(spec: &CinderCSIDriverSpec, variables: &Variables) -> Vec<AdoptionFinding> {
    let new = "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=p\n";
    let new = NewCredentials::read("a Secret", &spec.clouds[0], new).expect("credentials");
    let facts = CheckFacts {
        containers: vec![OldContainer {
            proxies: variables.proxies(),
            ..mk_container(PROGRAM, &[])
        }],
        credentials: [("default".to_owned(), new)].into(),
        ..CheckFacts::default()
    };
    findings(spec, &facts)
}

#[rstest]
#[case::none(&[], None, &[], &[])]
#[case::same(&[("HTTPS_PROXY", PROXY)], Some(PROXY), &[], &[])]
#[case::another_spelling(&[("https_proxy", "Proxy.example.org:3128/")], Some(PROXY), &[], &[])]
#[case::first_name_counts(&[("HTTPS_PROXY", PROXY), ("https_proxy", "http://other")], Some(PROXY), &[], &[])]
#[case::empty_name_is_skipped(&[("HTTPS_PROXY", ""), ("https_proxy", PROXY)], Some(PROXY), &[], &[])]
#[case::only_there(&[("HTTPS_PROXY", PROXY)], None, &[], &[("HTTPS_PROXY", "Set spec.proxy.httpsProxy to http://proxy")])]
#[case::only_here(&[], Some(PROXY), &[], &[("HTTPS_PROXY", "Remove spec.proxy.httpsProxy")])]
#[case::another(&[("HTTPS_PROXY", "http://other")], Some(PROXY), &[], &[("HTTPS_PROXY", "to http://other")])]
#[case::not_of_https(&[("HTTP_PROXY", PROXY)], None, &[], &[])]
#[case::with_login(
    &[("HTTPS_PROXY", "http://u:hunter2@proxy.example.org:3128")], Some(PROXY), &[], &[("HTTPS_PROXY", "needs no login")])]
#[case::direct_hosts(
    &[("HTTPS_PROXY", PROXY), ("NO_PROXY", "localhost, .svc,*.Example.org,10.0.0.0/8,k.example.com")],
    Some(PROXY), &[".example.org", "10.0.0.0/8", "example.com"], &[("NO_PROXY", "Remove them from spec.proxy.noProxy")])]
#[case::direct_hosts_only_there(
    &[("HTTPS_PROXY", PROXY), ("NO_PROXY", "cinder.example.org")], Some(PROXY), &[], &[("NO_PROXY", "spec.proxy.noProxy")])]
#[case::covered_host(&[("HTTPS_PROXY", PROXY), ("no_proxy", "a.b,b")], Some(PROXY), &[".b"], &[])]
#[case::all_hosts(&[("HTTPS_PROXY", PROXY), ("NO_PROXY", "*")], Some(PROXY), &["b"], &[("NO_PROXY", "Add those")])]
fn proxies_are_compared_by_effective_values(
    #[case] old: &[(&str, &str)],
    #[case] https: Option<&str>,
    #[case] direct: &[&str],
    #[case] expected: &[(&str, &str)],
) {
    let found = check(&mk_proxy_spec(https, None, direct), &mk_variables(old));
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (finding, (subject, remedy)) in found.iter().zip(expected) {
        assert_eq!(
            (finding.reason, finding.subject.as_str()),
            (AdoptionFindingReason::Flag, *subject)
        );
        assert!(finding.remedy.contains(remedy), "{finding:?}");
    }
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[test]
fn proxy_of_secret_is_compared_and_not_shown() {
    let mut variables = Variables::default();
    variables.set("HTTPS_PROXY", VariableValue::Secret(PROXY.to_owned().into()));
    assert_eq!(check(&mk_proxy_spec(Some(PROXY), None, &[]), &variables), []);
    let found = check(&mk_spec(), &variables);
    assert_eq!(shown(&found), [(AdoptionFindingReason::Flag, "HTTPS_PROXY")]);
    assert!(!format!("{found:?}").contains("proxy.example.org"), "{found:?}");
}

#[test]
fn unknown_proxy_is_not_checked() {
    let mut variables = Variables::default();
    variables.hide_source("ConfigMap n/c: Forbidden");
    let found = check(&mk_spec(), &variables);
    assert_eq!(
        shown(&found),
        [(AdoptionFindingReason::NotChecked, "the proxy (HTTPS_PROXY)")]
    );
    assert!(found[0].message.contains("ConfigMap n/c: Forbidden"), "{found:?}");
    variables.set("HTTPS_PROXY", VariableValue::Plain(PROXY.to_owned()));
    assert_eq!(
        shown(&check(&mk_spec(), &variables)),
        [(AdoptionFindingReason::Flag, "HTTPS_PROXY")]
    );
}

/// Only the driver of the controller sends requests to OpenStack.
#[rstest]
#[case("csi-provisioner", &[])]
#[case(PROGRAM, &["--provide-controller-service=false"])]
fn proxies_of_other_containers_do_not_matter(#[case] program: &str, #[case] arguments: &[&str]) {
    let container = OldContainer {
        proxies: mk_variables(&[("HTTPS_PROXY", PROXY)]).proxies(),
        ..mk_container(program, arguments)
    };
    let facts = CheckFacts {
        containers: vec![container],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    assert!(
        found.iter().all(|finding| finding.subject != "HTTPS_PROXY"),
        "{found:?}"
    );
}
