// SPDX-License-Identifier: Apache-2.0

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use cinder_csi_crds::Cloud;
use cinder_operator_core::migration::check::{self, AdoptionFinding, AdoptionFindingReason};
use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "cinder.csi.openstack.org";
/// The text in place of `CLOUD_CONF` in the fixtures.
const CLOUD_CONF: &str = "[Global]\nauth-url=https://keystone.example.org:5000/v3\nusername=csi\npassword=hunter2\ntenant-id=p\n\
                          domain-name=Default\nregion=R2\nca-file=/etc/cacert/ca.pem\n[BlockStorage]\nnode-volume-attach-limit=9\n\
                          rescan-on-resize=false\n[Metadata]\nsearch-order=configDrive\n";
/// The findings about this text, without credentials in the spec.
const CLOUD_CONF_KEYS: [&str; 4] = [
    "[Global] ca-file",
    "[BlockStorage] node-volume-attach-limit",
    "[BlockStorage] rescan-on-resize",
    "[Metadata] search-order",
];

/// The path of an object in the API.
fn path_of(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("a kind");
    let group = if kind == "Secret" || kind == "ConfigMap" {
        "/api/v1"
    } else {
        "/apis/apps/v1"
    };
    let [namespace, name] = ["namespace", "name"].map(|field| object["metadata"][field].as_str().expect("a text"));
    format!("{group}/namespaces/{namespace}/{}s/{name}", kind.to_lowercase())
}

/// The objects of fixtures, in the form in which the API server returns them.
fn read_objects(text: &str) -> BTreeMap<String, Value> {
    let documents = text.split("\n---\n").map(|document| {
        let mut object: Value = serde_yaml::from_str(document).expect("an object");
        if let Some(texts) = object["stringData"].as_object().cloned() {
            let bytes = |text: &Value| {
                let text = text.as_str().expect("a text");
                let text = if text == "CLOUD_CONF" { CLOUD_CONF } else { text };
                json!(ByteString(text.as_bytes().to_vec()))
            };
            object["data"] = texts.iter().map(|(key, text)| (key.clone(), bytes(text))).collect();
        }
        (path_of(&object), object)
    });
    documents.collect()
}

fn answer_to(objects: &BTreeMap<String, Value>, hidden: &str, path: &str) -> (u16, Value) {
    let status = |code: u16, reason: &str| {
        (
            code,
            json!({"kind": "Status", "reason": reason, "message": path, "code": code}),
        )
    };
    if !hidden.is_empty() && path.contains(hidden) {
        return status(403, "Forbidden");
    }
    if let Some(object) = objects.get(path) {
        return (200, object.clone());
    }
    if path.contains("/secrets/") || path.contains("/configmaps/") {
        return status(404, "NotFound");
    }
    let below = objects.iter().filter(|(key, _)| {
        let name = key.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| !name.contains('/'))
    });
    let items: Vec<&Value> = below.map(|(_, object)| object).collect();
    (200, json!({"metadata": {}, "items": items}))
}

/// A client of an API server with these objects. Paths that contain `hidden` are forbidden.
fn mk_client(objects: BTreeMap<String, Value>, hidden: &'static str) -> Client {
    let objects = Arc::new(objects);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, answer) = answer_to(&objects, hidden, request.uri().path());
        let body = Body::from(answer.to_string().into_bytes());
        let response = Response::builder().status(code).body(body);
        async move { Ok::<_, Infallible>(response.expect("a response")) }
    });
    Client::new(service, "default")
}

fn mk_spec(key: &str) -> CinderCSIDriverSpec {
    let mut cloud = Cloud::from_secret("openstack-credentials");
    cloud.credentials_secret_ref.key = key.to_owned();
    CinderCSIDriverSpec {
        cluster_id: Some("kubernetes".to_owned()),
        ..CinderCSIDriverSpec::new(vec![cloud])
    }
}

async fn check(objects: BTreeMap<String, Value>, hidden: &'static str, spec: &CinderCSIDriverSpec) -> CheckFacts {
    let successor = Successor {
        spec,
        namespace: "cinder-csi",
    };
    let client = mk_client(objects, hidden);
    adoption_check(
        &client,
        DRIVER,
        "kube-system",
        OptionalApis::default(),
        successor,
        false,
    )
    .await
}

/// The findings without the finding about the credentials, which are missing in most tests.
fn findings(spec: &CinderCSIDriverSpec, facts: &CheckFacts) -> Vec<AdoptionFinding> {
    let mut findings = check::findings(spec, facts);
    findings.retain(|finding| !finding.subject.starts_with("the credentials of"));
    assert!(!format!("{findings:?} {facts:?}").contains("hunter2"), "{findings:?}");
    findings
}

fn subjects(findings: &[AdoptionFinding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.subject.as_str()).collect()
}

