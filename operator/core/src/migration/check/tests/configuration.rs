// SPDX-License-Identifier: Apache-2.0

use super::*;

#[rstest]
#[case("[Global]\nca-file=/x", "[Global] ca-file", "spec.clouds[default].caBundleRef")]
#[case(
    "[Global]\nCAFileContents=x",
    "[Global] cafilecontents",
    "spec.clouds[default].caBundleRef"
)]
#[case(
    "[Global]\ncert-file=/x\nkey-file=/y",
    "[Global] cert-file",
    "spec.clouds[default].clientCertSecretRef"
)]
#[case("[Global]\nuse-clouds=true", "[Global] use-clouds", "clouds.yaml")]
#[case("[Global \"west\"]\nregion=x", "[Global \"west\"]", "name west to spec.clouds")]
#[case(
    "[Global \"RegionOne\"]\nregion=x",
    "[Global \"RegionOne\"]",
    "section \"RegionOne\" and a name"
)]
#[case(
    "[BlockStorage]\nnode-volume-attach-limit=9",
    "[BlockStorage] node-volume-attach-limit",
    "spec.blockStorage.nodeVolumeAttachLimit to 9"
)]
#[case(
    "[BlockStorage]\nnode-volume-attach-limit=500",
    "[BlockStorage] node-volume-attach-limit",
    "spec.blockStorage.nodeVolumeAttachLimit to 256"
)]
#[case(
    "[BlockStorage]\nrescan-on-resize=false",
    "[BlockStorage] rescan-on-resize",
    "spec.blockStorage.rescanOnResize to false"
)]
#[case("[Metadata]\nsearch-order=configDrive", "[Metadata] search-order", "spec.overrides")]
#[case("[BlockStorage]\nunheard-of=1", "[BlockStorage] unheard-of", "docs/clouds.md")]
#[case("[Unheard]\nof=1", "[unheard] of", "docs/clouds.md")]
fn keys_without_effect_here_are_findings(#[case] text: &str, #[case] subject: &str, #[case] remedy: &str) {
    let found = compare(&mk_spec(), mk_configuration(&[], text), None);
    assert_eq!(shown(&found), [(AdoptionFindingReason::ConfigurationKey, subject)]);
    assert!(
        found[0].names[0] == OLD_SECRET || subject.starts_with("[Global \""),
        "{found:?}"
    );
    assert!(found[0].remedy.contains(remedy), "{found:?}");
}

#[rstest]
#[case::alone_without_effect("[Global]\nkey-file=/x")]
#[case::same_as_the_default(
    "[BlockStorage]\nrescan-on-resize=true\n[Metadata]\nsearch-order=configDrive, metadataService"
)]
#[case::obsolete("[BlockStorage]\nbs-version=v3\ntrust-device-path=true\nnode-volume-attach-limit=0")]
#[case::not_used("[Metadata]\nrequest-timeout=5s\n[Global]\nuse-clouds=false\nclouds-file=/x")]
#[case::only_true_skips_verification("[Global]\ntls-insecure=yes")]
fn equivalent_keys_have_no_finding(#[case] text: &str) {
    assert_eq!(compare(&mk_spec(), mk_configuration(&[], text), None), []);
}

const CLOUDS_YAML: &str = "clouds: {openstack: {auth: {auth_url: 'https://k/v3', application_credential_id: i, \
                           application_credential_secret: hunter2}}}";
const OPTIONS: &str = "tls-insecure=true\nos-endpoint-type=internal\nregion=R2\n[BlockStorage]\nignore-volume-az=true\n\
                       ignore-volume-microversion=on\n";

fn mk_yaml_spec() -> CinderCSIDriverSpec {
    CinderCSIDriverSpec {
        cluster_id: Some("kubernetes".to_owned()),
        ..CinderCSIDriverSpec::new(vec![Cloud::from_secret("openstack-credentials")])
    }
}

