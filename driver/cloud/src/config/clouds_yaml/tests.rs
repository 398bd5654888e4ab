// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;
use secrecy::ExposeSecret;

use super::super::{ApplicationCredential, Auth, Domain, Interface, Project, User};
use super::*;

const PASSWORD: &str = r"
clouds:
  mine:
    auth_type: v3password
    auth:
      auth_url: https://keystone.example/v3
      username: csi
      password: 12345
      project_name: cluster
      user_domain_name: Default
      project_domain_id: default
    region_name: R1
    interface: internal
    cacert: /etc/ca.pem
    also_public_roots: true
    allow_http_endpoints: true
    verify: false
    shoe_size: 42
    image_format: raw
";

/// An application credential, for the keys of a cloud.
const CREDENTIAL: &str =
    "auth: {auth_url: https://k/v3, application_credential_id: i, application_credential_secret: s}";
/// The same login as `auth` of a user.
const USER: &str = "auth_url: https://k/v3, user_id: u, password: p";

/// A login in one line.
fn login(auth: &Auth) -> String {
    let domain = |domain: &Domain| match domain {
        Domain::Id(id) => format!("id {id}"),
        Domain::Name(name) => format!("name {name}"),
    };
    let user = |user: &User| match user {
        User::Id(id) => format!("user id {id}"),
        User::Name { name, domain: of } => format!("user {name} of {}", domain(of)),
    };
    let project = |project: &Project| match project {
        Project::Id(id) => format!("project id {id}"),
        Project::Name { name, domain: of } => format!("project {name} of {}", domain(of)),
    };
    match auth {
        Auth::Password {
            user: who,
            password,
            project: to,
        } => format!("{}, password {}, {}", user(who), password.expose_secret(), project(to)),
        Auth::Trust { user: who, trust, .. } => format!("{}, trust {trust}", user(who)),
        Auth::Token { token, project: to } => format!("token {}, {}", token.expose_secret(), project(to)),
        Auth::ApplicationCredential { credential, .. } => match credential {
            ApplicationCredential::Id(id) => format!("credential id {id}"),
            ApplicationCredential::Name { name, user: who } => format!("credential {name} of {}", user(who)),
        },
    }
}

/// One cloud with these keys, as openstacksdk reads it.
fn read_keys(keys: &str) -> Result<CloudConfig, ConfigError> {
    CloudConfig::from_clouds_yaml(&format!("clouds: {{c: {{{keys}}}}}"), "c")
}

