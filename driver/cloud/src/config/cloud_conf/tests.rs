// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use secrecy::ExposeSecret;

use super::super::keys::{CLOUD_CONF, KeyEffect, cloud_conf_key, is_foreign_section};
use super::super::{
    ApplicationCredential, Auth, BlockStorageOptions, ClientCertificate, Configuration, Domain, Interface,
    MetadataOptions, Project, Proxies, ServiceAccess, Services, Tls, TopologyOptions, User,
};
use super::value::duration;
use super::*;
use crate::{Cloud, CloudOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const FULL: &str = r#"
; shared with the cloud controller manager
[Global]
auth-url = "https://keystone.example:5000/v3"
Username = csi
password = "p;#\"\\ w"
tenant-name = cluster
domain-name = Default
tenant-domain-id = d1
region = R1
os-endpoint-type = internal
ca-file = /etc/ca.pem
tls-insecure = true
shoe-size = 42

[LoadBalancer]
enabled = false

[BlockStorage]
bs-version = v3
node-volume-attach-limit = 200
rescan-on-resize
ignore-volume-az = yes

[Metadata]
search-order = metadataService
request-timeout = 1m0.5s

[Garden]
flowers = 3
"#;

#[test]
fn parses_file_with_all_keys() {
    let config = CloudConfig::from_cloud_conf(FULL).expect("good");
    let Auth::Password {
        user,
        password,
        project,
    } = &config.auth
    else {
        panic!("{:?}", config.auth)
    };
    assert_eq!(
        *user,
        User::Name {
            name: "csi".into(),
            domain: Domain::Name("Default".into())
        }
    );
    assert_eq!(password.expose_secret(), "p;#\"\\ w");
    assert_eq!(
        *project,
        Project::Name {
            name: "cluster".into(),
            domain: Domain::Id("d1".into())
        }
    );
    assert_eq!(
        (config.region.as_deref(), config.interface),
        (Some("R1"), Interface::Internal)
    );
    assert_eq!(
        config.tls,
        Tls {
            ca_file: Some("/etc/ca.pem".into()),
            insecure: true,
            ..Tls::default()
        }
    );
    assert_eq!(config.block_storage.node_volume_attach_limit, Some(200));
    assert!(config.block_storage.rescan_on_resize && config.block_storage.ignore_volume_az);
    assert!(!config.block_storage.ignore_volume_microversion);
    assert_eq!(config.metadata.search_order, ["metadataService"]);
    assert_eq!(config.metadata.request_timeout, Some(Duration::from_millis(60_500)));
    assert_eq!(
        config.warnings,
        [
            "cloud.conf line 14: key shoe-size of section [global] is not known and has no effect",
            "cloud.conf: section [garden] is not known and has no effect",
        ]
    );
}

#[rstest]
#[case("[Global]\npassword=p\nusername=u\n", "user-domain-name is missing")]
#[case("[Global]\npassword=p\nuser-id=u\n", "tenant-name is missing")]
#[case("[Global]\npassword=p\n", "username is missing")]
#[case(
    "[Global]\nauth-url=https://k\n",
    "password is missing; log in with username and password, or with application-credential-id"
)]
#[case("[Global]\npassword=p\nuser-id=u\ntenant-id=t\n", "auth-url is missing")]
#[case(
    "[Global]\nauth-url=keystone\npassword=p\nuser-id=u\ntenant-id=t\n",
    "must begin with https://"
)]
#[case(
    "[Global]\napplication-credential-id=i\n",
    "application-credential-secret is missing"
)]
#[case(
    "[Global]\napplication-credential-secret=s\n",
    "application-credential-id is missing"
)]
#[case(
    "[Global]\napplication-credential-secret=s\napplication-credential-name=n\n",
    "username is missing"
)]
#[case("[Global]\ntrust-id=t\n", "username is missing")]
#[case("[Global]\ntrust-id=t\ntrustee-id=u\n", "trustee-password is missing")]
#[case("[Global]\ntoken=t\n", "tenant-name is missing")]
#[case(
    "[Global]\nauth-url=https://k\ntoken=t\ntenant-id=p\ncert-file=/c\n",
    "key-file is missing"
)]
#[case("[Topology]\nzone-map=nova\n", "line 2: [topology] zone-map must be NOVA=CINDER")]
#[case("[Topology \"\"]\nsegment==x\n", "segment must be KEY=VALUE")]
#[case(
    "[Global \"second\"]\nauth-url=k\n",
    "one cloud is wanted here: keep the section [Global] alone"
)]
#[case(
    "[Global]\n\nos-endpoint-type=outside\n",
    "cloud.conf line 3: [global] os-endpoint-type must be public"
)]
#[case(
    "[BlockStorage]\nrescan-on-resize=maybe\n",
    "line 2: [blockstorage] rescan-on-resize must be true or false"
)]
#[case("[BlockStorage]\nnode-volume-attach-limit=many\n", "must be a number")]
#[case("[Metadata]\nsearch-order=dns\n", "known are configDrive, metadataService")]
#[case("[Metadata]\nrequest-timeout=soon\n", "must be a time")]
fn errors_name_location_key_and_remedy(#[case] text: &str, #[case] expected: &str) {
    let error = CloudConfig::from_cloud_conf(text).expect_err("bad").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn later_file_overrides_single_keys() {
    let folder = TempDir::new().expect("folder");
    let (first, second) = (folder.path().join("a.conf"), folder.path().join("b.conf"));
    std::fs::write(
        &first,
        "[Global]\nauth-url=https://a\nuser-id=u\npassword=p\ntenant-id=t\nregion=A\n",
    )
    .expect("written");
    std::fs::write(&second, "[global]\nregion=B\n").expect("written");
    let config = CloudConfig::load(&[first, second]).expect("good");
    assert_eq!(
        (config.auth_url.as_str(), config.region.as_deref()),
        ("https://a", Some("B"))
    );
}

#[test]
fn clouds_yaml_fills_unset_keys() {
    let folder = TempDir::new().expect("folder");
    let (conf, clouds) = (folder.path().join("cloud.conf"), folder.path().join("clouds.yaml"));
    let yaml = "clouds: {mine: {region_name: Y, auth: {auth_url: 'https://y', application_credential_id: i, application_credential_secret: s}}}";
    std::fs::write(&clouds, yaml).expect("written");
    let text = format!(
        "[Global]\nuse-clouds=true\nclouds-file={}\ncloud=mine\nregion=C\n",
        clouds.display()
    );
    std::fs::write(&conf, text).expect("written");
    let config = CloudConfig::load(&[conf]).expect("good");
    assert_eq!(
        (config.auth_url.as_str(), config.region.as_deref()),
        ("https://y", Some("C"))
    );
    assert!(matches!(config.auth, Auth::ApplicationCredential { .. }));
}

#[test]
fn text_cannot_name_clouds_file() {
    let text = "[Global]\nuse-clouds=true\nclouds-file=/dev/zero\n";
    let one = CloudConfig::from_cloud_conf(text).expect_err("refused").to_string();
    let all = Configuration::from_cloud_conf(text, &[])
        .expect_err("refused")
        .to_string();
    for error in [one, all] {
        assert!(
            error.contains("cloud.conf line 2: [Global] use-clouds is not supported") && error.contains("clouds.yaml"),
            "{error}"
        );
    }
}

#[test]
fn rejects_devices_and_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [Path::new("/dev/zero"), folder.path()] {
        let error = CloudConfig::load(&[path.to_owned()]).expect_err("refused").to_string();
        assert!(
            error.contains(&path.display().to_string()) && error.contains("not a regular file"),
            "{error}"
        );
    }
    let conf = folder.path().join("cloud.conf");
    std::fs::write(&conf, "[Global]\nuse-clouds=true\nclouds-file=/dev/zero\n").expect("written");
    let error = CloudConfig::load(std::slice::from_ref(&conf))
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("/dev/zero cannot be read: it is not a regular file"),
        "{error}"
    );
    let text = "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\nca-file=/dev/zero\n";
    std::fs::write(&conf, text).expect("written");
    // The error concerns only the connection to this cloud.
    let config = CloudConfig::load(&[conf]).expect("well-formed");
    let error = Cloud::new(config, CloudOptions::default())
        .expect_err("refused")
        .to_string();
    assert!(error.contains("ca-file /dev/zero: it is not a regular file"), "{error}");
}