#[rstest]
#[case::manifests(include_str!("fixtures/manifests.yaml"), "Secret kube-system/cloud-config, key cloud.conf")]
#[case::kubeone(include_str!("fixtures/kubeone.yaml"), "Secret kube-system/cloud-config, key cloud-config")]
#[case::kops(include_str!("fixtures/kops.yaml"), "Secret kube-system/openstack-project, key cloud.config")]
#[case::projected(include_str!("fixtures/projected.yaml"), "Secret kube-system/cinder, key cloud-config")]
#[tokio::test]
async fn configuration_is_found_in_every_shape(#[case] fixture: &str, #[case] place: &str) {
    let spec = mk_spec("cloud.conf");
    let facts = check(read_objects(fixture), "", &spec).await;
    let findings = findings(&spec, &facts);
    assert_eq!(subjects(&findings), CLOUD_CONF_KEYS, "{findings:?}");
    for finding in findings {
        assert_eq!(finding.names, [place], "{finding:?}");
    }
}

#[tokio::test]
async fn certificates_of_kubermatic_are_a_finding() {
    let spec = mk_spec("cloud.conf");
    let facts = check(read_objects(include_str!("fixtures/kubermatic.yaml")), "", &spec).await;
    let findings = findings(&spec, &facts);
    assert_eq!(
        subjects(&findings)[..2],
        ["certificates of authorities", "[Global] ca-file"]
    );
    assert_eq!(findings.len(), 1 + CLOUD_CONF_KEYS.len());
    assert!(
        findings[0]
            .message
            .contains("variable SSL_CERT_FILE=/etc/kubermatic/certs/ca-bundle.pem")
    );
    assert_eq!(findings[1].names, ["Secret kube-system/cloud-config-csi, key config"]);
}

#[tokio::test]
async fn openshift_is_compared_by_files_and_environment() {
    let mut objects = read_objects(include_str!("fixtures/openshift.yaml"));
    let new = "clouds: {openstack: {auth: {auth_url: 'https://keystone.example.org:5000', user_id: u, password: hunter2, project_id: p}}}";
    let new = json!({"kind": "Secret", "metadata": {"name": "openstack-credentials", "namespace": "cinder-csi"},
        "data": {"clouds.yaml": ByteString(new.into())}});
    objects.insert(path_of(&new), new);
    let spec = mk_spec("clouds.yaml");
    let facts = check(objects.clone(), "", &spec).await;
    let found = findings(&spec, &facts);
    let expected = [
        "--with-topology",
        "--feature-gates=Topology=false of csi-provisioner",
        "certificates of authorities",
        "the user of the login",
        "region_name of clouds.yaml",
        "interface of clouds.yaml",
        "[BlockStorage] ignore-volume-az",
    ];
    assert_eq!(subjects(&found), expected, "{found:?}");
    // One side has the id of the user, and the other the name.
    assert_eq!(found[3].reason, AdoptionFindingReason::NotChecked);
    assert_eq!(
        found[4].names,
        ["Secret kube-system/openstack-cloud-credentials, key clouds.yaml"]
    );
    assert!(found[4].message.contains("\"R2\""), "{:?}", found[4]);
    assert_eq!(found[4].remedy, "Set spec.clouds[default].region to R2");

    objects.remove("/api/v1/namespaces/kube-system/configmaps/cloud-conf");
    let facts = check(objects, "", &spec).await;
    let found = findings(&spec, &facts);
    let gaps: Vec<&AdoptionFinding> = found
        .iter()
        .filter(|finding| finding.reason == AdoptionFindingReason::NotChecked)
        .collect();
    assert_eq!(gaps[0].subject, "--with-topology", "{gaps:?}");
    assert!(
        gaps[0]
            .message
            .contains("variable ENABLE_TOPOLOGY: ConfigMap kube-system/cloud-conf, key enable_topology"),
        "{:?}",
        gaps[0]
    );
    assert!(
        gaps.iter()
            .any(|gap| gap.subject.contains("/etc/kubernetes/config/cloud.conf")
                && gap.message.contains("ConfigMap kube-system/cloud-conf does not exist")),
        "{gaps:?}"
    );
}

#[tokio::test]
async fn controller_of_another_cluster_is_refused() {
    let spec = mk_spec("cloud.conf");
    let facts = check(read_objects(include_str!("fixtures/gardener.yaml")), "", &spec).await;
    let findings = findings(&spec, &facts);
    assert_eq!(
        findings[0].reason,
        AdoptionFindingReason::OutsideController,
        "{findings:?}"
    );
    let trust = findings
        .iter()
        .find(|finding| finding.subject == "certificates of authorities");
    assert!(trust.is_some_and(|finding| finding.message.contains("/etc/ssl of the nodes at /etc/ssl")));
}

