// SPDX-License-Identifier: Apache-2.0

use super::*;

fn mk_controller_pods() -> OldPods {
    OldPods {
        workload: "Deployment kube-system/controller".to_owned(),
        serves_controller: true,
        host_network: true,
        dns_policy: Some("Default".to_owned()),
        dns_settings: vec!["nameserver 10.0.0.1".to_owned()],
        host_aliases: vec!["10.0.0.2 keystone.example.org".to_owned()],
        authorities: vec!["variable SSL_CERT_FILE=/etc/ca.pem".to_owned()],
        ..OldPods::default()
    }
}

#[test]
fn environment_of_the_pods_is_compared() {
    let nodes = OldPods {
        workload: "DaemonSet kube-system/nodes".to_owned(),
        is_of_nodes: true,
        kubelet_dir: Some("/var/lib/k0s/kubelet".to_owned()),
        node_selector: [("storage".to_owned(), "yes".to_owned())].into(),
        host_network: true,
        ..OldPods::default()
    };
    let facts = CheckFacts {
        pods: vec![mk_controller_pods(), nodes],
        ..CheckFacts::default()
    };
    let found = findings(&mk_spec(), &facts);
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(
        subjects,
        [
            "hostNetwork",
            "dnsPolicy",
            "dnsConfig",
            "hostAliases",
            "certificates of authorities",
            "the kubelet's directory",
            "labels of nodes",
        ]
    );
    assert!(found[5].remedy.contains("spec.node.kubeletDir to /var/lib/k0s/kubelet"));

    let mut spec = mk_spec();
    spec.node.kubelet_dir = "/var/lib/k0s/kubelet".to_owned();
    spec.node.node_selector.insert("storage".to_owned(), "yes".to_owned());
    spec.controller.host_network = true;
    spec.clouds[0].ca_bundle_ref = Some(mk_bundle());
    let patch = json!({"spec": {"template": {"spec": {"hostAliases": [], "dnsPolicy": "Default", "dnsConfig": {}}}}});
    let change = json!({"target": {"kind": "Deployment", "name": "cinder-csi-controller"}, "patch": patch.to_string()});
    spec.overrides = vec![serde_json::from_value(change).expect("an override")];
    assert_eq!(findings(&spec, &facts), []);
}