#[test]
fn parses_password_login() {
    let config = CloudConfig::from_clouds_yaml(PASSWORD, "mine").expect("good");
    assert_eq!(
        login(&config.auth),
        "user csi of name Default, password 12345, project cluster of id default"
    );
    assert_eq!(
        (config.region.as_deref(), config.interface),
        (Some("R1"), Interface::Internal)
    );
    assert!(config.tls.insecure && config.tls.also_public_roots && config.allow_http_endpoints);
    assert_eq!(config.tls.ca_file.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
    assert_eq!(
        config.warnings,
        ["clouds.yaml: clouds.mine.shoe_size is not known and has no effect"]
    );
}

#[rstest]
#[case(
    "auth: {auth_url: https://k, username: u, password: p, user_domain_id: d, project_id: inner}, project_id: outer",
    "user u of id d, password p, project id outer"
)]
#[case(
    "auth_url: https://k, username: u, password: p, user_domain_id: d, project_id: outer",
    "user u of id d, password p, project id outer"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: in, project_id: p}, password: out",
    "user id u, password in, project id p"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: p, project_id: p}, tenant_id: t",
    "user id u, password p, project id p"
)]
#[case(
    "auth: {auth_url: https://k, user-id: u, password: p, tenant-id: t}",
    "user id u, password p, project id t"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: p, project_name: n, domain_id: d}",
    "user id u, password p, project n of id d"
)]
#[case(
    "auth: {auth_url: https://k, username: u, password: p, user_domain_name: U, project_name: n, domain_id: d}",
    "user u of id d, password p, project n of id d"
)]
#[case(
    "auth: {auth_url: https://k, username: u, password: p, user_domain_name: U, project_name: n, default_domain: default}",
    "user u of name U, password p, project n of id default"
)]
#[case(
    "auth: {auth_url: https://k, username: u, password: p, user_domain_name: U, project_name: n, default_domain_id: d}",
    "user u of id d, password p, project n of id d"
)]
#[case(
    "auth: {auth_url: https://k, username: u, password: p, default_domain_name: D, project_name: n}",
    "user u of name D, password p, project n of name D"
)]
#[case(
    "auth_type: password, auth: {auth_url: https://k, user_id: u, password: p, project_id: t, application_credential_id: i, application_credential_secret: s}",
    "user id u, password p, project id t"
)]
#[case(
    "auth_type: v3applicationcredential, auth: {auth_url: https://k, user_id: u, password: p, project_id: t, application_credential_id: i, application_credential_secret: s}",
    "credential id i"
)]
#[case(
    "auth_type: v3token, auth: {auth_url: https://k, user_id: u, password: p, project_id: t, token: tok}",
    "token tok, project id t"
)]
#[case(
    "auth_type: token, auth: {auth_url: https://k, auth_token: tok, project_id: t}",
    "token tok, project id t"
)]
#[case(
    "auth: {auth_url: https://k, application_credential_name: n, application_credential_secret: s, username: u, user_domain_id: d}",
    "credential n of user u of id d"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: p, trust_id: t}",
    "user id u, trust t"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: p, tenant-id: in}, tenant_id: out",
    "user id u, password p, project id in"
)]
#[case(
    "auth: {auth_url: https://k, user_id: u, password: p, project_id: in}, tenant-id: out",
    "user id u, password p, project id in"
)]
#[case(
    "auth_type: token, auth: {auth_url: https://k, auth_token: in, project_id: p}, auth-token: out",
    "token in, project id p"
)]
fn logins_match_openstacksdk(#[case] keys: &str, #[case] expected: &str) {
    let config = read_keys(keys).expect("good");
    assert_eq!(login(&config.auth), expected);
}

#[rstest]
#[case("region_name: R", Some("R"))]
#[case("region-name: R", Some("R"))]
#[case("region_name: 'A,B'", Some("A"))]
#[case("region_name: [A, B]", Some("A"))]
#[case("regions: [B, A]", Some("B"))]
#[case("regions: [B, A], region_name: A", Some("B"))]
#[case("regions: [{name: B, values: {region_name: C}}]", Some("B"))]
#[case("region_name: ''", None)]
#[case("region_name: ", None)]
#[case("block_storage_region_name: V, region_name: R", Some("V"))]
#[case("volume_region_name: V, block_storage_region_name: W, region_name: R", Some("W"))]
fn region_matches_openstacksdk(#[case] keys: &str, #[case] region: Option<&str>) {
    let config = read_keys(&format!("{keys}, {CREDENTIAL}")).expect("good");
    assert_eq!(config.region.as_deref(), region);
}

#[test]
fn region_of_servers_is_stored_separately() {
    let config = read_keys(&format!("volume_region_name: V, region_name: R, {CREDENTIAL}")).expect("good");
    assert_eq!(config.services.compute.region.as_deref(), Some("R"));
    let config = read_keys(&format!("compute_region_name: S, region_name: R, {CREDENTIAL}")).expect("good");
    assert_eq!(
        (config.region.as_deref(), config.services.compute.region.as_deref()),
        (Some("R"), Some("S"))
    );
}

#[rstest]
#[case("interface: internal", Interface::Internal)]
#[case("interface: admin, endpoint_type: internal", Interface::Internal)]
#[case("endpoint_type: internalURL", Interface::Internal)]
#[case("interface: [admin]", Interface::Admin)]
#[case("interface: ", Interface::Public)]
fn interface_matches_openstacksdk(#[case] keys: &str, #[case] interface: Interface) {
    let config = read_keys(&format!("{keys}, {CREDENTIAL}")).expect("good");
    assert_eq!(config.interface, interface);
}

#[test]
fn services_have_own_endpoints_and_interfaces() {
    let keys = "volume_endpoint_override: https://c/v3, block_storage_interface: admin, compute-endpoint-override: https://n, \
                compute_endpoint_type: internal";
    let config = read_keys(&format!("{keys}, {CREDENTIAL}")).expect("good");
    let (volumes, servers) = (config.services.block_storage, config.services.compute);
    assert_eq!(
        (volumes.endpoint.as_deref(), volumes.interface),
        (Some("https://c/v3"), Some(Interface::Admin))
    );
    assert_eq!(
        (servers.endpoint.as_deref(), servers.interface),
        (Some("https://n"), Some(Interface::Internal))
    );
}