#[test]
fn missing_file_is_named() {
    let error = CloudConfig::load(&["/no/such/cloud.conf".into()])
        .expect_err("missing")
        .to_string();
    assert!(error.contains("/no/such/cloud.conf"), "{error}");
}

#[rstest]
#[case("5s", Some(5_000))]
#[case("1h2m3s4ms", Some(3_723_004))]
#[case("0", Some(0))]
#[case("5", None)]
#[case("5 parsecs", None)]
#[case("", None)]
fn parses_durations_of_go(#[case] text: &str, #[case] millis: Option<u64>) {
    assert_eq!(duration(text), millis.map(Duration::from_millis));
}

fn debug_with_secret(config: &CloudConfig) -> String {
    let secret = match &config.auth {
        Auth::Password { password, .. } | Auth::Trust { password, .. } => password.expose_secret(),
        Auth::Token { token, .. } => token.expose_secret(),
        Auth::ApplicationCredential { secret, .. } => secret.expose_secret(),
    };
    format!("{config:?} {secret:?}")
}

#[test]
fn debug_output_hides_secrets() {
    let config = CloudConfig::from_cloud_conf(FULL).expect("good");
    assert!(!format!("{config:?}").contains("p;#"));
}

proptest! {
    #[test]
    fn written_configuration_round_trips(
        secret in "[^\r]+", name in "[^\r]+", region in proptest::option::of("[^\r]+"),
        way in 0..4_u8, by_id: bool, insecure: bool, limit in proptest::option::of(1_u32..=256),
        interface in prop_oneof![Just(Interface::Public), Just(Interface::Internal), Just(Interface::Admin)],
        millis in proptest::option::of(1_u64..1_000_000),
        zone_map in proptest::collection::btree_map("[^\r\n\t =][^\r\n\t=]*[^\r\n\t =]", "[a-zü][a-zü =:]*[a-zü]", 0..3),
    ) {
        let user = if by_id { User::Id(name.clone()) } else { User::Name { name: name.clone(), domain: Domain::Name(name.clone()) } };
        let project = if by_id { Project::Id(name.clone()) } else { Project::Name { name: name.clone(), domain: Domain::Id(name.clone()) } };
        let auth = if way == 0 {
            let credential = if by_id { ApplicationCredential::Id(name) } else { ApplicationCredential::Name { name, user } };
            Auth::ApplicationCredential { credential, secret: secret.into() }
        } else if way == 1 {
            Auth::Trust { user, password: secret.into(), trust: name }
        } else if way == 2 {
            Auth::Token { token: secret.into(), project }
        } else {
            Auth::Password { user, password: secret.into(), project }
        };
        let config = CloudConfig {
            auth_url: "https://keystone.example".to_owned(), auth, interface,
            services: Services {
                block_storage: ServiceAccess { endpoint: by_id.then(|| "https://c/v3/%(project_id)s".to_owned()), region: None, interface: insecure.then_some(interface) },
                compute: ServiceAccess { endpoint: insecure.then(|| "https://n/v2.1".to_owned()), region: region.clone(), interface: by_id.then_some(interface) },
            },
            region,
            tls: Tls { ca_file: Some("/etc/config/ca.crt".into()), insecure, also_public_roots: by_id, client: by_id.then(|| ClientCertificate { cert_file: "/c.pem".into(), key_file: "/k.pem".into() }), ..Tls::default() },
            topology: TopologyOptions { segments: zone_map.keys().map(|key| (format!("k{}", key.len()), "v".to_owned())).collect(), zone_map },
            block_storage: BlockStorageOptions { node_volume_attach_limit: limit, ignore_volume_az: insecure, ..Default::default() },
            metadata: MetadataOptions { request_timeout: millis.map(Duration::from_millis), ..Default::default() },
            allow_http_endpoints: !by_id,
            proxies: Proxies::default(),
            warnings: Vec::new(),
        };
        let read = CloudConfig::from_cloud_conf(&config.to_cloud_conf(None)).expect("reads back");
        prop_assert_eq!(debug_with_secret(&read), debug_with_secret(&config));
    }
}

