// SPDX-License-Identifier: Apache-2.0
//! A request to Cinder or Nova and its response.

use std::marker::PhantomData;

use bytes::Bytes;
use csi_sources::UntrustedText;
use http::Method;
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::Value;

use crate::error::{CloudError, Failure};
use crate::http::fault;
use crate::http::service::{MicroVersion, Service};
use crate::last_failure;

/// The maximum number of characters of an id in an error.
const LONGEST_ID: usize = 100;

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) service: Service,
    /// A name from the closed set of operations, which is also the label in metrics.
    pub(crate) operation: &'static str,
    /// The object of the request, for errors.
    pub(crate) object: String,
    pub(crate) method: Method,
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    pub(crate) version: Option<MicroVersion>,
    /// Whether a 404 of the service is a valid answer rather than an error.
    pub(crate) may_be_missing: bool,
    /// Whether this request creates a resource, which a caller must learn of in the end. It is sent only as long as a
    /// caller waits, see [`crate::http::caller_liveness`].
    pub(crate) creates: bool,
    /// Whether the request is for the document of the API version, above the project, rather than for `path`.
    pub(super) version_root: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        service: Service,
        operation: &'static str,
        method: Method,
        path: &'a [&'a str],
        object: String,
    ) -> Self {
        Self {
            service,
            operation,
            object,
            method,
            path,
            query: Vec::new(),
            body: None,
            version: None,
            may_be_missing: false,
            creates: false,
            version_root: false,
        }
    }
}

/// A successful response, or a 404 where [`Request::may_be_missing`] permits it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) body: Bytes,
    pub(super) failure: Failure,
    /// Whether the credentials came with the request of a caller.
    pub(super) of_request: bool,
}

impl Answer {
    pub(crate) fn missing(&self) -> bool {
        self.failure.status == Some(404)
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.failure.request_id.as_deref()
    }

    /// Describes the exchange for an error.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Returns [`Self::failure`].
    pub(crate) fn into_failure(self) -> Failure {
        self.failure
    }

    /// The length of the body.
    pub(crate) fn size(&self) -> usize {
        self.body.len()
    }

    pub(crate) fn json<T: DeserializeOwned>(self) -> Result<T, CloudError> {
        self.decode_with(PhantomData)
    }

    /// Decodes the body with a seed, which may decode the parts of a large body one by one.
    pub(crate) fn decode_with<'a, S: DeserializeSeed<'a>>(&'a self, seed: S) -> Result<S::Value, CloudError> {
        let mut json = serde_json::Deserializer::from_slice(&self.body);
        let decoded = seed.deserialize(&mut json);
        let decoded = decoded.and_then(|value| json.end().map(|()| value));
        decoded.map_err(|error| undocumented(self.failure.clone(), fault::decode_text(self.of_request, &error)))
    }

    /// Decodes the resource that was requested by its id, which `id_of` returns. An answer with another resource is
    /// an error, because the requested resource may have another status and another size.
    pub(crate) fn resource<T: DeserializeOwned>(self, id: &str, id_of: fn(&T) -> &str) -> Result<T, CloudError> {
        let failure = self.failure.clone();
        let resource: T = self.json()?;
        let returned = id_of(&resource);
        // The databases of OpenStack compare ids without case.
        if returned.eq_ignore_ascii_case(id) {
            return Ok(resource);
        }
        let [returned, requested] = [returned, id].map(|id| UntrustedText::with_limit(id, LONGEST_ID).quoted());
        let fault = format!("the answer has the resource with id {returned}, and id {requested} was requested");
        Err(undocumented(failure, fault))
    }
}

#[cfg(test)]
impl Answer {
    /// A response with this body, as a service sends it.
    pub(crate) fn with_body(operation: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            failure: Failure {
                operation,
                object: "volumes".to_owned(),
                status: Some(200),
                fault: String::new(),
                request_id: Some("req-1".to_owned()),
                elapsed: std::time::Duration::ZERO,
            },
            of_request: false,
        }
    }
}

/// Records and returns the error of an answer that differs from the documentation of the API.
fn undocumented(failure: Failure, fault: String) -> CloudError {
    let operation = failure.operation;
    let error = CloudError::Decode(Failure { fault, ..failure });
    last_failure::met(operation, &error);
    error
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Named {
        id: String,
    }

    fn read_resource(body: &'static str, id: &str) -> Result<Named, CloudError> {
        let answer = Answer::with_body("volume_get", body);
        answer.resource(id, |named: &Named| named.id.as_str())
    }

    #[rstest]
    #[case(r#"{"id":"abc"}"#)]
    #[case(r#"{"id":"ABC"}"#)]
    fn answer_with_requested_id_is_accepted(#[case] body: &'static str) {
        assert!(read_resource(body, "abc").is_ok());
    }

    #[rstest]
    #[case(r#"{"id":"abd"}"#, r#""abd""#)]
    #[case(r#"{"id":""}"#, r#""""#)]
    #[case(r#"{"id":"a\u001bb\"c"}"#, r#""a\u{1b}b\"c""#)]
    fn answer_with_another_id_is_refused(#[case] body: &'static str, #[case] returned: &str) {
        let error = read_resource(body, "abc").expect_err("another resource");
        assert!(matches!(error, CloudError::Decode(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(returned) && text.contains(r#""abc""#), "{text}");
    }
}
