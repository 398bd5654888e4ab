// SPDX-License-Identifier: Apache-2.0
//! The keys of a Secret that a message shows.

use super::super::credential_reader::CREDENTIALS_SUFFIXES;
use super::*;

/// Reads the credentials from an API server with this Secret, and returns the error.
async fn read_error(keys: &[&str]) -> Refused {
    let value = ByteString(b"canary".to_vec());
    let data = keys.iter().map(|key| ((*key).to_owned(), value.clone()));
    let secret = Secret {
        data: Some(data.collect()),
        ..Secret::default()
    };
    let body = serde_json::to_vec(&secret).expect("a Secret");
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert_eq!(
            request.uri().path(),
            "/api/v1/namespaces/ns/secrets/openstack-credentials"
        );
        let response = http::Response::new(kube::client::Body::from(body.clone()));
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let read = mk_source().read(&kube::Client::new(service, "ns")).await;
    read.expect_err("the Secret has no credentials")
}

/// A writer of a CinderCSIDriver may name any Secret of the namespace, and may not be allowed to read it.
#[tokio::test]
async fn missing_key_reveals_only_credentials_keys() {
    let shown = ["a.yml", "cloud.conf", "prod.yaml"];
    let hidden = [
        "canary",
        "cloud.conf.d",
        "clouds.yaml.old",
        "clouds.YAML",
        "db-password",
        "id_rsa",
        "tls.key",
        "token",
    ];
    let refusal = read_error(&[&shown[..], &hidden[..]].concat()).await;
    assert_eq!(refusal.reason, Refusal::SecretMissing);
    let text = format!("{refusal:?}");
    let expected = "Secret ns/openstack-credentials has no key clouds.yaml; of its keys these can hold credentials: a.yml, cloud.conf, \
                    prod.yaml; add it";
    assert!(text.contains(expected), "{text}");
    for key in hidden {
        assert!(!text.contains(key), "{key} is in {text}");
    }
    assert!(!text.contains("Y2FuYXJ5"), "{text}");

    let text = format!("{:?}", read_error(&hidden).await);
    assert!(text.contains("these can hold credentials: none; add it"), "{text}");
    for key in hidden {
        assert!(!text.contains(key), "{key} is in {text}");
    }
}

#[test]
fn revealed_key_suffixes_match_crd() {
    let crd = serde_json::to_string(&cinder_csi_crds::crd()).expect("a CRD");
    let rules: BTreeSet<&str> = crd
        .split('"')
        .filter(|text| text.contains("self.endsWith('.yaml')"))
        .collect();
    let suffixes = CREDENTIALS_SUFFIXES.map(|suffix| format!("self.endsWith('{suffix}')"));
    assert_eq!(rules, BTreeSet::from([suffixes.join(" || ").as_str()]));
}
