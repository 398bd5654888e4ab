// SPDX-License-Identifier: Apache-2.0

use cinder_operator_core::migration::check::VariableValue;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn find(mounts: &Value, volumes: &Value, path: &str) -> Result<Vec<FileSource>, Unread> {
    let pod = json!({
        "containers": [{"name": "driver", "volumeMounts": mounts}],
        "initContainers": [{"name": "writer", "volumeMounts": [{"name": "v", "mountPath": "/out"}]}],
        "volumes": volumes,
    });
    let pod: PodSpec = serde_json::from_value(pod).expect("a pod");
    let mut variables = Variables::default();
    variables.set("FILE", VariableValue::Plain("cloud-config".to_owned()));
    find_file(&pod, &pod.containers[0], &variables, path)
}

/// Kind, name and key of each source.
fn shown(sources: &[FileSource]) -> Vec<String> {
    let shown = sources
        .iter()
        .map(|one| format!("{} {} {}", one.kind, one.name, one.key));
    shown.collect()
}

fn mk_secret() -> Value {
    json!([{"name": "v", "secret": {"secretName": "s"}}])
}

#[rstest]
#[case::plain(json!({"mountPath": "/etc/config"}), "/etc/config/cloud.conf", "cloud.conf")]
#[case::odd_spelling(json!({"mountPath": "/etc/config/"}), "//etc/./x/../config/cloud.conf", "cloud.conf")]
#[case::sub_path_of_a_file(
    json!({"mountPath": "/etc/cloud.conf", "subPath": "cloud-config"}), "/etc/cloud.conf", "cloud-config")]
#[case::sub_path_of_variables(
    json!({"mountPath": "/etc/cloud.conf", "subPathExpr": "$(FILE)"}), "/etc/cloud.conf", "cloud-config")]
#[case::link_of_the_kubelet(json!({"mountPath": "/etc/config"}), "/etc/config/..data/cloud.conf", "cloud.conf")]
#[case::root(json!({"mountPath": "/"}), "/cloud.conf", "cloud.conf")]
fn path_leads_to_key(#[case] mut mount: Value, #[case] path: &str, #[case] key: &str) {
    mount["name"] = json!("v");
    let found = find(&json!([mount]), &mk_secret(), path).expect("a file");
    assert_eq!(shown(&found), [format!("Secret s {key}")]);
}

#[test]
fn longest_mount_path_wins_by_whole_parts() {
    let volumes = json!([
        {"name": "v", "secret": {"secretName": "outer"}},
        {"name": "w", "configMap": {"name": "inner"}},
        {"name": "x", "secret": {"secretName": "other"}},
    ]);
    let mounts = json!([
        {"name": "w", "mountPath": "/etc/config"},
        {"name": "v", "mountPath": "/etc"},
        {"name": "x", "mountPath": "/etc/conf"},
    ]);
    let found = find(&mounts, &volumes, "/etc/config/cloud.conf").expect("a file");
    assert_eq!(shown(&found), ["ConfigMap inner cloud.conf"]);
}

#[test]
fn items_rename_keys_and_hide_the_others() {
    let volumes = json!([{"name": "v", "secret": {"secretName": "s", "items": [{"key": "cloud-config", "path": "a/cloud.conf"}]}}]);
    let mounts = json!([{"name": "v", "mountPath": "/etc/config"}]);
    let found = find(&mounts, &volumes, "/etc/config/a/cloud.conf").expect("a file");
    assert_eq!(shown(&found), ["Secret s cloud-config"]);
    let unread = find(&mounts, &volumes, "/etc/config/cloud-config").expect_err("no file");
    assert_eq!(unread.why, "volume v has no such file");
}

#[test]
fn projected_sources_come_in_order_of_precedence() {
    let volumes = json!([{"name": "v", "projected": {"sources": [
        {"secret": {"name": "first", "optional": true}},
        {"configMap": {"name": "second", "items": [{"key": "x", "path": "other"}]}},
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "third", "items": [{"key": "config", "path": "cloud.conf"}]}},
    ]}}]);
    let mounts = json!([{"name": "v", "mountPath": "/etc/config"}]);
    let found = find(&mounts, &volumes, "/etc/config/cloud.conf").expect("files");
    assert_eq!(shown(&found), ["ConfigMap third config", "Secret first cloud.conf"]);
    assert_eq!((found[0].is_named, found[1].is_optional), (true, true));
    let unread = find(&mounts, &volumes, "/etc/config/token").expect_err("a token");
    assert_eq!(unread.why, "it is a token of the service account");
}

#[rstest]
#[case::host_path(json!({"hostPath": {"path": "/etc/kubernetes"}}), "a file of the nodes, in /etc/kubernetes")]
#[case::empty_dir(json!({"emptyDir": {}}), "(init container writer)")]
#[case::csi(json!({"csi": {"driver": "secrets-store.csi.k8s.io"}}), "CSI driver secrets-store.csi.k8s.io")]
#[case::claim(json!({"persistentVolumeClaim": {"claimName": "c"}}), "in the PersistentVolume v")]
#[case::field(json!({"downwardAPI": {"items": []}}), "a field of each pod")]
#[case::other(json!({"nfs": {"server": "s", "path": "/"}}), "of a kind that the check does not read")]
#[case::directory_of_a_secret(json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}), "no such file")]
fn other_volumes_are_gaps_with_the_reason(#[case] mut volume: Value, #[case] expected: &str) {
    volume["name"] = json!("v");
    let mounts = json!([{"name": "v", "mountPath": "/etc/config"}]);
    let unread = find(&mounts, &json!([volume]), "/etc/config/cloud.conf").expect_err("a gap");
    assert!(unread.why.contains(expected), "{unread:?}");
}

#[rstest]
#[case::image("/opt/cloud.conf", "a file of the image")]
#[case::relative("cloud.conf", "relative to the working directory")]
#[case::directory("/etc/config", "the directory of volume v")]
#[case::below_a_key("/etc/config/a/cloud.conf", "no such file")]
#[case::parent("/etc/config/../cloud.conf", "a file of the image")]
fn other_paths_are_gaps_with_the_reason(#[case] path: &str, #[case] expected: &str) {
    let mounts = json!([{"name": "v", "mountPath": "/etc/config"}]);
    let unread = find(&mounts, &mk_secret(), path).expect_err("a gap");
    assert!(unread.why.contains(expected), "{unread:?}");
}

#[test]
fn mount_without_volume_or_value_is_a_gap() {
    let mounts = json!([{"name": "none", "mountPath": "/etc/config"}]);
    let unread = find(&mounts, &mk_secret(), "/etc/config/cloud.conf").expect_err("a gap");
    assert!(unread.why.contains("no volume \"none\""), "{unread:?}");
    let mounts = json!([{"name": "v", "mountPath": "/etc/config", "subPathExpr": "$(NONE)"}]);
    let unread = find(&mounts, &mk_secret(), "/etc/config/cloud.conf").expect_err("a gap");
    assert!(unread.why.contains("subPathExpr"), "{unread:?}");
}