#[rstest]
#[case::file_of_the_nodes(include_str!("fixtures/chart.yaml"), "", "it is a file of the nodes, in /etc/kubernetes")]
#[case::forbidden(include_str!("fixtures/kubeone.yaml"), "/secrets/cloud-config", "Forbidden")]
#[tokio::test]
async fn unread_configuration_is_a_gap(#[case] fixture: &str, #[case] hidden: &'static str, #[case] why: &str) {
    let spec = mk_spec("cloud.conf");
    let facts = check(read_objects(fixture), hidden, &spec).await;
    let findings = findings(&spec, &facts);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].reason, AdoptionFindingReason::NotChecked);
    assert!(
        findings[0].subject.starts_with("the file /etc/") && findings[0].message.contains(why),
        "{findings:?}"
    );
}

#[rstest]
#[case::missing_secret(json!(null), "the Secret does not exist")]
#[case::missing_key(json!({}), "the Secret does not have the key")]
#[case::broken(json!({"cloud.conf": ByteString(b"[Global]\nregion=x\n".to_vec())}), "is missing")]
#[case::long(json!({"cloud.conf": ByteString(vec![b'x'; 300_000])}), "the value has 300000 bytes")]
#[tokio::test]
async fn unread_credentials_of_the_spec_are_a_gap(#[case] data: Value, #[case] why: &str) {
    let mut objects = read_objects(include_str!("fixtures/manifests.yaml"));
    if !data.is_null() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "openstack-credentials", "namespace": "cinder-csi"}, "data": data});
        objects.insert(path_of(&secret), secret);
    }
    let facts = check(objects, "", &mk_spec("cloud.conf")).await;
    let gaps: Vec<_> = facts
        .gaps
        .iter()
        .filter(|gap| gap.what.contains("openstack-credentials"))
        .collect();
    assert_eq!(gaps.len(), 1, "{:?}", facts.gaps);
    assert!(gaps[0].why.contains(why), "{gaps:?}");
}

#[rstest]
#[case::deployments("/namespaces/kube-system/deployments", "the deployments of namespace kube-system")]
#[case::volumes("/persistentvolumes", "PersistentVolumes")]
#[case::pods("/api/v1/pods", "pods with in-line volumes")]
#[tokio::test]
async fn forbidden_lists_are_gaps(#[case] hidden: &'static str, #[case] what: &str) {
    let spec = mk_spec("cloud.conf");
    let facts = check(read_objects(include_str!("fixtures/manifests.yaml")), hidden, &spec).await;
    assert!(
        facts
            .gaps
            .iter()
            .any(|gap| gap.what == what && gap.why.contains("Forbidden")),
        "{:?}",
        facts.gaps
    );
}

#[tokio::test]
async fn manifests_of_go_driver_have_known_differences() {
    let mut objects = read_objects(include_str!("fixtures/manifests.yaml"));
    let plain = "[Global]\nauth-url=https://k\nuser-id=u\npassword=hunter2\ntenant-id=p\n";
    let secret = json!({"cloud.conf": ByteString(plain.into())});
    objects
        .get_mut("/api/v1/namespaces/kube-system/secrets/cloud-config")
        .expect("a Secret")["data"] = secret.clone();
    let secret = json!({"kind": "Secret", "metadata": {"name": "openstack-credentials", "namespace": "cinder-csi"}, "data": secret});
    objects.insert(path_of(&secret), secret);
    let spec = mk_spec("cloud.conf");
    let facts = check(objects, "", &spec).await;
    assert_eq!(check::findings(&spec, &facts), []);
    assert_eq!(facts.configurations.len(), 2);
}

#[tokio::test]
async fn environment_hides_values_of_secrets() {
    let objects = read_objects(include_str!("fixtures/openshift.yaml"));
    let client = mk_client(objects, "");
    let mut objects = Objects::new(&client, "kube-system");
    let container = json!({"name": "x",
    "envFrom": [
        {"prefix": "P_", "configMapRef": {"name": "cloud-conf"}},
        {"secretRef": {"name": "openstack-cloud-credentials"}},
        {"configMapRef": {"name": "none", "optional": true}},
    ],
    "env": [
        {"name": "A", "value": "$(P_enable_topology)-$$(B)"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "openstack-cloud-credentials", "key": "clouds.yaml"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": true}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]});
    let container = serde_json::from_value(container).expect("a container");
    let variables = variables(&mut objects, &container).await;
    assert_eq!(variables.expand("$(A)").plain(), Some("false-$(B)"));
    for name in ["B", "C", "D", "clouds.yaml"] {
        assert_eq!(variables.expand(&format!("$({name})")).plain(), None, "{name}");
    }
    assert!(!format!("{variables:?}").contains("hunter2"));
}

#[tokio::test]
async fn unread_source_of_variables_is_named() {
    let client = mk_client(BTreeMap::new(), "/configmaps/");
    let mut objects = Objects::new(&client, "kube-system");
    let container = json!({"name": "x", "envFrom": [{"configMapRef": {"name": "settings"}}]});
    let container = serde_json::from_value(container).expect("a container");
    let word = variables(&mut objects, &container).await.expand("--cluster=$(CLUSTER)");
    let shown = format!("{:?}", check::VariableValue::from(word));
    assert!(shown.contains("ConfigMap kube-system/settings: Forbidden"), "{shown}");
}
