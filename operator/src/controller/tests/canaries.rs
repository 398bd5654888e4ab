// SPDX-License-Identifier: Apache-2.0
//! Undecodable Secrets. No part of them reaches a log, an event, the status or a metric.

use std::io::Write;

use cinder_csi_crds::{CaBundleKind, CaBundleRef, ClientCertRef};
use prometheus::{Encoder as _, TextEncoder};
use tracing_subscriber::{filter::LevelFilter, fmt::layer, layer::SubscriberExt as _};

use super::*;

/// The content of a Secret, and its encoded form.
const PLAIN: &str = "canary-of-the-secret";
const CANARY: &str = "Y2FuYXJ5LW9mLXRoZS1zZWNyZXQ=";
const CLIENT: &str = "/api/v1/namespaces/cinder-csi/secrets/client";
const AUTHORITY: &str = "/api/v1/namespaces/cinder-csi/secrets/authority";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("text")
    }

    /// Records all log messages of this thread, without a filter.
    fn record(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let lines = layer().with_writer(move || log.clone());
        let all = tracing_subscriber::registry().with(lines).with(LevelFilter::TRACE);
        tracing::subscriber::set_default(all)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A driver with a Secret of each kind.
fn mk_world() -> World {
    let mut spec = mk_spec();
    spec.clouds[0].client_cert_secret_ref = Some(ClientCertRef {
        name: "client".to_owned(),
    });
    spec.clouds[0].ca_bundle_ref = Some(CaBundleRef {
        kind: CaBundleKind::Secret,
        name: "authority".to_owned(),
        key: "ca.crt".to_owned(),
    });
    let world = World::new(spec, mk_index(&[], true));
    let authority = rcgen::generate_simple_self_signed(["authority".to_owned()]).expect("a certificate");
    let (certificate, key) = (authority.cert.pem(), authority.signing_key.serialize_pem());
    let text = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    let pair = json!({"tls.crt": text(&certificate), "tls.key": text(&key)});
    world
        .api
        .put(CLIENT, json!({"metadata": {"name": "client"}, "data": pair}));
    let bundle = json!({"ca.crt": text(&certificate)});
    world
        .api
        .put(AUTHORITY, json!({"metadata": {"name": "authority"}, "data": bundle}));
    world
}

fn assert_no_canary(world: &World, log: &Log) {
    let mut metrics = Vec::new();
    let families = world.context.metrics.registry().gather();
    TextEncoder::new().encode(&families, &mut metrics).expect("encoded");
    let shown = [
        log.text(),
        world.api.events().join("\n"),
        world.api.get(DRIVER).expect("the driver").to_string(),
        String::from_utf8(metrics).expect("text"),
    ];
    for text in shown {
        assert!(
            !text.contains(PLAIN) && !text.contains(CANARY.trim_end_matches('=')),
            "{text}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn undecodable_secret_is_reported_without_its_content(
    #[values(SOURCE, CLIENT, AUTHORITY)] path: &str,
    #[values(0, 1, 2, 3, 4, 5, 6, 7)] case: usize,
) {
    let odd = json!({"name": "odd", "managedFields": [{"time": "9999-12-31T23:59:59Z"}], "labels": 5});
    let keys = |value: Value| json!({"cloud.conf": value, "tls.crt": value, "tls.key": value, "ca.crt": value, "other": CANARY});
    let poisons = [
        json!({"metadata": odd, "data": keys(json!(5))}),
        json!({"metadata": {}, "data": keys(json!(null))}),
        json!({"metadata": {}, "data": keys(json!(format!("{PLAIN}!")))}),
        json!({"metadata": {}, "data": keys(json!({CANARY: CANARY}))}),
        json!({"metadata": {}, "data": CANARY}),
        json!({"metadata": {}, "data": [CANARY]}),
        json!(CANARY),
        json!([{"data": keys(json!(CANARY))}]),
    ];
    let log = Log::default();
    let _recording = log.record();
    let world = mk_world();
    world.api.put(path, poisons[case].clone());

    world.reconcile().await.expect("reconciled");

    let (verdict, message) = world.condition(ConditionType::CredentialsValid);
    assert_eq!(verdict, "False/SecretMalformed", "{message}");
    assert!(
        message.contains("cannot be decoded") && !message.contains("did not answer"),
        "{message}"
    );
    assert!(log.text().len() > 100, "nothing was recorded");
    assert_no_canary(&world, &log);
}

#[tokio::test]
async fn unusual_metadata_of_secret_is_ignored() {
    let log = Log::default();
    let _recording = log.record();
    let world = mk_world();
    for path in [SOURCE, CLIENT, AUTHORITY] {
        let managers = json!([{"manager": "x", "time": "9999-12-31T23:59:59Z"}]);
        world.api.change(
            path,
            "/metadata",
            json!({"name": ["odd"], "managedFields": managers, "labels": 5}),
        );
    }

    world.reconcile().await.expect("reconciled");

    let (verdict, message) = world.condition(ConditionType::CredentialsValid);
    assert!(verdict.starts_with("True/"), "{verdict}: {message}");
    let text = log.text();
    assert!(
        !text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE KEY"),
        "{text}"
    );
}

#[tokio::test]
async fn undecodable_own_secret_is_not_shown() {
    let log = Log::default();
    let _recording = log.record();
    let world = mk_world();
    world.reconcile().await.expect("reconciled");
    let managers = json!([{"manager": "x", "time": "9999-12-31T23:59:59Z"}]);
    let odd = [
        ("/metadata/managedFields", managers),
        ("/metadata/labels/odd", json!(5)),
        (
            "/data",
            json!({"cloud.conf": 5, "clouds.yaml": {CANARY: CANARY}, "other": CANARY}),
        ),
    ];
    for (pointer, value) in odd {
        if let Some(mut secret) = world.api.get(OWN_SECRET) {
            let (parent, name) = pointer.rsplit_once('/').expect("a field");
            secret.pointer_mut(parent).expect("an object")[name] = value;
            world.api.put(OWN_SECRET, secret);
        }
        // The reconcile may repair the Secret or fail. Neither result repeats the content.
        drop(world.reconcile().await);
    }
    assert_no_canary(&world, &log);
}

#[tokio::test]
async fn adoption_check_does_not_show_secrets() {
    let log = Log::default();
    let _recording = log.record();
    let world = mk_world();
    let volumes = ["text", "number", "good"].map(|name| json!({"name": name, "secret": {"secretName": name}}));
    let containers = ["text", "number", "good"].map(|name| {
        json!({
            "name": name, "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0",
            "args": ["--cloud-config=/etc/config/cloud.conf,/etc/config/other.conf", "--cluster=$(CLUSTER)"],
            "env": [{"name": "CLUSTER", "valueFrom": {"secretKeyRef": {"name": "good", "key": "cluster"}}}],
            "volumeMounts": [{"name": name, "mountPath": "/etc/config"}],
        })
    });
    let pods = json!({"containers": containers, "volumes": volumes});
    let deployment =
        json!({"metadata": {"name": "old", "namespace": "old"}, "spec": {"selector": {}, "template": {"spec": pods}}});
    world
        .api
        .put("/apis/apps/v1/namespaces/old/deployments/old", deployment);
    let put = |name: &str, secret: Value| world.api.put(&format!("/api/v1/namespaces/old/secrets/{name}"), secret);
    put("text", json!(CANARY));
    put(
        "number",
        json!({"metadata": {}, "data": {"cloud.conf": 5, "other.conf": format!("{PLAIN}!")}}),
    );
    let text = k8s_openapi::ByteString(format!("[Global]\npassword = {PLAIN}\n").into_bytes());
    let cluster = k8s_openapi::ByteString(PLAIN.as_bytes().to_vec());
    let managers = json!([{"manager": "x", "time": "9999-12-31T23:59:59Z"}]);
    put(
        "good",
        json!({"metadata": {"managedFields": managers}, "data": {"cloud.conf": text, "other.conf": text, "cluster": cluster}}),
    );

    let spec = mk_spec();
    let successor = crate::migration::Successor {
        spec: &spec,
        namespace: "cinder-csi",
    };
    let apis = cluster::OptionalApis::default();
    let facts = crate::migration::adoption_check(&world.api.client, NAME, "old", apis, successor, false).await;

    let gaps = format!(
        "{:?} {:?}",
        facts.gaps,
        cinder_operator_core::migration::check::findings(&spec, &facts)
    );
    for place in [
        "Secret old/text: it cannot be decoded",
        "the file /etc/config/cloud.conf of Deployment old/old, container number",
        "the file /etc/config/other.conf of Deployment old/old, container number",
        "the value comes from a Secret (variable CLUSTER)",
    ] {
        assert!(gaps.contains(place), "{gaps}");
    }
    assert!(
        gaps.contains("cannot be decoded") && !gaps.contains("did not answer"),
        "{gaps}"
    );
    assert_eq!(facts.configurations.len(), 1, "{:?}", facts.configurations);
    assert!(
        !gaps.contains(PLAIN) && !gaps.contains(CANARY.trim_end_matches('=')),
        "{gaps}"
    );
    assert_no_canary(&world, &log);
}
