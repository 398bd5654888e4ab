// SPDX-License-Identifier: Apache-2.0
//! A minimal OpenStack client for requests of the tests themselves.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::Value;

use crate::keystone::Keystone;

/// User-Agent of this client.
pub const USER_AGENT: &str = "suites";

/// A service of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Cinder.
    Volume,
    /// Nova.
    Compute,
}

impl Service {
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Volume => &["block-storage", "volumev3"],
            Self::Compute => &["compute"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Compute => "compute",
        }
    }

    /// The microversion of most requests.
    const fn microversion(self) -> &'static str {
        match self {
            Self::Volume => "3.60",
            Self::Compute => "2.89",
        }
    }
}

/// A response with any status.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body; `Null` if empty, a string if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// Fails unless the request was accepted.
    pub fn accepted(self) -> Result<Value> {
        ensure!(
            (200..300).contains(&self.status),
            "answered {}: {}",
            self.status,
            self.body
        );
        Ok(self.body)
    }
}

/// A session of a cloud's user.
#[derive(Clone)]
pub struct Api {
    keystone: Keystone,
    endpoints: BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Api")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// Logs in with a `cloud.conf`, by password or application credential.
    pub async fn login(cloud_conf: &Path) -> Result<Self> {
        let keystone = Keystone::login(cloud_conf).await?;
        let mut endpoints = BTreeMap::new();
        for service in [Service::Volume, Service::Compute] {
            endpoints.insert(service.name(), endpoint(keystone.catalog(), service)?);
        }
        Ok(Self { keystone, endpoints })
    }

    /// Sends one request.
    pub async fn call(&self, method: Method, service: Service, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.call_version(method, service, path, service.microversion(), body)
            .await
    }

    /// Sends one request that must be accepted, and returns the body of the response.
    pub async fn send(&self, method: Method, service: Service, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.call(method.clone(), service, path, body).await?;
        answer.accepted().with_context(|| format!("{method} {path}"))
    }

    /// Returns the body of an accepted GET request.
    pub async fn get(&self, service: Service, path: &str) -> Result<Value> {
        self.send(Method::GET, service, path, None).await
    }

    /// Returns a volume.
    pub async fn volume(&self, id: &str) -> Result<Value> {
        let mut body = self.get(Service::Volume, &format!("/volumes/{id}")).await?;
        Ok(body["volume"].take())
    }

    /// Requests an action of a volume.
    pub async fn volume_action(&self, id: &str, body: &Value) -> Result<()> {
        let path = format!("/volumes/{id}/action");
        self.send(Method::POST, Service::Volume, &path, Some(body))
            .await
            .map(drop)
    }

    /// Requests an action of a server.
    pub async fn server_action(&self, id: &str, body: &Value) -> Result<()> {
        let path = format!("/servers/{id}/action");
        self.send(Method::POST, Service::Compute, &path, Some(body))
            .await
            .map(drop)
    }

    async fn call_version(
        &self,
        method: Method,
        service: Service,
        path: &str,
        microversion: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let endpoint = self.endpoints.get(service.name()).context("no such service")?;
        let url = format!("{endpoint}{path}");
        let mut request = self
            .keystone
            .http
            .request(method.clone(), &url)
            .header("User-Agent", USER_AGENT)
            .header("X-Auth-Token", self.keystone.token())
            .header("OpenStack-API-Version", format!("{} {microversion}", service.name()));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("{method} {url}: no answer"))?;
        let status = answer.status().as_u16();
        let headers = answer
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let text = answer.text().await.with_context(|| format!("{method} {url}: cut"))?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Answer { status, headers, body })
    }

    /// Returns kinds and names of all resources of this project in Cinder.
    pub async fn block_storage(&self) -> Result<Vec<String>> {
        let mut resources = Vec::new();
        for kind in ["volumes", "snapshots", "backups", "groups", "group_snapshots"] {
            resources.extend(self.list(kind).await?.iter().map(|thing| {
                let field = |name: &str| thing[name].as_str().unwrap_or_default().to_owned();
                format!("{kind}/{} {} ({})", field("id"), field("name"), field("status"))
            }));
        }
        Ok(resources)
    }

    /// Returns all resources of a kind of this project in Cinder, with details.
    pub async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let path = format!("/{kind}/detail");
        let answer = self
            .call_version(Method::GET, Service::Volume, &path, "3.71", None)
            .await?;
        let mut list = answer.accepted().with_context(|| format!("the list of {kind}"))?;
        match list[kind].take() {
            Value::Array(things) => Ok(things),
            _ => bail!("no list of {kind}"),
        }
    }
}

/// Returns the keys of all sections of a `cloud.conf`.
pub fn keys(cloud_conf: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(cloud_conf).with_context(|| format!("cannot read {}", cloud_conf.display()))?;
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let keys = lines.map(|(key, value)| (key.trim().to_owned(), value.trim().trim_matches('"').to_owned()));
    Ok(keys.collect())
}

fn endpoint(catalog: &Value, service: Service) -> Result<String> {
    let services = catalog.as_array().context("the token has no catalog")?;
    let entry = services
        .iter()
        .find(|entry| service.types().iter().any(|kind| entry["type"] == **kind))
        .with_context(|| format!("the catalog has no {}", service.name()))?;
    let public = entry["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|endpoint| endpoint["interface"] == "public");
    let url = public.and_then(|endpoint| endpoint["url"].as_str());
    Ok(url
        .context("a service without an address")?
        .trim_end_matches('/')
        .to_owned())
}
