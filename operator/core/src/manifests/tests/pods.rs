// SPDX-License-Identifier: Apache-2.0
//! Pods and related objects: variants that an administrator can select.

use std::collections::BTreeSet;

use cinder_csi_crds::{CinderCSIDriver, NodeRegistration, NodeUpdateType, to_yaml};
use cinder_csi_driver::args::Args;
use rstest::rstest;
use serde_json::{Value, json};

use super::{mk_in_cluster, mk_operands, only, pod_spec, text};
use crate::cluster::OptionalApis;
use crate::manifests::{Operand, operands};
use crate::resolve::tests::mk_environment;
use crate::{
    cluster::KubernetesVersion,
    resolve::{Environment, OtherDriver, Registration, resolve},
};

/// Creates the default driver with these fields merged into its spec.
#[allow(clippy::needless_pass_by_value, reason = "it is called with a literal")]
fn mk_with(spec: Value) -> CinderCSIDriver {
    let mut object = serde_json::to_value(mk_in_cluster()).unwrap();
    json_patch::merge(&mut object["spec"], &spec);
    serde_json::from_value(object).unwrap()
}

fn mk_with_snapshots() -> Environment {
    Environment {
        apis: OptionalApis {
            snapshots: true,
            group_snapshots: true,
            volume_attributes_classes: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    }
}

fn container<'a>(operands: &'a [Operand], workload: &str, name: &str) -> &'a Value {
    let containers = pod_spec(operands, workload)["containers"].as_array().unwrap();
    let found = containers.iter().find(|container| container["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {workload}"))
}

fn args(container: &Value) -> Vec<String> {
    serde_json::from_value(container["args"].clone()).unwrap()
}

fn names(operands: &[Operand], workload: &str) -> Vec<String> {
    let containers = pod_spec(operands, workload)["containers"].as_array().unwrap();
    containers
        .iter()
        .map(|c| c["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn containers_have_probes_and_minimal_privileges() {
    let driver = mk_with(json!({
        "node": { "registration": "Sidecar" },
    }));
    let resolved = resolve(&driver, &mk_with_snapshots()).unwrap();
    let operands = operands(&resolved, None).unwrap();

    for (workload, count) in [("Deployment", 5), ("DaemonSet", 3)] {
        let containers = pod_spec(&operands, workload)["containers"].as_array().unwrap();
        assert_eq!(containers.len(), count);
        for container in containers {
            let (name, security) = (&container["name"], &container["securityContext"]);
            let port = container["livenessProbe"]["httpGet"]["port"].as_str().unwrap();
            let ports = containers.iter().flat_map(|c| c["ports"].as_array().unwrap());
            assert!(
                ports.map(|p| &p["name"]).any(|name| name == port),
                "{name} is asked at {port}"
            );
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert!(container["resources"]["requests"].is_object(), "{name}");
            if security["privileged"] != true {
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{name}");
            }
        }
    }
    let privileged: Vec<_> = names(&operands, "DaemonSet")
        .into_iter()
        .filter(|name| container(&operands, "DaemonSet", name)["securityContext"]["privileged"] == true)
        .collect();
    assert_eq!(privileged, ["cinder-csi-driver"]);
    let pod = &pod_spec(&operands, "Deployment")["securityContext"];
    assert_eq!(
        (&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
}

#[test]
fn ports_of_a_pod_are_distinct() {
    let driver = mk_with(json!({
        "node": { "registration": "Sidecar" },
    }));
    let operands = operands(&resolve(&driver, &mk_with_snapshots()).unwrap(), None).unwrap();

    for workload in ["Deployment", "DaemonSet"] {
        let containers = pod_spec(&operands, workload)["containers"].as_array().unwrap();
        let ports: Vec<i64> = containers
            .iter()
            .flat_map(|c| c["ports"].as_array().unwrap())
            .map(|port| port["containerPort"].as_i64().unwrap())
            .collect();
        assert_eq!(
            ports.iter().collect::<BTreeSet<_>>().len(),
            ports.len(),
            "{workload}: {ports:?}"
        );
    }
}

#[rstest]
#[case::usual(&["cinder-csi-driver", "csi-provisioner", "csi-attacher", "csi-resizer"], false, json!([]))]
#[case::with_snapshots(
    &["cinder-csi-driver", "csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"], true, json!([]))]
#[case::without_the_api_of_snapshots(
    &["cinder-csi-driver", "csi-provisioner", "csi-attacher", "csi-resizer"], false,
    json!([{ "name": "csi-snapshotter", "enabled": true }]))]
