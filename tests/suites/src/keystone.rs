// SPDX-License-Identifier: Apache-2.0
//! A session of a Keystone user, for requests of the tests themselves.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cloud::client;
use crate::openstack::{USER_AGENT, keys};

/// A user with a token.
#[derive(Clone)]
pub struct Keystone {
    pub(crate) http: reqwest::Client,
    url: String,
    token: String,
    document: Value,
}

impl std::fmt::Debug for Keystone {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Keystone")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Keystone {
    /// Logs in to a project with the `cloud.conf`, by password or application credential.
    pub async fn login(cloud_conf: &Path) -> Result<Self> {
        Self::login_to(cloud_conf, true).await
    }

    /// Logs in by password without a scope, for a user without a role in any project.
    pub async fn login_unscoped(cloud_conf: &Path) -> Result<Self> {
        Self::login_to(cloud_conf, false).await
    }

    async fn login_to(cloud_conf: &Path, to_project: bool) -> Result<Self> {
        let keys = keys(cloud_conf)?;
        let key = |name: &str| {
            keys.get(name)
                .map(String::as_str)
                .with_context(|| format!("{} has no {name}", cloud_conf.display()))
        };
        let (http, url) = (client()?, key("auth-url")?.to_owned());
        let answer = http
            .post(format!("{url}/auth/tokens"))
            .header("User-Agent", USER_AGENT)
            .json(&json!({ "auth": auth(&key, to_project)? }))
            .send()
            .await
            .with_context(|| format!("{url} does not answer"))?;
        if !answer.status().is_success() {
            bail!("{url}: {}", answer.status());
        }
        let token = answer
            .headers()
            .get("X-Subject-Token")
            .and_then(|token| token.to_str().ok())
            .context("Keystone answers without a token")?
            .to_owned();
        let mut body: Value = answer.json().await.context("the token is no JSON")?;
        let document = body["token"].take();
        Ok(Self {
            http,
            url,
            token,
            document,
        })
    }

    /// Returns the token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the service catalog of the token.
    pub(crate) fn catalog(&self) -> &Value {
        &self.document["catalog"]
    }

    /// Returns the id of the token's `user` or `project`.
    pub fn id(&self, of: &str) -> Result<&str> {
        let id = self.document[of]["id"].as_str();
        id.with_context(|| format!("a token without a {of}"))
    }

    /// Creates an application credential of the user, with access rules or unrestricted. Returns id and secret.
    pub async fn application_credential(&self, name: &str, rules: Option<&[Value]>) -> Result<(String, String)> {
        let mut credential = json!({ "name": name });
        if let Some(rules) = rules {
            credential["access_rules"] = json!(rules);
        }
        let path = format!("users/{}/application_credentials", self.id("user")?);
        let made = self
            .post(&path, &json!({ "application_credential": credential }))
            .await?;
        let text = |key: &str| made["application_credential"][key].as_str().map(str::to_owned);
        text("id").zip(text("secret")).context("no application credential")
    }

    /// Revokes an application credential of the user.
    pub async fn revoke(&self, id: &str) -> Result<()> {
        let path = format!("users/{}/application_credentials/{id}", self.id("user")?);
        self.send(Method::DELETE, &path, None).await.map(drop)
    }

    /// Creates a resource.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.send(Method::POST, path, Some(body)).await?;
        answer.json().await.with_context(|| format!("{path}: no JSON"))
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<reqwest::Response> {
        let url = format!("{}/{path}", self.url);
        let mut request = self
            .http
            .request(method.clone(), &url)
            .header("X-Auth-Token", &self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("{method} {url}: no answer"))?;
        let status = answer.status();
        // A successful response may contain a secret, so it is not printed.
        ensure!(status.is_success(), "{method} {url}: {status} {}", answer.text().await?);
        Ok(answer)
    }
}

fn auth<'a>(key: &impl Fn(&str) -> Result<&'a str>, to_project: bool) -> Result<Value> {
    if let Ok(id) = key("application-credential-id") {
        let secret = key("application-credential-secret")?;
        return Ok(json!({ "identity": {
            "methods": ["application_credential"],
            "application_credential": { "id": id, "secret": secret },
        }}));
    }
    let domain = json!({ "name": key("domain-name")? });
    let user = json!({ "name": key("username")?, "password": key("password")?, "domain": domain });
    let mut auth = json!({ "identity": { "methods": ["password"], "password": { "user": user } } });
    if to_project {
        auth["scope"] = json!({ "project": { "name": key("tenant-name")?, "domain": domain } });
    }
    Ok(auth)
}