#[rstest]
#[case::credentials_known(Some(CLOUDS_YAML), &[
    "[Global] region", "[Global] os-endpoint-type", "[Global] tls-insecure", "[BlockStorage] ignore-volume-az",
    "[BlockStorage] ignore-volume-microversion",
])]
#[case::credentials_unknown(None, &["[BlockStorage] ignore-volume-az", "[BlockStorage] ignore-volume-microversion"])]
fn use_clouds_reports_every_unsupported_option(#[case] new: Option<&str>, #[case] expected: &[&str]) {
    let text = format!("[Global]\nuse-clouds=true\nclouds-file=/etc/c.yaml\ncloud=openstack\n{OPTIONS}");
    let mut old = mk_configuration(&[], &text);
    let file = &old.clouds_files()[0];
    assert_eq!(
        (file.path.as_deref(), file.entry.as_str()),
        (Some("/etc/c.yaml"), "openstack")
    );
    let file = file.clone();
    old.add_clouds_yaml(
        &file,
        "Secret kube-system/clouds, key c.yaml",
        &CLOUDS_YAML.to_owned().into(),
    )
    .expect("a clouds.yaml");
    let found = compare(&mk_yaml_spec(), old.clone(), new);
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
    let zones = found
        .iter()
        .find(|finding| finding.subject.ends_with("volume-az"))
        .expect("a finding");
    assert!(zones.message.contains("a clouds.yaml cannot have the key"), "{zones:?}");
    assert_eq!(zones.remedy, "Set spec.blockStorage.ignoreVolumeAZ to true");

    let mut spec = mk_yaml_spec();
    spec.block_storage.ignore_volume_az = Some(true);
    spec.block_storage.ignore_volume_microversion = Some(true);
    spec.clouds[0].region = Some("R2".to_owned());
    spec.clouds[0].endpoint_type = Some(EndpointType::Internal);
    spec.clouds[0].insecure_skip_tls_verify = true;
    assert_eq!(compare(&spec, old, new), []);
}

#[test]
fn clouds_yaml_completes_the_configuration_as_in_go() {
    let yaml = "clouds: {c: {region_name: R1, interface: internal, verify: false, cacert: /ca.pem, auth: {auth_url: 'https://k', \
                username: u, password: hunter2, project_id: p, user_domain_name: Default}}}";
    let mut old = mk_configuration(&[], "[Global]\nuse-clouds=true\nregion=R2\n");
    let file = old.clouds_files().remove(0);
    old.add_clouds_yaml(&file, "Secret kube-system/clouds, key c.yaml", &yaml.to_owned().into())
        .expect("a clouds.yaml");
    let found = compare(&mk_yaml_spec(), old, Some(CLOUDS_YAML));
    assert_eq!(
        shown(&found),
        [
            (AdoptionFindingReason::ConfigurationKey, "the login"),
            (AdoptionFindingReason::ConfigurationKey, "[Global] region"),
            (AdoptionFindingReason::ConfigurationKey, "interface of clouds.yaml"),
            (AdoptionFindingReason::ConfigurationKey, "cacert of clouds.yaml"),
        ]
    );
    assert!(found[0].message.contains("a password") && found[0].message.contains("an application credential"));
    assert_eq!(found[2].names, ["Secret kube-system/clouds, key c.yaml"]);
    assert!(!format!("{found:?}").contains("hunter2"));
}

/// cinder-csi-plugin ignores `regions`.
#[rstest]
#[case::value_of_region("regions: [{name: R1, values: {interface: internal}}]", &["[Global] region", "[Global] os-endpoint-type"])]
#[case::equal_meaning("region_name: R1, interface: internal", &[])]
fn clouds_yaml_is_read_by_both_drivers(#[case] keys: &str, #[case] expected: &[&str]) {
    let yaml = format!(
        "clouds: {{openstack: {{{keys}, auth_type: v3applicationcredential, auth: {{auth_url: 'https://k', \
         application_credential_id: i, application_credential_secret: hunter2}}}}}}"
    );
    let mut old = mk_configuration(&[], "[Global]\nuse-clouds=true\ncloud=openstack\n");
    let file = old.clouds_files().remove(0);
    old.add_clouds_yaml(&file, "Secret kube-system/clouds, key c.yaml", &yaml.clone().into())
        .expect("a clouds.yaml");
    let found = compare(&mk_yaml_spec(), old, Some(&yaml));
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected, "{found:?}");
}

/// cinder-csi-plugin logs in with the password then, without a project.
#[test]
fn ambiguous_old_login_hides_no_other_setting() {
    let yaml = "clouds: {c: {auth_type: v3applicationcredential, region_name: R2, cacert: /ca.pem, auth: {auth_url: 'https://k', \
                username: u, password: hunter2, user_domain_name: d, application_credential_id: i, application_credential_secret: s}}}";
    let mut old = mk_configuration(&[], "[Global]\nuse-clouds=true\n");
    let file = old.clouds_files().remove(0);
    old.add_clouds_yaml(&file, "Secret kube-system/clouds, key c.yaml", &yaml.to_owned().into())
        .expect("a clouds.yaml");
    let found = compare(&mk_yaml_spec(), old, Some(CLOUDS_YAML));
    assert_eq!(
        shown(&found),
        [
            (AdoptionFindingReason::ConfigurationKey, "the login"),
            (AdoptionFindingReason::ConfigurationKey, "region_name of clouds.yaml"),
            (AdoptionFindingReason::ConfigurationKey, "cacert of clouds.yaml"),
        ]
    );
    let login = &found[0];
    assert!(
        login.message.contains("password beside application_credential_id")
            && !format!("{found:?}").contains("hunter2"),
        "{login:?}"
    );
    assert!(login.remedy.starts_with("Keep the keys of one login"), "{login:?}");
}

