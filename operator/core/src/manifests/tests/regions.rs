// SPDX-License-Identifier: Apache-2.0
//! Nodes of several clouds.

use super::*;
use crate::clouds::CloudFacts;
use crate::resolve::Environment;

const EXISTS: &str = r#"[{"key":"topology.kubernetes.io/region","operator":"Exists"}]"#;

/// Creates a driver of two clouds with nodes in both, and with further node settings.
fn mk_two_clouds(node: &Value) -> CinderCSIDriver {
    let cloud = |name: &str| json!({ "name": name, "credentialsSecretRef": { "name": name }, "nodeRegion": name });
    let mut object = serde_json::to_value(mk_in_cluster()).unwrap();
    object["spec"]["clouds"] = json!([cloud("east"), cloud("west")]);
    json_patch::merge(&mut object["spec"]["node"], node);
    serde_json::from_value(object).unwrap()
}

/// Creates an environment with the zones of the clouds.
fn mk_zones(compute: &str, volume: &str) -> Environment {
    let facts = CloudFacts {
        compute_zones: [compute.to_owned()].into(),
        volume_zones: [volume.to_owned()].into(),
    };
    Environment {
        clouds: ["east", "west"].map(|name| (name.to_owned(), facts.clone())).into(),
        ..mk_environment()
    }
}

fn node_pod(driver: &CinderCSIDriver, environment: &Environment) -> Value {
    let operands = operands(&resolve(driver, environment).unwrap(), Some(&mk_credentials())).unwrap();
    pod_spec(&operands, "DaemonSet").clone()
}

fn terms(pod: &Value) -> &Value {
    &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
}

#[test]
fn nodes_wait_for_region_label_and_report_it() {
    let pod = node_pod(&mk_two_clouds(&json!({})), &mk_zones("nova", "nova"));

    let driver = &pod["containers"][0];
    let args = driver["args"].as_array().unwrap();
    assert!(
        args.contains(&json!(
            "--additional-topology=topology.kubernetes.io/region=$(NODE_REGION)"
        )),
        "{args:?}"
    );
    assert_eq!(
        driver["env"],
        json!([{ "name": "NODE_REGION",
                 "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['topology.kubernetes.io/region']" } } }])
    );
    let exists: Value = serde_json::from_str(EXISTS).unwrap();
    assert_eq!(*terms(&pod), json!([{ "matchExpressions": exists }]));
}

#[test]
fn each_affinity_term_requires_region_label() {
    let disk = json!({ "key": "disk", "operator": "Exists" });
    let fields = json!([{ "key": "metadata.name", "operator": "In", "values": ["a"] }]);
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [disk] }, { "matchFields": fields },
    ] } }, "podAntiAffinity": {} });

    let pod = node_pod(
        &mk_two_clouds(&json!({ "affinity": affinity })),
        &mk_zones("nova", "nova"),
    );

    let exists: Value = serde_json::from_str(EXISTS).unwrap();
    assert_eq!(
        *terms(&pod),
        json!([{ "matchExpressions": [disk, exists[0]] }, { "matchExpressions": exists, "matchFields": fields }])
    );
    assert!(pod["affinity"]["podAntiAffinity"].is_object());
}

#[rstest]
#[case::clouds_that_nodes_do_not_tell_apart(mk_in_cluster(), mk_environment())]
#[case::zones_that_are_not_used(mk_two_clouds(&json!({})), mk_zones("nova", "other"))]
fn region_needs_cloud_region_and_zones(#[case] driver: CinderCSIDriver, #[case] environment: Environment) {
    let pod = node_pod(&driver, &environment);

    assert!(
        pod["affinity"].is_null() && pod["containers"][0]["env"].is_null(),
        "{pod}"
    );
    assert!(!pod["containers"][0]["args"].to_string().contains("region"), "{pod}");
}