#[rstest]
#[case("cert: /c.pem", Some(("/c.pem", "/c.pem")))]
#[case("cert: /c.pem, key: /k.pem", Some(("/c.pem", "/k.pem")))]
#[case("key: /k.pem", None)]
fn certificate_file_may_contain_key(#[case] keys: &str, #[case] expected: Option<(&str, &str)>) {
    let config = read_keys(&format!("{keys}, {CREDENTIAL}")).expect("good");
    let client = config.tls.client.map(|client| {
        (
            client.cert_file.display().to_string(),
            client.key_file.display().to_string(),
        )
    });
    let expected = expected.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
    assert_eq!(client, expected);
    assert_eq!(config.warnings.len(), usize::from(expected.is_none()));
}

#[rstest]
#[case("verify: off", true, None)]
#[case("verify: no, cacert: /ca", true, Some("/ca"))]
#[case("verify: on", false, None)]
#[case("verify: ", false, None)]
#[case("insecure: true, verify: true", true, None)]
#[case("insecure: yes", true, None)]
#[case("insecure: 'True'", true, None)]
#[case("insecure: 'false', verify: on", false, None)]
#[case("verify: /ca", false, Some("/ca"))]
#[case("verify: /other, cacert: /ca", false, Some("/ca"))]
fn verification_matches_openstacksdk(#[case] keys: &str, #[case] insecure: bool, #[case] ca: Option<&str>) {
    let config = read_keys(&format!("{keys}, {CREDENTIAL}")).expect("good");
    let ca_file = config.tls.ca_file.map(|path| path.display().to_string());
    assert_eq!((config.tls.insecure, ca_file.as_deref()), (insecure, ca));
}

#[test]
fn values_of_region_override_cloud() {
    let text = "clouds: {c: {interface: public, auth: {auth_url: https://old/v3, user_id: u, password: p, project_id: p}, regions: \
                [{name: B, values: {interface: internal, auth: {auth_url: https://b/v3, project_id: pb}}}, A]}}";
    let config = CloudConfig::from_clouds_yaml(text, "c").expect("good");
    assert_eq!(
        (config.auth_url.as_str(), config.interface),
        ("https://b/v3", Interface::Internal)
    );
    assert_eq!(login(&config.auth), "user id u, password p, project id pb");
    let config = CloudConfig::from_clouds_yaml_in(text, "c", Some("A")).expect("good");
    assert_eq!(
        (config.auth_url.as_str(), config.region.as_deref(), config.interface),
        ("https://old/v3", Some("A"), Interface::Public)
    );
    let error = CloudConfig::from_clouds_yaml_in(text, "c", Some("C")).expect_err("no such region");
    assert!(error.to_string().contains("without the region \"C\""), "{error}");
}

#[test]
fn merged_mappings_count() {
    let text = format!(
        "base: &b {{region_name: R2, interface: internal, verify: true}}\nclouds:\n  c:\n    <<: *b\n    {CREDENTIAL}\n"
    );
    let config = CloudConfig::from_clouds_yaml(&text, "c").expect("good");
    assert_eq!(
        (config.region.as_deref(), config.interface, config.tls.insecure),
        (Some("R2"), Interface::Internal, false)
    );
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[rstest]
#[case("clouds: {a: {}, b: {}}", "c", "no cloud \"c\"; it has: a, b")]
#[case("clouds: {a: {}, b: {}}", "", "no cloud \"\"; it has: a, b")]
#[case("cloud: {}", "c", "no mapping `clouds`")]
#[case("clouds: [\n", "c", "not YAML")]
#[case("clouds: {c: text}", "c", "clouds.c must be a mapping")]
#[case("clouds: {c: {auth_type: v3totp}}", "c", "clouds.c.auth_type is not supported")]
#[case(
    "clouds: {c: {auth: {password: true}}}",
    "c",
    "clouds.c.auth.password is read as true or false"
)]
#[case(
    "clouds: {c: {auth: {password: 0123}}}",
    "c",
    "clouds.c.auth.password is read as a number"
)]
#[case(
    "clouds: {c: {auth: {password: p, username: u}}}",
    "c",
    "user_domain_name is missing"
)]
#[case("clouds: {c: {auth: {password: p, user_id: u}}}", "c", "project_name is missing")]
#[case("clouds: {c: {auth: {}}}", "c", "application_credential_id")]
#[case("clouds: {c: {auth: {}}}", "c", "if a secure.yaml has it")]
#[case(
    "clouds: {c: {interface: outside}}",
    "c",
    "clouds.c.interface must be public, internal or admin"
)]
fn errors_name_key_and_remedy(#[case] text: &str, #[case] cloud: &str, #[case] expected: &str) {
    let error = CloudConfig::from_clouds_yaml(text, cloud).expect_err("bad").to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("profile: ovh", "clouds.c.profile is not supported")]
