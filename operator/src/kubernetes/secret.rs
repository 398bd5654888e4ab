// SPDX-License-Identifier: Apache-2.0
//! Reads Secrets.
//!
//! The Kubernetes client logs a body that it cannot decode, and serde_json repeats values in its errors. Therefore this
//! module decodes Secrets itself. It ignores metadata, and decodes each value only on use. No error contains a part of
//! the content.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Client, Resource,
    api::{GetParams, Request},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::{answer::answer, guarded_api::check_name};

/// The values of a Secret by key, encoded.
#[derive(Clone, Default)]
pub struct SecretData(BTreeMap<String, Box<RawValue>>);

/// Why a Secret or one of its values cannot be read.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The API server rejected the request.
    #[error("{0}")]
    Refused(String),
    /// The request failed.
    #[error("the API server did not answer")]
    NoAnswer,
    /// The Secret does not have the expected form.
    #[error("it cannot be decoded: {0}")]
    Undecodable(&'static str),
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretData").field(&self.0.len()).finish()
    }
}

impl SecretData {
    /// The keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SecretError> {
        let Some(text) = self.0.get(key) else {
            return Ok(None);
        };
        // ByteString decodes null as an empty value.
        let text = Some(text.get()).filter(|text| text.starts_with('"'));
        let decoded: Option<ByteString> = text.and_then(|text| serde_json::from_str(text).ok());
        let bytes = decoded.ok_or(SecretError::Undecodable("a value of its data is not text in base64"))?;
        Ok(Some(bytes.0))
    }
}

/// Reads a Secret; `None` if it does not exist.
pub async fn get_secret(client: &Client, namespace: &str, name: &str) -> Result<Option<SecretData>, SecretError> {
    for part in [namespace, name] {
        check_name(part).map_err(|error| SecretError::Refused(answer(&error)))?;
    }
    let request = Request::new(Secret::url_path(&(), Some(namespace))).get(name, &GetParams::default());
    let request = request.map_err(|error| SecretError::Refused(error.to_string()))?;
    match client.request_text(request).await {
        Ok(text) => decode_secret(&text).map(Some),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error @ kube::Error::Api(_)) => Err(SecretError::Refused(answer(&error))),
        Err(kube::Error::FromUtf8(_)) => Err(SecretError::Undecodable("it is not UTF-8")),
        Err(_) => Err(SecretError::NoAnswer),
    }
}

/// Decodes the JSON of a Secret.
pub fn decode_secret(text: &str) -> Result<SecretData, SecretError> {
    #[derive(Deserialize)]
    struct RawSecret {
        data: Option<Box<RawValue>>,
    }
    // serde also decodes an array as a struct.
    let object = Some(text).filter(|text| text.trim_start().starts_with('{'));
    let secret: Option<RawSecret> = object.and_then(|text| serde_json::from_str(text).ok());
    let secret = secret.ok_or(SecretError::Undecodable("it is not a JSON object"))?;
    let Some(data) = secret.data else {
        return Ok(SecretData::default());
    };
    let data = serde_json::from_str(data.get());
    data.map(SecretData)
        .map_err(|_| SecretError::Undecodable("its data is not a map"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const CANARY: &str = "Y2FuYXJ5";

    #[rstest]
    #[case::odd_metadata(json!({"metadata": {"managedFields": [{"time": "9999-12-31T23:59:59Z"}]}, "data": {"key": CANARY}}))]
    #[case::metadata_of_another_type(json!({"metadata": [1], "data": {"key": CANARY}}))]
    #[case::another_value_of_another_type(json!({"metadata": {}, "data": {"key": CANARY, "other": 5, "third": null}}))]
    fn unused_fields_do_not_matter(#[case] secret: Value) {
        let data = decode_secret(&secret.to_string()).expect("it decodes");
        assert_eq!(data.get("key").expect("it decodes"), Some(b"canary".to_vec()));
        assert_eq!(data.get("none").expect("it decodes"), None);
    }

    #[rstest]
    #[case::number(json!({"data": {"key": 5, "other": CANARY}}), "base64")]
    #[case::null(json!({"data": {"key": null, "other": CANARY}}), "base64")]
    #[case::map(json!({"data": {"key": {CANARY: CANARY}}}), "base64")]
    #[case::not_base64(json!({"data": {"key": "canary!"}}), "base64")]
    #[case::data_is_text(json!({"data": CANARY}), "its data is not a map")]
    #[case::data_is_a_list(json!({"data": [CANARY]}), "its data is not a map")]
    #[case::text(json!(CANARY), "not a JSON object")]
    #[case::list(json!([{"key": CANARY}]), "not a JSON object")]
    fn errors_do_not_contain_values(#[case] secret: Value, #[case] expected: &str) {
        let read = decode_secret(&secret.to_string());
        let shown = format!("{read:?}");
        let error = read.and_then(|data| data.get("key")).expect_err("it does not decode");
        assert!(error.to_string().contains(expected), "{error}");
        let shown = format!("{shown} {error} {error:?}");
        assert!(!shown.contains("canary") && !shown.contains(CANARY), "{shown}");
    }

    fn mk_secret() -> String {
        json!({"kind": "Secret", "metadata": {}, "data": {"key": CANARY}}).to_string()
    }

    #[rstest]
    #[case::cut(200, mk_secret()[..40].to_owned().into_bytes(), "cannot be decoded")]
    #[case::page(200, format!("<html>{CANARY}</html>").into_bytes(), "cannot be decoded")]
    #[case::binary(200, [b"\xff\xfe", mk_secret().as_bytes()].concat(), "it is not UTF-8")]
    #[case::empty(200, Vec::new(), "cannot be decoded")]
    #[case::refused(403, br#"{"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}"#.to_vec(), "Forbidden: no")]
    #[case::secret_as_an_error(500, mk_secret().into_bytes(), "")]
    #[case::cut_secret_as_an_error(502, mk_secret()[..40].to_owned().into_bytes(), "HTTP 502")]
    #[case::page_as_an_error(503, format!("<html>{CANARY}</html>").into_bytes(), "HTTP 503")]
    #[tokio::test]
    async fn wrong_answers_are_reported_without_the_body(
        #[case] code: u16,
        #[case] body: Vec<u8>,
        #[case] expected: &str,
    ) {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let response = http::Response::builder()
                .status(code)
                .body(kube::client::Body::from(body.clone()));
            async move { Ok::<_, std::convert::Infallible>(response.expect("a response")) }
        });
        let error = get_secret(&Client::new(service, "n"), "n", "s")
            .await
            .expect_err("a failure");
        let text = format!("{error} {error:?}");
        assert!(
            text.contains(expected) && !text.contains(CANARY) && !text.contains("did not answer"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn closed_connection_is_no_answer() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async move {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("closed"))
        });
        let error = get_secret(&Client::new(service, "n"), "n", "s")
            .await
            .expect_err("a failure");
        assert_eq!(error.to_string(), "the API server did not answer");
    }
}