#[case::chosen(
    &["cinder-csi-driver", "csi-attacher"], true,
    json!([{ "name": "csi-provisioner", "enabled": false }, { "name": "csi-resizer", "enabled": false },
           { "name": "csi-snapshotter", "enabled": false }]))]
fn sidecars_follow_spec_and_served_apis(#[case] expected: &[&str], #[case] snapshots: bool, #[case] sidecars: Value) {
    let environment = if snapshots {
        mk_with_snapshots()
    } else {
        mk_environment()
    };
    let driver = mk_with(json!({ "controller": { "sidecars": sidecars } }));

    let operands = operands(&resolve(&driver, &environment).unwrap(), None).unwrap();

    assert_eq!(names(&operands, "Deployment"), expected);
    // Each sidecar has its role, and no other role exists.
    for operand in operands.iter().filter(|operand| operand.kind.kind == "ClusterRole") {
        let suffix = operand.name().trim_start_matches("cinder-csi-");
        assert!(expected.contains(&format!("csi-{suffix}").as_str()), "{operand}");
    }
}

#[test]
fn sidecar_arguments_follow_table_and_spec() {
    let driver = mk_with(json!({
        "logLevel": "Debug",
        "images": { "overrides": { "resizer": "mirror/resizer:v1.14.0" } },
        "controller": {
            "sidecars": [{ "name": "csi-resizer", "timeout": "2m", "workerThreads": 7 }],
        },
    }));
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 31 }),
        ..mk_environment()
    };

    let operands = operands(&resolve(&driver, &environment).unwrap(), None).unwrap();

    assert_eq!(
        args(container(&operands, "Deployment", "csi-resizer")),
        [
            "--csi-address=/csi/csi.sock",
            "--timeout=2m",
            "--workers=7",
            "--retry-interval-max=30m",
            "--kube-api-qps=20",
            "--kube-api-burst=100",
            "--leader-election",
            "--leader-election-namespace=cinder-csi",
            "--leader-election-lease-duration=137s",
            "--leader-election-renew-deadline=107s",
            "--leader-election-retry-period=26s",
            "--http-endpoint=:8084",
            "--v=4",
            "--handle-volume-inuse-error=false",
            "--feature-gates=RecoverVolumeExpansionFailure=false",
        ]
    );
}

#[test]
fn capacity_is_published_only_if_enabled() {
    let with = mk_operands(&mk_with(json!({ "csiDriver": { "storageCapacity": true } })));
    let without = mk_operands(&mk_in_cluster());

    let provisioner = container(&with, "Deployment", "csi-provisioner");
    assert!(args(provisioner).contains(&"--enable-capacity".to_owned()));
    assert_eq!(
        provisioner["env"][1]["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.name"
    );
    assert!(
        with.iter()
            .any(|operand| operand.to_string() == "Role cinder-csi/cinder-csi-capacity")
    );
    assert_eq!(only(&with, "CSIDriver")["spec"]["storageCapacity"], true);
    assert!(container(&without, "Deployment", "csi-provisioner")["env"].is_null());
    assert!(!text(&without).contains("csistoragecapacities"));
}

#[rstest]
#[case(1, None)]
#[case(3, Some(1))]
fn drain_evicts_controller_pods_one_by_one(#[case] replicas: i32, #[case] budget: Option<i32>) {
    let operands = mk_operands(&mk_with(json!({ "controller": { "replicas": replicas } })));

    let found = operands
        .iter()
        .find(|operand| operand.kind.kind == "PodDisruptionBudget");

    assert_eq!(
        found.is_some(),
        budget.is_some(),
        "a single pod would keep its node from being drained"
    );
    if let Some(found) = found {
        let spec = &found.object.data["spec"];
        assert_eq!(spec["maxUnavailable"], json!(budget));
        assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        assert_eq!(spec["selector"], only(&operands, "Deployment")["spec"]["selector"]);
    }
}

#[test]
fn controller_pods_have_configured_spread_and_labels() {
    let usual = mk_operands(&mk_in_cluster());
    let spread = &pod_spec(&usual, "Deployment")["topologySpreadConstraints"][0];
    assert_eq!(spread["topologyKey"], "topology.kubernetes.io/zone");
    assert_eq!(spread["whenUnsatisfiable"], "ScheduleAnyway");

    let chosen = mk_operands(&mk_with(json!({ "controller": {
        "topologySpreadConstraints": [],
        "podLabels": { "team": "storage", "csi.openstack.org/instance": "not ours" },
        "podAnnotations": { "note": "x" },
    } })));
    let deployment = only(&chosen, "Deployment");
    assert_eq!(pod_spec(&chosen, "Deployment")["topologySpreadConstraints"], json!([]));
    let metadata = &deployment["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"]["team"], "storage");
    assert_eq!(
        metadata["labels"]["csi.openstack.org/instance"],
        "cinder.csi.openstack.org"
    );
    assert_eq!(metadata["annotations"]["note"], "x");
}