#[case("cloud: ovh", "clouds.c.cloud is not supported")]
#[case(
    "auth: {user_id: u}, auth_url: 'https://iam.{region_name}.example/v3'",
    "clouds.c.auth_url with a name in braces"
)]
#[case("cacert: '/{name}.pem'", "clouds.c.cacert with a name in braces")]
#[case(
    "auth: {auth_url: 'https://iam.{region_name}.example/v3'}",
    "clouds.c.auth.auth_url with a name in braces"
)]
#[case("auth: {system_scope: all}", "clouds.c.auth.system_scope is not supported")]
#[case(
    "auth-type: password",
    "clouds.c.auth-type is not supported; openstacksdk does not read it: write auth_type"
)]
#[case("endpoint-type: internal", "write endpoint_type")]
#[case("volume_interface: admin, volume_endpoint_type: internal", "volume_interface differ")]
#[case("volume_service_name: cinder", "clouds.c.volume_service_name is not supported")]
#[case("volume_service_type: volumev2", "clouds.c.volume_service_type is not supported")]
#[case(
    "interface: [internal, public]",
    "clouds.c.interface with several interfaces is not supported; the driver uses one interface"
)]
#[case(
    "volume_interface: [internal, public]",
    "clouds.c.volume_interface with several interfaces is not supported"
)]
#[case("interface: []", "clouds.c.interface must be a text")]
#[case("verify: 'false'", "clouds.c.verify must be true or false, without quotes")]
#[case("verify: 0", "openstacksdk uses other texts and numbers as the name of a file")]
#[case("verify: 1", "clouds.c.verify must be true or false, without quotes")]
#[case("insecure: 1", "clouds.c.insecure must be true or false, without quotes")]
#[case("verify: ''", "clouds.c.verify must be true or false, without quotes")]
#[case("insecure: 'yes'", "clouds.c.insecure must be true or false")]
#[case("regions: B", "clouds.c.regions must be a list")]
#[case("regions: []", "clouds.c.regions is empty")]
#[case("regions: [{values: {}}]", "clouds.c.regions[0] has no name")]
#[case("regions: [{name: A, colour: red}]", "clouds.c.regions[0].colour is not possible")]
#[case("region_name: A, region-name: B", "clouds.c.region_name is there twice")]
#[case("volume_region_name: A", "clouds.c.region_name is missing")]
#[case(
    "compute_endpoint_override: 'https://n/%(user_id)s'",
    "compute_endpoint_override may have %(project_id)s and no other"
)]
#[case(
    "volume_endpoint_override: 'c:8776'",
    "block_storage_endpoint_override must begin with https://"
)]
fn rejects_keys_that_change_destination(#[case] keys: &str, #[case] expected: &str) {
    let login = if keys.contains("auth: {") {
        String::new()
    } else {
        format!(", auth: {{{USER}, project_id: p}}")
    };
    let error = read_keys(&format!("{keys}{login}")).expect_err("refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case(
    "user_id: u, password: p, token: t",
    "more than one login without auth_type (user_id, password; token)"
)]
#[case(
    "user_id: u, password: p, application_credential_id: i, application_credential_secret: s",
    "set auth_type to password or v3applicationcredential"
)]
fn two_logins_require_auth_type(#[case] keys: &str, #[case] expected: &str) {
    let error = read_keys(&format!("auth: {{auth_url: https://k, project_id: p, {keys}}}")).expect_err("refused");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn keys_of_other_logins_are_reported() {
    let keys = "auth_type: password, auth: {auth_url: https://k, user_id: u, password: p, project_id: t, token: x}";
    let config = read_keys(keys).expect("good");
    assert_eq!(
        config.warnings,
        ["clouds.yaml: clouds.c.auth.token has no effect: auth_type chooses another login"]
    );
}

#[test]
fn errors_name_keys_without_effect() {
    let error =
        read_keys("shoe_size: 42, image_format: raw, auth: {auth_url: https://k, colour: red}").expect_err("no login");
    let text = error.to_string();
    assert!(
        text.ends_with("; not used: clouds.c.shoe_size, clouds.c.auth.colour"),
        "{text}"
    );
}

#[test]
fn ignored_keys_are_bounded_and_escaped() {
    let keys: Vec<String> = (0..100)
        .map(|n| format!("\"k{n:03}\\n{}\": 1", "x".repeat(500)))
        .collect();
    let error = read_keys(&keys.join(", ")).expect_err("no login").to_string();
    assert!(error.len() < 2_000 && error.ends_with("and 92 more"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn errors_and_debug_hide_secrets() {
    let broken = "clouds:\n  c:\n    auth:\n      password: hunter2hunter2\n     x: [\n";
    let error = CloudConfig::from_clouds_yaml(broken, "c").expect_err("bad");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    let config = CloudConfig::from_clouds_yaml(PASSWORD, "mine").expect("good");
    assert!(!format!("{config:?}").contains("12345"));
}

/// The files of `driver/cloud/tests/configuration/clouds_yaml`, each with the result of openstacksdk, or of gophercloud if openstacksdk cannot read the file.
#[rstest]
#[case("merge", "a", "credential id i", "region R2, internal")]
#[case("outer", "a", "user u of id d, password p, project id outer", "region R, public")]
#[case("regions", "a", "credential id i", "region B, public")]
#[case(
    "regionvalues",
    "a",
    "user u of id d, password p, project id pb",
    "region B, internal"
)]
#[case("iface", "a", "credential id i", "region -, internal")]
#[case("authtype", "a", "user u of id d, password p, project id mine", "region -, public")]
#[case(
    "defaultdomain",
    "a",
    "user u of name Users, password p, project pn of id default",
    "region -, public"
)]
#[case("dash", "a", "credential id i", "region R, public")]
#[case("cert", "a", "credential id i", "region -, public")]
#[case("two", "a", "user u of id d, password p, project id MINE", "region R, public")]
#[case("numbers", "e", "user id u, password 1e5, project id p", "region -, public")]
#[case(
    "numbers",
    "big",
    "user id u, password p, project id 12345678901234567890123456789012",
    "region -, public"
)]
#[case(
    "numbers",
    "idexp",
    "user id u, password p, project id 84071e63958204739158263940571826",
    "region -, public"
)]
#[case("numbers", "oct", "user id u, password 0o17, project id p", "region -, public")]
#[case(
    "numbers",
    "date",
    "user id u, password 2024-01-02, project id p",
    "region -, public"
)]
fn shared_files_match_openstacksdk(#[case] file: &str, #[case] cloud: &str, #[case] auth: &str, #[case] rest: &str) {
    let config = CloudConfig::from_clouds_yaml(&fixture(file), cloud).expect("good");
    let region = config.region.as_deref().unwrap_or("-");
    let shown = format!("region {region}, {}", config.interface.as_str());
    assert_eq!((login(&config.auth).as_str(), shown.as_str()), (auth, rest));
}

#[rstest]
#[case("zero")]
#[case("dot")]
#[case("hex")]
#[case("plus")]
#[case("inf")]
#[case("no")]
fn inexact_numbers_need_quotes(#[case] cloud: &str) {
    let error = CloudConfig::from_clouds_yaml(&fixture("numbers"), cloud).expect_err("refused");
    assert!(error.to_string().contains("put it in quotes"), "{error}");
}

fn fixture(name: &str) -> String {
    let path = format!(
        "{}/tests/configuration/clouds_yaml/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read_to_string(path).expect("a fixture")
}