/// cinder-csi-plugin accepts both keys, and this driver refuses them.
#[rstest]
#[case::profile("profile: ovh", "clouds.c.profile is not supported")]
#[case::braces("auth_type: password", "clouds.c.auth.auth_url with a name in braces")]
fn refused_key_hides_no_other_setting(#[case] key: &str, #[case] problem: &str) {
    let url = if key.starts_with("profile") {
        "https://k"
    } else {
        "https://{region_name}"
    };
    let yaml = format!(
        "clouds: {{c: {{{key}, region_name: R2, auth: {{auth_url: '{url}', user_id: u, password: hunter2, project_id: p}}}}}}"
    );
    let mut old = mk_configuration(&[], "[Global]\nuse-clouds=true\ncloud=c\n");
    let file = old.clouds_files().remove(0);
    old.add_clouds_yaml(&file, "Secret kube-system/clouds, key c.yaml", &yaml.into())
        .expect("a clouds.yaml");
    let new = "clouds: {openstack: {interface: internal, auth: {auth_url: 'https://k', user_id: u, password: hunter2, project_id: p}}}";
    let found = compare(&mk_yaml_spec(), old, Some(new));
    assert_eq!(
        shown(&found),
        [
            (AdoptionFindingReason::ConfigurationKey, "a key of clouds.yaml"),
            (AdoptionFindingReason::ConfigurationKey, "region_name of clouds.yaml"),
        ]
    );
    assert!(
        found[0].message.contains(problem) && !found[0].remedy.is_empty(),
        "{found:?}"
    );
    assert_eq!(found[0].names, ["Secret kube-system/clouds, key c.yaml"]);
}

/// cinder-csi-plugin uses a certificate with its key only, and fills each of them on its own.
#[rstest]
#[case::certificate_alone("", "cert: /c.pem", &[])]
#[case::key_alone("", "key: /k.pem", &[])]
#[case::both("", "cert: /c.pem, key: /k.pem", &["cert of clouds.yaml"])]
#[case::in_both_files("cert-file=/c.pem", "key: /k.pem", &["cert of clouds.yaml"])]
fn client_certificate_needs_key(#[case] conf: &str, #[case] keys: &str, #[case] expected: &[&str]) {
    let yaml = CLOUDS_YAML.replace("openstack: {", &format!("openstack: {{{keys}, "));
    let mut old = mk_configuration(&[], &format!("[Global]\nuse-clouds=true\n{conf}\n"));
    let file = old.clouds_files().remove(0);
    old.add_clouds_yaml(&file, "Secret kube-system/clouds, key c.yaml", &yaml.into())
        .expect("a clouds.yaml");
    let found = compare(&mk_yaml_spec(), old, Some(CLOUDS_YAML));
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected, "{found:?}");
}

#[rstest]
#[case::only_here("", Some("R1"), "region_name: R1", &["[Global] region"], "names no region")]
#[case::only_in_credentials("", None, "region_name: R1", &["[Global] region"], "the region \"R1\"")]
#[case::only_there("region=R1", None, "verify: true", &["[Global] region"], "this driver no value")]
#[case::nowhere("", None, "verify: true", &[], "")]
#[case::same("region=R1", Some("R1"), "verify: true", &[], "")]
fn region_of_one_side_is_a_finding(
    #[case] old: &str,
    #[case] spec_region: Option<&str>,
    #[case] new: &str,
    #[case] expected: &[&str],
    #[case] message: &str,
) {
    let mut spec = mk_yaml_spec();
    spec.clouds[0].region = spec_region.map(str::to_owned);
    let new = CLOUDS_YAML.replace("openstack: {", &format!("openstack: {{{new}, "));
    let old = mk_configuration(&[], &format!("[Global]\nauth-url=https://k\n{old}\n"));
    let found = compare(&spec, old, Some(&new));
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected, "{found:?}");
    assert!(
        found.iter().all(|finding| finding.message.contains(message)),
        "{found:?}"
    );
}

#[test]
fn region_of_spec_selects_credentials() {
    let yaml = "clouds: {openstack: {regions: [{name: A, values: {auth: {auth_url: 'https://a'}}}, \
                {name: B, values: {auth: {auth_url: 'https://b'}, interface: internal}}], auth_type: v3applicationcredential, \
                auth: {application_credential_id: i, application_credential_secret: hunter2}}}";
    let mut spec = mk_yaml_spec();
    spec.clouds[0].region = Some("B".to_owned());
    let old = "[Global]\nauth-url=https://b\nregion=B\nos-endpoint-type=internalURL\napplication-credential-id=i\napplication-credential-secret=s\n";
    assert_eq!(compare(&spec, mk_configuration(&[], old), Some(yaml)), []);
}