const TWO: &str = r#"
[Global]
auth-url = https://a
user-id = u
password = p
tenant-id = t
[Global "west"]
auth-url = https://w
application-credential-id = i
application-credential-secret = s
region = west
[BlockStorage]
ignore-volume-az = true
node-volume-attach-limit = 20
[BlockStorage "west"]
ignore-volume-az = false
[Topology "west"]
segment = topology.kubernetes.io/region=west
zone-map = nova one = storage 1
[Garden]
flowers = 3
"#;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn clouds_have_own_sections_and_common_options() {
    let both = Configuration::from_cloud_conf(TWO, &names(&["", "west"]))
        .expect("good")
        .clouds;
    let (own, west) = (&both[""], &both["west"]);
    assert_eq!(
        (own.auth_url.as_str(), west.auth_url.as_str()),
        ("https://a", "https://w")
    );
    assert!(own.block_storage.ignore_volume_az && !west.block_storage.ignore_volume_az);
    assert_eq!(west.block_storage.node_volume_attach_limit, Some(20));
    assert_eq!(own.topology, TopologyOptions::default());
    assert_eq!(west.topology.zone_map["nova one"], "storage 1");
    assert_eq!(west.topology.segments["topology.kubernetes.io/region"], "west");
}

#[test]
fn unnamed_section_precedes_named_ones() {
    let served = |text: &str| -> Vec<String> {
        let configuration = Configuration::from_cloud_conf(text, &[]).expect("good");
        configuration.clouds.into_keys().collect()
    };
    assert_eq!(served(TWO), [""]);
    let west = "[Global \"west\"]\nauth-url=https://w\nuser-id=u\npassword=p\ntenant-id=t\n";
    assert_eq!(served(west), ["west"]);
    assert_eq!(
        served(&format!("{west}{}", west.replace("west", "east"))),
        ["east", "west"]
    );
}