#[rstest]
#[case("/var/lib/kubelet")]
#[case("/var/lib/k0s/kubelet")]
#[case("/var/snap/microk8s/common/var/lib/kubelet")]
fn node_paths_follow_kubelet_directory(#[case] directory: &str) {
    for registration in ["Integrated", "Sidecar"] {
        let driver = mk_with(json!({ "node": { "kubeletDir": directory, "registration": registration } }));

        let words = pod_spec(&mk_operands(&driver), "DaemonSet").to_string();

        let paths = words.matches("/kubelet").count();
        assert_eq!(words.matches(directory).count(), paths, "{words}");
        assert!(paths >= 3, "{words}");
    }
}

#[test]
fn driver_does_not_register_itself_next_to_registrar() {
    let operands = mk_operands(&mk_with(
        json!({ "node": { "registration": "Sidecar", "httpPort": 9000 } }),
    ));

    assert_eq!(
        names(&operands, "DaemonSet"),
        ["cinder-csi-driver", "livenessprobe", "node-driver-registrar"]
    );
    let driver = container(&operands, "DaemonSet", "cinder-csi-driver");
    let words = args(driver);
    let parsed = Args::from_argv(std::iter::once("cinder-csi-driver".to_owned()).chain(words)).unwrap();
    assert!(
        !parsed.register && parsed.unregister,
        "an older registration of its own must go"
    );
    assert_eq!(driver["livenessProbe"]["httpGet"]["port"], "healthz");
    assert_eq!(
        args(container(&operands, "DaemonSet", "livenessprobe")),
        [
            "--csi-address=/csi/csi.sock",
            "--probe-timeout=4s",
            "--http-endpoint=:9002",
            "--v=2"
        ]
    );
    let registrar = container(&operands, "DaemonSet", "node-driver-registrar");
    assert_eq!(
        args(registrar),
        [
            "--csi-address=/csi/csi.sock",
            "--kubelet-registration-path=/var/lib/kubelet/plugins/cinder.csi.openstack.org/csi.sock",
            "--plugin-registration-path=/registration",
            "--timeout=10s",
            "--http-endpoint=:9003",
            "--v=2",
        ]
    );
    let mounts: Vec<_> = registrar["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["mountPath"])
        .collect();
    assert_eq!(mounts, ["/csi", "/registration"]);
    for name in ["livenessprobe", "node-driver-registrar"] {
        let context = &container(&operands, "DaemonSet", name)["securityContext"];
        assert_eq!(context["seLinuxOptions"], json!({ "type": "spc_t" }), "{name}");
        assert!(context.get("privileged").is_none(), "{name}");
    }
    let volumes = pod_spec(&operands, "DaemonSet")["volumes"].as_array().unwrap();
    let path = |name: &str| &volumes.iter().find(|v| v["name"] == name).unwrap()["hostPath"]["path"];
    assert_eq!(path("plugin-dir"), "/var/lib/kubelet/plugins/cinder.csi.openstack.org");
    assert_eq!(path("registration-dir"), "/var/lib/kubelet/plugins_registry");
}

#[test]
fn registrar_is_removed_before_the_driver() {
    let driver = mk_with(json!({ "node": { "registration": "Sidecar" } }));
    let mut resolved = resolve(&driver, &mk_environment()).unwrap();
    resolved.node.registration = Registration::Unregister;

    let operands = operands(&resolved, None).unwrap();

    assert_eq!(names(&operands, "DaemonSet"), ["cinder-csi-driver"]);
    let driver = container(&operands, "DaemonSet", "cinder-csi-driver");
    assert_eq!(driver["livenessProbe"]["httpGet"]["port"], "health");
}

#[rstest]
#[case(NodeRegistration::Integrated)]
#[case(NodeRegistration::Sidecar)]
fn daemon_set_never_surges(#[case] registration: NodeRegistration) {
    for update in [NodeUpdateType::RollingUpdate, NodeUpdateType::OnDelete] {
        let mut driver = mk_in_cluster();
        driver.spec.node.registration = registration;
        driver.spec.node.update.kind = update;

        let operands = mk_operands(&driver);

        let strategy = &only(&operands, "DaemonSet")["spec"]["updateStrategy"];
        let surge = &strategy["rollingUpdate"]["maxSurge"];
        assert!(surge.is_null() || surge == 0, "{strategy}");
    }
}

#[test]
fn node_pods_tolerate_startup_taint() {
    let key = "cinder.csi.openstack.org/agent-not-ready";
    let operands = mk_operands(&mk_with(
        json!({ "node": { "tolerations": [], "startupTaint": { "enabled": true } } }),
    ));

    let tolerations = &pod_spec(&operands, "DaemonSet")["tolerations"];

    assert_eq!(tolerations, &json!([{ "key": key, "operator": "Exists" }]));
}

#[test]
fn proxy_applies_to_openstack_and_not_to_cluster() {
    let operands = mk_operands(&mk_with(json!({
        "proxy": { "httpsProxy": "http://proxy.example.org:3128", "noProxy": [".example.org"] },
    })));

    for name in names(&operands, "Deployment") {
        let env = &container(&operands, "Deployment", &name)["env"];
        if name == "cinder-csi-driver" {
            assert_eq!(
                env,
                &json!([
                    { "name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128" },
                    { "name": "NO_PROXY",
                      "value": "169.254.169.254,[fe80::a9fe:a9fe],.svc,$(KUBERNETES_SERVICE_HOST),.example.org" },
                ])
            );
        } else {
            assert!(env.is_null(), "{name}: {env}");
        }
    }
    assert!(!pod_spec(&operands, "DaemonSet").to_string().contains("PROXY"));
}

#[test]
fn network_policy_allows_metrics_dns_api_and_cloud() {
    let policy = |spec: Value| {
        let operands = mk_operands(&mk_with(json!({ "networkPolicy": spec })));
        let found = operands.iter().find(|operand| operand.kind.kind == "NetworkPolicy");
        found.map(|operand| to_yaml(&operand.object).unwrap())
    };

    insta::assert_snapshot!(policy(json!({})).unwrap());
    assert_eq!(policy(json!({ "mode": "Disabled" })), None);
}

#[rstest]
#[case::network_of_nodes(true, json!(true), "ClusterFirstWithHostNet", json!("127.0.0.1"), "127.0.0.1:9898")]
#[case::network_of_pods(false, json!(null), "ClusterFirst", json!(null), ":9898")]
fn kubelet_reaches_probes_on_either_network(
    #[case] host_network: bool,
    #[case] expected: Value,
    #[case] dns_policy: &str,
    #[case] host: Value,
    #[case] endpoint: &str,
) {
    let operands = mk_operands(&mk_with(json!({ "node": { "hostNetwork": host_network } })));
    let pod = pod_spec(&operands, "DaemonSet");
    assert_eq!(
        (&pod["hostNetwork"], &pod["dnsPolicy"]),
        (&expected, &json!(dns_policy))
    );
    let driver = container(&operands, "DaemonSet", "cinder-csi-driver");
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &driver[probe]["httpGet"];
        assert_eq!((&get["host"], &get["port"]), (&host, &json!("health")), "{probe}");
    }
    assert!(
        args(driver).contains(&format!("--health-endpoint={endpoint}")),
        "{driver}"
    );
}

