// SPDX-License-Identifier: Apache-2.0
//! Compatibility with cinder-csi-plugin.

use std::collections::BTreeSet;

use super::*;
use crate::config::keys::{CLOUD_CONF, KeyEffect, cloud_conf_key, is_foreign_section};

/// The keys of the Go driver, by section, each with a valid value.
const GO_KEYS: [(&str, &str, &str); 40] = [
    ("Global", "auth-url", "https://k"),
    ("Global", "username", "u"),
    ("Global", "user-id", "u"),
    ("Global", "password", "p"),
    ("Global", "tenant-id", "t"),
    ("Global", "tenant-name", "t"),
    ("Global", "domain-id", "d"),
    ("Global", "domain-name", "d"),
    ("Global", "tenant-domain-id", "d"),
    ("Global", "tenant-domain-name", "d"),
    ("Global", "user-domain-id", "d"),
    ("Global", "user-domain-name", "d"),
    ("Global", "trust-id", "t"),
    ("Global", "trustee-id", "t"),
    ("Global", "trustee-password", "t"),
    ("Global", "application-credential-id", "i"),
    ("Global", "application-credential-name", "n"),
    ("Global", "application-credential-secret", "s"),
    ("Global", "token", "t"),
    ("Global", "region", "r"),
    ("Global", "os-endpoint-type", "internal"),
    ("Global", "ca-file", "/ca"),
    ("Global", "cafilecontents", "PEM"),
    ("Global", "tls-insecure", "true"),
    ("Global", "cert-file", "/c"),
    ("Global", "key-file", "/k"),
    ("Global", "use-clouds", "false"),
    ("Global", "clouds-file", "/clouds.yaml"),
    ("Global", "cloud", "c"),
    ("BlockStorage", "node-volume-attach-limit", "20"),
    ("BlockStorage", "rescan-on-resize", "true"),
    ("BlockStorage", "ignore-volume-az", "true"),
    ("BlockStorage", "ignore-volume-microversion", "true"),
    ("BlockStorage", "bs-version", "v3"),
    ("BlockStorage", "trust-device-path", "false"),
    ("Metadata", "search-order", "configDrive,metadataService"),
    ("Metadata", "request-timeout", "5s"),
    ("Networking", "public-network-name", "public"),
    ("LoadBalancer", "enabled", "false"),
    ("Route", "router-id", "r"),
];

#[test]
fn accepts_every_key_of_go_driver() {
    for (section, key, _) in GO_KEYS {
        let section = section.to_ascii_lowercase();
        let is_known = is_foreign_section(&section) || cloud_conf_key(&section, key).is_some();
        assert!(is_known, "[{section}] {key}");
    }
    assert!(!is_foreign_section("global") && cloud_conf_key("global", "pasword").is_none());
}

#[test]
fn table_has_keys_of_go_driver() {
    let lower = |text: &str| text.to_ascii_lowercase();
    let is_foreign = |section: &str| is_foreign_section(&lower(section));
    let expected: BTreeSet<_> = GO_KEYS
        .iter()
        .filter(|(section, _, _)| !is_foreign(section))
        .map(|(section, key, _)| (lower(section), *key))
        .collect();
    let rows = CLOUD_CONF
        .iter()
        .filter(|row| !row.go_names.is_empty() || matches!(row.effect, KeyEffect::Obsolete(_)));
    let table: BTreeSet<_> = rows
        .map(|row| (lower(row.place.section().expect("a section")), row.name()))
        .collect();
    assert_eq!(table, expected);
}

