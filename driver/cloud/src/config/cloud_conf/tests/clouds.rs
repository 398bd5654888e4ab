// SPDX-License-Identifier: Apache-2.0
//! Several clouds in one file.

use super::*;

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