#[test]
fn nodes_on_pod_network_reach_only_metadata_service() {
    let operands = mk_operands(&mk_with(json!({ "node": { "hostNetwork": false } })));
    let name = |operand: &&Operand| operand.object.metadata.name.clone().unwrap_or_default();
    let of_nodes = |operand: &&Operand| operand.kind.kind == "NetworkPolicy" && name(operand).ends_with("-node");
    let policy = &operands
        .iter()
        .find(of_nodes)
        .expect("the policy of the nodes")
        .object
        .data["spec"];
    let ports = container(&operands, "DaemonSet", "cinder-csi-driver")["ports"].as_array();
    let metrics = ports.into_iter().flatten().find(|port| port["name"] != "health");
    assert_eq!(
        policy["ingress"],
        json!([{ "ports": [{ "protocol": "TCP", "port": metrics.expect("a port")["containerPort"] }] }])
    );
    assert_eq!(
        policy["egress"],
        json!([{ "ports": [{ "protocol": "TCP", "port": 80 }] }])
    );
    let labels = &only(&operands, "DaemonSet")["spec"]["template"]["metadata"]["labels"];
    let selector = policy["podSelector"]["matchLabels"].as_object().expect("labels");
    assert!(
        !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value),
        "{selector:?}"
    );
}