#[rstest]
#[case("tls-insecure = yes", "tls-insecure must be true or false")]
#[case("tls-insecure = 1", "tls-insecure must be true or false")]
#[case("tls-insecure = True", "tls-insecure must be true or false")]
#[case("tls-insecure", "tls-insecure has no value")]
#[case("password", "password has no value")]
#[case(
    "os-endpoint-type = internalURL",
    "os-endpoint-type must be public, internal or admin"
)]
#[case("cloud = c", "[Global] cloud without use-clouds is not supported")]
#[case("user_domain_id = d", "the name user_domain_id of a key has _")]
#[case("username = u", "a user by name and by id (username, user-id) is not supported")]
#[case(
    "domain-id = d",
    "the id of a user (user-id) beside a domain of the user (domain-id) is not supported"
)]
#[case("domain-name = d", "an id needs no domain: remove domain-name")]
#[case("user-domain-id = d", "an id needs no domain: remove user-domain-id")]
#[case("user-domain-name = d", "an id needs no domain: remove user-domain-name")]
#[case(
    "application-credential-id = i",
    "the login by password beside application-credential-id is not supported"
)]
#[case(
    "token = t\napplication-credential-secret = s",
    "the login by token beside application-credential-secret"
)]
#[case("trust-id = t\ntoken = k", "the login by trust-id beside token")]
#[case("use-clouds = t", "use-clouds must be true or false")]
fn rejects_values_that_go_driver_rejects(#[case] lines: &str, #[case] expected: &str) {
    let lines = lines.replace("\\n", "\n");
    let text = format!("[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\n{lines}\n");
    let error = CloudConfig::from_cloud_conf(&text).expect_err("refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("20", Some(20))]
#[case("256", Some(256))]
#[case("500", Some(256))]
#[case("0", None)]
#[case("-5", None)]
#[case("0x10", Some(16))]
#[case("+7", Some(7))]
#[case("010", Some(10))]
fn volume_limits_match_go_driver(#[case] limit: &str, #[case] expected: Option<u32>) {
    let text = format!(
        "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\n[BlockStorage]\nnode-volume-attach-limit={limit}\n"
    );
    let config = CloudConfig::from_cloud_conf(&text).expect("good");
    assert_eq!(config.block_storage.node_volume_attach_limit, expected);
}

/// A login with the user u in domain U, unless the lines set another one.
fn login_with(lines: &str) -> Result<Auth, String> {
    let text = format!("[Global]\nauth-url=https://k\n{lines}\n");
    let config = CloudConfig::from_cloud_conf(&text).map_err(|error| error.to_string())?;
    Ok(config.auth)
}

#[test]
fn domains_match_gophercloud() {
    let refused = |lines: &str, expected: &str| {
        let error = login_with(lines).expect_err("refused");
        assert!(error.contains(expected), "{error}");
    };
    refused(
        "username=u\npassword=p\ntenant-name=t\nuser-domain-name=users",
        "tenant-domain-name is missing",
    );
    refused(
        "username=u\npassword=p\ntenant-name=t\ndomain-id=default\nuser-domain-name=users",
        "a domain of the user by id and by name (user-domain-name, domain-id)",
    );
    refused(
        "username=u\npassword=p\ntenant-id=t\ndomain-id=i\ndomain-name=n",
        "(domain-id, domain-name)",
    );
    let auth = login_with("token=k\ntenant-name=t\ntenant-domain-name=n\ndomain-id=i").expect("good");
    let Auth::Token { project, .. } = auth else {
        panic!("{auth:?}")
    };
    let expected = Project::Name {
        name: "t".into(),
        domain: Domain::Id("i".into()),
    };
    assert_eq!(project, expected);
}

#[test]
fn token_precedes_password() {
    let auth = login_with("username=u\nuser-domain-name=d\npassword=p\ntoken=tok\ntenant-id=t").expect("good");
    assert!(matches!(auth, Auth::Token { .. }), "{auth:?}");
}

#[test]
fn ca_is_read_inline() {
    let text = "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\nCAFileContents = \"PEM\\nPEM\"\n";
    let config = CloudConfig::from_cloud_conf(text).expect("good");
    assert_eq!(config.tls.ca_pem.as_deref(), Some("PEM\nPEM"));
    let config = CloudConfig::from_cloud_conf(&format!("{text}ca-file=/ca\n")).expect("good");
    assert_eq!(config.tls.ca_pem, None);
}

/// Reads a `cloud.conf` that names a `clouds.yaml` with `use-clouds`.
fn use_clouds(conf: &str, yaml: &str) -> Result<CloudConfig, ConfigError> {
    let folder = TempDir::new().expect("folder");
    let (file, clouds) = (folder.path().join("cloud.conf"), folder.path().join("clouds.yaml"));
    std::fs::write(&clouds, yaml).expect("written");
    let text = format!("[Global]\nuse-clouds=true\nclouds-file={}\n{conf}\n", clouds.display());
    std::fs::write(&file, text).expect("written");
    CloudConfig::load(&[file])
}

const YAML: &str = "clouds: {a: {region_name: R, verify: false, project_id: outer, volume_endpoint_override: 'https://c', auth: {auth_url: \
                    'https://k', username: u, password: p, project_id: MINE, user_domain_id: d}}}";

#[test]
fn named_entry_determines_login() {
    let config = use_clouds("cloud=a\ntenant-id=OTHER\nusername=other\npassword=x\nregion=G", YAML).expect("good");
    let Auth::Password { user, project, .. } = &config.auth else {
        panic!("{:?}", config.auth)
    };
    assert!(matches!(user, User::Name { name, .. } if name == "u"), "{user:?}");
    assert_eq!(*project, Project::Id("MINE".into()));
    assert_eq!(config.region.as_deref(), Some("G"));
    assert!(!config.tls.insecure, "the Go driver does not read verify");
    assert_eq!(config.services, Services::default());
    let warned = |part: &str| config.warnings.iter().any(|warning| warning.contains(part));
    for part in [
        "[Global] tenant-id has no effect",
        "[Global] username has no effect",
        "[Global] password has no effect",
        "clouds.a.verify has no effect with use-clouds",
        "clouds.a.project_id has no effect with use-clouds",
        "clouds.a.volume_endpoint_override has no effect with use-clouds",
    ] {
        assert!(warned(part), "{part}: {:?}", config.warnings);
    }
}

#[test]
fn unnamed_clouds_yaml_fills_missing_keys() {
    let config = use_clouds("tenant-id=OTHER", YAML).expect("good");
    let Auth::Password { project, .. } = &config.auth else {
        panic!("{:?}", config.auth)
    };
    assert_eq!(*project, Project::Id("OTHER".into()));
    let error = use_clouds("application-credential-id=i\napplication-credential-secret=s", YAML).expect_err("two");
    assert!(
        error
            .to_string()
            .contains("the login by password beside application-credential-id"),
        "{error}"
    );
}

#[test]
fn shared_files_match_go_driver() {
    let read = |name: &str| {
        let path = format!(
            "{}/tests/configuration/cloud_conf/{name}.conf",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).expect("a fixture");
        CloudConfig::from_cloud_conf(&text).map_err(|error| error.to_string())
    };
    for (name, expected) in [
        ("tlsinsecure-yes", "tls-insecure must be"),
        ("tlsinsecure-1", "tls-insecure must be"),
        ("userdomain-only", "tenant-domain-name is missing"),
        ("domainmix", "user-domain-name, domain-id"),
        ("underscore", "auth_url"),
        ("useclouds-override", "use-clouds is not supported"),
    ] {
        let error = read(name).expect_err(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
    let config = read("token-password").expect("good");
    assert!(matches!(config.auth, Auth::Token { .. }), "{:?}", config.auth);
}

#[test]
fn empty_value_is_unset_or_rejected() {
    const LOGIN: &str = "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\n";
    for (section, key, _) in GO_KEYS {
        if ["auth-url", "user-id", "password", "tenant-id"].contains(&key) {
            continue;
        }
        match CloudConfig::from_cloud_conf(&format!("{LOGIN}[{section}]\n{key} =\n")) {
            Ok(config) => assert!(matches!(config.auth, Auth::Password { .. }), "{key}"),
            Err(error) => assert!(error.to_string().contains(key), "{key}: {error}"),
        }
    }
}

proptest! {
    // Files with keys and values in any order. The reader accepts a file, or rejects it without its secrets.
    #[test]
    fn random_files_never_panic_or_expose_secrets(
        lines in proptest::collection::vec((0..GO_KEYS.len(), "[a-z0-9=\"\\\\ ]{0,6}", proptest::bool::weighted(0.1)), 0..12),
        name in "(\"[a-z]{0,3}\")?",
    ) {
        let lines = lines.into_iter().map(|(at, value, bare)| {
            let (section, key, good) = GO_KEYS[at];
            let section = if section == "Global" { format!("[{section} {name}]") } else { format!("[{section}]") };
            let is_secret = ["password", "secret", "token"].iter().any(|word| key.contains(word));
            let rest = if is_secret { "hunter2hunter2" } else { good };
            if bare { format!("{section}\n{key}\n") } else { format!("{section}\n{key} = {value}{rest}\n") }
        });
        let text: String = lines.collect();
        let requested = name.trim_matches('"').to_owned();
        match Configuration::from_cloud_conf(&text, &[requested]) {
            Ok(configuration) => {
                for config in configuration.clouds.values() {
                    for secret in ["password", "secret"] {
                        let shown = format!("{config:?}");
                        prop_assert!(!shown.contains(&format!("{secret}: \"hunter2")), "{}", shown);
                    }
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains("hunter2"), "{}", error),
        }
    }
}