#[test]
fn verification_skipped_here_only_is_a_finding() {
    let new = CLOUDS_YAML.replace("openstack: {", "openstack: {verify: false, ");
    let old = "[Global]\nauth-url=https://K/v3/\napplication-credential-id=i\napplication-credential-secret=s\n";
    let found = compare(&mk_yaml_spec(), mk_configuration(&[], old), Some(&new));
    assert_eq!(
        shown(&found),
        [(AdoptionFindingReason::ConfigurationKey, "[Global] tls-insecure")]
    );
    assert!(
        found[0].message.contains("uses false, and this driver true"),
        "{found:?}"
    );
}

#[rstest]
#[case::controller(&["--provide-node-service=false"], &["[BlockStorage] ignore-volume-az"])]
#[case::nodes(&["--provide-controller-service=false"], &["[BlockStorage] node-volume-attach-limit"])]
fn each_service_is_compared_by_its_keys(#[case] arguments: &[&str], #[case] expected: &[&str]) {
    let text = "[BlockStorage]\nnode-volume-attach-limit=9\nignore-volume-az=true\n";
    let found = compare(&mk_yaml_spec(), mk_configuration(arguments, text), None);
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected);
}

#[test]
fn later_file_overrides_and_unread_file_hides_defaults() {
    let text = |text: &str| ConfigurationText {
        place: OLD_SECRET.to_owned(),
        text: text.to_owned().into(),
    };
    let files = [
        text("[BlockStorage]\nignore-volume-az=true"),
        text("[BlockStorage]\nignore-volume-az=false"),
    ];
    let mut spec = mk_yaml_spec();
    let container = mk_container(PROGRAM, &[]);
    let read = |partial| OldConfiguration::read(&container, &files, partial, &mut Vec::new());
    assert_eq!(compare(&spec, read(false), None), []);
    spec.block_storage.ignore_volume_microversion = Some(true);
    assert_eq!(compare(&spec, read(false), None).len(), 1);
    assert_eq!(compare(&spec, read(true), None), []);
}

#[test]
fn broken_file_is_a_gap_without_its_text() {
    let text = ConfigurationText {
        place: OLD_SECRET.to_owned(),
        text: "[Global]\npassword = \"hunter2\n".to_owned().into(),
    };
    let mut gaps = Vec::new();
    OldConfiguration::read(&mk_container(PROGRAM, &[]), &[text], false, &mut gaps);
    assert_eq!(gaps.len(), 1);
    assert!(
        gaps[0].what == OLD_SECRET && !format!("{gaps:?}").contains("hunter2"),
        "{gaps:?}"
    );
}

#[test]
fn certificate_and_search_order_of_spec_match() {
    let mut spec = mk_spec();
    spec.clouds[0].client_cert_secret_ref = Some(ClientCertRef {
        name: "client".to_owned(),
    });
    let patch = r#"[{"op": "add", "path": "/x/-", "value": "--search-order=cloudInit,configDrive"}]"#;
    let change = json!({"target": {"kind": "DaemonSet", "name": "cinder-csi-node"}, "type": "json", "patch": patch});
    spec.overrides = vec![serde_json::from_value(change).expect("an override")];
    let text = "[Global]\ncert-file=/x\nkey-file=/y\n[Metadata]\nsearch-order=cloudInit,configDrive";
    assert_eq!(compare(&spec, mk_configuration(&[], text), None), []);
}

#[test]
fn certificates_of_both_bundles_are_compared() {
    const ONE: &str = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";
    let mut spec = mk_spec();
    spec.clouds[0].ca_bundle_ref = Some(mk_bundle());
    let mut old = mk_configuration(&[], "[Global]\nca-file=/etc/ca.pem");
    assert_eq!(old.authority_files(), [(String::new(), "/etc/ca.pem".to_owned())]);
    let compare = |old: &OldConfiguration, new: &str| {
        let facts = CheckFacts {
            configurations: vec![old.clone()],
            authorities: [("default".to_owned(), Authorities::read(new))].into(),
            ..CheckFacts::default()
        };
        findings(&spec, &facts)
    };
    old.add_authorities("", &Ok(Authorities::read(ONE)));
    assert_eq!(compare(&old, ONE), []);
    let found = compare(&old, "");
    assert_eq!(
        shown(&found),
        [(AdoptionFindingReason::ConfigurationKey, "[Global] ca-file")]
    );
    assert!(found[0].message.contains("lacks 1 of the certificates"), "{found:?}");
    old.add_authorities("", &Err("it is a file of the nodes".to_owned()));
    let found = compare(&old, ONE);
    assert_eq!(
        shown(&found),
        [(AdoptionFindingReason::NotChecked, "the certificates of \"/etc/ca.pem\"")]
    );
}
