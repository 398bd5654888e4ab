// SPDX-License-Identifier: Apache-2.0

mod clouds;
mod go_driver;

use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use secrecy::ExposeSecret;

use super::super::{
    ApplicationCredential, Auth, BlockStorageOptions, ClientCertificate, Configuration, Domain, Interface,
    MetadataOptions, Project, Proxies, ServiceAccess, Services, Tls, TopologyOptions, User,
};
use super::value::duration;
use super::*;
use crate::{Cloud, CloudOptions};
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
