//! The examples of docs/overrides.md, each applied.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cinder_csi_crds::{CinderCSIDriver, to_yaml};
use serde_json::{Value, json};

use super::{mk_credentials, mk_in_cluster};
use crate::observe::OptionalApis;
use crate::operands::{Operand, operands, overridden};
use crate::resolve::tests::mk_environment;
use crate::resolve::{Environment, KubernetesVersion, Resolved, resolve};

const PAGE: &str = include_str!("../../../../docs/overrides.md");

/// The overrides of the page under the headings above them.
fn examples() -> Vec<(&'static str, Value)> {
    let sections = PAGE.split("\n### ").skip(1);
    let examples = sections.map(|section| {
        let (heading, rest) = section.split_once('\n').unwrap();
        let block = rest.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        let block = block.unwrap_or_else(|| panic!("no example of {heading}"));
        (heading, serde_yaml::from_str(block).unwrap())
    });
    examples.collect()
}

/// What `spec` means where every optional API is served.
fn mk_resolved(spec: &Value) -> Resolved {
    let mut object = serde_json::to_value(mk_in_cluster()).unwrap();
    json_patch::merge(&mut object["spec"], spec);
    let driver: CinderCSIDriver = serde_json::from_value(object).unwrap();
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 37 }),
        apis: OptionalApis {
            monitoring: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    };
    resolve(&driver, &environment).unwrap()
}

fn mk_objects(spec: &Value) -> Vec<Operand> {
    operands(&mk_resolved(spec), Some(&mk_credentials())).unwrap()
}

/// The objects by their names; the driver's flags in alphabetical order, because the driver reads them in any.
fn by_name(operands: Vec<Operand>) -> BTreeMap<String, Value> {
    let named = operands.into_iter().map(|operand| {
        let mut object = serde_json::to_value(&operand.object).unwrap();
        let args = object.pointer_mut("/spec/template/spec/containers/0/args");
        if let Some(args) = args.and_then(Value::as_array_mut) {
            args.sort_by_key(ToString::to_string);
        }
        (operand.to_string(), object)
    });
    named.collect()
}

/// The leaves of an object by their paths.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                leaves(&format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(&format!("{path}[{index}]"), value, found);
            }
        }
        leaf => {
            found.insert(path.to_owned(), leaf.to_string());
        }
    }
}

/// What differs, in the objects that both sides have.
fn difference(before: &[Operand], after: &[Operand]) -> String {
    let mut text = String::new();
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(after).filter(|(before, after)| before != after) {
        writeln!(text, "{after}").unwrap();
        let [old, new] = [before, after].map(|operand| {
            let mut found = BTreeMap::new();
            leaves("", &serde_json::to_value(&operand.object).unwrap(), &mut found);
            found
        });
        for (path, value) in old.iter().filter(|(path, value)| new.get(*path) != Some(value)) {
            writeln!(text, "- {path}: {value}").unwrap();
        }
        for (path, value) in new.iter().filter(|(path, value)| old.get(*path) != Some(value)) {
            writeln!(text, "+ {path}: {value}").unwrap();
        }
    }
    text
}

