// SPDX-License-Identifier: Apache-2.0
//! Properties of an application credential, from Keystone.

use jiff::Timestamp;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Keystone, Token};
use crate::error::{CloudError, Failure};
use crate::http::client::{request_id, retry_after};
use crate::http::fault;
use crate::http::throttle::limit_pause;
use crate::timestamp::parse_timestamp;

/// The properties of an application credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialFacts {
    pub name: String,
    /// The time of expiry; `None` for a credential that does not expire.
    pub expires_at: Option<Timestamp>,
}

const OPERATION: &str = "application_credential_get";

#[derive(Deserialize)]
struct CredentialBody {
    application_credential: Document,
}

#[derive(Deserialize)]
struct CredentialListBody {
    application_credentials: Vec<Document>,
}

#[derive(Deserialize)]
struct Document {
    name: String,
    #[serde(default)]
    expires_at: Option<String>,
}

impl From<Document> for CredentialFacts {
    fn from(document: Document) -> Self {
        Self {
            name: document.name,
            expires_at: document.expires_at.as_deref().and_then(parse_timestamp),
        }
    }
}

impl Keystone {
    /// Gets the application credential with this id, which belongs to the token's user.
    pub(crate) async fn application_credential(
        &self,
        token: &Token,
        id: &str,
    ) -> Result<Option<CredentialFacts>, CloudError> {
        let path = ["users", &token.user_id, "application_credentials", id];
        let body: CredentialBody = self.get(token, &path, None).await?;
        Ok(Some(body.application_credential.into()))
    }

    /// Gets the application credential with this name, which is unique for a user.
    pub(crate) async fn application_credential_named(
        &self,
        token: &Token,
        name: &str,
    ) -> Result<Option<CredentialFacts>, CloudError> {
        let path = ["users", &token.user_id, "application_credentials"];
        let body: CredentialListBody = self.get(token, &path, Some(("name", name))).await?;
        let mut all = body.application_credentials.into_iter();
        Ok(all
            .find(|credential| credential.name == name)
            .map(CredentialFacts::from))
    }

    async fn get<T: DeserializeOwned>(
        &self,
        token: &Token,
        path: &[&str],
        query: Option<(&str, &str)>,
    ) -> Result<T, CloudError> {
        let started = Instant::now();
        let failure = |status: Option<u16>, fault: String, request_id: Option<String>| Failure {
            operation: OPERATION,
            object: "the application credential in use".to_owned(),
            status,
            fault,
            request_id,
            elapsed: started.elapsed(),
        };
        let mut url = keystone_url(&self.url, path);
        if let Some((key, value)) = query {
            url.query_pairs_mut().append_pair(key, value);
        }
        let request = http::Request::get(url.as_str()).header("x-auth-token", token.header.clone());
        let answer = self.http.send(OPERATION, request, None).await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.observer.request("identity", OPERATION, code, started.elapsed());
        let answer = answer.map_err(|error| error.into_cloud_error(|fault| failure(None, fault, None)))?;
        let (headers, body) = (answer.headers(), answer.body());
        let id = request_id(headers);
        if !answer.status().is_success() {
            let failure = failure(Some(code), fault::text_for(self.of_request, code, body), id);
            return Err(fault::classify(
                failure,
                limit_pause(retry_after(headers, self.sources.now())),
            ));
        }
        serde_json::from_slice(body).map_err(|error| {
            let fault = fault::decode_text(self.of_request, &error);
            CloudError::Decode(failure(Some(code), fault, id.clone()))
        })
    }
}

/// The URL of `path` at the same API root as `auth/tokens`.
fn keystone_url(tokens: &Url, path: &[&str]) -> Url {
    let mut url = tokens.clone();
    // A URL with a host always has path segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop().pop().extend(path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_share_api_root_with_tokens() {
        let tokens = Url::parse("https://keystone.example/identity/v3/auth/tokens").expect("url");
        let url = keystone_url(&tokens, &["users", "u", "application_credentials", "c"]);
        assert_eq!(
            url.as_str(),
            "https://keystone.example/identity/v3/users/u/application_credentials/c"
        );
    }
}