#[test]
fn host_network_has_no_policy_and_configurable_ports() {
    let operands = mk_operands(&mk_with(
        json!({ "controller": { "hostNetwork": true, "httpPort": 9100, "replicas": 1 } }),
    ));

    let pod = pod_spec(&operands, "Deployment");
    assert_eq!(
        (&pod["hostNetwork"], &pod["dnsPolicy"]),
        (&json!(true), &json!("ClusterFirstWithHostNet"))
    );
    assert_eq!(
        container(&operands, "Deployment", "csi-attacher")["ports"][0]["containerPort"],
        9103
    );
    let driver = container(&operands, "Deployment", "cinder-csi-driver");
    assert_eq!(driver["readinessProbe"]["httpGet"]["host"], "127.0.0.1");
    assert!(args(driver).contains(&"--health-endpoint=127.0.0.1:9101".to_owned()));
    assert!(operands.iter().all(|operand| operand.kind.kind != "NetworkPolicy"));
    // The ports are available only after the end of the old pod.
    let update = &only(&operands, "Deployment")["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(update, &json!({ "maxUnavailable": 1, "maxSurge": 0 }));
}

#[rstest]
#[case(33, json!(null))]
#[case(34, json!(60))]
fn fields_unknown_to_api_server_are_omitted(#[case] minor: u32, #[case] written: Value) {
    let environment = Environment {
        kubernetes_version: Some(KubernetesVersion { major: 1, minor }),
        ..mk_environment()
    };

    let operands = operands(&resolve(&mk_in_cluster(), &environment).unwrap(), None).unwrap();

    let spec = &only(&operands, "CSIDriver")["spec"];
    assert_eq!(spec["nodeAllocatableUpdatePeriodSeconds"], written);
    assert_eq!(spec["volumeLifecycleModes"], json!(["Persistent"]));
}

#[test]
fn options_of_nodes_reach_the_driver() {
    let operands = mk_operands(&mk_with(json!({
        "logFormat": "text",
        "blockStorage": { "nodeVolumeAttachLimit": 20 },
    })));

    let parse = |workload| {
        let words = args(container(&operands, workload, "cinder-csi-driver"));
        Args::from_argv(std::iter::once("cinder-csi-driver".to_owned()).chain(words)).unwrap()
    };
    let (controller, node) = (parse("Deployment"), parse("DaemonSet"));
    assert_eq!(node.max_volumes_per_node, Some(20));
    assert_eq!(controller.max_volumes_per_node, None, "it reads cloud.conf");
    assert_eq!(controller.log_format.as_str(), "text");
}

#[test]
fn parallel_drivers_have_distinct_names_ports_and_sockets() {
    let first = mk_in_cluster();
    let mut second = mk_with(json!({ "instanceName": "archive", "node": { "httpPort": 9900 } }));
    second.metadata.name = Some("archive.csi.example.org".into());
    let environment = Environment {
        other_drivers: vec![OtherDriver::of(&first)],
        ..mk_environment()
    };

    let one = mk_operands(&first);
    let other = operands(&resolve(&second, &environment).unwrap(), None).unwrap();

    let names: BTreeSet<String> = one.iter().map(ToString::to_string).collect();
    for operand in &other {
        assert!(!names.contains(&operand.to_string()), "{operand}");
        let is_named = operand.name().starts_with("archive") || !operand.name().starts_with("cinder-csi");
        assert!(is_named, "{operand}");
    }
    let on_node = |operands: &[Operand]| {
        let driver = container(operands, "DaemonSet", "cinder-csi-driver").clone();
        let endpoint = args(&driver)
            .into_iter()
            .find(|word| word.starts_with("--endpoint="))
            .unwrap();
        (endpoint, driver["ports"][0]["containerPort"].clone())
    };
    let ((socket, port), (other_socket, other_port)) = (on_node(&one), on_node(&other));
    assert!(socket != other_socket && port != other_port);
    // Each election has a separate lease.
    let leases = |operands: &[Operand]| {
        text(operands)
            .matches("external-attacher-leader-cinder-csi-openstack-org")
            .count()
    };
    assert_eq!((leases(&one), leases(&other)), (1, 0));
}