#[test]
fn unused_sections_are_reported_once() {
    let all = Configuration::from_cloud_conf(TWO, &[]).expect("good");
    assert_eq!(
        all.clouds[""].warnings,
        [
            "cloud.conf: section [garden] is not known and has no effect",
            "section [Global \"west\"] is not served; name it by --cloud-name",
        ]
    );
    let error = Configuration::from_cloud_conf(TWO, &names(&["north"])).expect_err("no such section");
    assert!(
        error.to_string().contains("section [Global \"north\"] is missing"),
        "{error}"
    );
}

#[test]
fn lists_all_files_in_use() {
    let folder = TempDir::new().expect("folder");
    let (conf, clouds) = (folder.path().join("cloud.conf"), folder.path().join("clouds.yaml"));
    let yaml =
        "clouds: {mine: {cacert: /ca, cert: /c, key: /k, auth: {auth_url: 'https://y', token: t, project_id: p}}}";
    std::fs::write(&clouds, yaml).expect("written");
    let text = format!(
        "[Global]\nuse-clouds=true\nclouds-file={}\ncloud=mine\n",
        clouds.display()
    );
    std::fs::write(&conf, text).expect("written");
    let files = Configuration::load(std::slice::from_ref(&conf), &[])
        .expect("good")
        .files;
    let expected = [conf, clouds, "/ca".into(), "/c".into(), "/k".into()];
    assert_eq!(files, expected.into_iter().collect());
}

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
    // Whole files of meaningful words, in any order: the reader accepts them or rejects them without showing a
    // secret.
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

#[rstest]
#[case("https://user:hunter2@keystone.example/v3")]
#[case("https://hunter2@keystone.example")]
#[case("http://user:hunter2@[::1]:5000/v3")]
#[case("https:///user:hunter2@keystone.example")]
#[case("https://a:hunter2@b@keystone.example?x#y")]
fn rejects_password_in_url_without_showing_it(#[case] url: &str) {
    let keys = "user-id=u\npassword=p\ntenant-id=t\n";
    let error = CloudConfig::from_cloud_conf(&format!("[Global]\nauth-url={url}\n{keys}")).expect_err("refused");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("auth-url") && text.contains("must not hold a user"),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains("keystone.example"),
        "{text}"
    );
    let yaml = format!("clouds: {{c: {{auth: {{auth_url: '{url}', user_id: u, password: p, project_id: t}}}}}}");
    let error = CloudConfig::from_clouds_yaml(&yaml, "c").expect_err("refused");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("auth_url") && text.contains("must not hold a user"),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn at_sign_after_host_is_accepted() {
    let conf = "[Global]\nauth-url=https://keystone.example/a@b?c=@\nuser-id=u\npassword=p\ntenant-id=t\n";
    CloudConfig::from_cloud_conf(conf).expect("good");
}