/// The fields in place of which the examples stand.
fn fields() -> Vec<(&'static str, Value)> {
    let sidecar = |name: &str, settings: Value| json!({ "controller": { "sidecars": { name: settings } } });
    vec![
        (
            "CSIDriver: podInfoOnMount",
            json!({ "csiDriver": { "podInfoOnMount": true } }),
        ),
        (
            "CSIDriver: requiresRepublish",
            json!({ "csiDriver": { "requiresRepublish": true } }),
        ),
        (
            "CSIDriver: tokenRequests, serviceAccountTokenInSecrets",
            json!({ "csiDriver": { "tokenRequests": [{ "audience": "vault", "expirationSeconds": 3600 }],
                                   "serviceAccountTokenInSecrets": true } }),
        ),
        (
            "CSIDriver: nodeAllocatableUpdatePeriodSeconds",
            json!({ "csiDriver": { "nodeAllocatableUpdatePeriodSeconds": 30 } }),
        ),
        (
            "CSIDriver: preventPodSchedulingIfMissing",
            json!({ "csiDriver": { "preventPodSchedulingIfMissing": true } }),
        ),
        (
            "Controller: strategy",
            json!({ "controller": { "strategy": { "maxUnavailable": "50%", "maxSurge": 1 } } }),
        ),
        (
            "Controller: podDisruptionBudget.maxUnavailable",
            json!({ "controller": { "podDisruptionBudget": { "maxUnavailable": "50%" } } }),
        ),
        (
            "Controller: hostAliases",
            json!({ "controller": { "hostAliases": [{ "ip": "192.0.2.10", "hostnames": ["keystone.example.org"] }] } }),
        ),
        (
            "Controller: dnsPolicy",
            json!({ "controller": { "dnsPolicy": "Default" } }),
        ),
        (
            "Controller: extraVolumes",
            json!({ "controller": { "extraVolumes": [
                { "name": "authorities", "mountPath": "/etc/ssl/certs", "configMap": { "name": "authorities" } }] } }),
        ),
        (
            "Controller: leaderElection",
            json!({ "controller": { "leaderElection": {
                "leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "10s" } } }),
        ),
        (
            "Sidecars: retryIntervalMax, kubeAPIQPS, kubeAPIBurst",
            sidecar(
                "attacher",
                json!({ "retryIntervalMax": "1m", "kubeAPIQPS": 50, "kubeAPIBurst": 200 }),
            ),
        ),
        (
            "Sidecars: featureGates",
            sidecar("resizer", json!({ "featureGates": { "AnnotateFsResize": true } })),
        ),
        (
            "Sidecars: extraArgs",
            sidecar("resizer", json!({ "extraArgs": ["--resync-period=5m"] })),
        ),
        (
            "Driver: blockStorage.requestTimeout, blockStorage.attachTimeout",
            json!({ "blockStorage": { "requestTimeout": "45s", "attachTimeout": "1m30s" } }),
        ),
        (
            "Driver: metadata.searchOrder",
            json!({ "metadata": { "searchOrder": ["metadataService"] } }),
        ),
        (
            "Monitoring: tls",
            json!({ "monitoring": { "tls": { "minVersion": "VersionTLS13", "cipherSuites": ["TLS_AES_128_GCM_SHA256"] } } }),
        ),
        (
            "Monitoring: dashboards.labels",
            json!({ "monitoring": { "dashboards": { "labels": { "grafana": "yes" } } } }),
        ),
        (
            "Network policy: egressPorts",
            json!({ "networkPolicy": { "egressPorts": [5000, 8776, 8774] } }),
        ),
    ]
}

#[test]
fn an_override_gives_what_its_field_gave() {
    let (fields, examples) = (fields(), examples());
    assert_eq!(
        fields.iter().map(|(heading, _)| *heading).collect::<Vec<_>>(),
        examples.iter().map(|(heading, _)| *heading).collect::<Vec<_>>()
    );
    for ((heading, field), (_, example)) in fields.into_iter().zip(examples) {
        let (field, example) = (by_name(mk_objects(&field)), by_name(mk_objects(&example)));
        assert!(field.keys().eq(example.keys()), "{heading}");
        for (name, object) in example {
            assert_eq!(to_yaml(&object).unwrap(), to_yaml(&field[&name]).unwrap(), "{heading}");
        }
    }
}

#[test]
fn the_examples_of_the_page_change_these_fields() {
    let usual = mk_objects(&json!({}));
    let mut text = String::new();
    for (heading, example) in examples() {
        let outcome = overridden(&mk_resolved(&example), Some(&mk_credentials())).unwrap();
        assert_eq!(outcome.failed, [] as [String; 0], "{heading}");
        writeln!(text, "# {heading}\n{}", difference(&usual, &mk_objects(&example))).unwrap();
    }
    insta::assert_snapshot!(text);
}
